"""Tables of classes import a class when it is looked up, and not before."""

import sys
from collections import Counter

import pytest

from cometad.errors import MissingExtraError
from cometad.lazy import LazyTable


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table with a class that is imported, one that is not yet, and one that needs a missing package."""
    (tmp_path / "lazy_example.py").write_text("class Late:\n    pass\n")
    (tmp_path / "needs_torch_example.py").write_text("import torch\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lazy_example", raising=False)
    monkeypatch.delitem(sys.modules, "needs_torch_example", raising=False)
    rows = {"counter": Counter, "late": "lazy_example:Late", "deep": "needs_torch_example:Deep"}
    return LazyTable("example", rows)


def test_names_are_known_without_importing(table):
    assert list(table) == ["counter", "late", "deep"]
    assert len(table) == 3
    assert "late" in table
    assert "early" not in table
    assert table.name_of("Late") == "late"
    assert table.name_of("Counter") == "counter"
    assert table.name_of("Early") is None
    assert "lazy_example" not in sys.modules


def test_a_class_is_imported_once_and_stays(table):
    assert table["late"].__name__ == "Late"
    assert table["late"] is table.get("late")
    assert table["counter"] is Counter
    with pytest.raises(KeyError):
        table["early"]


def test_a_row_can_be_replaced_and_removed(table):
    table["late"] = dict
    del table["deep"]
    assert dict(table) == {"counter": Counter, "late": dict}


def test_a_missing_package_is_named_with_its_extra(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    words = r"The example 'deep' needs torch\. Install it with pip install 'cometad\[torch\]'\."
    with pytest.raises(MissingExtraError, match=words):
        table["deep"]


def test_another_missing_module_is_a_bug(table):
    table.rows["broken"] = "no_such_module:Thing"
    with pytest.raises(ModuleNotFoundError, match="no_such_module") as caught:
        table["broken"]
    assert not isinstance(caught.value, MissingExtraError)

"""The public names of `cometad`, and those that 0.1 exported."""

import importlib
import subprocess
import sys

import pytest

import cometad

# Everything the root exported in 0.1; these names work until 0.3.
# fmt: off
NAMES_OF_0_1 = {
    "ABLATIONS", "Alerts", "AllVariables", "BASELINES", "BudgetSelection", "Comet", "CometadError",
    "Conformal", "DriftingSpot", "EmaMinMax", "Epochs", "Event", "ForwardFill", "Halving", "HighestVariables",
    "Interpolate", "NoAdaptation", "NoCalibration", "NoNormalization", "OneCycle", "OnlineAdaptation",
    "PercentileSelection", "Quantile", "RefuseGaps", "Scored", "ScoreMeasured", "Spot", "Stream",
    "TrainingCalibration", "TrainingNormalization", "resample",
}
# fmt: on


def test_every_public_name_has_a_docstring_with_an_example():
    for name in cometad.__all__:
        thing = getattr(cometad, name)
        if name != "BASELINES":  # a table
            assert ">>>" in thing.__doc__ or issubclass(thing, Exception), name


def test_the_root_exports_few_names():
    assert len(cometad.__all__) <= 13


def test_every_public_name_of_0_1_still_exists():
    assert NAMES_OF_0_1.difference(cometad.__all__, cometad._MOVED) == set()


@pytest.mark.parametrize("name", cometad._MOVED)
def test_a_moved_name_works_and_warns(name):
    home = f"cometad.{cometad._MOVED[name]}"
    with pytest.warns(DeprecationWarning, match=f"cometad.{name} moved to {home}.{name};.* 0.3"):
        moved = getattr(cometad, name)
    assert moved is getattr(importlib.import_module(home), name)
    assert name not in dir(cometad)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Comett'"):
        cometad.Comett


def test_importing_the_package_does_not_import_torch():
    code = "import sys, cometad; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_every_name_in_dir_works_without_a_further_import():
    code = "import cometad; [getattr(cometad, name) for name in dir(cometad)]"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0

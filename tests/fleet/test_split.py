"""A table is split by entity in blocks, and every entity gets the rows that it has in the table."""

from datetime import datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad.data.dialect import Dialect
from cometad.data.joined import Tables
from cometad.errors import InputError
from cometad.fleet.sources import ReadOptions, entities_of
from cometad.fleet.split import SplitTable, rows_of
from fleet_case import machines


def split(path, folder, buffer=2**20):
    tables = Tables(path, (), Dialect(), text=("machine",))
    return SplitTable.of(tables, "machine", folder, "signature", buffer=buffer)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_entity_has_its_rows_in_the_order_of_the_table_however_small_the_buffer(ending, tmp_path, monkeypatch):
    monkeypatch.setattr("cometad.fleet.split.ROWS", 64)
    table = machines(5, rows=70)
    getattr(table, f"write_{ending}")(tmp_path / f"table.{ending}")
    found = split(tmp_path / f"table.{ending}", tmp_path / "scratch", buffer=1)
    assert all(len(segments) > 1 for segments in found.segments.values())
    for name, segments in found.segments.items():
        wanted = table.filter(pl.col("machine") == name)
        assert rows_of(found.data, segments)["flow"].to_list() == wanted["flow"].to_list()


def test_a_table_that_is_split_already_is_not_read_again(tmp_path):
    machines(3, rows=20).write_csv(tmp_path / "table.csv")
    first = split(tmp_path / "table.csv", tmp_path / "scratch")
    before = first.data.stat().st_mtime_ns
    assert split(tmp_path / "table.csv", tmp_path / "scratch").segments == first.segments
    assert first.data.stat().st_mtime_ns == before


@pytest.mark.parametrize("size", [16, 22, 1000])
@pytest.mark.parametrize("mark", [".", ","])
def test_a_word_concerns_only_its_own_entity(size, mark, tmp_path, monkeypatch):
    monkeypatch.setattr("cometad.fleet.split.ROWS", size)
    rows = [f"{'ab'[k % 2]};{k}{mark}5" for k in range(64)] + ["b;Bad"]
    (tmp_path / "table.csv").write_text("machine;flow\n" + "\n".join(rows) + "\n")
    with entities_of(tmp_path / "table.csv", "machine", ReadOptions()) as found:
        assert found.readings["a"].open().values[:, 0].tolist() == [k + 0.5 for k in range(0, 64, 2)]
        with pytest.raises(InputError, match=r"'flow' is not numeric: it has .*Bad.* in row 33 of entity 'b'"):
            found.readings["b"].open()


def test_dates_written_as_text_and_days_first_are_read_per_entity(tmp_path):
    (tmp_path / "table.csv").write_text("machine;time;flow\na;31.03.2026 04:10;1,5\na;31.03.2026 04:11;2,5\n")
    with entities_of(tmp_path / "table.csv", "machine", ReadOptions()) as found:
        series = found.readings["a"].open()
    assert series.values[:, 0].tolist() == [1.5, 2.5]
    assert series.times[0].astype("datetime64[s]").item() == datetime(2026, 3, 31, 4, 10)


@given(names=st.lists(st.text(min_size=1, max_size=8).filter(str.strip), min_size=1, max_size=6, unique=True))
def test_any_text_can_name_an_entity(names, tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    pl.DataFrame({"machine": names * 2, "flow": range(2 * len(names))}).write_parquet(folder / "table.parquet")
    with entities_of(folder / "table.parquet", "machine", ReadOptions()) as found:
        assert sorted(found.readings) == sorted(names)
        assert [len(readings.open()) for readings in found.readings.values()] == [2] * len(names)


def test_resampling_applies_to_each_entity(tmp_path):
    machines(2, rows=60).write_parquet(tmp_path / "table.parquet")
    with entities_of(tmp_path / "table.parquet", "machine", ReadOptions(resample="10min:mean")) as found:
        assert [len(readings.open()) for readings in found.readings.values()] == [6, 6]

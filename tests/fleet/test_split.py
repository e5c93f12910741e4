"""A table is split by entity in blocks, and every entity gets the rows that it has in the table."""

import subprocess
import sys
from datetime import datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad.data.tables import ReadOptions, TableReader
from cometad.errors import InputError
from cometad.fleet.entities import entities_of
from cometad.fleet.split import DATA, rows_of, split_table
from fleet_case import machines


def split(path, folder, buffer=2**20):
    reader = TableReader(path, text=("machine",))
    return split_table(reader, "machine", folder, "signature", buffer=buffer)


def opened(path, **options):
    """The series of each entity."""
    with entities_of(path, "machine", ReadOptions(**options)) as found:
        return {name: readings.open() for name, readings in found.items()}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_entity_has_its_rows_in_the_order_of_the_table_however_small_the_buffer(ending, tmp_path, monkeypatch):
    monkeypatch.setattr("cometad.fleet.split.ROWS", 64)
    table = machines(5, rows=70)
    getattr(table, f"write_{ending}")(tmp_path / f"table.{ending}")
    found = split(tmp_path / f"table.{ending}", tmp_path / "scratch", buffer=1)
    assert all(len(segments) > 1 for segments in found.values())
    for name, segments in found.items():
        wanted = table.filter(pl.col("machine") == name)
        assert rows_of(tmp_path / "scratch" / DATA, segments)["flow"].to_list() == wanted["flow"].to_list()


def test_a_table_that_is_split_already_is_not_read_again(tmp_path):
    machines(3, rows=20).write_csv(tmp_path / "table.csv")
    first = split(tmp_path / "table.csv", tmp_path / "scratch")
    before = (tmp_path / "scratch" / DATA).stat().st_mtime_ns
    assert split(tmp_path / "table.csv", tmp_path / "scratch") == first
    assert (tmp_path / "scratch" / DATA).stat().st_mtime_ns == before


@pytest.mark.parametrize("size", [16, 22, 1000])
@pytest.mark.parametrize("mark", [".", ","])
def test_a_word_concerns_only_its_own_entity(size, mark, tmp_path, monkeypatch):
    monkeypatch.setattr("cometad.fleet.split.ROWS", size)
    rows = [f"{'ab'[k % 2]};{k}{mark}5" for k in range(64)] + ["b;Bad"]
    (tmp_path / "table.csv").write_text("machine;flow\n" + "\n".join(rows) + "\n")
    with entities_of(tmp_path / "table.csv", "machine", ReadOptions()) as found:
        assert found["a"].open().values[:, 0].tolist() == [k + 0.5 for k in range(0, 64, 2)]
        with pytest.raises(InputError, match=r"'flow' is not numeric: it has .*Bad.* in row 33 of entity 'b'"):
            found["b"].open()


def test_dates_written_as_text_and_days_first_are_read_per_entity(tmp_path):
    (tmp_path / "table.csv").write_text("machine;time;flow\na;31.03.2026 04:10;1,5\na;31.03.2026 04:11;2,5\n")
    series = opened(tmp_path / "table.csv")["a"]
    assert series.values[:, 0].tolist() == [1.5, 2.5]
    assert series.times[0].astype("datetime64[s]").item() == datetime(2026, 3, 31, 4, 10)


@given(names=st.lists(st.text(min_size=1, max_size=8).filter(str.strip), min_size=1, max_size=6, unique=True))
def test_any_text_can_name_an_entity(names, tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    pl.DataFrame({"machine": names * 2, "flow": range(2 * len(names))}).write_parquet(folder / "table.parquet")
    assert {name: len(series) for name, series in opened(folder / "table.parquet").items()} == dict.fromkeys(names, 2)


def test_resampling_applies_to_each_entity(tmp_path):
    machines(2, rows=60).write_parquet(tmp_path / "table.parquet")
    found = opened(tmp_path / "table.parquet", resample="10min:mean")
    assert [len(series) for series in found.values()] == [6, 6]


@pytest.mark.parametrize("folders", [("date={day}", "machine={name}"), ("machine={name}", "date={day}")])
def test_partitioned_folders_name_the_entity_at_any_depth(folders, tmp_path):
    for name in ("a", "b"):
        for day in range(1, 4):
            folder = tmp_path.joinpath("data", *(part.format(name=name, day=day) for part in folders))
            folder.mkdir(parents=True)
            pl.DataFrame({"flow": [day + (name == "b") * 10.0] * 2}).write_parquet(folder / "part-0.parquet")
    with entities_of(tmp_path / "data", "machine", ReadOptions()) as found:
        assert found["a"].open().values[:, 0].tolist() == [1, 1, 2, 2, 3, 3]
        assert found["b"].carried().open().values[:, 0].tolist() == [11, 11, 12, 12, 13, 13]


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_partition_without_a_name_is_refused(value, tmp_path):
    (tmp_path / f"machine={value}").mkdir()
    pl.DataFrame({"flow": [1.0]}).write_parquet(tmp_path / f"machine={value}" / "part-0.parquet")
    with pytest.raises(InputError, match="names no entity"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "column, names",
    [
        (pl.Series([7, 10]), ["10", "7"]),
        (pl.Series([7.0, 10.0]), ["10", "7"]),
        (pl.Series([7.5, 1e300]), ["1e+300", "7.5"]),
        (pl.Series(["007", "x"], dtype=pl.Categorical), ["007", "x"]),
    ],
)
def test_numbers_name_entities_as_they_are_written(column, names, tmp_path):
    pl.DataFrame({"machine": column, "flow": [1.0, 2.0]}).write_parquet(tmp_path / "table.parquet")
    assert list(opened(tmp_path / "table.parquet")) == names


@pytest.mark.parametrize(
    "column, words",
    [
        (pl.Series([7.0, float("nan")]), "The column 'machine' is empty in row 2 of"),
        (pl.Series([7.0, None]), "The column 'machine' is empty in row 2 of"),
        (pl.Series(["", "x"]), "The column 'machine' is empty in row 1 of"),
        (pl.Series([[1], [2]]), r"holds values of type List\(Int64\), which cannot name entities"),
        (pl.Series([b"a", b"b"]), "holds values of type Binary, which cannot name entities"),
    ],
)
def test_what_names_no_entity_is_refused(column, words, tmp_path):
    pl.DataFrame({"machine": column, "flow": [1.0, 2.0]}).write_parquet(tmp_path / "table.parquet")
    with pytest.raises(InputError, match=words):
        opened(tmp_path / "table.parquet")


def test_a_column_that_is_empty_at_first_holds_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("cometad.fleet.split.ROWS", 8)
    rows = [f"{'ab'[k % 2]},{k},{k / 2 if k >= 24 else ''}" for k in range(64)]
    (tmp_path / "table.csv").write_text("machine,level,flow\n" + "\n".join(rows) + "\n")
    found = split(tmp_path / "table.csv", tmp_path / "scratch", buffer=1)
    flow = rows_of(tmp_path / "scratch" / DATA, found["a"])["flow"]
    assert flow.to_list() == [None] * 12 + [k / 2 for k in range(24, 64, 2)]


def test_an_interrupted_split_leaves_no_index_of_another_table(tmp_path, monkeypatch):
    machines(3, rows=20).write_csv(tmp_path / "table.csv")
    split(tmp_path / "table.csv", tmp_path / "scratch")
    (tmp_path / "other.csv").write_text("machine,flow\na,1\n,2\n")
    with pytest.raises(InputError, match="is empty in row 3"):
        split_table(TableReader(tmp_path / "other.csv", text=("machine",)), "machine", tmp_path / "scratch", "other")
    again = split(tmp_path / "table.csv", tmp_path / "scratch")
    assert all(len(rows_of(tmp_path / "scratch" / DATA, segments)) == 20 for segments in again.values())


SPLIT = """
import re, sys
from pathlib import Path

import cometad.fleet.split
from cometad.data.tables import ReadOptions
from cometad.fleet.entities import entities_of

cometad.fleet.split.ROWS = 2**12
for name in ("small", "many"):
    with entities_of(f"{sys.argv[1]}/{name}.parquet", "machine", ReadOptions()) as found:
        peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())  # in KiB
        print(len(found), int(peak[1]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_depends_on_the_rows_and_not_on_the_number_of_entities(tmp_path):
    table = pl.DataFrame({"machine": [f"{k % 2_000:05}" for k in range(80_000)]})
    table = table.with_columns(pl.lit(1.0).alias(f"v{k}") for k in range(20))
    table.write_parquet(tmp_path / "many.parquet")
    table[:10].write_parquet(tmp_path / "small.parquet")
    command = [sys.executable, "-c", SPLIT, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert answer[0::2] == ["10", "2000"]
    assert int(answer[3]) - int(answer[1]) < 200  # MiB, for 13 MiB of rows

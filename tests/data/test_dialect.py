"""Tables as they are found: separators, decimal commas, encodings, dates, several files, compression."""

import gzip
import io
import math
from datetime import datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from cometad.data.dialect import Dialect
from cometad.data.tables import read_table, table_chunks
from cometad.errors import InputError, ParameterError
from cometad.series import as_series
from tables_case import read, refused


@pytest.fixture
def table(tmp_path):
    """Read a table in every way."""

    def parsed(content, dialect=Dialect(), name="plant.csv", **more):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return read(tmp_path / name, dialect=dialect, **more)

    return parsed


@pytest.fixture
def bad(tmp_path):
    """Check that a table is refused in every way; `{path}` in the words is its path."""

    def check(content, words, dialect=Dialect(), **more):
        path = tmp_path / "plant.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return refused(path, words.format(path=path), dialect=dialect, **more)

    return check


# --- separator and decimal mark ---------------------------------------------------------------------------------------


def test_a_decimal_comma_is_recognized_far_down_and_in_quotes(table):
    rows = table("flow;level\n" + "1;2\n" * 20 + "1,5;2\n").rows()
    assert rows[-1] == (1.5, 2.0)
    assert table('flow,level\n"1,5",2\n').rows() == [(1.5, 2.0)]


def test_a_separator_and_a_decimal_mark_can_be_given(table, bad):
    assert table("flow rate:a,b\n1:2\n", Dialect(separator=":")).columns == ["flow rate", "a,b"]
    assert table("flow level\n1 2\n", Dialect(separator="space")).rows() == [(1.0, 2.0)]
    assert table("flow;level\n1,234;2\n", Dialect(decimal=",")).rows() == [(1.234, 2.0)]
    bad("flow;level\n1,234;2\n", "it has '1,234' in row 2 of '{path}'", Dialect(decimal="."))
    words = "it has '2.5' in row 3 of '{path}', whose point may be a decimal mark or sep"
    bad("flow,level\n1,2\n1,2.5\n", words, Dialect(decimal=","), sizes=[None, 2])


@pytest.mark.parametrize(
    "text",
    [
        'flow,b\n"1,234",1\n999,2\n"1,100",3\n',
        "flow;b\n1,234;1\n999;2\n",
        "flow;b\n999;1\n-12,345;2\n",
        "flow;b\n1,234;1.5\n999;2\n",
        "flow;b\n1,234;1\n1,234,567;2\n",
    ],
)
def test_a_comma_that_may_separate_thousands_is_refused_with_advice(bad, text):
    advice = bad(text, "Column 'flow' is not numeric: it has '").advice
    assert advice == "decimal" or "1,234,567" in text


@pytest.mark.parametrize(
    "text, rows",
    [
        ("flow;b\n1,234;1\n999;2\n0,5;3\n", [(1.234, 1.0), (999.0, 2.0), (0.5, 3.0)]),
        ("flow;b\n1,234;1\n12,345;0,001\n", [(1.234, 1.0), (12.345, 0.001)]),
        ("flow;b\n1,234;1\n1234,567;2\n", [(1.234, 1.0), (1234.567, 2.0)]),
        ('flow,b\n"1,234",1\n2,"1,5"\n', [(1.234, 1.0), (2.0, 1.5)]),
        ("flow;b\n1e3;1,5\n2;2\n", [(1000.0, 1.5), (2.0, 2.0)]),
    ],
)
def test_the_whole_file_decides_what_a_comma_means(table, text, rows):
    assert table(text).rows() == rows


@pytest.mark.parametrize(
    "text", ["flow;b\n1.234;1,5\n999;2,5\n12.345;2\n", "flow;b\n1.000;1\n2.000;2\n3;0,5\n", "a;b\n 1.234;0,5\n;1\n"]
)
def test_one_file_has_one_decimal_mark(bad, text):
    assert bad(text, "a decimal point and with a decimal comma: '1.").advice == "decimal"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"separator": "ab"}, "Cannot separate cells with 'ab'"),
        ({"separator": "."}, "Cannot separate cells"),
        ({"decimal": "x"}, "must be . or a comma"),
        ({"separator": ",", "decimal": ","}, "cannot both be ','"),
        ({"encoding": "utf-88"}, "Unknown encoding 'utf-88'"),
        ({"date_order": "year-last"}, "Unknown date order 'year-last'"),
    ],
)
def test_a_bad_dialect_is_refused(given, words):
    with pytest.raises(ParameterError, match=words):
        Dialect(**given)


# --- encoding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"])
def test_the_encoding_is_recognized(table, encoding):
    frame = table("flow,Wärme °C\r\n1,2\r\n3,4\r\n".encode(encoding))
    assert frame.columns == ["flow", "Wärme °C"]
    assert frame.rows() == [(1.0, 2.0), (3.0, 4.0)]


def test_a_letter_far_down_may_be_in_another_encoding(table):
    text = "flow,note\n" + "1,a\n" * 20000 + "1,Prüfung\n"
    assert table(text.encode("latin-1"))["note"][-1] == "Prüfung"


def test_an_encoding_can_be_given(table, bad):
    assert table("flow,тепло\n1,2\n".encode("cp1251"), Dialect(encoding="cp1251")).columns == ["flow", "тепло"]
    bad(b"flow,\xb0C\n1,2\n", "is not text in utf-8", Dialect(encoding="utf-8"))


def test_the_line_breaks_of_old_macs_are_understood(table):
    assert table("flow,level\r1,2\r3,4\r").rows() == [(1.0, 2.0), (3.0, 4.0)]


# --- header -----------------------------------------------------------------------------------------------------------


def test_without_a_header_the_columns_are_numbered(table):
    frame = table("2024-03-01 04:10,1.5,2\n2024-03-01 04:11,3,4\n", Dialect(header=False))
    assert frame.columns == ["v0", "v1", "v2"]
    assert as_series(frame).names == ("v1", "v2")
    assert table("1\n", Dialect(header=False)).rows() == [(1.0,)]


# --- missing and large cells ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32, pl.Int32])
def test_a_number_as_missing_marker_counts_in_parquet_too(tmp_path, dtype):
    marker = "-999" if dtype == pl.Int32 else "-99.9"
    frame = pl.DataFrame({"flow": pl.Series([1, float(marker), 2, float(marker)], strict=False).cast(dtype)})
    frame.write_parquet(tmp_path / "plant.parquet")
    whole = read(tmp_path / "plant.parquet", dialect=Dialect(missing=("Bad", marker)))
    assert whole["flow"].is_nan().to_list() == [False, True, False, True]


@pytest.mark.parametrize("cell", ["Bad", "-"])
def test_text_in_a_column_is_named_with_its_row_of_the_frame(table, cell):
    frame = table(f"flow,level\n1,2\n3,{cell}\n")
    with pytest.raises(
        InputError, match=f"Column 'level' is not numeric: it has '{cell}' in row 1 of the frame .counted from 0"
    ):
        as_series(frame)


def test_integers_that_a_float_would_round_are_refused(bad):
    for text in ("9007199254740993", "123456789012345678901"):
        bad(
            f"id,flow\n1,2\n{text},2\n",
            f"Column 'id' has {text} in row 3 of '{{path}}', an integer too large to be exact",
        )
    frame = pl.DataFrame({"id": [1, 2**53 + 1]})
    for given in (frame, frame.to_pandas(), np.array([[1], [2**53 + 1]])):
        with pytest.raises(InputError, match="an integer too large to be exact"):
            as_series(given)
    assert as_series(pl.DataFrame({"id": [1, 2**60]})).values[1, 0] == 2**60


@pytest.mark.parametrize("cell", ["9007199254740993", "-123456789012345678901", "1" + 400 * "0"])
@pytest.mark.parametrize("other", ["1.5", "nan", " 2", "1e3", "1,5"])
@pytest.mark.parametrize("decimal", [None, ","])
def test_a_large_integer_among_other_numbers_is_refused(bad, cell, other, decimal):
    if decimal == "," and other == "1.5":
        return
    words = f"Column 'a' has {cell} in row 4 of '{{path}}', an integer too large to be exact"
    bad(
        f"a;b\n{other};0\n{other};0\n{cell};1\n",
        words,
        Dialect(decimal=decimal),
        select=lambda frame: frame.fill_nan(0.0),
    )


def test_large_numbers_that_are_exact_or_no_integers_are_accepted(table):
    rows = table("a,b\n1.5,1\n9007199254740992,1\n9.007199254740993e15,1\n").rows()
    assert [row[0] for row in rows] == [1.5, 2.0**53, 9.007199254740993e15]
    assert table("time,flow\n 1709262600123457000,1\n")["time"][0].microsecond == 123457


def test_a_number_too_large_to_compute_with_is_refused_or_declared_missing(table, bad):
    bad("flow\n1e309\n", "Variable 'flow' is inf at time step 0")
    bad("flow\n1\n1e308\n", "Column 'flow' has 1e+308 in row 3 of '{path}', too large to compute with")
    assert math.isnan(table("flow\n1\n1e308\n", Dialect(missing=("1e308",)))["flow"][1])
    assert table("flow\n1e150\n").rows() == [(1e150,)]


# --- times ------------------------------------------------------------------------------------------------------------


def test_the_whole_column_decides_between_day_and_month(table):
    days = [f"{day:02}/01/2026" for day in range(1, 32)]
    frame = table("time,flow\n" + "".join(f"{day},1\n" for day in days))
    assert frame["time"][-1] == datetime(2026, 1, 31)
    assert frame["time"][1] == datetime(2026, 1, 2)


def test_a_counter_may_be_kept(tmp_path):
    (tmp_path / "labels.csv").write_text("timestamp,label\n0,1\n1,0\n")
    assert read_table(tmp_path / "labels.csv", counters=True).columns == ["timestamp", "label"]


# --- several files, compression ---------------------------------------------------------------------------------------


def test_files_decide_together_between_day_and_month(tmp_path):
    for day in (2, 13):
        (tmp_path / f"{day}.csv").write_text(f"time,flow\n{day:02}/01/2026 00:00,{day}\n{day:02}/01/2026 01:00,1\n")
    assert read_table(tmp_path)["flow"].to_list() == [2.0, 1.0, 13.0, 1.0]
    assert [len(chunk) for chunk in table_chunks(tmp_path)] == [2, 2]


def test_compressed_files_are_read(table):
    text = "flow;Wärme\n1,5;2\n" * 1 + "1;2\n" * 3000
    whole = table(text)
    assert table(gzip.compress(text.encode()), name="plant.csv.gz").equals(whole)
    assert table(pa.compress(text.encode(), codec="zstd", asbytes=True), name="plant.csv.zst").equals(whole)


def test_zstd_is_read_without_pyarrow(table, monkeypatch):
    text = "flow;Wärme\n1,5;2\n1;2\n"
    packed = pa.compress(text.encode(), codec="zstd", asbytes=True)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert table(packed, name="plant.csv.zst").rows() == [(1.5, 2.0), (1.0, 2.0)]


def test_a_damaged_zstd_file_is_refused(tmp_path):
    packed = pa.compress(b"flow\n" + b"1\n2\n" * 9999, codec="zstd", asbytes=True)
    for content in (packed[:-9], b"flow\n1\n"):
        (tmp_path / "plant.csv.zst").write_bytes(content)
        with pytest.raises(InputError, match="cannot be read"):
            read_table(tmp_path / "plant.csv.zst")


def test_standard_input_is_read_whatever_it_holds(monkeypatch):
    parquet = io.BytesIO()
    pl.DataFrame({"flow": [1.0]}).write_parquet(parquet)
    for content in (b"flow\n1\n", gzip.compress(b"flow\n1\n"), parquet.getvalue()):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert read_table("-").rows() == [(1.0,)]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(InputError, match="'standard input' is empty"):
        read_table("-")

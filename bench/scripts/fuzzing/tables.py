"""Odd tables through every verb: each gives the right result, or one sentence and exit code 2, and no partial file.

A *clean* table is written in one of the ways that cometad recognizes: separators, decimal commas, encodings, quotes,
line breaks, dates, column orders, extra columns, compression, Parquet. It must be accepted, with the scores of the
plain table. An *odd* table has wrong cells, headers, rows or types, and some have damaged bytes: it may be accepted or
refused.
"""

import contextlib
import gzip
import io
import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

from cometad import Comet
from cometad.cli import main
from cometad.views import Activity, Forecast

ROWS = 60
NAMES = ("flow", "level", "valve")
VERBS = ("score", "score", "score", "stream", "stream", "fit", "fit", "check", "evaluate", "explain", "report")
ACCEPTED, REFUSED = "accepted", "refused in one sentence"

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252")
DATES = ("%Y-%m-%dT%H:%M:%S", "%Y/%m/%d %H:%M", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M %p", "%d/%m/%Y %H:%M:%S", "%s")
CELLS = (
    *(
        "",
        "NA",
        "nan",
        "inf",
        "-inf",
        "1e309",
        "1e308",
        "-1.7e308",
        "1e-320",
        "9007199254740993",
        "9" * 40,
        "Bad",
        "-",
        "-999.0",
    ),
    *(
        "1,5",
        "1.234,5",
        "1 000",
        "1_000",
        "0x10",
        "true",
        "'1",
        '"',
        '""',
        '"1',
        "=1+1",
        "\x1b[2J",
        "\0",
        "\r",
        "é",
        "日",
    ),
    *(
        "2024-03-01",
        "31.12.2026",
        "99.99.9999",
        "24:61",
        "+",
        ".",
        ",",
        ";",
        "\t",
        "٣",
        "１",
        "½",
        "\u202e1",
        "#DIV/0!",
    ),
)
HEADERS = (
    "",
    "1",
    "1.5",
    "flow",
    "time",
    "date",
    "2024-03-01",
    "=flow",
    "\x1b[2J",
    '"',
    "v0",
    "nan",
    "x" * 2000,
    "\ufeff",
)


@dataclass
class Case:
    """One call of the command line."""

    arguments: list[str]
    content: bytes
    clean: bool
    verb: str
    name: str = "table.csv"
    standard_input: bool = False
    output: str | None = None
    notes: dict[str, object] = field(default_factory=dict)


@cache
def readings() -> pl.DataFrame:
    """The plain table, which has the detector's variables and a time, on a day that tells days from months."""
    rng = np.random.default_rng(1)
    values = np.sin(np.arange(ROWS)[:, None] / [5, 7, 9]) + 0.1 * rng.normal(size=(ROWS, 3))
    values[40, 1] = 5.0
    times = [datetime(2026, 3, 14) + timedelta(minutes=step) for step in range(ROWS)]
    return pl.DataFrame(values.round(6), schema=list(NAMES)).insert_column(0, pl.Series("time", times))


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="cometad-fuzz-")


@cache
def prepared() -> tuple[Path, list[float]]:
    """A folder with a fitted detector and a file of scores, and the alert scores of the plain table."""
    folder = Path(_folder().name)
    rng = np.random.default_rng(0)
    normal = np.sin(np.arange(400)[:, None] / [5, 7, 9]) + 0.1 * rng.normal(size=(400, 3))
    detector = Comet(views=(Forecast(4), Activity(8))).fit(pl.DataFrame(normal, schema=list(NAMES)))
    detector.save(folder / "plant.comet")
    pl.DataFrame({"label": [int(30 <= step < 45) for step in range(ROWS)]}).write_csv(folder / "labels.csv")
    return folder, detector.step_scores(readings()).alerts.tolist()


def make(rng: random.Random) -> Case:
    """A random case."""
    verb, clean = rng.choice(VERBS), rng.random() < 0.4
    if verb == "stream" and rng.random() < 0.5:
        content = _json_lines(rng, clean)
        return _case(rng, verb, content if clean else _damaged(rng, content), clean, "lines.jsonl")
    if verb != "stream" and rng.random() < 0.1:
        content = _parquet(rng, clean, verb)
        return _case(rng, verb, content if clean else _damaged(rng, content), clean, "table.parquet")
    separator = rng.choice([",", ";", "\t", "|"])
    rows, header = _cells(rng, separator, verb)
    if not clean:
        _spoil(rng, rows, header)
    quotes = rng.choice([None, None, '"'])
    lines = [separator.join(_quoted(cell, separator, quotes) for cell in row) for row in (header, *rows)]
    if not clean and rng.random() < 0.1:
        del lines[0]
    if not clean and rng.random() < 0.1:
        lines[rng.randrange(len(lines))] += separator + "1"
    text = rng.choice(["\n", "\r\n"]).join([*lines, ""])
    content = text.encode(rng.choice(ENCODINGS), errors="replace")
    if not clean:
        content = _damaged(rng, content)
    name = rng.choice(["table.csv", "table.csv", "table.csv.gz", "table.csv.zst"])
    if verb == "stream":
        name = "table.csv"
    if name.endswith(".gz"):
        content = gzip.compress(content, 1)
    if name.endswith(".zst"):
        content = pa.compress(content, codec="zstd", asbytes=True)
    if name != "table.csv" and not clean and rng.random() < 0.3:
        content = _damaged(rng, content)
    return _case(rng, verb, content, clean, name)


def _cells(rng: random.Random, separator: str, verb: str) -> tuple[list[list[str]], list[str]]:
    """The plain table in one of the ways that are recognized, as rows of cells."""
    comma, date = separator != "," and rng.random() < 0.5, rng.choice(DATES)
    columns = {name: [f"{value}".replace(".", "," if comma else ".") for value in readings()[name]] for name in NAMES}
    if rng.random() < 0.7:
        times = readings()["time"]
        unit = rng.choice([1, 10**3, 10**6, 10**9])
        written = [
            str(int(time.timestamp()) * unit) if date == "%s" else time.strftime(date) for time in times.to_list()
        ]
        columns = {"time": written, **columns}
    if rng.random() < 0.3 and verb != "fit":
        columns["Prüfung °C"] = ["ö"] * ROWS
    if verb == "evaluate":
        columns["score"] = columns["flow"]
    names = rng.sample(list(columns), len(columns)) if rng.random() < 0.5 else list(columns)
    return [list(row) for row in zip(*(columns[name] for name in names), strict=True)], names


def _spoil(rng: random.Random, rows: list[list[str]], header: list[str]) -> None:
    for _ in range(rng.choice([0, 1, 1, 3, 30])):
        row = rng.choice(rows)
        if row:
            row[rng.randrange(len(row))] = rng.choice(CELLS)
    if rng.random() < 0.3:
        header[rng.randrange(len(header))] = rng.choice(HEADERS)
    if rng.random() < 0.1:
        del rng.choice(rows)[1:]
    if rng.random() < 0.1:
        column, cell = rng.randrange(len(header)), rng.choice(CELLS)
        for row in rows:
            row[column : column + 1] = [cell]
    if rng.random() < 0.1:
        rng.shuffle(rows)
    if rng.random() < 0.1:
        del rows[rng.randrange(len(rows)) :]


def _quoted(cell: str, separator: str, quotes: str | None) -> str:
    if quotes is None and separator not in cell and '"' not in cell and "\n" not in cell:
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _json_lines(rng: random.Random, clean: bool) -> bytes:
    lines = []
    odd = [None, True, [], {}, "x", "1.5", 1e308, 2**60 + 1, 10**400, float("nan"), float("inf"), "\x1b[2J", {"a": 1}]
    for row in readings().iter_rows(named=True):
        fields: object = {**row, "time": row["time"].isoformat()}
        if not clean and rng.random() < 0.05:
            fields = rng.choice([{**row, "time": 1, rng.choice(NAMES): rng.choice(odd)}, rng.choice(odd), list(row)])
        lines.append(json.dumps(fields, default=str))
    return "\n".join([*lines, ""]).encode(rng.choice(["utf-8", "utf-8-sig", "utf-16"]))


def _parquet(rng: random.Random, clean: bool, verb: str) -> bytes:
    """The plain table as Parquet, with other types of the same values or, if it is odd, with any types."""
    frame = readings()
    unit: Literal["ms", "us", "ns"] = rng.choice(["ms", "us", "ns"])
    frame = frame.with_columns(pl.col("time").cast(pl.Datetime(unit)), extra=pl.Series(range(ROWS), dtype=pl.Int32))
    if verb == "evaluate":
        frame = frame.with_columns(score="flow")
    if not clean:
        name = rng.choice(frame.columns)
        frame = frame.with_columns(rng.choice(_odd_columns()).alias(name))
    file = io.BytesIO()
    compression: Literal["zstd", "snappy", "uncompressed"] = rng.choice(["zstd", "snappy", "uncompressed"])
    frame.select(rng.sample(frame.columns, frame.width)).write_parquet(file, compression=compression)
    return file.getvalue()


@cache
def _odd_columns() -> list[pl.Series]:
    """Columns of all types that a Parquet file may hold."""
    counts = pl.Series(range(ROWS))
    integers = (pl.Int8, pl.Int16, pl.Int64, pl.Int128, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Boolean)
    types = (*integers, pl.Float32, pl.Decimal(20, 2), pl.Date, pl.Duration("us"), pl.Time, pl.Datetime("us", "UTC"))
    others = [counts.cast(dtype) for dtype in types]
    far = [(counts + start).cast(pl.Datetime("us")) for start in (-(2**62), 2**62)]  # years that no calendar has
    text, lists = counts.cast(pl.String), counts.reshape((ROWS, 1))
    others += (text, text.cast(pl.Categorical), text.cast(pl.Binary), counts.to_frame("a").to_struct(), lists)
    return [
        *others,
        *far,
        lists.arr.to_list(),
        counts + 2**53,
        counts * 1e300,
        counts * np.nan,
        pl.Series([None] * ROWS),
    ]


def _damaged(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice([0, 0, 0, 1, 2, 10])):
        place = rng.randrange(len(data)) if data else 0
        match rng.randrange(4):
            case 0 if data:
                data[place] = rng.randrange(256)
            case 1:
                data[place:place] = rng.randbytes(rng.randrange(1, 4))
            case 2:
                del data[place : place + rng.randrange(1, 20)]
            case 3 if rng.random() < 0.2:
                del data[place:]
    return bytes(data)


def _case(rng: random.Random, verb: str, content: bytes, clean: bool, name: str) -> Case:
    folder, _ = prepared()
    plant, given = str(folder / "plant.comet"), str(folder / name)
    standard_input = verb == "stream" or rng.random() < 0.2
    data = "-" if standard_input else given
    out = {"fit": "out.comet", "score": rng.choice(["out.csv", "out.parquet", None]), "report": "out.html"}.get(verb)
    to = [] if out is None else ["-o", str(folder / out)]
    options = [] if clean or rng.random() < 0.5 else _options(rng)
    arguments = {
        "fit": [data, "--detector", "squared-norm"],
        "score": [plant, data],
        "stream": [plant],
        "check": [data, *([plant] if clean else rng.choice([[], [plant]])), *rng.choice([[], ["--json"]])],
        "evaluate": [str(folder / "labels.csv"), data, "--json"],
        "explain": [plant, data, "--step", "40", *rng.choice([[], ["--json"]])],
        "report": [plant, data, "--most-events", "1"],
    }[verb]
    if verb in ("fit", "evaluate"):
        options = [word for word in options if word not in ("--gaps", "forward-fill:5")]
    return Case([verb, *arguments, *to, *options], content, clean, verb, name, standard_input, out)


def _options(rng: random.Random) -> list[str]:
    known = (
        *(
            ["--gaps", "forward-fill:5"],
            ["--na", "Bad"],
            ["--na=-"],
            ["--na", "-999"],
            ["--no-header"],
            ["--separator", ";"],
        ),
        *(["--decimal", ","], ["--encoding", "latin-1"], ["--encoding", "utf-16"], ["--date-order", "day-first"]),
    )
    return [word for words in rng.sample(known, rng.randrange(1, 4)) for word in words]


def outcome(case: Case) -> str:
    """Run a case; its outcome, which ends with "wrong" if it is not allowed."""
    folder, expected = prepared()
    for name in ("out.csv", "out.parquet", "out.comet", "out.html"):
        (folder / name).unlink(missing_ok=True)
    before = set(folder.iterdir())
    if not case.standard_input:
        (folder / case.name).write_bytes(case.content)
    stdout, stderr, stdin = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(case.content if case.standard_input else b""))
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            code = main(case.arguments)
    finally:
        sys.stdin = stdin
    left = {path.name for path in folder.iterdir()} - {path.name for path in before} - {case.name}
    for name in left:
        (folder / name).unlink()
    if not case.standard_input:
        (folder / case.name).unlink(missing_ok=True)
    case.notes = {"code": code, "stderr": stderr.getvalue(), "stdout": stdout.getvalue()[:300], "left": left}
    if "Traceback" in stderr.getvalue() or code not in (0, 2):
        return f"{case.verb}: traceback, wrong"
    if any(not (each.isprintable() or each == "\n") for each in stderr.getvalue()):
        return f"{case.verb}: control characters, wrong"
    if code == 2:
        return _refusal(case, stdout.getvalue(), stderr.getvalue(), left)
    if left != ({case.output} if case.output else set()):
        return f"{case.verb}: other files, wrong"
    if case.clean and case.verb in ("score", "stream") and not _is_right(case, stdout.getvalue(), expected):
        return f"{case.verb}: other scores, wrong"
    return f"{case.verb}: {ACCEPTED}"


def _refusal(case: Case, stdout: str, stderr: str, left: set[str]) -> str:
    last = stderr.rstrip("\n").rpartition("\n")[2]
    if case.clean:
        return f"{case.verb}: refused a clean table, wrong"
    if left or (stdout and case.verb not in ("stream", "check")):
        return f"{case.verb}: partial output, wrong"
    if not last.startswith("cometad: ") or last[-1] not in ".?!)":
        return f"{case.verb}: no sentence, wrong"
    return f"{case.verb}: {REFUSED}"


def _is_right(case: Case, stdout: str, expected: list[float]) -> bool:
    if case.output is not None:
        return True  # the file was complete; the other half of the cases print to standard output
    if case.verb == "score":
        return pl.read_csv(io.StringIO(stdout))["alert_score"].to_list() == expected
    lines = [json.loads(line) for line in stdout.splitlines()]
    return [line["alert_score"] for line in lines if "alert_score" in line] == expected


def run(cases: int, seed: int, show: int = 5) -> dict[str, int]:
    """Run random cases and count their outcomes; the first wrong ones are printed."""
    counts: Counter[str] = Counter()
    for number in range(cases):
        case = make(random.Random(f"{seed}-{number}"))
        found = outcome(case)
        counts[found] += 1
        if found.endswith("wrong") and sum(n for name, n in counts.items() if name.endswith("wrong")) <= show:
            print(number, found, case.arguments, case.content[:400], case.notes)
    _folder().cleanup()
    _folder.cache_clear()
    prepared.cache_clear()
    return dict(sorted(counts.items()))

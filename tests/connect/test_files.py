"""Files: a folder that grows is followed like `tail -F`, across rotation, truncation and restarts."""

import gzip
import json
import os
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import polars as pl
import pytest

from broker_case import problems_of, scored
from cometad.connect.address import Address
from cometad.connect.file_source import MOST_BAD, FolderPlace, FollowedFolder
from contract import is_a_sentence
from plant_case import feeding, read_to_end, reasons, run_until, service_in, stored
from serve_case import NAMES, START, as_readings, faulty, frame, plant, until

HEADER = "time," + ",".join(NAMES) + "\n"
WRITER = """
import os, sys, time
lines = sys.stdin.read().splitlines(keepends=True)
handle = open("readings.csv", "a")
handle.write(lines[0])
for i, line in enumerate(lines[1:], 1):
    if i % 100 == 0:  # as logrotate does
        handle.close()
        os.rename("readings.csv", f"readings.csv.{i // 100}")
        handle = open("readings.csv", "a")
        handle.write(lines[0])
    handle.write(line[:7])
    handle.flush()
    handle.write(line[7:])
    handle.flush()
    time.sleep(0.005)
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory, pump_file):
    """One service for tests that use streams of their own."""
    streams = [f"pump-{i}" for i in range(20)]
    with service_in(tmp_path_factory.mktemp("data"), pump_file, *streams) as service:
        service.unused = iter(streams)
        yield service


@pytest.fixture
def case(running, tmp_path):
    """A folder, a stream of the service, and an address of both."""
    return _Case(running, tmp_path / "readings")


class _Case:
    def __init__(self, service, folder):
        self.service, self.folder, self.stream = service, folder, next(service.unused)
        folder.mkdir()

    def address(self, path="", **options):
        return Address(f"file://{self.folder}/{path}", self.stream, given_name=self.stream, options=options)

    def count(self):
        return self.service.stream(self.stream).arrivals.next_seq

    def has(self, rows):
        until(lambda: self.count() >= rows)
        assert self.count() == rows

    def values(self):
        found = lambda: stored(self.service.settings.data_dir, "readings", self.service.stream(self.stream).id)  # noqa: E731
        until(lambda: len(found()) == self.count())
        return found()

    def read_all(self, path=""):
        return read_to_end(self.service, self.address(path, follow="no"))


def lines(values, first=0, step=1.0):
    rows = enumerate(values.tolist(), first)
    return [",".join(map(repr, [START + step * i, *row])) + "\n" for i, row in rows]


def append(path, text):
    with path.open("a") as handle:
        handle.write(text)


def test_a_rotated_file_is_followed_line_by_line(case, pump):
    values = faulty(350)
    with feeding(case.service, case.address("readings.csv")) as connection:
        text = HEADER + "".join(lines(values))
        subprocess.run([sys.executable, "-c", WRITER], input=text, text=True, cwd=case.folder, check=True, timeout=60)
        case.has(350)
        assert connection.set_aside == 0
    scored(case.service, case.stream, 350)
    assert problems_of(case.service.store, case.stream, values, pump[0]) == []


def test_half_a_line_waits_for_its_end(case):
    values = plant(3)
    file = case.folder / "a.csv"
    rows = lines(values)
    file.write_text(HEADER + rows[0] + rows[1][:-8])
    with feeding(case.service, case.address()) as connection:
        case.has(1)
        append(file, rows[1][-8:])
        case.has(2)
        append(file, rows[2])
        case.has(3)
        assert connection.set_aside == 0
    assert case.values().tobytes() == values.tobytes()


def test_a_truncated_file_is_read_from_its_start(case):
    values = plant(60)
    file = case.folder / "a.csv"
    file.write_text(HEADER + "".join(lines(values[:40])))
    with feeding(case.service, case.address()):
        case.has(40)
        file.write_text(HEADER + "".join(lines(values[40:50], 40)))  # shorter
        case.has(50)
        file.write_text(HEADER + "".join(lines(values[50:], 50)))  # about as long: the times are others
        case.has(60)
    assert case.values().tobytes() == values.tobytes()


def test_a_file_that_was_truncated_and_is_longer_by_now_is_read_from_its_start(case):
    values = plant(60)
    file = case.folder / "a.csv"
    place = FolderPlace(file, pattern=False, folder=False, by_time=False)
    folder = FollowedFolder(place, case.stream, case.service.layout, position=None, follow=True)
    pieces = folder.pieces()
    with closing(folder):
        file.write_text(HEADER + "".join(lines(values[:20])) + "17")  # the last line is not complete
        (first,) = next(pieces).batches
        file.write_text(HEADER + "".join(lines(values[20:], 20)))  # before anybody looks again
        (second,) = next(pieces).batches
    assert np.concatenate([first.values, second.values]).tobytes() == values.tobytes()


def test_a_truncated_file_of_json_lines_is_still_read_as_json(case):
    rows = [json.dumps(one) + "\n" for one in as_readings(plant(60))]
    file = case.folder / "a.jsonl"
    file.write_text("".join(rows[:40]))
    with feeding(case.service, case.address()) as connection:
        case.has(40)
        file.write_text("".join(rows[40:50]))
        case.has(50)
        append(file, "".join(rows[50:]))
        case.has(60)
        assert connection.set_aside == 0


def test_a_truncated_file_may_go_on_in_another_format(case):
    rows = [json.dumps(one) + "\n" for one in as_readings(plant(60))]
    file = case.folder / "a.log"
    file.write_text(HEADER + "".join(lines(plant(40))))
    with feeding(case.service, case.address("*.log")) as connection:
        case.has(40)
        file.write_text("".join(rows[40:]))
        case.has(60)
        assert connection.set_aside == 0


def test_bad_lines_are_set_aside_together(case, monkeypatch):
    good, calls, keep = lines(plant(200)), [], case.service.reject
    monkeypatch.setattr(case.service, "reject", lambda name, bad: calls.append(len(bad)) or keep(name, bad))
    text = HEADER + "".join(line + "1772366400,broken,1,1\n" for line in good)
    (case.folder / "a.csv").write_text(text)
    assert case.read_all().set_aside == 200
    assert calls == [200]


def test_a_restart_continues_where_it_was(case):
    values = plant(90)
    (case.folder / "day2.csv").write_text(HEADER + "".join(lines(values[:30])))
    with feeding(case.service, case.address()):
        case.has(30)
    append(case.folder / "day2.csv", "".join(lines(values[30:50], 30)))
    (case.folder / "day10.csv").write_text(HEADER + "".join(lines(values[50:60], 50)))
    os.rename(case.folder / "day2.csv", case.folder / "day3.csv")  # noqa: PTH104
    with feeding(case.service, case.address()) as connection:
        case.has(60)
        append(case.folder / "day10.csv", "".join(lines(values[60:], 60)))
        case.has(90)
        until(lambda: connection.readings == 60)
        assert connection.set_aside == 0
    assert case.values().tobytes() == values.tobytes()


def test_readings_without_times_are_not_doubled_by_a_restart(case):
    file = case.folder / "a.csv"
    file.write_text("flow,level,heat\n1,2,3\n")
    for i in range(2, 5):
        with feeding(case.service, case.address()):
            case.has(i - 1)
            append(file, f"{i},2,3\n")
            case.has(i)
    assert case.values()[:, 0].tolist() == [1, 2, 3, 4]


def test_all_kinds_of_files_are_read_in_order(case):
    values = plant(60)
    parts = np.split(values, 6)
    (case.folder / "1.csv").write_text(HEADER + "".join(lines(parts[0])).rstrip("\n"))  # no last line break
    readings = as_readings(parts[1], 10)
    (case.folder / "2.jsonl").write_text("\n".join(map(json.dumps, readings)))
    times = pl.from_epoch(pl.Series("time", [int(START) + i for i in range(20, 30)]), "s").cast(pl.Float64) / 1e6
    frame(parts[2]).insert_column(0, times).write_parquet(case.folder / "3.parquet")
    (case.folder / "4.csv.gz").write_bytes(gzip.compress((HEADER + "".join(lines(parts[3], 30))).encode()))
    semicolons = (HEADER + "".join(lines(parts[4], 40))).replace(".0,", ",").replace(",", ";").replace(".", ",")
    (case.folder / "5.csv").write_text(f"sep=;\n{semicolons}", encoding="utf-8-sig")
    (case.folder / "10.tsv").write_text((HEADER + "".join(lines(parts[5], 50))).replace(",", "\t"))
    (case.folder / "notes.md").write_text("not a table")
    connection = case.read_all()
    assert reasons(case.service, case.address()) == []
    assert (connection.readings, case.count()) == (60, 60)
    assert np.allclose(case.values(), values, rtol=0, atol=1e-12)
    assert case.read_all().readings == 0  # nothing new


def test_dates_in_parquet_and_csv_are_the_same_times(case):
    values = plant(4)
    seconds = pl.Series("at", [int(START) + i for i in range(2)])
    frame(values[:2]).insert_column(0, pl.from_epoch(seconds, "s")).write_parquet(case.folder / "a.parquet")
    rows = [f"2026-03-01 12:00:0{i}," + ",".join(map(repr, values[i].tolist())) for i in (2, 3)]
    (case.folder / "b.csv").write_text(HEADER.replace("time", "at") + "\n".join(rows) + "\n")
    assert case.read_all().readings == 4
    assert case.service.stream(case.stream).arrivals.last_at == START + 3


def test_a_parquet_file_is_read_once_it_is_complete(case):
    values = plant(10)
    times = pl.Series("time", [START + i for i in range(10)])
    whole = case.folder.parent / "whole.parquet"
    frame(values).insert_column(0, times).write_parquet(whole)
    content = whole.read_bytes()
    file = case.folder / "a.parquet"
    file.write_bytes(content[: len(content) // 2])
    with feeding(case.service, case.address()) as connection:
        until(lambda: connection.state == "connected")
        time.sleep(0.6)  # a few looks
        assert (case.count(), connection.set_aside) == (0, 0)
        with file.open("ab") as handle:
            handle.write(content[len(content) // 2 :])
        case.has(10)
        assert connection.set_aside == 0


def test_bad_lines_and_files_are_set_aside_with_their_reasons(case):
    values = plant(4)
    good = lines(values)
    bad = ["1,2\n", f"{START + 1},high,2,3\n", f"{START + 1},,2,3\n", "\xff\n"]
    text = HEADER + good[0] + "".join(bad[:3]) + good[1]
    (case.folder / "1.csv").write_bytes(text.encode() + b"\xff\xfe\n" + good[2].encode() + b"\n")
    (case.folder / "2.csv").write_text("time,other\n" + "7,8\n" * 2 * MOST_BAD)
    (case.folder / "3.csv").write_text("time,flow,flow\n7,8,9\n")
    (case.folder / "4.parquet").write_bytes(b"PAR1 but not really")
    (case.folder / "5.jsonl").write_text('{"flow": \n' + json.dumps(as_readings(values)[3]) + "\n")
    (case.folder / "6.csv").write_bytes(HEADER.encode("utf-16"))
    (case.folder / "7.csv").write_text(HEADER + good[0] + lines(plant(1), -5)[0])  # one is known, one is late
    connection = case.read_all()
    assert case.count() == 4
    found = reasons(case.service, case.address())
    assert all(map(is_a_sentence, found))
    places = [
        "Line 3 has 2 cells",
        "Line 4: variable 'flow' is 'high'",
        "Line 5: variable 'flow' is missing. Send it, or fit the detector with a gap rule",
        "Line 7 is not UTF-8",
        "2.csv' was skipped: none of its first 200 lines is usable. Line 2: there is no value for variable 'flow'",
        "3.csv' was skipped.",
        "4.parquet' is incomplete or damaged",
        "Line 1 is not JSON",
        "6.csv' is not UTF-8",
        "is before that of the last reading",
    ]
    for reason, place in zip(found, places, strict=True):
        assert place in reason
    assert connection.set_aside == len(places)
    assert case.read_all().set_aside == 0  # they are not read again


def test_a_file_without_a_header_continues_the_one_before_it(case):
    values = plant(4)
    file = case.folder / "a.csv"
    file.write_text(HEADER + "".join(lines(values[:2])))
    with feeding(case.service, case.address("a.csv")) as connection:
        case.has(2)
        file.rename(case.folder / "a.csv.1")
        file.write_text("".join(lines(values[2:], 2)))
        case.has(4)
        assert connection.set_aside == 0


def test_json_lines_may_name_their_streams(case):
    (case.folder / "a.jsonl").write_text(
        "\n".join(json.dumps({"stream": case.stream, **one}) for one in as_readings(plant(5))) + "\n"
    )
    address = Address(f"file://{case.folder}/*.jsonl?follow=no")
    assert read_to_end(case.service, address).readings == 5


def test_files_may_be_read_by_the_time_of_their_last_change(case):
    values = plant(20)
    for name, start in (("z.csv", 0), ("a.csv", 10)):
        (case.folder / name).write_text(HEADER + "".join(lines(values[start : start + 10], start)))
        os.utime(case.folder / name, (START + start, START + start))
    assert read_to_end(case.service, case.address(order="time", follow="no")).readings == 20


def test_many_old_files_leave_a_small_position(case, monkeypatch):
    monkeypatch.setattr("cometad.connect.file_source.MOST_KNOWN", 5)
    values = plant(40)
    for i in range(40):
        file = case.folder / f"day{i}.csv"
        file.write_text(HEADER + lines(values[i : i + 1], i)[0])
        os.utime(file, (START, START))
    with feeding(case.service, case.address()):
        case.has(40)
        (case.folder / "day40.csv").write_text(HEADER + lines(values[:1], 40)[0])
        case.has(41)
    (case.folder / "day41.csv").write_text(HEADER + lines(values[:1], 41)[0])
    with feeding(case.service, case.address()) as connection:
        case.has(42)
        until(lambda: connection.readings == 1)
    assert len(case.service.position(case.stream)["files"]) < 10


def test_a_folder_that_vanishes_is_a_state_and_comes_back(case):
    (case.folder / "a.csv").write_text(HEADER + lines(plant(1))[0])
    with feeding(case.service, case.address()) as connection:
        case.has(1)
        until(lambda: connection.state == "connected")
        moved = case.folder.rename(case.folder.with_name("unmounted"))
        until(lambda: connection.state in ("lost", "failed"))
        assert is_a_sentence(connection.reason)
        moved.rename(case.folder)
    run_until(case.address(), case.service, "connected")


def test_a_folder_that_does_not_exist_is_one_sentence(case):
    for path in ("nowhere/", "nowhere/*.csv", "nowhere/a.csv"):
        connection = run_until(case.address(path), case.service, "failed")
        assert (
            connection.reason
            == f"The folder '{case.folder}/nowhere' does not exist. Create it, or correct the address."
        )
    (case.folder / "a.csv").write_text(HEADER + lines(plant(1))[0])
    address = Address(f"file://{case.folder}/", given_name="nameless")
    assert "Name it with stream or --stream." in run_until(address, case.service, "failed").reason

"""Result files: several writers, interruptions at any moment, packing, and lines that are not results."""

import gzip
import itertools
import json
import multiprocessing
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometad.cli.verbs import main
from cometad.errors import InputError
from cometad_bench.results import IDENTITY, Results


def result(number, **more):
    return dict.fromkeys(IDENTITY) | {"seed": number, "setting": {}, "hyper_parameters": {}} | more


EVENTS = ("append", "read", "pack", "killed in pack", "half a line", "no newline")


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(EVENTS), max_size=12))
def test_whatever_happens_no_result_is_lost_or_seen_twice(events):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.jsonl"
        writer, reader = Results(path), Results(path)
        written, seen = [], []

        def one_more():
            written.append(result(len(written)))
            return json.dumps(written[-1])

        for event in (*events, "append"):
            is_cut = path.exists() and not path.read_bytes().endswith(b"\n")
            if event == "append":
                writer.append(json.loads(one_more()))
            elif event == "read":
                seen += reader.new()
            elif event == "pack" or is_cut:
                writer.pack()
            elif event == "killed in pack" and path.exists():
                before = path.read_bytes()
                writer.pack()
                path.write_bytes(before)  # packed, but killed before the lines were removed
            elif event == "half a line":
                with path.open("a") as file:
                    file.write('{"experi')  # ignored, and removed by the next process that writes
            elif event == "no newline":
                with path.open("a") as file:
                    file.write(one_more())
        seen += reader.new()
        assert seen == Results(path).read() == written
        assert reader.new() == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("oops", "Expecting value"),
        ("", "Expecting value"),
        ("7", "it is not an object"),
        ('{"seed": 3}', "it has no 'experiment'"),
        (json.dumps(result("one")), "its 'seed' is 'one'"),
        (json.dumps(result(1, hyper_parameters=None)), "its 'hyper_parameters' is None"),
    ],
)
def test_a_line_that_is_not_a_result_is_refused_with_its_number(line, why, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(f"{json.dumps(result(1))}\n{line}\n{json.dumps(result(2))}\n")
    with pytest.raises(InputError, match=f"Line 2 of .* is not a result.*{why}"):
        Results(path).read()


# --- parameters are stored once ---------------------------------------------------------------------------------------


def lines_of(results):
    return [json.loads(line) for line in results.path.read_text().splitlines()]


def test_parameters_are_stored_once_for_all_seeds_and_read_with_every_result(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    trials = [result(seed, hyper_parameters={"neighbors": 3, "seed": seed}) for seed in range(3)]
    trials.append(result(0, hyper_parameters={"neighbors": 5, "seed": 0}))
    for trial in trials:
        Results(results.path).append(trial)  # as in several runs
    assert ["kind" in line for line in lines_of(results)] == [True, False, False, False, True, False]
    assert results.read() == trials


def test_a_result_without_parameters_needs_no_other_line(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    results.append(result(1, hyper_parameters={"seed": 1}))
    assert lines_of(results) == [result(1, hyper_parameters={"seed": 1})]


def test_lines_with_their_own_parameters_can_be_mixed_with_references(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    trials = [result(seed, hyper_parameters={"neighbors": 3, "seed": seed}) for seed in range(2)]
    results.path.write_text(json.dumps(trials[0]) + "\n")  # as version 0.1 wrote it
    results.append(trials[1])
    assert results.read() == trials


def test_a_result_whose_parameters_are_missing_is_refused(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    results.append(result(1, hyper_parameters={"neighbors": 3}))
    parameters, line = results.path.read_text().splitlines(keepends=True)
    results.path.write_text(line + parameters)
    with pytest.raises(InputError, match=r"Line 1 of .* is not a result: no line before it holds the parameters"):
        results.read()


# --- packing ----------------------------------------------------------------------------------------------------------


def test_packed_results_are_read_before_those_added_later(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    trials = [result(seed, hyper_parameters={"neighbors": 3, "seed": seed}) for seed in range(4)]
    for trial in trials:
        results.append(trial)
        if trial["seed"] in (1, 2):
            results.pack()
            assert not results.path.exists()
    assert results.read() == trials
    assert lines_of(results) == [trials[3] | {"hyper_parameters": lines_of(results)[0]["hyper_parameters"]}]


def test_packing_twice_gives_the_same_bytes_and_packing_nothing_writes_nothing(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    results.pack()
    assert list(tmp_path.iterdir()) == []
    results.append(result(1))
    results.pack()
    before = results.packed.read_bytes()
    results.pack()
    assert results.packed.read_bytes() == before


def test_a_line_in_the_packed_file_is_named_by_its_number_there(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    results.packed.write_bytes(gzip.compress(f"{json.dumps(result(1))}\noops\n".encode()))
    results.path.write_text(json.dumps(result(2)) + "\n")
    with pytest.raises(InputError, match=r"Line 2 of '.*results\.jsonl\.gz' is not a result"):
        results.read()
    results.packed.write_bytes(gzip.compress(f"{json.dumps(result(1))}\n".encode()))
    before = results.packed.read_bytes()
    results.path.write_text("oops\n")
    for use in (results.read, results.pack):
        with pytest.raises(InputError, match=r"Line 1 of '.*results\.jsonl' is not a result"):
            use()
    assert results.packed.read_bytes() == before


def test_a_damaged_packed_file_is_refused(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    results.packed.write_bytes(gzip.compress(json.dumps(result(1)).encode())[:-9])
    with pytest.raises(InputError, match=r"results\.jsonl\.gz' is damaged .*Restore it"):
        results.read()


def append_and_pack(path, name):
    results = Results(path)
    for number in range(20):
        results.append(result(number, arm=name, hyper_parameters={"name": name, "seed": number}))
        if number % 3 == 0:
            results.pack()


def test_processes_that_write_and_pack_at_once_lose_nothing_and_a_reader_sees_each_result_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "results.jsonl"
    writers = [context.Process(target=append_and_pack, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    reader, seen = Results(path), []
    while any(writer.is_alive() for writer in writers):
        seen += reader.new()
    seen += reader.new()
    expected = list(itertools.product("ab", range(20)))
    for lines in (seen, Results(path).read()):
        assert sorted((line["arm"], line["seed"]) for line in lines) == expected
        assert all(line["hyper_parameters"] == {"name": line["arm"], "seed": line["seed"]} for line in lines)


def test_the_command_packs_the_experiments_that_have_results(tmp_path, capsys):
    Results(tmp_path / "main.jsonl").append(result(1))
    assert main(["bench", "pack", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'main.jsonl.gz'}\n"
    assert Results(tmp_path / "main.jsonl").read() == [result(1)]
    assert main(["bench", "pack", "mian", "--results", str(tmp_path)]) == 2

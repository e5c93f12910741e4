"""Engines: every task is answered once, whatever happens to the workers."""

import pytest

from cometad.errors import CometadError
from cometad.fleet.engines import SerialEngine, TaskOutcome, engine_of, in_order
from cometad.fleet.local_engine import LocalEngine
from fleet_case import die_at, worker_id


def test_every_task_is_answered_once():
    outcomes = list(LocalEngine(workers=2).run(abs, iter(range(-20, 0))))
    assert sorted(outcome.number for outcome in outcomes) == list(range(20))
    assert all(outcome.result == 20 - outcome.number for outcome in outcomes)


def test_no_task_is_taken_before_a_worker_is_free():
    taken = []

    def tasks():
        for number in range(12):
            taken.append(number)
            yield number

    for done, _ in enumerate(LocalEngine(workers=2).run(abs, tasks()), 1):
        assert len(taken) <= done + 3  # two at work, and one that waits for the next worker


def test_a_killed_worker_is_replaced_and_its_task_tried_again(tmp_path):
    memory = str(tmp_path / "died")
    tasks = [("a", memory), ("fragile", memory), ("b", memory), ("c", memory)]
    outcomes = sorted(LocalEngine(workers=2).run(die_at, tasks))
    assert [outcome.result for outcome in outcomes] == ["A", "FRAGILE", "B", "C"]


def test_a_task_that_kills_every_worker_is_given_up_with_the_reason(tmp_path):
    tasks = [("deadly", str(tmp_path / "died")), ("b", "")]
    first, second = sorted(LocalEngine(workers=1).run(die_at, tasks), key=lambda outcome: outcome.number)
    assert second.result == "B"
    assert first.result is None
    assert first.error == (
        "All 3 attempts failed; the last worker was killed (SIGKILL), probably because memory ran out."
    )


def test_workers_are_replaced_after_some_tasks():
    processes = {outcome.result for outcome in LocalEngine(workers=1, recycle=4).run(worker_id, range(10))}
    assert len(processes) == 3


def test_what_the_function_raises_is_raised_here():
    with pytest.raises(TypeError):
        list(LocalEngine(workers=1).run(abs, ["text"]))


def test_closing_the_run_ends_the_workers():
    run = LocalEngine(workers=2).run(worker_id, range(1000))
    process = next(run).result
    run.close()
    with pytest.raises(ProcessLookupError):
        __import__("os").kill(process, 0)


def test_outcomes_come_in_order_of_their_tasks():
    mixed = [TaskOutcome(2, "c"), TaskOutcome(0, "a"), TaskOutcome(1, "b")]
    assert [outcome.result for outcome in in_order(mixed)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "engine, options, words",
    [
        ("spark", {}, "Unknown engine 'spark'"),
        ("local", {"address": "10.0.0.5:6379"}, "needs the engine ray"),
        ("ray", {"address": "127.0.0.1:1"}, r"Cannot reach a Ray cluster at '127.0.0.1:1'"),
        ("local", {"workers": 0}, "'workers' parameter must be an integer of at least 1"),
        (object(), {}, "needs the method run"),
    ],
)
def test_a_bad_engine_is_refused_in_one_sentence(engine, options, words):
    with pytest.raises(CometadError, match=words):
        engine_of(engine, **options)


def test_your_own_engine_is_used_as_it_is():
    engine = SerialEngine()
    assert engine_of(engine) is engine

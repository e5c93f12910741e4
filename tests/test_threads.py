"""Threads: how many, and that every part of the work is done once."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from cometad import Comet
from cometad.compute import in_parts, in_tasks, serial_products, thread_count, thread_count_of
from cometad.errors import ParameterError


@given(length=st.integers(0, 50), threads=st.integers(1, 5))
def test_the_parts_cover_the_work_once(length, threads):
    done = np.zeros(length, int)

    def work(part):
        done[part] += 1

    with thread_count_of(threads):
        in_parts(work, length)
    assert done.tolist() == [1] * length


def test_an_error_in_a_part_is_raised():
    def work(part):
        raise ZeroDivisionError

    with thread_count_of(3), pytest.raises(ZeroDivisionError):
        in_parts(work, 10)


@pytest.mark.parametrize(
    "own, openmp, expected",
    [("3", "2", 3), ("", "2", 2), ("", "4,2", 4), ("", "", None), ("", "many", None), ("", "0", None)],
)
def test_the_environment_sets_the_count_and_else_the_cpus_do(monkeypatch, own, openmp, expected):
    monkeypatch.setenv("COMETAD_THREADS", own)
    monkeypatch.setenv("OMP_NUM_THREADS", openmp)
    assert thread_count() == (expected or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("wrong", ["0", "-1", "two", "1.5"])
def test_a_wrong_count_is_refused(monkeypatch, wrong):
    monkeypatch.setenv("COMETAD_THREADS", wrong)
    with pytest.raises(ParameterError, match=f"COMETAD_THREADS must be an integer of at least 1. Got '{wrong}'"):
        thread_count()


def test_the_count_returns_to_what_it_was():
    before = thread_count()
    with thread_count_of(7), thread_count_of(2):
        assert thread_count() == 2
    assert thread_count() == before


# -- products of numpy ------------------------------------------------------------------------------------------------


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_products_are_serial_until_the_last_of_several_blocks_ends():
    before = blas_threads()
    first, second = serial_products(), serial_products()
    first.__enter__()
    second.__enter__()
    assert set(blas_threads()) == {1}
    first.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before


def test_tasks_run_once_each_and_their_errors_are_raised():
    done = []
    with thread_count_of(3):
        in_tasks(done.append, 20)
    assert sorted(done) == list(range(20))
    with thread_count_of(3), pytest.raises(ZeroDivisionError):
        in_tasks(lambda k: 1 / (k - 5), 20)


def test_detectors_that_are_fitted_at_once_get_the_bytes_of_one_fitted_alone():
    series = np.random.default_rng(0).normal(size=(1500, 12)).cumsum(axis=0) % 7

    def fit(_):
        detector = Comet().fit(series)
        return detector.alert_scores_.tobytes() + detector.decision_scores_.tobytes()

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(fit, range(4)))
    assert set(together) == {fit(None)}

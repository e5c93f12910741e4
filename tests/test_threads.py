"""Threads: how many, and that every part of the work is done once."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad.errors import ParameterError
from cometad.threads import in_parts, thread_count, thread_count_of


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

"""A share of `python bench/scripts/fuzz.py --tables`: odd tables through every verb."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CASES = 200


@pytest.fixture(scope="module")
def fuzzing():
    path = Path(__file__).parents[2] / "bench" / "scripts" / "fuzzing" / "tables.py"
    spec = importlib.util.spec_from_file_location("fuzzing_tables", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    module.prepared()
    yield module
    module._folder().cleanup()


def test_a_table_gives_the_right_result_or_one_sentence(fuzzing):
    @settings(max_examples=CASES, deadline=None, database=None, derandomize=True)
    @given(st.integers(0, 2**32))
    def check(seed):
        case = fuzzing.make(random.Random(seed))
        found = fuzzing.outcome(case)
        assert not found.endswith("wrong"), (found, case)

    check()

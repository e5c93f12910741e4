"""Hit rates of attributions."""

import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explain import chance_hit_rate, hit_rate

ROOT = Path(__file__).parents[3]


@given(st.permutations(range(8)), st.sets(st.integers(0, 7), min_size=1), st.sampled_from([100, 150]))
def test_the_hit_rate_counts_causes_at_the_top_of_a_ranking(ranking, causes, percent):
    count = (len(causes) * percent) // 100
    hits = sum(1 for place, variable in enumerate(ranking) if place < count and variable in causes)
    assert hit_rate(ranking, causes, percent) == hits / len(causes)


@pytest.mark.parametrize("percent", [100, 150])
def test_the_chance_hit_rate_is_the_mean_over_all_rankings(percent):
    rates = [hit_rate(ranking, {0, 3, 4}, percent) for ranking in permutations(range(6))]
    assert chance_hit_rate(6, 3, percent) == pytest.approx(np.mean(rates))


def test_the_published_hit_rates_match_the_results():
    page = (ROOT / "bench" / "RESULTS.md").read_text()
    shown = subprocess.run(
        [
            sys.executable,
            ROOT / "bench" / "scripts" / "explain.py",
            "--results",
            ROOT / "bench" / "results" / "explain.jsonl",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert shown.stdout in page

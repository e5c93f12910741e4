"""The kernels that views share agree with plain loops, for any number of variables, codes and steps."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cometad.views.nearest import search, search_tables
from cometad.views.panel import Panel
from cometad.views.sums import sum_rows, sum_squared_gaps
from cometad.views.tiles import LANES

widths = st.integers(1, 20)  # below, at and above a vector of 8, with and without a rest
seeds = st.integers(0, 999)


@given(widths, st.integers(1, 9), st.integers(0, 3), seeds)
def test_rows_are_summed_in_the_order_of_time(width, length, skipped, seed):
    rows = np.random.default_rng(seed).normal(size=(40, width))
    sums, step = np.empty(width), 1 + skipped
    sum_rows(rows.ravel(), 2 * width, length, step * width, sums)
    expected = [0.0] * width
    for k in range(length):
        expected = [total + float(rows[2 + k * step, i]) for i, total in enumerate(expected)]
    assert sums.tolist() == expected


@given(widths, st.integers(1, 9), st.booleans(), seeds)
def test_squared_gaps_are_summed_by_variable(width, length, one_row, seed):
    rng = np.random.default_rng(seed)
    rows, other, sums = rng.normal(size=(12, width)), rng.normal(size=(12, width)), np.empty(width)
    sum_squared_gaps(rows.ravel(), width, length, other.ravel(), 2 * width, 0 if one_row else width, sums)
    for i in range(width):
        expected = sum((rows[1 + k, i] - other[2 + (0 if one_row else k), i]) ** 2 for k in range(length))
        np.testing.assert_allclose(sums[i], expected, rtol=1e-12)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 40), st.integers(1, 40), seeds)
def test_the_nearest_code_is_found_up_to_single_precision(width, length, codes, patches, seed):
    rng = np.random.default_rng(seed)
    table, steps = rng.normal(size=(codes, length * width)), patches + length - 1
    series = np.zeros((width, steps + LANES), np.float32)
    series[:, :steps] = rng.normal(size=(width, steps))
    nearest = np.empty(patches + LANES, np.int32)
    search(series.ravel(), width, patches, *search_tables(table), codes, nearest)
    for t in range(patches):
        window = [float(series[i, t + k]) for k in range(length) for i in range(width)]
        distances = [sum((a - b) ** 2 for a, b in zip(window, code, strict=True)) for code in table.tolist()]
        assert distances[nearest[t]] <= min(distances) + 1e-4


@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 5), seeds)
def test_errors_averaged_for_many_steps_have_the_bits_of_those_for_one(width, span, unknown, seed):
    class View:
        context = 0

    View.span = span
    rng = np.random.default_rng(seed)
    errors = rng.exponential(size=(60, 1, width))
    errors[rng.integers(60, size=unknown), 0, rng.integers(width, size=unknown)] = np.nan
    none = np.zeros((1, 3, width))
    panel = Panel((View(),), none, none, 1, ())
    together = panel.covering(errors, 0, 60)
    alone = np.concatenate([panel.covering(errors, t, t + 1) for t in range(60)])
    assert together.tobytes() == alone.tobytes()
    for t in range(60):
        for i in range(width):
            known = [error for error in errors[t : t + span, 0, i] if error == error]
            np.testing.assert_allclose(together[t, 0, i], sum(known) / len(known) if known else np.nan, rtol=1e-12)

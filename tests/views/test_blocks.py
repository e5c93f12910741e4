"""Wide tables: columns that belong together share a block, and each block has a view of its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive_views as naive
from comet_case import assert_like_a_batch
from cometad import Comet
from cometad.errors import ModelFileError
from cometad.scoring.scores import usual_pooling
from cometad.views import Balance, Forecast, Joint, blocks
from cometad.views.blocks import FittedBlocks, blocks_of

KINDS = {"balance": Balance(length=3), "forecast": Forecast(lags=2), "joint": Joint(length=4, codes=5)}
every_kind = pytest.mark.parametrize("name", KINDS)


def groups(sizes, rows=400, noise=0.3, seed=0):
    """Columns that follow a cause per group, in a random order, and the group of each."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    causes = rng.normal(size=(rows, len(sizes)))
    return causes[:, group] + noise * rng.normal(size=(rows, len(group))), group


@given(st.integers(1, 12), st.integers(2, 5), st.integers(1, 3), st.integers(3, 30), st.integers(0, 999))
def test_blocks_are_those_of_the_plain_loops(width, most, few, rows, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, width)).cumsum(axis=0)
    values[:, rng.integers(width)] = 0.1  # a constant
    values[:, rng.integers(width)] = values[:, rng.integers(width)]  # perhaps a copy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "MOST", most)
        patch.setattr(blocks, "FEW", few)
        assert blocks_of(values).tolist() == naive.blocks(values.T.tolist(), most, few, blocks.CLOSE)


def sizes(rows):
    return np.bincount(blocks_of(rows)).tolist()


def test_blocks_are_as_large_as_their_groups_and_few_columns_share_one():
    assert sizes(groups([64])[0]) == [64]
    assert sizes(groups([65])[0]) == [33, 32]
    assert sizes(groups([50, 20, 30])[0]) == [50, 30, 20]
    assert sizes(groups([40, 20, 7, 5, 1, 1, 1])[0]) == [38, 20, 17]
    assert sizes(np.random.default_rng(0).normal(size=(400, 100))) == [50, 50]


def test_columns_that_belong_together_share_a_block_in_any_order():
    rows, group = groups([50, 50, 50])
    block = blocks_of(rows)
    assert all(len(set(block[group == k])) == 1 for k in range(3))
    order = np.random.default_rng(1).permutation(150)
    assert np.array_equal(blocks_of(rows[:, order]), block[order])


def test_of_equal_columns_the_first_are_taken_first():
    block = blocks_of(np.repeat(np.arange(9.0)[:, None], 130, axis=1))
    assert block.tolist() == [0] * 44 + [1] * 44 + [2] * 42


@every_kind
def test_a_wide_view_is_one_view_for_each_block(name):
    rows, _ = groups([40, 40, 40])
    view, usable = KINDS[name].fit(rows, np.ones(len(rows), bool), np.random.default_rng(5)), np.ones(len(rows), bool)
    block, rng = blocks_of(rows), np.random.default_rng(5)
    for number in range(2):
        own = rows[:, block == number].copy()
        alone = KINDS[name].fit(own, usable, rng)
        assert np.array_equal(view.errors(rows, 0)[:, block == number], alone.errors(own, 0), equal_nan=True)
        assert np.array_equal(view.expected(rows, 0)[:, block == number], alone.expected(own, 0), equal_nan=True)


@every_kind
def test_up_to_64_columns_are_one_view(name):
    rows, usable = groups([32, 32])[0], np.ones(400, bool)
    view = KINDS[name].fit(rows, usable, np.random.default_rng(5))
    whole = KINDS[name].fit_block(rows, usable, np.random.default_rng(5))
    assert view.errors(rows, 0).tobytes() == whole.errors(rows, 0).tobytes()
    assert view.state().keys() == whole.state().keys()


@every_kind
def test_wide_views_are_saved_with_their_blocks(name):
    rows, usable = groups([40, 40])[0], np.ones(400, bool)
    view = KINDS[name].fit(rows, usable, np.random.default_rng(5))
    again = KINDS[name].restore(view.state())
    assert isinstance(again, FittedBlocks)
    assert again.errors(rows, 0).tobytes() == view.errors(rows, 0).tobytes()
    wrong = (
        np.zeros(80, int),
        np.arange(80),
        np.repeat([0, 2], 40),
        np.repeat([0, -1], 40),
        np.full(80, -1),
        np.full(80, 2**62),
        np.repeat([0, 1], [41, 39]),
    )
    for block in wrong:
        with pytest.raises(ModelFileError):
            KINDS[name].restore(view.state() | {"block": block})


def test_views_of_wide_tables_from_before_blocks_still_score_the_same():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 70))
    center, components = rng.normal(size=(3, 70)), np.linalg.qr(rng.normal(size=(210, 4)))[0].T.copy()
    view = Balance(length=3).restore({"center": center, "components": components})
    np.testing.assert_allclose(view.errors(rows, 0), naive.balance(rows, center, components.tolist())[0], rtol=1e-9)
    basis, weights, level = rng.normal(size=(70, 64)), rng.normal(size=(2 * 64, 70)), rng.normal(size=70)
    view = Forecast(lags=2).restore({"level": level, "basis": basis, "weights": weights})
    expected = level + np.hstack([rows[:-2] @ basis, rows[1:-1] @ basis]) @ weights
    np.testing.assert_allclose(view.expected(rows, 2), expected, rtol=1e-9)


@pytest.mark.parametrize("width", [blocks.MOST, blocks.MOST + 1])
def test_balance_has_half_of_the_weight_in_blocks_too(width):
    rows = np.random.default_rng(0).normal(size=(400, width))
    weights = Comet(trends=False, trim=False).fit(rows).panel_.weights
    np.testing.assert_allclose(sorted(weights), [1 / 8] * 4 + [1 / 2])


def test_a_small_group_that_parts_is_seen_beside_many_redundant_columns():
    """One basis for all would be spent on the columns that follow ten causes."""
    rng = np.random.default_rng(0)
    many = rng.normal(size=(2_000, 10)) @ rng.normal(size=(10, 180))
    small = rng.normal(size=(2_000, 1)) + 0.05 * rng.normal(size=(2_000, 8))
    rows = np.hstack([many / many.std(axis=0), small])
    fresh, usable = rows.copy(), np.ones(2_000, bool)
    fresh[1_000:, -1] = fresh[:1_000, -1]  # each column keeps its values

    def rise(fit):
        errors = fit(rows, usable, rng).errors(fresh, 0)[:, -1]
        return np.median(errors[1_000:]) / np.quantile(errors[:1_000], 0.9)

    assert rise(Balance(length=1).fit) > 3 > 1 > rise(Balance(length=1).fit_block)


def test_a_wide_stream_gives_the_bits_of_a_batch_through_a_snapshot():
    rows, _ = groups([40, 40], rows=700)
    detector, fresh = Comet(views=tuple(KINDS.values())).fit(rows), 2 * rows[:150]
    parts, stream = [], detector.stream()
    for start, stop in ((0, 1), (1, 2), (2, 60), (60, 61), (61, 150)):
        resumed = Comet.from_bytes(detector.to_bytes()).stream()
        resumed.restore(stream.snapshot())
        stream = resumed
        parts.append(stream.update_many(fresh[start:stop]))
    assert_like_a_batch([*parts, stream.finish()], detector, fresh)


def test_the_exponent_grows_with_the_width_unless_it_is_given():
    assert [usual_pooling(width) for width in (1, 90, 91, 181, 182, 2_000)] == [8, 8, 16, 16, 32, 32]
    rows = np.random.default_rng(0).normal(size=(700, 100))
    wide, same, own = (Comet(pooling=pooling).fit(rows) for pooling in (None, 16, 8))
    assert wide.decision_function(rows).tobytes() == same.decision_function(rows).tobytes()
    assert wide.get_params()["pooling"] is None
    assert own.panel_.pooling == 8
    assert Comet.from_bytes(wide.to_bytes()).panel_.pooling == 16

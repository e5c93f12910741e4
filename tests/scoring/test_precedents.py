"""Signatures: the kernel equals loops written from the docstrings, and events in chunks give the same boxes."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cometad.scoring.scores import USUAL, Errors, Scores
from cometad.scoring.signatures import HOT, PARTS, Gathering, Signatures, packed, unpacked

WIDTH, VIEWS = 4, 2


def naive_hot(scores):
    highest = max(scores)
    return [i for i, score in enumerate(scores) if score > USUAL and (score >= HOT or score == highest)]


def naive_boxes(rows, errors, scores):
    """For each variable, the boxes (low, high, errors of the views) of the parts of an event."""
    size = 1
    while size * PARTS < len(rows):
        size *= 2
    boxes = {}
    for begin in range(0, len(rows), size):
        for i in range(len(rows[0])):
            steps = [t for t in range(begin, min(begin + size, len(rows))) if i in naive_hot(scores[t])]
            if steps:
                most = []
                for v in range(len(errors[0])):
                    known = [errors[t][v][i] for t in steps if not math.isnan(errors[t][v][i])]
                    most.append(max(known, default=-math.inf))
                readings = [rows[t][i] for t in steps]
                boxes.setdefault(i, []).append((min(readings), max(readings), most))
    return boxes


def naive_matches(boxes, i, reading, errors, margin, factor, highs):
    for low, high, most in boxes.get(i, ()):
        near = low - margin <= reading <= high + margin
        strong = [e > limit and e > factor * m for e, limit, m in zip(errors, highs, most, strict=True)]
        if near and not any(strong):
            return True
    return False


def naive_score(score, row, errors, scores, normal, faults, margin, factor, highs, pooling):
    """The score of one step; `normal` and `faults` are lists of boxes."""

    def matching(boxes):
        return [
            i
            for i in naive_hot(scores)
            if naive_matches(boxes, i, row[i], [own[i] for own in errors], margin[i], factor, [own[i] for own in highs])
        ]

    hot = naive_hot(scores)
    if hot and any(matching(boxes) == hot for boxes in faults):
        return score
    for boxes in normal:
        if excused := matching(boxes):
            left = [USUAL if i in excused else own for i, own in enumerate(scores)]
            score = min(score, (sum(own**pooling for own in left) / len(left)) ** (1 / pooling))
    return score


def steps(rng, count):
    """Rows, errors and calibrated scores that are often alike, with unknown errors."""
    rows = rng.normal(size=(count, WIDTH)).round(1)
    errors = rng.exponential(size=(count, VIEWS, WIDTH)).round(1)
    errors[rng.random(errors.shape) < 0.1] = np.nan
    return rows, errors, rng.choice([0.0, 0.5, 1.0, 2.5, 4.0, 6.0], size=(count, WIDTH))


def gathered(event):
    gathering = Gathering(0, VIEWS, WIDTH)
    gathering.add(*event)
    return gathering.signature()


@given(st.integers(0, 9999), st.lists(st.integers(1, 40), max_size=3), st.lists(st.integers(1, 5), max_size=2))
def test_scores_equal_loops_written_from_the_definition(seed, normal, faults):
    rng = np.random.default_rng(seed)
    events = [steps(rng, count) for count in (*normal, *faults)]
    signatures = [gathered(event) for event in events]
    boxes = [naive_boxes(*(part.tolist() for part in event)) for event in events]
    rows, errors, scores = steps(rng, 30)
    pooling, factor, cut = int(rng.integers(1, 5)), 1.5, len(normal)
    margin, highs = rng.random(WIDTH), rng.random((VIEWS, WIDTH))
    before = (scores**pooling).mean(axis=1) ** (1 / pooling)
    fused = Scores(before, scores, np.zeros(scores.shape, bool))
    judged = Signatures(margin, tuple(signatures[:cut]), tuple(signatures[cut:]), factor)
    after = judged.excuse(fused, Errors(rows, errors), highs, pooling).alerts
    expected = [
        naive_score(*one, boxes[:cut], boxes[cut:], margin.tolist(), factor, highs.tolist(), pooling)
        for one in zip(before.tolist(), rows.tolist(), errors.tolist(), scores.tolist(), strict=True)
    ]
    np.testing.assert_allclose(after, expected, rtol=1e-12)
    assert (after <= before).all()


@given(st.integers(0, 9999), st.integers(1, 70), st.data())
def test_an_event_in_chunks_of_any_size_sets_the_same_signature(seed, count, data):
    event = steps(np.random.default_rng(seed), count)
    gathering = Gathering(5, VIEWS, WIDTH)
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=5)))
    for chunk in zip(*(np.split(part, cuts) for part in event), strict=True):
        gathering.add(*chunk)
        state, gathering = gathering.state(), Gathering(0, VIEWS, WIDTH)
        gathering.restore(state)
    for one, other in zip(gathering.signature(), gathered(event), strict=True):
        assert one.tobytes() == other.tobytes()
    assert (gathering.start, gathering.stop) == (5, 5 + count)


@given(st.integers(0, 9999), st.integers(1, 40))
def test_an_event_matches_its_own_signature(seed, count):
    rows, errors, scores = steps(np.random.default_rng(seed), count)
    fused = Scores(scores.max(axis=1), scores, np.zeros(scores.shape, bool))
    alike = Signatures(np.zeros(WIDTH), (gathered((rows, errors, scores)),), factor=1.0)
    after = alike.excuse(fused, Errors(rows, errors), np.zeros((VIEWS, WIDTH)), 1).alerts
    assert (after <= HOT).all()


def test_signatures_survive_packing():
    rng = np.random.default_rng(0)
    signatures = [gathered(steps(rng, count)) for count in (3, 1, 20)]
    for one, other in zip(signatures, unpacked(packed(signatures), VIEWS, WIDTH), strict=True):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))
    assert unpacked(packed([]), VIEWS, WIDTH) == ()


def test_the_worst_variables_come_first():
    scores = np.array([[3.0, 0.0, 9.0, 7.0]])
    assert gathered((np.zeros((1, 4)), np.ones((1, VIEWS, 4)), scores)).worst() == [2, 3]

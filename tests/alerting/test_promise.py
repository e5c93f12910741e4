"""A share of flagged readings far from the promised one is said once there is enough to tell."""

import pytest

from cometad.alerting.watch import Promise


def warning(rate, judged, flagged, names=("flow",)):
    promise = Promise(rate)
    promise.push(judged, [names[k % len(names)] for k in range(flagged)])
    return promise.warning()


@pytest.mark.parametrize(
    "judged, flagged, kind",
    [
        (1_000, 30, None),  # exactly three times the promise
        (1_000, 31, "times the promised 1 %"),
        (500, 29, None),  # too few flags to tell
        (500, 30, "times the promised 1 %"),
        (499, 30, None),  # too few readings
        (3_000, 10, None),  # exactly a third
        (3_000, 9, "less than a third of the promised 1 %"),
        (2_999, 0, None),  # too few promised ones to tell
        (0, 0, None),
    ],
)
def test_a_promise_is_broken_beyond_a_factor_of_three(judged, flagged, kind):
    sentence = warning(0.01, judged, flagged)
    assert sentence is None if kind is None else kind in sentence


def test_the_variables_behind_most_flags_are_named():
    promise = Promise(0.01)
    promise.push(500, ["d"] + ["a"] * 9 + ["b"] * 12 + ["c"] * 10)
    assert "because of b, c and a." in promise.warning()
    assert "because of flow." in warning(0.01, 500, 40)
    assert "because" not in warning(0.01, 500, 40, names=("",))


def test_readings_may_come_in_parts():
    parts, whole = Promise(0.01), Promise(0.01)
    for _ in range(40):
        parts.push(15, ["flow"])
    whole.push(600, ["flow"] * 40)
    assert parts.warning() == whole.warning() is not None

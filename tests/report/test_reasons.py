"""What the report says about a variable during an event."""

import numpy as np
import pytest

from cometad.explain.reasons import Explanation, Reason
from cometad.report.axes import TimeAxis
from cometad.report.gather import _trace


def explained(**changes):
    observed, expected = np.array([[4.0], [7.1], [np.nan]]), np.array([[4.1], [4.2], [4.3]])
    fields = {"view": "forecast", "why": "not what its last readings lead to", "band": 0.3} | changes
    reason = Reason("flow", 0.9, step=6, start=5, stop=7, observed=observed[:2, 0], expected=expected[:2, 0], **fields)
    return Explanation(5, 7, 6, 3.5, (reason,), 5, observed, expected, ("flow",))


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({}, "Not what its last readings lead to: it read 7.1 at step 6, expected 4.2 ± 0.3."),
        (
            {"view": "network", "why": "unlike its normal patterns", "band": None, "scale": 2, "frequency": 0.25},
            "Unlike its normal patterns: it read 7.1 at step 6, expected 4.2. "
            "Its nearest normal pattern is 2 readings long and seen in 25 % of the training data.",
        ),
    ],
)
def test_a_trace_says_why_a_variable_is_unusual_and_what_was_expected(changes, sentence):
    explanation = explained(**changes)
    trace = _trace(explanation, explanation.reasons[0], explanation.observed, ("flow",), TimeAxis(20, None))
    assert trace.sentence == sentence
    assert trace.share == 0.9
    assert np.array_equal(trace.observed.values, explanation.observed[:, 0], equal_nan=True)
    assert np.array_equal(trace.normal.values, explanation.normal[:, 0])

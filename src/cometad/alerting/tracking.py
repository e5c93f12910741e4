"""How the threshold of a budget of alerts moves: an event that opens raises it, every other reading lowers it a little.

The state of such a budget has seven numbers: start, spread, position, floor, one that is no longer used, the last
score, and the share of readings that may open an event. `Budget` explains them.
"""

import math

from cometad.alerting.severity import RAREST, log_probability
from cometad.arrays import Floats
from cometad.compiled import jit

STEP = 0.25  # positions by which an event raises the threshold; 0.15 to 0.3 do about as well on the select entities
EXTRA_COST = 0.8  # an ordinary event costs 1.8, so that quiet data does not spend the budget
ORDINARY, RARE = 0.3, 0.4  # severities up to which an event costs most, and from which it costs 1
SAME = 1e-6  # spreads: scores no further apart count as equal, so that rounding does not decide what the threshold does
FARTHEST = 709.0  # positions; beyond it the exponential overflows
START, SPREAD, POSITION, FLOOR, UNUSED, LAST, SHARE = range(7)


@jit
def score_at(position: float, start: float, spread: float) -> float:
    """The score at a position."""
    return start + math.copysign(spread * math.expm1(min(abs(position), FARTHEST)), position)


@jit
def position_of(score: float, start: float, spread: float) -> float:
    """The position of a score: the inverse of `score_at`."""
    return math.copysign(math.log1p(abs(score - start) / spread), score - start)


@jit
def tracked(track: Floats) -> float:
    """The threshold of a budget of alerts."""
    return float(max(score_at(track[POSITION], track[START], track[SPREAD]), track[FLOOR]))


@jit
def cost(score: float, tail: Floats) -> float:
    """What an event with this peak costs of the budget, from 1 (rare) to 1.8 (ordinary)."""
    found = log_probability(score, tail) / RAREST
    return 1.0 + EXTRA_COST * min(max((RARE - found) / (RARE - ORDINARY), 0.0), 1.0)


# Why the bound holds. Let A of T readings open an event. Each of them raises the position by STEP (cost - s) at least,
# where cost >= 1, every other one lowers it by STEP s at most, and the floor never lowers it. The position starts at 0
# or above, so it ends at p >= STEP (A - s T), and A <= s T + p / STEP. The threshold rises only at a score above it, by
# 1.8 STEP at most, so p <= max(0, position(highest)) + 1.8 STEP.
@jit
def follow_reading(track: Floats, score: float, paid: float) -> None:
    """Move the threshold after a reading, given what it costs: 0 unless it opened an event."""
    start, spread = track[START], track[SPREAD]
    moved = track[POSITION] + STEP * (paid - track[SHARE])
    # Scores that do not change do not pull the threshold below themselves.
    if paid > 0.0 or abs(score - track[LAST]) > SAME * spread or score <= score_at(moved, start, spread):
        track[POSITION] = moved
    if score_at(track[POSITION], start, spread) < track[FLOOR]:
        track[POSITION] = position_of(track[FLOOR], start, spread)
    track[LAST] = score

"""Put arriving readings in order: which are new, which are repeated, and which are late."""

from bisect import bisect_left
from collections.abc import Callable
from copy import copy
from typing import NamedTuple

import numpy as np

from cometad.arrays import Floats
from cometad.connect.contract import ReadingBatch, Receipt, Refusal
from cometad.errors import InputError
from cometad.serve.live_stream import Arrivals, LiveStream

AHEAD = 86_400.0  # seconds that a reading may be ahead: one with a wrong year would make all others late


class Admitted(NamedTuple):
    """New readings of a stream, in order."""

    ats: Floats  # (reading,) their times or, without any, when they arrived
    values: Floats  # (reading, variable)
    last_time: str | float | None  # of the last reading, as it was sent


def admit(
    batch: ReadingBatch, stream: LiveStream, arrivals: Arrivals, received: float, known: Callable[[float], bool]
) -> tuple[Admitted, Receipt]:
    """The new readings of a batch, and what became of all of them; moves `arrivals` on.

    A reading is repeated if its sequence number is not above the last one, or if there is a reading of its time, which
    `known` tells. Any other reading that is not after the one before is late: it is refused, or dropped if the settings
    of the stream say so.
    """
    if not any(sequence is not None for sequence in batch.sequences):
        quick = _all_new(batch, stream, arrivals, received)
        if quick is not None:
            return quick
    return _one_by_one(batch, stream, arrivals, received, known)


def _all_new(
    batch: ReadingBatch, stream: LiveStream, arrivals: Arrivals, received: float
) -> tuple[Admitted, Receipt] | None:
    """Fast path: every reading has a time after the one before. None for any other batch."""
    if arrivals.timed is False or any(time is None for time in batch.times):
        return None
    dates = copy(arrivals.dates)
    try:
        ats = np.array(dates.seconds_of_many(batch.times, batch.lines), np.float64)
    except InputError:
        return None
    before = -np.inf if arrivals.last_at is None else arrivals.last_at
    in_order = ats[0] > before and (np.diff(ats) > 0).all() and ats[-1] <= received + AHEAD
    if not (in_order and stream.can_have(ats[0]) and stream.can_have(ats[-1])):
        return None
    arrivals.dates = dates
    arrivals.timed, arrivals.last_at = True, float(ats[-1])
    arrivals.next_seq += len(ats)
    return Admitted(ats, batch.values, batch.times[-1]), Receipt(accepted=len(ats))


def _one_by_one(
    batch: ReadingBatch, stream: LiveStream, arrivals: Arrivals, received: float, known: Callable[[float], bool]
) -> tuple[Admitted, Receipt]:
    receipt, kept, ats = Receipt(), list[int](), list[float]()
    for i, (time, sequence, line) in enumerate(zip(batch.times, batch.sequences, batch.lines, strict=True)):
        try:
            at = _moment(time, line, stream, arrivals, received)
            last_at, last_sequence = arrivals.last_at, arrivals.last_sequence
            if sequence is not None and last_sequence is not None and sequence <= last_sequence:
                arrivals.repeated += 1
                receipt.repeated += 1
            elif time is None or last_at is None or at > last_at:
                kept.append(i)
                ats.append(at)
                arrivals.last_at, arrivals.timed = at, time is not None
                arrivals.last_sequence = last_sequence if sequence is None else sequence
            elif at == last_at or _has(ats, at) or known(at):
                arrivals.repeated += 1
                receipt.repeated += 1
            else:
                _late(stream, arrivals, receipt, f"Reading {line}: the time {time} is before that of the last reading.")
        except InputError as error:
            receipt.refused.append(Refusal(line, stream.name, str(error)))
    arrivals.next_seq += len(kept)
    receipt.accepted = len(kept)
    last_time = batch.times[kept[-1]] if kept else None
    return Admitted(np.array(ats), batch.values[kept], last_time), receipt


def _has(ats: list[float], at: float) -> bool:
    """Whether times in order have this one."""
    place = bisect_left(ats, at)
    return place < len(ats) and ats[place] == at


def _moment(time: str | float | None, line: int, stream: LiveStream, arrivals: Arrivals, received: float) -> float:
    """The time of a reading in seconds: its own or, if readings have none, that of the clock, which never goes back."""
    if time is None:
        if arrivals.timed:
            raise InputError(f"Reading {line} has no time, but the readings before it have one. Send one with each.")
        return received if arrivals.last_at is None else max(received, arrivals.last_at)
    if arrivals.timed is False:
        raise InputError(
            f"Reading {line} has a time, but the readings before it have none. Send none, or use another stream."
        )
    dates = copy(arrivals.dates)
    at = dates.seconds(time, line)
    assert at is not None
    if at > received + AHEAD:
        raise InputError(f"Reading {line}: the time {time} is more than a day ahead of the clock here. Correct it.")
    if not stream.can_have(at):
        raise InputError(f"Reading {line}: the time {time} is out of range. Correct that reading and send it again.")
    arrivals.dates = dates  # a reading that is refused does not decide how times are written
    return at


def _late(stream: LiveStream, arrivals: Arrivals, receipt: Receipt, problem: str) -> None:
    arrivals.late += 1
    if stream.settings.late == "refuse":
        raise InputError(f"{problem} Send readings in time order.")
    receipt.dropped += 1

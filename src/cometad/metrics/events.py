"""Metrics of whole events, for operators: how many alarms were real, how many anomalies were detected, and how late.

An alarm is a run of detected points. It is real if it overlaps an anomaly; an anomaly is detected if at least one of
its points is. Long anomalies count as much as short ones.
"""

from dataclasses import dataclass

import numpy as np

from cometad.arrays import Floats
from cometad.metrics.inputs import checked_threshold
from cometad.metrics.ranking import binary, segments_of


@dataclass(frozen=True)
class Events:
    """Alarms compared with anomalies at one threshold.

    >>> from cometad.metrics import events_at
    >>> events_at([0, 1, 1, 0], [0, 0, 1, 1], threshold=1).alarms
    1
    """

    alarms: int
    anomalies: int
    precision: float  # share of alarms that are real; nan without alarms
    recall: float  # share of anomalies detected
    f1: float
    delays: Floats  # (anomaly,) time steps from its start to its first detected point; nan if missed

    @property
    def mean_delay(self) -> float:
        """The mean delay over the detected anomalies; nan if all were missed."""
        delays = self.delays[~np.isnan(self.delays)]
        return float(delays.mean()) if len(delays) else float("nan")


def events_at(labels: object, scores: object, threshold: float) -> Events:
    """Event-level precision, recall and detection delays at a threshold.

    >>> from cometad.metrics import events_at
    >>> events = events_at([0, 1, 1, 1, 0, 0, 1], [0, 0, 0, 9, 9, 0, 0], threshold=5)
    >>> events.precision, events.recall, events.mean_delay
    (1.0, 0.5, 2.0)
    """
    flags = binary(labels, scores, checked_threshold(threshold))
    detected = flags.scores > 0
    starts, stops = flags.segments
    alarms = segments_of(detected)
    places = np.append(np.flatnonzero(detected), len(flags))
    first = places[np.searchsorted(places, starts)]  # first detected point at or after the start of each anomaly
    delays = np.where(first < stops, first - starts, np.nan)
    anomalous_before = np.append(0, np.cumsum(flags.labels))
    real = int(np.count_nonzero(anomalous_before[alarms.stops] > anomalous_before[alarms.starts]))
    precision = real / len(alarms.starts) if len(alarms.starts) else float("nan")
    recall = float(np.mean(first < stops))
    f1 = 2 * precision * recall / (precision + recall) if real else 0.0
    return Events(len(alarms.starts), len(starts), precision, recall, f1, delays)

"""How a gap in one variable affects the scores of the others, depending on how it is filled (about two minutes).

Gaps of one variable each are planted far apart in a part of the synthetic plant without faults. The figures are the
shares of flagged readings within the gaps and 16 readings around them. `measured` keeps the true values but treats them
as imputed.

    python bench/scripts/gaps.py
"""

from dataclasses import replace

import numpy as np

from cometad import NetworkComet
from cometad.data import ScoreMeasured
from cometad.datasets.synthetic import synthetic_plant
from cometad.network import NoAdaptation, OneCycle
from cometad.series import as_series

ROWS, TRAINED, AROUND, REPEATS = 6000, 4000, 16, 12


def fillings(column: np.ndarray, at: slice, known: np.ndarray) -> dict[str, np.ndarray | float]:
    """The possible fillings of a gap in a column, given its training readings."""
    return {
        "measured": column[at].copy(),
        "last": column[at.start - 1],
        "line": np.linspace(column[at.start - 1], column[at.stop], at.stop - at.start + 2)[1:-1],
        "median": float(np.median(known)),
        "highest": known.max(),
    }


def flagged(detector: NetworkComet, values: np.ndarray, imputed: np.ndarray | None) -> np.ndarray:
    series = replace(as_series(values), imputed=imputed)
    return detector._step_scores(detector.scaling_(values), series).scores > detector.threshold_


def shares(detector: NetworkComet, known: np.ndarray, fresh: np.ndarray, length: int) -> dict[str, float]:
    rng, found = np.random.default_rng(0), {}
    for _ in range(REPEATS):
        starts = np.arange(60, len(fresh) - length - 40, length + 150) + rng.integers(0, 60, dtype=np.int64)
        gaps = [
            (slice(start, start + length), variable)
            for start, variable in zip(
                starts.tolist(), rng.integers(0, fresh.shape[1], len(starts)).tolist(), strict=True
            )
            if start + length < len(fresh)
        ]
        imputed, near = np.zeros(fresh.shape, bool), np.zeros(len(fresh), bool)
        for at, variable in gaps:
            imputed[at, variable] = True
            near[at.start - AROUND : at.stop + AROUND] = True
        found.setdefault("no gap", []).append(flagged(detector, fresh, None)[near].mean())
        for way in fillings(fresh[:, 0], gaps[0][0], known[:, 0]):
            values = fresh.copy()
            for at, variable in gaps:
                values[at, variable] = fillings(fresh[:, variable], at, known[:, variable])[way]
            found.setdefault(way, []).append(flagged(detector, values, imputed)[near].mean())
    return {way: float(np.mean(parts)) for way, parts in found.items()}


def main() -> None:
    plant = synthetic_plant(train_rows=ROWS, test_rows=1000)
    known, fresh = plant.train[:TRAINED], plant.train[TRAINED:]
    detector = NetworkComet(schedule=OneCycle(200), adaptation=NoAdaptation(), gaps=ScoreMeasured()).fit(known)
    for length in (5, 50, 500):
        row = shares(detector, known, fresh, length)
        print(f"gaps of {length:3}: " + ", ".join(f"{way} {100 * share:.1f} %" for way, share in row.items()))


if __name__ == "__main__":
    main()

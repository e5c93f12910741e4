"""The default on plants whose history is clean, partly faulty or partly at a standstill, on short histories, and on a
wind turbine that is stopped while the wind blows.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from alert_tables.judged import DEFAULT, Scores, judged, worth
from cometad import Comet
from cometad.alerting.severity import ScoreTail, severity
from cometad.compute import thread_count_of
from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import Fault, Plant, fault_labels, synthetic_plant
from cometad.views.trim import stretches, unusable
from cometad_bench.datasets.characters import CHARACTERS, plant_of
from threshold_tables.shared import each, head, row

ROWS, VARIABLES, FAULTS_PER_KIND = 7_200, 8, 4
PLANTS = (*CHARACTERS, "plant")  # "plant" has faults of context, which the others have not
SEEDS, FAULTY, STOPPED = range(3), (0.0, 0.02, 0.05, 0.1), (0.05, 0.1)
SHORT, SHORT_SEEDS, FRESH = (100, 200, 300, 500, 1_000), range(12), 4_000
TURBINE_ROWS, STOPS, STOPPED_SHARE = 10_000, 14, 0.04
TURBINE = ("wind", "power", "rotor", "generator_temperature", "gearbox_temperature", "ambient", "oil_pressure")


class History(NamedTuple):
    """A history, and where it is not normal (time,)."""

    kind: str
    share: float
    values: np.ndarray  # (time, variable)
    faulty: np.ndarray  # (time,)


class Outcome(NamedTuple):
    """What the default finds after a history; `by_hand` is it if all faults are excluded by hand."""

    plant: str
    kind: str
    share: float
    found: float
    chance: float
    false: float
    severity: float  # the median over new faults
    left_out: float  # share of the faulty readings
    lost: float  # normal readings that were left out, as a share of the history
    by_hand_found: float
    by_hand_severity: float


def clean_and_faulty(name: str, seed: int) -> list[Plant]:
    """A plant without and with faults in its test part, whose normal readings are the same."""
    if name != "plant":
        sizes = {"rows": 2 * ROWS, "variables": VARIABLES, "seed": seed}
        return [plant_of(name, faults_per_kind=count, **sizes) for count in (0, FAULTS_PER_KIND)]
    sizes = {"train_rows": 1_000, "test_rows": 2 * ROWS, "drift": 0.0, "seed": seed}
    return [synthetic_plant(faults_per_kind=count, **sizes) for count in (0, FAULTS_PER_KIND + 1)]


def pasted(clean: np.ndarray, faulty: np.ndarray, faults: list[Fault]) -> np.ndarray:
    """The clean readings with some of the faults; a counter keeps the difference afterwards."""
    history = clean.copy()
    for fault in sorted(faults, key=lambda one: one.start):
        before = fault.start - 1
        moved = (faulty[fault.stop] - faulty[before]) - (clean[fault.stop] - clean[before])
        moved[np.abs(moved) < 1e-9] = 0.0  # rounding
        history[fault.start : fault.stop] = faulty[fault.start : fault.stop] + (history[before] - faulty[before])
        history[fault.stop :] += moved
    return history


def stopped(clean: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The readings with two standstills: one repeats the last reading, in the other sensors rest; counters stop."""
    history, where, length = clean.copy(), np.zeros(len(clean), bool), int(share * len(clean) / 2)
    counts = (np.diff(clean, axis=0) >= 0).all(axis=0) & (np.ptp(clean, axis=0) > 0)
    low, high = clean.min(axis=0), clean.max(axis=0)
    for k in range(2):
        start = int(len(clean) * (0.2 + 0.5 * k) + rng.integers(0, len(clean) // 6))
        rest = low - (high - low) * rng.uniform(-0.2, 0.5, len(low))
        noise = 0.01 * clean.std(axis=0) * rng.standard_normal((length, len(low)))
        held = np.where(counts | (k == 0), history[start - 1], rest + noise)
        where[start : start + length] = True
        history[start : start + length] = held
        history[start + length :, counts] -= (clean[start + length - 1] - clean[start - 1])[counts]
    return history, where


def histories(clean: Plant, faulty: Plant, seed: int) -> Iterator[History]:
    """Histories of the same plant with more and more faults of all kinds, then with standstills."""
    normal, rng = clean.test[:ROWS], np.random.default_rng([seed, 5])
    early = [fault for fault in faulty.faults if fault.stop < ROWS]
    order = [early[i] for i in rng.permutation(len(early))]
    for share in FAULTY:
        kept: list[Fault] = []
        for fault in order:
            readings = sum(one.stop - one.start for one in kept)
            if readings < share * ROWS and readings + fault.stop - fault.start <= 1.25 * share * ROWS:
                kept.append(fault)
        yield History("faults", share, pasted(normal, faulty.test[:ROWS], kept), fault_labels(kept, ROWS))
    for share in STOPPED:
        yield History("standstill", share, *stopped(normal, share, np.random.default_rng([seed, 77])))


def after(detector: Comet, today: Dataset, faults: list[tuple[int, int]]) -> tuple[float, float, float, float]:
    """Found, chance, false alerts per 1,000, and the median severity of faults, by a fitted detector."""
    scores = Scores.of(detector, today)
    value, peaks = worth(scores, judged(scores, DEFAULT)), [scores.test[start:stop].max() for start, stop in faults]
    severities = severity(peaks, ScoreTail.fit(scores.training))
    return value.found, value.chance, 1000 * value.false / value.normal, float(np.median(severities))


def outcomes(work: tuple[str, int]) -> list[Outcome]:
    name, seed = work
    clean, faulty = clean_and_faulty(name, seed)
    new = [(fault.start - ROWS, fault.stop - ROWS) for fault in faulty.faults if fault.start >= ROWS]
    found = []
    for history in histories(clean, faulty, seed):
        today = Dataset(name, "plant", history.values, faulty.test[ROWS:], faulty.labels[ROWS:], faulty.names)
        with thread_count_of(1):
            detector = Comet().fit(history.values)
            by_hand = Comet(trim=not history.share).fit(history.values, exclude=stretches(history.faulty))
            one, other = after(detector, today, new), after(by_hand, today, new)
        out = unusable(detector.trimmed_, ROWS)
        left_out = float(out[history.faulty].mean()) if history.share else np.nan
        lost = float((out & ~history.faulty).mean())
        found.append(Outcome(name, history.kind, history.share, *one, left_out, lost, other[0], other[3]))
    return found


def dirty(asked) -> None:
    found = list(each(outcomes, [(name, seed) for name in PLANTS for seed in SEEDS], asked.workers))
    columns = ("found", "chance", "false per 1,000", "severity", "faulty readings left out", "normal ones left out")
    head("plant", "history", *columns, "found and severity, faults excluded by hand")
    for name in (*PLANTS, "mean"):
        own = [one for one in found if name in (one.plant, "mean")]
        clean = np.mean([one[3:] for one in own if not one.share], axis=0)
        for kind, share in dict.fromkeys(one[1:3] for one in own):
            mean = np.mean([one[3:] for one in own if one[1:3] == (kind, share)], axis=0)
            row(
                name,
                f"{share:.0%} {kind}",
                f"{mean[0]:.2f} ({mean[0] / clean[0]:.0%})",
                *(f"{value:.2f}" for value in mean[1:3]),
                f"{mean[3]:.2f} ({mean[3] / clean[3]:.0%})",
                *("" if np.isnan(value) else f"{value:.1%}" for value in mean[4:6]),
                f"{mean[6] / clean[0]:.0%}, {mean[7] / clean[3]:.0%}",
            )
    print()
    short_histories(asked)
    print()
    turbines(asked)


# -- short histories ---------------------------------------------------------------------------------------------------


def noise_or_waves(kind: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Five variables: independent noise, noise with a memory and a common part, or mixed sines with little noise."""
    noise = rng.standard_normal((rows, 5))
    if kind == "noise":
        return noise
    if kind == "memory":
        return lfilter([1], [1, -0.8], noise, axis=0) + rng.standard_normal((rows, 1))
    turns = np.arange(rows)[:, None] / rng.uniform(20, 90, 3)
    weights, shifts = rng.normal(size=(3, 5)), rng.random((3, 5))
    return (weights * np.sin(2 * np.pi * (turns[:, :, None] + shifts))).sum(axis=1) + 0.05 * noise


def short_alerts(work: tuple[str, int, int]) -> list[tuple[str, int, float, int]]:
    """Alerts per 1,000 normal readings after a short history, and in the first 1,000 of them."""
    kind, rows, seed = work
    series = noise_or_waves(kind, rows + FRESH, np.random.default_rng([seed, rows]))
    today = Dataset(kind, "short", series[:rows], series[rows:], np.zeros(FRESH, bool), tuple("abcde"))
    with thread_count_of(1):
        steps = judged(Scores.of(Comet().fit(series[:rows]), today), DEFAULT).steps
    return [(kind, rows, 1000 * len(steps) / FRESH, int((steps < 1000).sum()))]


def short_histories(asked) -> None:
    kinds = ("noise", "memory", "waves")
    work = [(kind, rows, seed) for kind in kinds for rows in SHORT for seed in SHORT_SEEDS]
    found = list(each(short_alerts, work, asked.workers))
    head("normal readings", "history", "alerts per 1,000", "most", "in the first 1,000", "most")
    for kind in kinds:
        for rows in SHORT:
            all_of, first = np.array([one[2:] for one in found if one[:2] == (kind, rows)]).T
            row(kind, rows, f"{all_of.mean():.2f}", f"{all_of.max():.2f}", f"{first.mean():.2f}", int(first.max()))


# -- a wind turbine ----------------------------------------------------------------------------------------------------


def turbine(stops: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Readings of a turbine, and where (time,) it is stopped while the wind blows; it also rests when it does not."""
    rng, rows = np.random.default_rng([seed, 3]), TURBINE_ROWS
    slow = lfilter([np.sqrt(1 - 0.99**2)], [1, -0.99], rng.standard_normal(rows + 500))[500:]
    wind = np.maximum(np.exp(0.5 * slow + 1.9) + 0.4 * rng.standard_normal(rows), 0.0)
    where, length = np.zeros(rows, bool), int(share * rows / stops)
    blows = np.convolve(wind, np.ones(length) / length, "valid")
    slots = np.linspace(0.02 * rows, rows, stops + 1).astype(int)
    for first, last in zip(slots[:-1] + 20, slots[1:] - length - 20, strict=True):
        windy = np.argsort(-blows[first:last])[: max(1, (last - first) // 4)]
        start = first + int(rng.choice(windy))
        where[start : start + length] = True
    runs = (wind > 3) & ~where
    power = 2000 * np.where(runs, np.clip((wind - 3) / 9, 0, 1) ** 3, 0.0)
    rotor = np.where(runs, np.clip(6 + wind, 0, 16), 0.3)
    day = 6 * np.sin(2 * np.pi * np.arange(rows) / 144)
    ambient = 10 + day + lfilter([0.03], [1, -0.999], rng.standard_normal(rows))
    generator = ambient + lfilter([0.05], [1, -0.95], power / 40)
    gearbox = ambient + lfilter([0.02], [1, -0.98], 2.5 * rotor)
    clean = np.column_stack([wind, power, rotor, generator, gearbox, ambient, np.full(rows, 20.0)])
    deviations = [0.0, 20.0, 0.1, 0.5, 0.5, 0.1, 0.1]
    return clean + deviations * rng.standard_normal((rows, 7)), where


def turbine_outcomes(seed: int) -> list[tuple[float, ...]]:
    """Found, chance and false alerts without trimming, with it, and with the stops excluded by hand."""
    (history, faulty), (new, where) = turbine(8, STOPPED_SHARE, seed), turbine(STOPS, 0.07, seed + 100)
    today = Dataset("turbine", "turbine", history, new, where, TURBINE)
    with thread_count_of(1):
        plain, trimmed = Comet(trim=False).fit(history), Comet().fit(history)
        by_hand = Comet(trim=False).fit(history, exclude=stretches(faulty))
        found = [after(one, today, stretches(where))[:3] for one in (plain, trimmed, by_hand)]
    return [(*np.ravel(found), float(unusable(trimmed.trimmed_, len(history))[faulty].mean()))]


def turbines(asked) -> None:
    means = np.mean(list(each(turbine_outcomes, list(range(6)), asked.workers)), axis=0)
    head("wind turbine, 4 % of the history stopped in the wind", f"found of {STOPS}", "chance", "false per 1,000")
    for k, name in enumerate(("without trimming", "with trimming", "stops excluded by hand")):
        row(name, f"{STOPS * means[3 * k]:.1f}", f"{STOPS * means[3 * k + 1]:.1f}", f"{means[3 * k + 2]:.2f}")
    print(f"\nTrimming leaves out {means[-1]:.0%} of the stops.")

"""How many alerts a verdict saves, and how many faults it hides.

    python bench/scripts/verdicts.py [--seeds N] [--workers 2]
    python bench/scripts/verdicts.py --entities [--data-dir DIR] [--workers 2]
    python bench/scripts/verdicts.py --sweep [--seeds N] [--data-dir DIR] [--workers 2]

Plants: a harmless pattern, a flush, is added eight times to the test part of a synthetic plant. It raises or lowers one
or two sensors by several deviations, in a smooth curve of 40 to 80 readings whose height varies by 20 %. The sensors
are those of one of the planted faults, which is the hardest case: the others are in other sensors. The events of the
first flushes are called normal. Counted are later flushes that raise an event, up to 16 readings after their end, and
faults that have one, up to 8 readings around them. `no flushes` are the events in the same time steps of the same
plant without flushes.

Entities: on the select half of ASD, SMD and MSL, each false event of the first half of the test part is called normal.
False events have no anomaly within 32 readings. Counted are the false events and the anomalies that have an event, in
the second half.

With --sweep, both are repeated with other margins, factors and numbers of parts, with a fixed threshold.
"""

import argparse
import itertools
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from cometad import Budget, Comet, Event, Quantile
from cometad.alerting.watch import Threshold
from cometad.compute import thread_count_of
from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import Plant, synthetic_plant
from cometad.errors import InputError
from cometad.scoring import signatures
from cometad.views.panel import score_series
from cometad.views.trim import stretches
from cometad_bench.datasets.readers import load
from cometad_bench.split import part_of

FLUSHES = 8
CALLED = (1, 2, 4)  # flushes that are called normal
RULES: tuple[Threshold, ...] = (Budget(0.01), Quantile(0.01))


class Settings(NamedTuple):
    """What counts as alike."""

    margin: float = signatures.MARGIN
    factor: float = signatures.FACTOR
    parts: int = signatures.PARTS


DEFAULT = Settings()
SWEEP = [
    *(Settings(margin, factor) for margin, factor in itertools.product((1.0, 2.0, 3.0), (1.5, 2.0, 3.0))),
    *(Settings(parts=parts) for parts in (2, 32)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--entities", action="store_true")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data-dir")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.workers) as pool:
        if arguments.sweep:
            sweep(pool, arguments.seeds, arguments.data_dir)
        elif arguments.entities:
            on_entities(pool, arguments.data_dir)
        else:
            on_plants(pool, arguments.seeds)
            cost()


# -- plants ---------------------------------------------------------------------------------------------------------


class Flushed(NamedTuple):
    """Flushes of one plant after some were called normal, and its faults after that."""

    rule: int
    called: int
    flushes: int
    before: int  # that raise an event
    after: int
    none: int  # time steps of flushes that have an event without them
    faults: int
    found: int  # faults with an event before
    kept: int  # and after
    same: int  # faults in the variables of the flush that had an event before
    same_kept: int


def flushed(plant: Plant, seed: int) -> tuple[np.ndarray, list[tuple[int, int]], set[int]]:
    """The test part with flushes, their time steps and their variables."""
    rng, test = np.random.default_rng([seed, 9]), plant.test.copy()
    variables = list(plant.faults[rng.integers(2, len(plant.faults))].variables)
    size = rng.uniform(3, 5, len(variables)) * rng.choice([-1.0, 1.0], len(variables))
    size *= plant.train.std(axis=0)[variables]
    found = []
    for first, last in itertools.pairwise(np.linspace(100, len(test) - 200, FLUSHES + 1).astype(int)):
        for _ in range(200):
            length = int(rng.integers(40, 81))
            start = int(rng.integers(first, last - length))
            if not plant.labels[max(start - 100, 0) : start + length + 100].any():
                break
        else:
            continue
        shape = rng.uniform(0.8, 1.2) * np.sqrt(np.hanning(length + 2)[1:-1])
        test[start : start + length, variables] += shape[:, None] * size
        found.append((start, start + length))
    return test, found, set(variables)


def judge_plant(seed: int, settings: Sequence[Settings], rules: Sequence[Threshold]) -> list[list[Flushed]]:
    with thread_count_of(1):
        plant = synthetic_plant(seed=seed)
        test, flushes, variables = flushed(plant, seed)
        fitted = Comet().fit(plant.train)
        return [
            [
                one
                for k, rule in enumerate(rules)
                for one in flushed_by(fitted.with_threshold(rule), k, own, plant, test, flushes, variables)
            ]
            for own in settings
        ]


def flushed_by(
    detector: Comet,
    rule: int,
    settings: Settings,
    plant: Plant,
    test: np.ndarray,
    flushes: list[tuple[int, int]],
    variables: set[int],
) -> list[Flushed]:
    scores = detector.step_scores(test).alerts
    before, none = events(detector, scores), detector.events(plant.test)
    found = []
    for called in CALLED:
        own = [event for event in before if any(touched([event], *flush, 0, 16) for flush in flushes[:called])]
        if not own:
            continue
        cut = max(event.stop for event in own)
        after = events(detector, taught_scores(detector, test, own, settings, scores, cut))
        later = [flush for flush in flushes if flush[0] > cut]
        raised = [sum(touched(those, *flush, 0, 16) for flush in later) for those in (before, after, none)]
        faults = [fault for fault in plant.faults if fault.start > cut]
        old = [touched(before, fault.start, fault.stop, 8, 8) for fault in faults]
        new = [touched(after, fault.start, fault.stop, 8, 8) for fault in faults]
        same = [bool(variables & set(fault.variables)) for fault in faults]
        kept = [one and other for one, other in zip(old, new, strict=True)]
        both = [sum(np.array(own, bool) & np.array(same, bool)) for own in (old, kept)]
        found.append(Flushed(rule, called, len(later), *raised, len(faults), sum(old), sum(kept), *both))
    return found


def on_plants(pool: ProcessPoolExecutor, seeds: int) -> None:
    judged = pool.map(partial(judge_plant, settings=[DEFAULT], rules=RULES), range(seeds))
    rows = [one for found in judged for one in found[0]]
    print(
        "| threshold | flushes called normal | later flushes | raise an event before | after | no flushes "
        "| faults found before | after | in the same sensors before | after |"
    )
    print("|---" * 10 + "|")
    for k, called in itertools.product(range(len(RULES)), CALLED):
        own = np.sum([one[2:] for one in rows if (one.rule, one.called) == (k, called)], axis=0)
        total, *raised, faults, found, kept, same, same_kept = own
        print(
            f"| {type(RULES[k]).__name__} | {called} | {total} | {' | '.join(map(str, raised))} "
            f"| {found} of {faults} | {kept} | {same} | {same_kept} |",
            flush=True,
        )


# -- entities -------------------------------------------------------------------------------------------------------


class Halved(NamedTuple):
    """The second half of one entity's test part."""

    dataset: str
    rule: int
    called: int  # false events of the first half
    false_before: int
    false_after: int
    anomalies: int
    found: int  # anomalies with an event before
    kept: int  # and after


def judge_entity(entity: Dataset, settings: Sequence[Settings], rules: Sequence[Threshold]) -> list[list[Halved]]:
    with thread_count_of(1):
        fitted = Comet().fit(entity.train)
        return [
            [halved_by(fitted.with_threshold(rule), k, own, entity) for k, rule in enumerate(rules)] for own in settings
        ]


def halved_by(detector: Comet, rule: int, settings: Settings, entity: Dataset) -> Halved:
    labels, half = np.asarray(entity.labels, bool), len(entity.test) // 2
    near = np.convolve(labels, np.ones(65), "same") > 0

    def is_false(event: Event) -> bool:
        return not near[event.start : event.stop].any()

    scores = detector.step_scores(entity.test).alerts
    before = events(detector, scores)
    called = [event for event in before if event.stop <= half and is_false(event)]
    after = events(detector, taught_scores(detector, entity.test, called, settings, scores, half))
    false = [sum(event.start >= half and is_false(event) for event in those) for those in (before, after)]
    anomalies = [stretch for stretch in stretches(labels) if stretch[0] >= half]
    old, new = ([touched(those, *stretch) for stretch in anomalies] for those in (before, after))
    kept = [one and other for one, other in zip(old, new, strict=True)]
    return Halved(entity.name, rule, len(called), *false, len(anomalies), sum(old), sum(kept))


def selected(data_dir: str | None) -> list[Dataset]:
    entities = [one for name in ("ASD", "MSL", "SMD") for one in load(name, data_dir)]
    return [one for one in entities if part_of(one.name, one.entity) == "select"]


def on_entities(pool: ProcessPoolExecutor, data_dir: str | None) -> None:
    judged = pool.map(partial(judge_entity, settings=[DEFAULT], rules=RULES), selected(data_dir))
    rows = [one for found in judged for one in found[0]]
    print(
        "| dataset | threshold | events called normal | later false events before | after "
        "| anomalies found before | after |"
    )
    print("|---" * 7 + "|")
    for dataset, k in itertools.product(dict.fromkeys(one.dataset for one in rows), range(len(RULES))):
        own = np.sum([one[2:] for one in rows if (one.dataset, one.rule) == (dataset, k)], axis=0)
        called, false, less, anomalies, found, kept = own
        print(
            f"| {dataset} | {type(RULES[k]).__name__} | {called} | {false} | {less} "
            f"| {found} of {anomalies} | {kept} |",
            flush=True,
        )


# -- both -----------------------------------------------------------------------------------------------------------


def sweep(pool: ProcessPoolExecutor, seeds: int, data_dir: str | None) -> None:
    rule = [Quantile(0.01)]
    plants = list(pool.map(partial(judge_plant, settings=SWEEP, rules=rule), range(seeds)))
    entities = list(pool.map(partial(judge_entity, settings=SWEEP, rules=rule), selected(data_dir)))
    print(
        "| margin | factor | parts | later flushes that raise an event | faults lost | entities: false events "
        "| anomalies lost |"
    )
    print("|---" * 7 + "|")
    for k, own in enumerate(SWEEP):
        flushes = np.sum([one[2:] for found in plants for one in found[k] if one.called == CALLED[0]], axis=0)
        halves = np.sum([one[2:] for found in entities for one in found[k]], axis=0)
        print(
            f"| {own.margin:g} | {own.factor:g} | {own.parts} | {flushes[2]} of {flushes[0]} "
            f"| {flushes[5] - flushes[6]} of {flushes[5]} | {halves[2]} of {halves[1]} "
            f"| {halves[4] - halves[5]} of {halves[4]} |",
            flush=True,
        )


def taught_scores(
    detector: Comet, series: np.ndarray, called: Iterable[Event], settings: Settings, scores: np.ndarray, cut: int
) -> np.ndarray:
    """Alert scores of a detector that learned, from step `cut` on, that some events are normal."""
    signatures.PARTS, parts = settings.parts, signatures.PARTS
    taught = detector
    for event in called:
        taught = learned(taught, series, event)
    signatures.PARTS = parts
    if taught is detector:
        return scores
    panel, checked = taught.panel_, taught._checked(series)
    margin = panel.signatures.margin * (settings.margin / signatures.MARGIN)
    panel = replace(panel, signatures=replace(panel.signatures, margin=margin, factor=settings.factor))
    found = score_series(panel, taught.adaptation, taught._scaled(checked), checked.imputed)
    return np.concatenate([scores[:cut], found.alerts[cut:]])


def learned(detector: Comet, series: np.ndarray, event: Event) -> Comet:
    try:
        return detector.learn_normal(series, event)
    except InputError:  # nothing in it is unusual enough: the threshold had fallen far
        return detector


def events(detector: Comet, scores: np.ndarray) -> list[Event]:
    judge = detector.judge()
    changes = judge.push(scores).changes + judge.finish()
    return [change.event for change in changes if change.kind == "closed"]


def touched(those: Iterable[Event], start: int, stop: int, before: int = 0, after: int = 0) -> bool:
    return any(event.start < stop + after and event.stop > start - before for event in those)


def cost() -> None:
    plant = synthetic_plant(seed=0)
    detector = Comet().fit(plant.train)
    taught, seconds = detector, []
    for event in detector.events(plant.test)[:64]:
        taught = learned(taught, plant.test, event)
    for one in (detector, taught):
        one.step_scores(plant.test)
        started = time.perf_counter()
        for _ in range(10):
            one.step_scores(plant.test)
        seconds.append(time.perf_counter() - started)
    print(f"\nScoring with {len(taught.verdicts_)} verdicts takes {seconds[1] / seconds[0]:.2f} times as long.")


if __name__ == "__main__":
    main()

"""Ways to combine views, compared on real families and on faults that only break relations.

    python bench/scripts/mixes.py [--part validate] [--only MIX ...] [--cache DIR] [--workers N] [--data-dir DIR]

All mixes were listed before any ran, and chosen on `--part select`. A mix is one or two groups of views. Within a
group it takes a power mean of calibrated errors, and between two groups the root mean square. The stretches that `fit`
leaves out are those of `Comet()`. Of SMD it takes one machine in three. *Found*, *chance* and *false* are those of
`alerts.py` with the default budget; A and R are the AUC-PR of the alert score and of the ranking score, in percent. p
is that of Wilcoxon's signed-rank test against the first mix, over entities of the real families.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from alert_tables.judged import DEFAULT, Scores, Summary, Worth, judged, summary, worth
from cometad import Comet
from cometad.compute import thread_count_of
from cometad.datasets.dataset import Dataset
from cometad.metrics import auc_pr
from cometad.scoring.scores import Tails, smooth
from cometad.views import Activity, Balance, Forecast, Joint, Patterns
from cometad.views.crossfit import all_usable, cross_fit, fit_views
from cometad.views.panel import Panel, clipped
from cometad.views.trim import unusable
from cometad_bench.nested import nested_choice
from cometad_bench.relations import CHOSEN_ON, JUDGED_ON, RELATIONS, relation_family
from cometad_bench.statistics import signed_rank
from threshold_tables.shared import DATASETS, anomalies, chosen, each, far_from, head, row

VIEWS = {
    **{"P32": Patterns(32), "P64": Patterns(64), "J": Joint(), "F": Forecast()},
    **{"B8": Balance(8), "B16": Balance(16), "A": Activity(32)},
}
LABELS = list(VIEWS)


class Mix(NamedTuple):
    groups: str  # of views, split by |
    exponent: int  # of the power mean within a group


MIXES = (
    Mix("P32 J F B8 A", 1),  # today
    Mix("P32 J F B8 A", 2),
    Mix("P32 J F B8 A", 4),
    Mix("P32 J F B16 A", 2),
    Mix("P32 J F B16 A", 4),
    Mix("P32 A | J F B8", 2),
    Mix("P32 A | J F B16", 2),
    Mix("P32 A | F B8", 2),
    Mix("P32 A | F B16", 2),
    Mix("P32 A | F B8 B16", 2),
    Mix("P32 A J | F B8", 2),
    Mix("P32 A J | F B16", 2),
    Mix("P32 A J F | B8", 2),
    Mix("P32 A J F | B16", 2),
    Mix("P32 A F | B8", 2),
    Mix("P32 A F | B16", 2),
    Mix("P32 A F | B8 B16", 2),
    Mix("P32 P64 A F | B16", 2),
    Mix("P32 A F | B16", 1),
    Mix("P32 A F | B16", 4),
    Mix("P32 A F B16", 2),
    Mix("P32 A F B16", 4),
    Mix("P32 A J F B8 B16", 2),
    Mix("B16", 1),
)
SMD_SHARE = 3  # one machine in


class Maps(NamedTuple):
    """Calibrated errors (time, view, variable) of one entity; NaN where unknown."""

    training: np.ndarray  # by views and tails that were fitted without the block
    alerts: np.ndarray
    ranking: np.ndarray  # averaged over the windows that cover a step


class Result(NamedTuple):
    mix: str
    scores: Scores  # without the scores themselves
    worth: Worth
    alert: float  # AUC-PR in percent
    ranking: float


def named(mix: Mix) -> str:
    return f"{mix.groups} ({mix.exponent})"


def maps_of(entity: Dataset) -> Maps:
    with thread_count_of(1):
        detector = Comet().fit(entity.train)
        series, views = detector._checked(entity.train), tuple(VIEWS.values())
        rows, usable = clipped(detector._scaled(series)), ~unusable(detector.trimmed_, len(series))
        found = cross_fit(views, rows, usable, None, detector.seed)
        training = np.empty((len(rows), len(views), rows.shape[1]), np.float32)
        for fold in found.folds:
            begin = max(fold.start - 63, 0)
            errors = Panel(fold.views, fold.alert, found.ranking, 8, ()).errors(
                rows[begin : fold.stop], fold.start - begin
            )
            training[fold.start : fold.stop] = calibrated(errors, fold.alert)
        panel = Panel(fit_views(views, rows, usable, detector.seed), found.alert, found.ranking, 8, ())
        errors = panel.errors(clipped(detector._scaled(detector._checked(entity.test))), 0)
        covering = panel.covering(errors, 0, len(errors))
        training = training[all_usable(usable, panel.context)]
        return Maps(training, calibrated(errors, found.alert), calibrated(covering, found.ranking))


def calibrated(errors: np.ndarray, tails: np.ndarray) -> np.ndarray:
    own = [Tails(*tails[v])(np.ascontiguousarray(errors[:, v])) for v in range(errors.shape[1])]
    return np.stack(own, axis=1).astype(np.float32)


def cached(entity: Dataset, folder: Path | None) -> Maps:
    if folder is None:
        return maps_of(entity)
    paths = [folder / f"{entity.name}-{entity.entity}-{field}.npy".replace("/", "_") for field in Maps._fields]
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        for path, values in zip(paths, maps_of(entity), strict=True):
            np.save(path, values)
    return Maps(*(np.load(path, mmap_mode="r") for path in paths))


def fused(maps: np.ndarray, mix: Mix) -> np.ndarray:
    """The scores (time,) of calibrated errors: over views, over groups, and the power mean 8 over variables."""
    groups = []
    for group in mix.groups.split("|"):
        powers = [np.asarray(maps[:, LABELS.index(label)], np.float64) ** mix.exponent for label in group.split()]
        known = sum(~np.isnan(own) for own in powers)
        total = sum(np.nan_to_num(own) for own in powers)
        groups.append((total / np.maximum(known, 1)) ** (1 / mix.exponent))
    variables = np.sqrt(np.mean(np.square(groups), axis=0)) if len(groups) > 1 else groups[0]
    return np.asarray((variables**8).mean(axis=1) ** (1 / 8))


def results_of(entity: Dataset, mixes: tuple[Mix, ...], folder: Path | None) -> list[Result]:
    maps, results, labels = cached(entity, folder), [], np.asarray(entity.labels, bool)
    about = anomalies(entity), far_from(entity.labels)
    for mix in mixes:
        training, alerts = fused(maps.training, mix), fused(maps.alerts, mix)
        ranking = smooth(fused(maps.ranking, mix), (4, 16, 64))
        scores = Scores(entity.name, entity.entity, training, alerts, *about)
        own = worth(scores, judged(scores, DEFAULT))
        areas = [100 * auc_pr(labels, one) for one in (alerts, ranking)]
        small = scores._replace(training=np.empty(0), test=np.empty(0), normal=np.empty(0))
        results.append(Result(named(mix), small, own, *areas))
    return results


def entities_of(part: str, data_dir: str | None) -> list[Dataset]:
    real = chosen(DATASETS, part, data_dir)
    machines = sorted(one.entity for one in real if one.name == "SMD")[::SMD_SHARE]
    kept = [one for one in real if one.name != "SMD" or one.entity in machines]
    return kept + relation_family(CHOSEN_ON if part == "select" else JUDGED_ON)


def means(results: list[Result], families: tuple[str, ...]) -> tuple[Summary, float, float]:
    """What `alerts.py` prints, and the two areas: means over entities, then over families."""
    own = [[(one.alert, one.ranking) for one in results if one.scores.family == family] for family in families]
    alert, ranking = np.mean([np.mean(values, axis=0) for values in own], axis=0)
    return summary([(one.scores, one.worth) for one in results], families), float(alert), float(ranking)


def by_entity(results: list[Result], families: tuple[str, ...] = DATASETS) -> np.ndarray:
    """What was found, and the two areas (entity, 3)."""
    own = [one for one in results if one.scores.family in families]
    return np.array([(one.worth.found, one.alert, one.ranking) for one in own])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("select", "validate"), default="select")
    parser.add_argument("--only", nargs="*", type=int, help="numbers of mixes, from 0; the first one always runs")
    parser.add_argument("--cache", type=Path, help="keep calibrated errors here")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data-dir")
    asked = parser.parse_args()
    mixes = MIXES if asked.only is None else tuple(MIXES[k] for k in sorted({0, *asked.only}))
    entities = entities_of(asked.part, asked.data_dir)
    results = list(each(partial(results_of, mixes=mixes, folder=asked.cache), entities, asked.workers))
    by_mix = {named(mix): [one for one in results if one.mix == named(mix)] for mix in mixes}
    report(by_mix)


def report(by_mix: dict[str, list[Result]]) -> None:
    base = by_entity(next(iter(by_mix.values())))
    found = {family: f"found {family}" for family in DATASETS}
    relations = [f"relations {what}" for what in ("found", "chance", "false", "A", "R")]
    head("mix", "found", "chance", "false", "A", "R", "p found", "p A", "p R", *relations, *found.values())
    figures: dict[str, dict[str, dict[str, float]]] = {"found": {}, "A": {}, "R": {}}
    for name, own in by_mix.items():
        (real, *real_areas), (broken, *broken_areas) = means(own, DATASETS), means(own, (RELATIONS,))
        families = {family: means(own, (family,)) for family in DATASETS}
        for k, figure in enumerate(figures):
            figures[figure][name] = {family: (one[0].found, *one[1:])[k] for family, one in families.items()}
        apart = by_entity(own) - base
        ps = [f"{signed_rank(one[~np.isnan(one)]):.2g}" if one.any() else "" for one in apart.T]
        rates = [f"{value:.2f}" for value in (real.found, real.chance, real.false)]
        others = [f"{value:.2f}" for value in (broken.found, broken.chance, broken.false)]
        rest = [f"{one[0].found:.2f}" for one in families.values()]
        shown = [[f"{value:.1f}" for value in values] for values in (real_areas, broken_areas)]
        row(name, *rates, *shown[0], *ps, *others, *shown[1], *rest)
    good = [name for name, own in by_mix.items() if means(own, (RELATIONS,))[1] >= 80]
    for what, own in figures.items():
        for which, names in (("all mixes", list(own)), ("those with an A of 80 on relations", good)):
            if names:
                choice = nested_choice({name: own[name] for name in names})
                nested = np.mean(list(choice.figures.values()))
                print(f"\nNested {what}, of {which}: {nested:.3f}; best {choice.best}; {choice.chosen}", flush=True)


if __name__ == "__main__":
    main()

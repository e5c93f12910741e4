"""One arm against each of the others: mean differences with intervals, corrected tests, and a sentence that is true."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from cometad.errors import InputError
from cometad.metrics import METRICS
from cometad_bench.nested import Figures, family_means
from cometad_bench.results import Record, latest
from cometad_bench.statistics import (
    Interval,
    critical_difference,
    holm,
    mean_ranks,
    rank_balance,
    signed_rank,
    stratified_interval,
)
from cometad_bench.summaries import (
    ALL_POSITIVE,
    RANKED_BY,
    REFERENCES,
    UNTIED_VUS_PR,
    blocks,
    summarize,
    twins,
    without_twins,
)
from cometad_bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable

LEVEL = 0.05
VOLUME_NOTE = "* VUS-PR with ties of scores broken at random, because its classic form rewards constant scores."

Verdict = Literal["ahead", "tie", "behind"]  # of the base arm against the other


class Comparison(NamedTuple):
    """The base arm against another one: positive differences mean that the base arm is better."""

    difference: Interval  # the mean over families of the mean over entities
    p: float  # of Wilcoxon's test over entities, with Holm's correction
    verdict: Verdict


def compare(records: Sequence[Record], base: str, metric: str = RANKED_BY) -> dict[str, Comparison]:
    """Compare the base arm with every other arm that covers the same entities, no-skill references included.

    Arms with identical figures in every trial count as one; only the first of them, or the base arm, is compared.
    """
    same = twins(records, first=base)
    names, arms, values = without_twins(blocks(records, metric, "entity", references=True), same)
    if base not in arms:
        raise InputError(f"{base} has no results for some entities. Run the missing trials first.")
    families = {family: [name[0] == family for name in names] for family in dict.fromkeys(name[0] for name in names)}
    gains = {arm: values[:, arms.index(base)] - values[:, i] for i, arm in enumerate(arms) if arm != base}
    corrected = holm({arm: signed_rank(gain) for arm, gain in gains.items()})
    found = {}
    for arm, gain in gains.items():
        interval = stratified_interval({family: gain[rows] for family, rows in families.items()})
        found[arm] = Comparison(interval, corrected[arm], _verdict(interval.mean, rank_balance(gain), corrected[arm]))
    return found


def _verdict(mean: float, balance: float, p: float) -> Verdict:
    """Return who is better; without a corrected p below 5 %, or if mean and ranks disagree, it is a tie."""
    if p >= LEVEL or mean * balance <= 0:
        return "tie"
    return "ahead" if mean > 0 else "behind"


def claim(base: str, comparisons: Mapping[str, Comparison], missing: Sequence[str] = ()) -> str:
    """Return one sentence on which arms the base arm beats; it never hides an arm that ties or is better."""
    groups = {verdict: [arm for arm, one in comparisons.items() if one.verdict == verdict] for verdict in _WORDS}
    rest = [f"{words} {', '.join(groups[verdict])}" for verdict, words in _WORDS.items() if groups[verdict]]
    rest += [f"not compared, because trials are missing: {', '.join(missing)}"] if missing else []
    ahead, total = len(comparisons) - sum(map(len, groups.values())), len(comparisons)
    beaten = f"{ahead} of {total} arms" if rest else f"every arm ({total})"
    return "; ".join([f"{base} beats {beaten} beyond chance (Holm p < {LEVEL})", *rest]) + "."


_MARKS: dict[Verdict, str] = {"ahead": "", "tie": "tie", "behind": "better"}
_WORDS: dict[Verdict, str] = {"tie": "it ties with", "behind": "it is behind"}


def missing_arms(records: Sequence[Record], compared: Sequence[str]) -> list[str]:
    """Return the arms that have results, but not for every entity."""
    same = twins(records, first=compared[0])
    arms = dict.fromkeys(record["arm"] for record in latest(records))
    return [arm for arm in arms if same.get(arm, arm) not in compared]


def without_one_dataset(
    records: Sequence[Record], complete: Sequence[str], metric: str
) -> tuple[str, Sequence[Record]]:
    """Return the dataset without which the most further arms are complete, and the results without it, if any."""
    best: tuple[int, str, Sequence[Record]] = (0, "", ())
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        rest = [record for record in records if record["dataset"] != dataset]
        if rest:
            gained = len(set(blocks(rest, metric, "entity").arms) - set(complete))
            best = max(best, (gained, dataset, rest), key=lambda found: found[0])
    return best[1:]


def comparison_table(records: Sequence[Record], title: str, base: str, metric: str = RANKED_BY) -> ResultTable:
    """Return the means by family and the tests of every arm against the base arm, which comes first."""
    figures = family_means(records, metric, references=True)
    volumes = _volumes(records, figures)
    found, seeds = compare(records, base, metric), _seeds(records)
    ranks, rank_notes = _ranks(records, base, metric)
    means = {arm: float(np.mean(list(by_family.values()))) for arm, by_family in figures.items()}
    order = [base, *sorted(found, key=lambda arm: -means[arm])]
    rows = tuple(
        ResultRow(
            arm,
            tuple(
                [Cell(value) for value in (*figures[arm].values(), means[arm])]
                + [Cell(volumes.get(arm))] * bool(volumes)
                + [*_tests(found, arm), Cell(ranks.get(arm))]
            ),
            ", ".join(filter(None, (_MARKS[found[arm].verdict] if arm in found else "", seeds.get(arm, "")))),
            kind="reference" if arm in REFERENCES else "detector",
        )
        for arm in order
    )
    families = list(figures[base])
    columns = (
        *(ResultColumn(family, scale=100) for family in families),
        ResultColumn("mean over families", scale=100),
        *([ResultColumn(f"{METRICS['vus_pr'].title}, mean over families", "*", scale=100)] if volumes else []),
        *(ResultColumn(name, scale=100) for name in (f"{base} ahead by", "from", "to")),
        ResultColumn("Holm p", digits=4, is_probability=True),
        ResultColumn("mean rank", digits=2),
    )
    notes = (*_notes(records, base, metric, order), *rank_notes, *([VOLUME_NOTE] if volumes else []))
    return ResultTable(title, columns, (Group("all", rows),), notes)


def _seeds(records: Sequence[Record]) -> dict[str, str]:
    """Return a mark for each arm with a single seed, if others have more."""
    seeds: dict[str, int] = {}
    for (_, arm), summary in summarize(records).items():
        seeds[arm] = min(seeds.get(arm, summary.seeds), summary.seeds)
    return {arm: "one seed" for arm, count in seeds.items() if count == 1 < max(seeds.values()) and arm != ALL_POSITIVE}


def _ranks(records: Sequence[Record], base: str, metric: str) -> tuple[dict[str, float], list[str]]:
    """Return the mean rank of each arm over all entities, and from which arms the base differs by Nemenyi's test."""
    same = twins(records, first=base)
    names, arms, values = without_twins(blocks(records, metric, "entity"), same)
    pairs = [f"{twin} and {arm}" for arm, twin in same.items()]
    notes = [f"One arm, because their figures are identical in every trial: {', '.join(pairs)}."] if pairs else []
    if len(names) < 2 or len(arms) < 2:
        return {}, notes
    ranks = dict(zip(arms, mean_ranks(values).tolist(), strict=True))
    difference = critical_difference(len(arms), len(names))
    apart = [arm for arm in arms if abs(ranks[arm] - ranks[base]) >= difference]
    note = (
        f"Mean rank: over all {len(names)} entities, among {len(arms)} arms. Nemenyi's critical difference is "
        f"{difference:.2f}; by it, {base} differs from {', '.join(apart) or 'no arm'}."
    )
    return ranks, [note, *notes]


def _tests(found: Mapping[str, Comparison], arm: str) -> tuple[Cell, ...]:
    return (*map(Cell, found[arm].difference), Cell(found[arm].p)) if arm in found else (Cell(),) * 4


def _volumes(records: Sequence[Record], figures: Figures) -> dict[str, float]:
    """Return the mean VUS-PR over families of the arms that have it, with ties of scores broken."""
    volumes = family_means(records, UNTIED_VUS_PR, references=True)
    return {arm: float(np.mean(list(volumes[arm].values()))) for arm in figures if arm in volumes}


def _notes(records: Sequence[Record], base: str, metric: str, order: Sequence[str]) -> tuple[str, ...]:
    entities = len({(record["dataset"], record["entity"]) for record in latest(records)})
    missing = missing_arms(records, order)
    return (
        f"Figures are {METRICS[metric].title} in percent, the mean over the entities of a family, unless stated.",
        f"{base} ahead by: the mean over families of the mean difference over entities, with its 95 % interval (from, "
        "to) by a bootstrap of the entities within each family.",
        f"Holm p: Wilcoxon's signed-rank test over {entities} entities, two-sided, with Holm's correction over all "
        f"{len(order) - 1} arms. An arm marked (tie) has p >= {LEVEL}, or its mean and its ranks disagree; one marked "
        f"(better) is ahead of {base}.",
        *([f"Left out, because they lack entities: {', '.join(missing)}."] if missing else []),
    )

"""One arm against each of the others: mean differences with intervals, corrected tests, and a sentence that is true."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from cometad.errors import InputError
from cometad.metrics import METRICS
from cometad_bench.experiments import ALL_POSITIVE
from cometad_bench.frame import (
    RANKED_BY,
    UNTIED_VUS_PR,
    arms_of,
    blocks,
    distinct,
    family_means,
    mean_over_seeds,
    ranked,
    twins,
)
from cometad_bench.notes import fewest_seeds
from cometad_bench.statistics import (
    Interval,
    critical_difference,
    holm,
    rank_balance,
    signed_rank,
    stratified_interval,
)
from cometad_bench.tables import Group, ResultColumn, ResultRow, ResultTable, percent

LEVEL = 0.05
VOLUME_NOTE = "* VUS-PR with ties of scores broken at random, because its classic form rewards constant scores."

Verdict = Literal["ahead", "tie", "behind"]  # of the base arm against the other
_MARKS: dict[Verdict, str] = {"ahead": "", "tie": "tie", "behind": "better"}
_WORDS: dict[Verdict, str] = {"tie": "it ties with", "behind": "it is behind"}


class Comparison(NamedTuple):
    """The base arm against another one: positive differences mean that the base arm is better."""

    difference: Interval  # the mean over families of the mean over entities
    p: float  # of Wilcoxon's test over entities, with Holm's correction
    verdict: Verdict


def compare(frame: pl.DataFrame, base: str, metric: str = RANKED_BY) -> dict[str, Comparison]:
    """Compare the base arm with every other arm that covers the same entities, no-skill references included.

    Arms with identical figures in every trial count as one; only the first of them, or the base arm, is compared.
    """
    found = blocks(frame, metric, "entity", references=True).drop(list(twins(frame, first=base)), strict=False)
    if base not in found.columns:
        raise InputError(f"{base} has no results for some entities. Run the missing trials first.")
    gains = found.select("dataset", *((pl.col(base) - pl.col(arm)).alias(arm) for arm in arms_of(found) if arm != base))
    families = gains.partition_by("dataset", maintain_order=True, as_dict=True)
    corrected = holm({arm: signed_rank(gains[arm]) for arm in arms_of(gains)})
    comparisons = {}
    for arm, p in corrected.items():
        interval = stratified_interval({str(family): part[arm] for (family,), part in families.items()})
        comparisons[arm] = Comparison(interval, p, _verdict(interval.mean, rank_balance(gains[arm]), p))
    return comparisons


def _verdict(mean: float, balance: float, p: float) -> Verdict:
    """Return who is better; without a corrected p below 5 %, or if mean and ranks disagree, it is a tie."""
    if p >= LEVEL or mean * balance <= 0:
        return "tie"
    return "ahead" if mean > 0 else "behind"


def claim(base: str, comparisons: Mapping[str, Comparison], missing: Sequence[str] = ()) -> str:
    groups = {verdict: [arm for arm, one in comparisons.items() if one.verdict == verdict] for verdict in _WORDS}
    rest = [f"{words} {', '.join(groups[verdict])}" for verdict, words in _WORDS.items() if groups[verdict]]
    rest += [f"not compared, because trials are missing: {', '.join(missing)}"] if missing else []
    ahead, total = len(comparisons) - sum(map(len, groups.values())), len(comparisons)
    beaten = f"{ahead} of {total} arms" if rest else f"every arm ({total})"
    return "; ".join([f"{base} beats {beaten} beyond chance (Holm p < {LEVEL})", *rest]) + "."


def without_one_dataset(frame: pl.DataFrame, metric: str) -> tuple[str, pl.DataFrame]:
    """Return the dataset without which the most further arms are complete, and the results without it, if any."""
    complete = set(arms_of(blocks(frame, metric, "entity")))
    best = 0, "", frame.clear()
    for dataset in distinct(frame, "dataset"):
        rest = frame.filter(pl.col("dataset") != dataset)
        gained = 0 if rest.is_empty() else len(set(arms_of(blocks(rest, metric, "entity"))) - complete)
        best = max(best, (gained, dataset, rest), key=lambda found: found[0])
    return best[1:]


def compared(
    frame: pl.DataFrame, title: str, base: str, metric: str = RANKED_BY, words: str = ""
) -> tuple[ResultTable, str]:
    """Return the means by family and the tests of every arm against the base arm, which comes first, and the claim."""
    figures = family_means(frame, metric, references=True)
    untied = family_means(frame, UNTIED_VUS_PR, references=True)
    means, volumes = (
        {arm: float(np.mean(list(own[arm].values()))) for arm in figures if arm in own} for own in (figures, untied)
    )
    found, same = compare(frame, base, metric), twins(frame, first=base)
    order = [base, *sorted(found, key=lambda arm: -means[arm])]
    missing = [arm for arm in distinct(frame, "arm") if same.get(arm, arm) not in order]
    ranks, rank_notes = _ranks(frame, base, metric)
    # A single seed is noted if other arms have more.
    seeds = fewest_seeds(mean_over_seeds(frame))
    single = {arm for arm, count in seeds.items() if count == 1 < max(seeds.values()) and arm != ALL_POSITIVE}

    def row(arm: str) -> ResultRow:
        tests = (*found[arm].difference, found[arm].p) if arm in found else (None,) * 4
        values = (*figures[arm].values(), means[arm], *([volumes.get(arm)] if volumes else []), *tests, ranks.get(arm))
        marks = _MARKS[found[arm].verdict] if arm in found else "", "one seed" if arm in single else ""
        return ResultRow.of(arm, values, ", ".join(filter(None, marks)))

    volume = ResultColumn(f"{METRICS['vus_pr'].title}, mean over families", "*", scale=100)
    columns = (
        *percent(*figures[base], "mean over families"),
        *([volume] if volumes else []),
        *percent(f"{base} ahead by", "from", "to"),
        ResultColumn("Holm p", digits=4, is_probability=True),
        ResultColumn("mean rank", digits=2),
    )
    notes = (
        f"Figures are {METRICS[metric].title} in percent, the mean over the entities of a family, unless stated.",
        f"{base} ahead by: the mean over families of the mean difference over entities, with its 95 % interval (from, "
        "to) by a bootstrap of the entities within each family.",
        f"Holm p: Wilcoxon's signed-rank test over {len(distinct(frame, 'dataset', 'entity'))} entities, two-sided, "
        f"with Holm's correction over all {len(order) - 1} arms. An arm marked (tie) has p >= {LEVEL}, or its mean and "
        f"its ranks disagree; one marked (better) is ahead of {base}.",
        *([f"Left out, because they lack entities: {', '.join(missing)}."] if missing else []),
        *rank_notes,
        *([VOLUME_NOTE] if volumes else []),
    )
    table = ResultTable(title, columns, (Group("all", tuple(map(row, order))),), notes)
    return table, words + claim(base, found, missing)


def _ranks(frame: pl.DataFrame, base: str, metric: str) -> tuple[dict[str, float], list[str]]:
    """Return the mean rank of each arm over all entities, and from which arms the base differs by Nemenyi's test."""
    found, ranks, same = ranked(frame, metric, "entity", first=base)
    pairs = [f"{twin} and {arm}" for arm, twin in same.items()]
    notes = [f"One arm, because their figures are identical in every trial: {', '.join(pairs)}."] if pairs else []
    if not ranks:
        return {}, notes
    difference = critical_difference(len(ranks), len(found))
    apart = [arm for arm in ranks if abs(ranks[arm] - ranks[base]) >= difference]
    note = (
        f"Mean rank: over all {len(found)} entities, among {len(ranks)} arms. Nemenyi's critical difference is "
        f"{difference:.2f}; by it, {base} differs from {', '.join(apart) or 'no arm'}."
    )
    return ranks, [note, *notes]

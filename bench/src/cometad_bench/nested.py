"""Nested choice: what choosing the best configuration is worth on a family that had no say in the choice.

The best of many configurations looks better than it is, because it was chosen on the same figures. So each family is
judged by the configuration that is best on all the others.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from cometad.errors import InputError
from cometad.metrics import METRICS
from cometad_bench.frame import RANKED_BY, distinct, family_means
from cometad_bench.tables import Group, ResultRow, ResultTable, percent

HEADLINE = ("SMD", "ASD", "MSL", "SMAP")  # the families of earlier tables
NESTED = "nested choice"

Figures = Mapping[str, Mapping[str, float]]  # by arm, then by family: the mean over entities


class Nested(NamedTuple):
    chosen: dict[str, str]  # by family: the arm that is best on the other families
    figures: dict[str, float]  # by family: the figure of that arm
    best: str  # the arm that is best on all families


def nested_choice(figures: Figures) -> Nested:
    """Choose an arm by its mean over families, leaving out one family at a time; of equal arms, take the first."""
    families = list(next(iter(figures.values())))
    if len(families) < 2:
        raise InputError("A nested choice needs at least two families; run the experiment on more datasets.")
    chosen = {family: _best(figures, [other for other in families if other != family]) for family in families}
    return Nested(chosen, {family: figures[arm][family] for family, arm in chosen.items()}, _best(figures, families))


def _best(figures: Figures, families: Sequence[str]) -> str:
    return max(figures, key=lambda arm: _mean(figures[arm], families))


def _mean(by_family: Mapping[str, float], families: Iterable[str]) -> float:
    return float(np.mean([by_family[family] for family in families]))


def choice(frame: pl.DataFrame, title: str, metric: str = RANKED_BY) -> tuple[ResultTable, str]:
    """Return the mean of each arm by family, best first, below the nested choice, and what that choice is worth."""
    figures = family_means(frame, metric)
    nested = nested_choice(figures)
    families, common = list(nested.figures), [family for family in HEADLINE if family in nested.figures]
    counts = Counter(nested.chosen.values())

    def row(arm: str, by_family: Mapping[str, float], note: str = "") -> ResultRow:
        means = [*([_mean(by_family, common)] if common else []), _mean(by_family, families)]
        return ResultRow.of(arm, (*by_family.values(), *means), note)

    rows = [row(NESTED, nested.figures)]
    for arm in sorted(figures, key=lambda arm: -_mean(figures[arm], families)):
        rows.append(row(arm, figures[arm], f"chosen {counts[arm]} of {len(families)} times" if counts[arm] else ""))
    columns = percent(*families, *([f"mean over {', '.join(common)}"] if common else []), "mean over families")
    without = "; ".join(f"{family}: {arm}" for family, arm in nested.chosen.items())
    incomplete = [arm for arm in distinct(frame, "arm") if arm not in figures]
    notes = (
        f"Figures are {METRICS[metric].title} in percent: the mean over the entities of a family.",
        f"Nested choice: chosen by the mean over the other families. {without}.",
        *([f"Left out, because they lack entities: {', '.join(incomplete)}."] if incomplete else []),
    )
    own, best = (
        [f"{100 * _mean(by_family, part):.1f}" for part in (common, families) if part]
        for by_family in (nested.figures, figures[nested.best])
    )
    parts = [*([f"over {', '.join(common)}"] if common else []), f"over all {len(families)} families"]
    what = ", and ".join(f"{figure} {part}" for figure, part in zip(own, parts, strict=True))
    headline = (
        f"Nested choice: mean {METRICS[metric].title} {what}, each family judged by the configuration chosen without "
        f"it. The best configuration, {nested.best}, has {' and '.join(best)}; that figure is too high, because it was "
        "chosen on it."
    )
    return ResultTable(title, columns, (Group("all", tuple(rows)),), notes), headline

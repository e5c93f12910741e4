"""Nested choice: what choosing the best configuration is worth on a family that had no say in the choice.

The best of many configurations looks better than it is, because it was chosen on the same figures. So each family is
judged by the configuration that is best on all the others.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cometad.errors import InputError
from cometad.metrics import METRICS
from cometad_bench.results import Record
from cometad_bench.summaries import RANKED_BY, blocks
from cometad_bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable

HEADLINE = ("SMD", "ASD", "MSL", "SMAP")  # the families of earlier tables
NESTED = "nested choice"

Figures = Mapping[str, Mapping[str, float]]  # by arm, then by family: the mean over entities


class Nested(NamedTuple):
    """The outcome of a nested choice."""

    chosen: dict[str, str]  # by family: the arm that is best on the other families
    figures: dict[str, float]  # by family: the figure of that arm
    best: str  # the arm that is best on all families

    @property
    def counts(self) -> Counter[str]:
        """How often each arm was chosen."""
        return Counter(self.chosen.values())


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


def family_means(records: Iterable[Record], metric: str = RANKED_BY, *, references: bool = False) -> Figures:
    """Return the mean over the entities of each family, by arm; arms that lack an entity are left out."""
    names, arms, values = blocks(records, metric, "entity", references=references)
    families = list(dict.fromkeys(name[0] for name in names))
    rows = {family: [name[0] == family for name in names] for family in families}
    return {
        arm: {family: float(column[rows[family]].mean()) for family in families}
        for arm, column in zip(arms, values.T, strict=True)
    }


def nested_table(records: Sequence[Record], title: str, metric: str = RANKED_BY) -> ResultTable:
    """Return the mean of each arm by family, best first, and above them the nested choice."""
    figures = family_means(records, metric)
    nested = nested_choice(figures)
    families = list(nested.figures)
    common = [family for family in HEADLINE if family in families]
    columns = [*families, *([f"mean over {', '.join(common)}"] if common else []), "mean over families"]

    def row(arm: str, by_family: Mapping[str, float], note: str = "") -> ResultRow:
        means = [*([_mean(by_family, common)] if common else []), _mean(by_family, families)]
        return ResultRow(arm, tuple(Cell(value) for value in (*by_family.values(), *means)), note)

    order = sorted(figures, key=lambda arm: -_mean(figures[arm], families))
    rows = [row(NESTED, nested.figures)]
    for arm in order:
        count = nested.counts[arm]
        rows.append(row(arm, figures[arm], f"chosen {count} of {len(families)} times" if count else ""))
    shown = tuple(ResultColumn(name, scale=100) for name in columns)
    return ResultTable(title, shown, (Group("all", tuple(rows)),), _notes(nested, records, figures, metric))


def headline(records: Sequence[Record], metric: str = RANKED_BY) -> str:
    """Return the nested figure in one sentence, with that of the best arm beside it."""
    figures = family_means(records, metric)
    nested = nested_choice(figures)
    families = list(nested.figures)
    common = [family for family in HEADLINE if family in families]
    what = f"{100 * _mean(nested.figures, families):.1f} over all {len(families)} families"
    best = f"{100 * _mean(figures[nested.best], families):.1f}"
    if common:
        what = f"{100 * _mean(nested.figures, common):.1f} over {', '.join(common)}, and {what}"
        best = f"{100 * _mean(figures[nested.best], common):.1f} and {best}"
    return (
        f"Nested choice: mean {METRICS[metric].title} {what}, each family judged by the configuration chosen without "
        f"it. The best configuration, {nested.best}, has {best}; that figure is too high, because it was chosen on it."
    )


def _notes(nested: Nested, records: Sequence[Record], figures: Figures, metric: str) -> tuple[str, ...]:
    without = "; ".join(f"{family}: {arm}" for family, arm in nested.chosen.items())
    notes = [
        f"Figures are {METRICS[metric].title} in percent: the mean over the entities of a family.",
        f"Nested choice: chosen by the mean over the other families. {without}.",
    ]
    incomplete = [arm for arm in dict.fromkeys(record["arm"] for record in records) if arm not in figures]
    return (*notes, *([f"Left out, because they lack entities: {', '.join(incomplete)}."] if incomplete else []))

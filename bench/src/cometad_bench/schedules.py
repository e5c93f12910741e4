"""Deep baselines with their published schedule beside the same ones trained to convergence, on equal terms.

Both are compared on the entities and seeds that both have, which may be a part of a dataset, and the better one with
the base arm. Picking the better one by the test labels favors the deep baseline.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from cometad.metrics import METRICS
from cometad_bench.experiments import CONVERGED, SIMPLE
from cometad_bench.results import Record, latest
from cometad_bench.statistics import signed_rank
from cometad_bench.summaries import RANKABLE, RANKED_BY, REFERENCES
from cometad_bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable

Trial = tuple[str, int]  # entity and seed
Values = Mapping[Trial, float]


def has_both_schedules(records: Iterable[Record]) -> bool:
    """Return whether any deep baseline has a trial with either schedule."""
    return bool(_pairs(_values(records, RANKED_BY)))


def schedules_table(records: Iterable[Record], title: str, base: str, metric: str = RANKED_BY) -> ResultTable:
    """Return, by dataset and deep baseline, the mean of either schedule, and of the base arm on the same entities."""
    values = _values(records, metric)
    pairs = _pairs(values)
    groups = []
    for dataset in dict.fromkeys(dataset for dataset, _ in pairs):
        rows = [_row(values, dataset, arm, base) for where, arm in pairs if where == dataset]
        groups.append(Group(dataset, tuple(rows)))
    headers = ("published schedule", "trained to convergence", base, "best simple baseline", f"{base} ahead by")
    columns = (
        ResultColumn("entities", digits=0),
        *(ResultColumn(header, scale=100) for header in headers),
        ResultColumn("p", digits=4, is_probability=True),
    )
    notes = (
        f"Figures are {METRICS[metric].title} in percent, means over the entities and seeds that both schedules have.",
        f"{base} ahead by: of the better of the two schedules. Picking it by these figures favors the baseline. The "
        "best simple baseline is picked the same way.",
        "p: Wilcoxon's signed-rank test of that difference over entities, two-sided, not corrected for several tests.",
    )
    return ResultTable(title, columns, tuple(groups), notes)


def _row(values: Mapping[tuple[str, str], Values], dataset: str, arm: str, base: str) -> ResultRow:
    published, converged = values[dataset, arm], values[dataset, arm + CONVERGED]
    trials = [trial for trial in published if trial in converged]
    entities = list(dict.fromkeys(entity for entity, _ in trials))
    own = [_by_entity(one, entities, trials) for one in (published, converged)]
    better = max(own, key=_mean)
    ours = _by_entity(values.get((dataset, base), {}), entities)
    simple = [_by_entity(values.get((dataset, name), {}), entities) for name in SIMPLE if name not in REFERENCES]
    best = max((_mean(one) for one in simple if one is not None), default=None)
    cells = [Cell(float(len(entities))), *(Cell(_mean(one)) for one in own)]
    if ours is None:
        return ResultRow(arm, (*cells, Cell(), Cell(best), Cell(), Cell()))
    gains = [one - other for one, other in zip(ours, better or (), strict=True)]
    return ResultRow(arm, (*cells, Cell(_mean(ours)), Cell(best), Cell(_mean(gains)), Cell(signed_rank(gains))))


def _by_entity(values: Values, entities: list[str], trials: Iterable[Trial] = ()) -> list[float] | None:
    """Return the mean over seeds (those of `trials`, if any) of each entity; None if an entity has no figure."""
    wanted = set(trials)
    found = [
        [value for trial, value in values.items() if trial[0] == entity and (not wanted or trial in wanted)]
        for entity in entities
    ]
    return [float(np.mean(one)) for one in found] if all(found) else None


def _mean(values: list[float] | None) -> float:
    return float(np.mean(values or [np.nan]))


def _values(records: Iterable[Record], metric: str) -> dict[tuple[str, str], dict[Trial, float]]:
    values: dict[tuple[str, str], dict[Trial, float]] = {}
    for record in latest(records):
        figure = RANKABLE[metric].read(record)
        values.setdefault((record["dataset"], record["arm"]), {})[record["entity"], record["seed"]] = figure
    return values


def _pairs(values: Mapping[tuple[str, str], Values]) -> list[tuple[str, str]]:
    """Return the datasets and deep baselines with at least one trial that both schedules have."""
    return [
        (dataset, arm)
        for (dataset, arm), trials in values.items()
        if set(trials) & set(values.get((dataset, arm + CONVERGED), {}))
    ]

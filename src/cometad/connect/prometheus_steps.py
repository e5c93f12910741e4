"""PromQL on a grid of steps: which steps to query, and the responses as values (step, variable)."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.connect.address import Address
from cometad.connect.prometheus_api import BadEvaluation, Labeled, PrometheusApi, shortened
from cometad.data.cells import LARGEST, listed
from cometad.data.resample import parse_period
from cometad.errors import InputError, ParameterError

MOST_SERIES = 1000  # a query with `by` may return
_AGGREGATE = "Aggregate it, for example avg by (instance) (...), or pick one with a label."


class StepGrid:
    """The times at which queries are evaluated: whole multiples of the step, counted by `k`.

    Counting in whole milliseconds, as Prometheus does, keeps the steps from drifting.
    """

    def __init__(self, period: str) -> None:
        microseconds = parse_period(period)
        if microseconds % 1000:
            raise ParameterError(f"The period {period!r} is not a whole number of milliseconds. Prometheus needs one.")
        self.step = microseconds // 1000  # milliseconds

    def seconds(self, k: int) -> float:
        return k * self.step / 1000

    def before(self, seconds: float) -> int:
        return round(1000 * seconds) // self.step

    def after(self, seconds: float) -> int:
        return self.before(seconds) + 1


class Queries:
    """The queries of the variables: one each, or one query with a label that names the variables."""

    def __init__(self, address: Address, options: Mapping[str, Any]) -> None:
        if address.period is None:
            raise ParameterError(
                'A Prometheus source needs a period, the time between readings. Add period = "15s" or --period 15s.'
            )
        self.grid, self.tags = StepGrid(address.period), dict(address.tags)
        self.query, self.by, self._labels = options["query"], options["by"], options["labels"]
        if bool(self.tags) == bool(self.query):
            raise ParameterError(
                "Give either one query per variable (tags, or --tag cpu='avg(...)'), or one query for all variables "
                "(the options query and by)."
            )
        if self.query and not self.by:
            raise ParameterError("The option 'query' needs 'by': the label that names the variables, such as instance.")
        if self.by and not self.query:
            raise ParameterError("The option 'by' needs 'query'. Remove it, or give one query for all variables.")
        self.every = [self.query] if self.query else list(self.tags.values())
        self.api = PrometheusApi(address, options)

    def check_names(self, names: Sequence[str]) -> None:
        if not self.tags:
            return
        lacking = [name for name in names if name not in self.tags]
        extra = [name for name in self.tags if name not in names]
        if lacking:
            hint = f" The query for {listed(extra)} matches none of its variables." if extra else ""
            raise ParameterError(
                f"There is no query for the detector's variable {listed(lacking)}.{hint} Add it to the tags."
            )
        if extra:
            raise ParameterError(f"The detector has no variable {listed(extra)}. Remove that query from the tags.")

    def by_name(self, answers: Sequence[Sequence[Labeled]]) -> Iterator[tuple[str, str, Labeled]]:
        """Yield variable, query and series for all series in the responses to `every`."""
        if self.tags:
            for (name, query), answer in zip(self.tags.items(), answers, strict=True):
                yield from ((name, query, one) for one in self._picked(answer))
            return
        found = self._picked(answers[0])
        if len(found) > MOST_SERIES:
            raise BadEvaluation(f"The query {shortened(self.query)} returned {len(found):,} series. {_AGGREGATE}")
        for one in found:
            if self.by not in one.labels:
                raise BadEvaluation(
                    f"The query {shortened(self.query)} returned a series without the label {self.by!r} (it has "
                    f"{listed(list(one.labels)) if one.labels else 'none'}). Name one of its labels with the option by."
                )
            yield one.labels[self.by], self.query, one

    def _picked(self, answer: Sequence[Labeled]) -> list[Labeled]:
        return [one for one in answer if self._labels.items() <= one.labels.items()]

    async def at(self, k: int) -> list[list[Labeled]]:
        return await _all_of(self.api.at(query, k * self.grid.step) for query in self.every)

    async def over(self, page: range) -> list[list[Labeled]]:
        """The responses to all queries over the steps of a page, which may be coarser than those of the grid."""
        step = self.grid.step
        return await _all_of(
            self.api.over(one, page[0] * step, page[-1] * step, page.step * step) for one in self.every
        )

    def names_in(self, answers: Sequence[Sequence[Labeled]]) -> set[str]:
        return {name for name, _, _ in self.by_name(answers)}

    def placed(self, page: range, answers: Sequence[Sequence[Labeled]], names: Sequence[str]) -> Floats:
        """The values (step, variable) in the responses."""
        values = np.full((len(page), len(names)), np.nan)
        taken = np.zeros(values.shape, bool)
        place = {name: i for i, name in enumerate(names)}
        for name, query, series in self.by_name(answers):
            i = place.get(name)
            if i is None:
                continue
            steps, found = _on_grid(series, self.grid, page, query)
            if taken[steps, i].any():
                # At different steps, several series are fine: the label of a pod or a version has changed.
                raise self._several(name, answers, query)
            taken[steps, i] = True
            values[steps, i] = found
        values[np.abs(values) > LARGEST] = np.nan  # including +Inf and -Inf
        return values

    def _several(self, name: str, answers: Sequence[Sequence[Labeled]], query: str) -> BadEvaluation:
        count = sum(other == name for other, _, _ in self.by_name(answers))
        if self.tags:
            return BadEvaluation(f"The query {shortened(query)} for {name!r} returned {count:,} series. {_AGGREGATE}")
        return BadEvaluation(
            f"The query {shortened(query)} returned {count:,} series with {self.by}={name!r}. "
            f"Aggregate it, for example sum by ({self.by}) (...)."
        )

    def returned_nothing(self, name: str, steps: range) -> ParameterError:
        query, of = (self.tags[name], f" for {name!r}") if self.tags else (self.query, "")
        first, last = (shown_time(self.grid.seconds(steps[i])) for i in (0, -1))
        when = f"at {last}" if len(steps) == 1 else f"from {first} to {last}"
        return ParameterError(
            f"The query {shortened(query)}{of} returned nothing {when}. Check in Prometheus "
            "that the metric is scraped, and check its name and labels."
        )


async def _all_of(requests: Iterable[Coroutine[Any, Any, list[Labeled]]]) -> list[list[Labeled]]:
    """The responses to requests; the first failure cancels the others."""
    tasks = [asyncio.ensure_future(request) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _on_grid(series: Labeled, grid: StepGrid, page: range, query: str) -> tuple[NDArray[np.int64], Floats]:
    """The indices in a page of the samples of a series, and their values."""
    try:
        moments = np.rint(np.array([at for at, _ in series.samples], np.float64) * 1000).astype(np.int64)
        values = np.array([float(text) for _, text in series.samples])
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"The answer to {shortened(query)} has a sample that is not a number.") from error
    steps, rest = np.divmod(moments - page[0] * grid.step, grid.step)
    if rest.any() or (steps < 0).any() or (steps >= len(page)).any():
        raise InputError(
            f"The answer to {shortened(query)} has samples at other times than requested. "
            "Query Prometheus itself, not a cache that rounds times."
        )
    return steps, values


def shown_time(seconds: float) -> str:
    whole = float(seconds).is_integer()
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds" if whole else "milliseconds")
    return text.replace("+00:00", "Z")


def labels_in(text: str) -> dict[str, str]:
    labels = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ParameterError(f"Cannot read the labels {text!r}. Write them like instance=a:9100,job=node.")
        labels[name.strip()] = value.strip().strip('"')
    return labels

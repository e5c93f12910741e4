"""Prometheus: any PromQL query, evaluated step by step; history first, then each step once it is complete."""

import asyncio
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cometad.arrays import Floats
from cometad.connect.address import Address
from cometad.connect.contract import ReadingBatch
from cometad.connect.intake import Intake, Unused
from cometad.connect.prometheus_api import BadEvaluation, PrometheusApi, SlowQuery
from cometad.connect.prometheus_steps import (
    Queries,
    StepGrid,
    answers_to,
    ask_page,
    page_after,
    placed,
    returned_nothing,
    shown_time,
)
from cometad.data.matching import listed
from cometad.data.resample import parse_period
from cometad.errors import InputError, ParameterError
from cometad.live.readings import Layout

if TYPE_CHECKING:
    import polars as pl

OPTIONS = ("query", "by", "labels", "back_fill", "delay", "token_variable", "timeout")
MOST_STEPS = 10_000  # in a request; Prometheus allows 11,000
MOST_CELLS = 500_000  # in a page: steps times variables
MOST_HISTORY = 10_000_000  # steps in a table
LONGEST_SLEEP = 60.0  # seconds: the clock of the server may have jumped
AHEAD = 86_400.0  # seconds; a stream refuses readings further ahead of the local clock

Item = TypeVar("Item")


class PrometheusSource:
    """Evaluates PromQL for each variable on a grid of steps; starts with history if `back_fill` is set.

    A step is queried once it is older than `delay`, so that its samples exist. After an outage or a restart, it resumes
    at the step after the stream's last reading. No step is queried twice.
    """

    def __init__(self, address: Address) -> None:
        address.check_options(OPTIONS)
        if address.stream is None:
            raise ParameterError('A Prometheus source needs the stream of its readings. Add stream = "NAME".')
        self._stream = address.stream
        self._grid, self._queries, self._api = _grid_of(address), Queries(address), PrometheusApi(address)
        self._delay = _delay(address, self._grid)
        self._back_fill = _option_seconds(address, "back_fill", 0.0)
        self._next: int | None = None  # the next step to query
        self._most = MOST_STEPS
        self._lacking: list[str] = []

    async def run(self, intake: Intake) -> None:
        """Pull until cancelled."""
        async with self._api as api:
            layout = await self._checked(api, intake)
            intake.connected()
            self._lacking = []
            while True:
                if intake.layout(self._stream) != layout:  # the stream has a new detector
                    layout = await self._checked(api, intake)
                now = await self._now(api)
                first, due = self._first(intake, now), self._due(now)
                if first > due:
                    wait = self._grid.seconds(first) + self._delay - now
                    await asyncio.sleep(min(max(wait, 0.01), LONGEST_SLEEP))
                    continue
                most = max(1, min(self._most, MOST_CELLS // len(layout.names)))
                await self._pull(api, intake, page_after(first, due + 1, most), layout)

    def _due(self, now: float) -> int:
        """The last step that is old enough to query."""
        return self._grid.before(now - self._delay)

    def _first(self, intake: Intake, now: float) -> int:
        """The next step: after those already queried, and after the last reading of the stream."""
        last = intake.last_time(self._stream)
        if last is not None:
            return max(self._grid.after(last), self._next or 0)
        if self._next is None:
            self._next = max(0, self._due(now - self._back_fill))
        return self._next

    async def _pull(self, api: PrometheusApi, intake: Intake, page: range, layout: Layout) -> None:
        """Fetch a page and deliver it; a page that is too much for Prometheus is halved."""
        try:
            answers = await ask_page(api, self._queries, self._grid, page)
            values, _ = placed(self._queries, self._grid, page, answers, layout.names)
        except (BadEvaluation, SlowQuery) as error:
            if len(page) > 1:
                self._most = len(page) // 2
                return
            if isinstance(error, SlowQuery) or intake.last_time(self._stream) is None:
                raise
            # This step can never be evaluated, and must not block those after it.
            await intake.put_all_aside([self._unused(page, str(error))], self._stream)
        else:
            await self._deliver(intake, page, values, layout)
            self._most = min(MOST_STEPS, 2 * self._most)
        if intake.layout(self._stream) == layout:  # otherwise they were refused and are queried again
            self._next = page.stop

    async def _deliver(self, intake: Intake, page: range, values: Floats, layout: Layout) -> None:
        missing = np.isnan(values)  # (step, variable)
        useful = ~missing.all(axis=1)
        if not layout.gaps:
            gaps = useful & missing.any(axis=1)
            aside = [
                self._unused(page[stretch], _no_gaps(_chosen(layout.names, missing[stretch].any(axis=0))))
                for stretch in _runs_of(gaps)
            ]
            await intake.put_all_aside(aside, self._stream)
            useful &= ~gaps
        times = [self._grid.seconds(k) for k in _chosen(page, useful)]
        if times:
            nothing, lines = [None] * len(times), range(1, len(times) + 1)
            await intake.deliver([ReadingBatch(self._stream, layout.names, values[useful], times, nothing, lines)])
            intake.connection.last_message = time.time()
        self._tell(intake, _chosen(layout.names, missing.all(axis=0)), page)

    def _tell(self, intake: Intake, lacking: list[str], page: range) -> None:
        """Report variables without values."""
        if lacking != self._lacking:
            since = f"Prometheus has no value for {listed(lacking)} since {shown_time(self._grid.seconds(page[0]))}."
            intake.mark("connected", since if lacking else None)
            self._lacking = lacking

    def _unused(self, page: range, reason: str) -> Unused:
        first, last = (shown_time(self._grid.seconds(page[i])) for i in (0, -1))
        where = first if len(page) == 1 else f"{first} to {last}"
        content = {"from": first, "to": last, "steps": len(page), "queries": self._queries.every}
        return Unused(where, json.dumps(content).encode(), reason)

    async def _now(self, api: PrometheusApi) -> float:
        now = await api.now()
        if now > time.time() + AHEAD:
            raise InputError(
                f"The clock of {api.url} is at {shown_time(now)}, days ahead of the local clock. Correct one of them."
            )
        return now

    async def _checked(self, api: PrometheusApi, intake: Intake) -> Layout:
        """The layout of the stream. Every query is evaluated once, so a wrong one is refused before any reading."""
        layout = intake.layout(self._stream)
        self._queries.check_names(layout.names)
        now = await self._now(api)
        latest = self._due(now)
        answers = await answers_to(api.at(query, latest * self._grid.step) for query in self._queries.every)
        _, lacking = placed(self._queries, self._grid, range(latest, latest + 1), answers, layout.names)
        if lacking and intake.last_time(self._stream) is None:  # later, it is a target that is down
            await self._check_names_in(api, range(max(0, self._due(now - self._back_fill)), latest + 1), lacking)
        return layout

    async def _check_names_in(self, api: PrometheusApi, steps: range, lacking: list[str]) -> None:
        """Refuse variables that have no series at any of the steps, sampled coarsely."""
        coarse = math.ceil(len(steps) / MOST_STEPS) * self._grid.step
        span = (steps[0] * self._grid.step, steps[-1] * self._grid.step, coarse)
        answers = await answers_to(api.over(query, *span) for query in self._queries.every)
        found = {name for name, _, _ in self._queries.by_name(answers)}
        absent = next((name for name in lacking if name not in found), None)
        if absent is None:
            return
        if self._queries.tags or not found:
            query = self._queries.tags.get(absent, self._queries.query)
            raise returned_nothing(query, absent if self._queries.tags else "", self._grid, steps)
        raise ParameterError(
            f"No series has {self._queries.by}={absent!r}, a variable of the detector; found "
            f"{listed(sorted(found))}. Choose the label whose values are the detector's variables, or fit it on these."
        )


def _chosen(items: Sequence[Item], where: Any) -> list[Item]:
    return [item for item, use in zip(items, where.tolist(), strict=True) if use]


def _no_gaps(lacking: list[str]) -> str:
    return (
        f"Prometheus has no value for {listed(lacking)}, and the detector has no gap rule. "
        "Fit it with one, such as gaps=ForwardFill(limit=5)."
    )


def _runs_of(where: Any) -> Iterator[slice]:
    """The stretches of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], where, [False]])))
    for start, stop in edges.reshape(-1, 2).tolist():
        yield slice(start, stop)


def history(address: Address, start: str | datetime, stop: str | datetime | None = None) -> "pl.DataFrame":
    """A frame with a time column and one column per variable, to fit a detector on.

    `start` and `stop` are datetimes or text such as 2026-03-01T00:00:00Z, in UTC unless they name a zone; `start` may
    also be a period before `stop`, such as 14d. `stop` defaults to now, less the delay. Steps without any value are
    omitted; other missing values are null. With `query` and `by`, there is a column for each value of the label.
    """
    address.check_options(OPTIONS)
    grid, queries, api = _grid_of(address), Queries(address), PrometheusApi(address)
    end = time.time() - _delay(address, grid) if stop is None else _moment(stop)
    begin = max(0.0, _begin(start, end))
    steps = range(grid.after(begin - grid.step / 1000), grid.after(end))
    if len(steps) > MOST_HISTORY:
        raise ParameterError(f"These are {len(steps):,} steps. Choose a later start or a longer period.")
    if not steps:
        raise ParameterError(
            f"There is no step of {address.period} from {shown_time(begin)} to {shown_time(end)}. "
            "Choose an earlier start."
        )
    with ThreadPoolExecutor(1) as pool:  # also works in a notebook, where this thread already has a loop
        columns = pool.submit(lambda: asyncio.run(_all_pages(api, queries, grid, steps))).result()
    return _frame(grid, steps, columns, queries)


async def _all_pages(api: PrometheusApi, queries: Queries, grid: StepGrid, steps: range) -> dict[str, Floats]:
    """The values (step,) of each variable."""
    found: dict[str, Floats] = {name: np.full(len(steps), np.nan) for name in queries.tags}
    first, most = steps.start, MOST_STEPS
    async with api:
        while first < steps.stop:
            page = page_after(first, steps.stop, most)
            try:
                answers = await ask_page(api, queries, grid, page)
                names = list(queries.tags) or sorted({name for name, _, _ in queries.by_name(answers)})
                values, _ = placed(queries, grid, page, answers, names)
            except (BadEvaluation, SlowQuery):
                if len(page) == 1:
                    raise
                most = len(page) // 2
                continue
            for i, name in enumerate(names):
                column = found.setdefault(name, np.full(len(steps), np.nan))
                column[first - steps.start : page.stop - steps.start] = values[:, i]
            first = page.stop
    return found


def _frame(grid: StepGrid, steps: range, columns: dict[str, Floats], queries: Queries) -> "pl.DataFrame":
    import polars as pl

    for name, query in queries.tags.items() or [("", queries.query)]:
        if not columns or (name and np.isnan(columns[name]).all()):
            raise returned_nothing(query, name, grid, steps)
    if "time" in columns:
        raise ParameterError("A variable cannot be called 'time' in a table. Give it another name.")
    times = pl.Series("time", np.arange(steps.start, steps.stop) * grid.step).cast(pl.Datetime("ms", "UTC"))
    frame = pl.DataFrame({"time": times, **columns}).with_columns(pl.col(pl.Float64).fill_nan(None))
    return frame.filter(pl.any_horizontal(pl.col(pl.Float64).is_not_null()))


def _grid_of(address: Address) -> StepGrid:
    if address.period is None:
        raise ParameterError(
            'A Prometheus source needs a period, the time between readings. Add period = "15s" or --period 15s.'
        )
    return StepGrid(address.period)


def _delay(address: Address, grid: StepGrid) -> float:
    return _option_seconds(address, "delay", grid.step / 1000)


def _option_seconds(address: Address, name: str, default: float) -> float:
    text = address.option(name, "")
    return parse_period(text) / 1e6 if text else default


def _begin(start: str | datetime, end: float) -> float:
    is_period = isinstance(start, str) and re.fullmatch(r"[\d.]+ *[a-z]+", start.strip())
    return end - parse_period(start) / 1e6 if is_period else _moment(start)


def _moment(moment: str | datetime) -> float:
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError as error:
            raise ParameterError(
                f"Cannot read the time {moment!r}. Write it like 2026-03-01T00:00:00Z, or as a period such as 14d."
            ) from error
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()

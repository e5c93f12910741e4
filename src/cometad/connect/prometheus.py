"""Prometheus: any PromQL query, evaluated step by step; history first, then each step once it is complete."""

import asyncio
import json
import math
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import polars as pl

from cometad.arrays import Floats
from cometad.connect.address import Address, Option, seconds_of
from cometad.connect.contract import ReadingBatch, Rejection
from cometad.connect.intake import Intake
from cometad.connect.prometheus_api import BadEvaluation, SlowQuery, token_in
from cometad.connect.prometheus_steps import Queries, labels_in, shown_time
from cometad.connect.source import ConnectedSource
from cometad.data.cells import listed
from cometad.data.resample import parse_period
from cometad.data.text import Layout
from cometad.errors import InputError, ParameterError

OPTIONS = {
    "query": Option(),
    "by": Option(),
    "labels": Option("", labels_in),
    "back_fill": Option("", lambda text: seconds_of(text) or 0.0),
    "delay": Option("", seconds_of),
    "token_variable": Option("", token_in),
    "timeout": Option("30s", lambda text: parse_period(text) / 1e6),
}
MOST_STEPS = 10_000  # in a request; Prometheus allows 11,000
MOST_CELLS = 500_000  # in a page: steps times variables
MOST_HISTORY = 10_000_000  # steps in a table
LONGEST_SLEEP = 60.0  # seconds: the clock of the server may have jumped
AHEAD = 86_400.0  # seconds; a stream refuses readings further ahead of the local clock
NO_GAPS = (
    "Prometheus has no value for {}, and the detector has no gap rule. "
    "Fit it with one, such as gaps=ForwardFill(limit=5)."
)


class PrometheusSource(ConnectedSource):
    """Evaluates PromQL for each variable on a grid of steps; starts with history if `back_fill` is set.

    A step is queried once it is older than `delay`, so that its samples exist. After an outage or a restart, it resumes
    at the step after the stream's last reading. No step is queried twice.
    """

    OPTIONS: ClassVar = OPTIONS

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        if address.stream is None:
            raise ParameterError('A Prometheus source needs the stream of its readings. Add stream = "NAME".')
        self._stream, self._queries = address.stream, Queries(address, self.options)
        self._grid, self._api = self._queries.grid, self._queries.api
        self._delay = self.options["delay"] or self._grid.step / 1000
        self._next: int | None = None  # the next step to query
        self._most = MOST_STEPS

    async def open(self, intake: Intake, closing: AsyncExitStack) -> None:
        await closing.enter_async_context(self._api.opened())
        self._layout = await self._checked(intake)
        self._lacking: list[str] = []

    async def pull(self, intake: Intake) -> None:
        while True:
            if await self._layout_now(intake) != self._layout:  # the stream has a new detector
                self._layout = await self._checked(intake)
            now = await self._now()
            first, due = await self._first(intake, now), self._due(now)
            if first > due:
                wait = self._grid.seconds(first) + self._delay - now
                await asyncio.sleep(min(max(wait, 0.01), LONGEST_SLEEP))
                continue
            most = max(1, min(self._most, MOST_CELLS // len(self._layout.names)))
            await self._pull(intake, range(first, min(due + 1, first + most)))

    async def _layout_now(self, intake: Intake) -> Layout:
        return await asyncio.to_thread(intake.layout, self._stream)

    async def _last_time(self, intake: Intake) -> float | None:
        return await asyncio.to_thread(intake.last_time, self._stream)

    def _due(self, now: float) -> int:
        return self._grid.before(now - self._delay)

    async def _first(self, intake: Intake, now: float) -> int:
        """The next step: after those already queried, and after the last reading of the stream."""
        last = await self._last_time(intake)
        if last is not None:
            return max(self._grid.after(last), self._next or 0)
        if self._next is None:
            self._next = max(0, self._due(now - self.options["back_fill"]))
        return self._next

    async def _pull(self, intake: Intake, page: range) -> None:
        """Fetch a page and deliver it; a page that is too much for Prometheus is halved."""
        try:
            values = self._queries.placed(page, await self._queries.over(page), self._layout.names)
        except (BadEvaluation, SlowQuery) as error:
            if len(page) > 1:
                self._most = len(page) // 2
                return
            if isinstance(error, SlowQuery) or await self._last_time(intake) is None:
                raise
            # This step can never be evaluated, and must not block those after it.
            await intake.reject([self._rejection(page, str(error))])
        else:
            await self._deliver(intake, page, values)
            self._most = min(MOST_STEPS, 2 * self._most)
        if await self._layout_now(intake) == self._layout:  # otherwise they were refused and are queried again
            self._next = page.stop

    async def _deliver(self, intake: Intake, page: range, values: Floats) -> None:
        layout = self._layout
        missing: Any = np.isnan(values)  # (step, variable)
        useful = ~missing.all(axis=1)
        if not layout.gaps:
            gaps = useful & missing.any(axis=1)
            stretches = [(page[one], compress(layout.names, missing[one].any(axis=0))) for one in _runs_of(gaps)]
            await intake.reject(
                [self._rejection(steps, NO_GAPS.format(listed([*names]))) for steps, names in stretches]
            )
            useful &= ~gaps
        times = [self._grid.seconds(k) for k in compress(page, useful)]
        if times:
            await intake.deliver([ReadingBatch.on_grid(self._stream, layout.names, times, values[useful])])
        self._tell(intake, list(compress(layout.names, missing.all(axis=0))), page)

    def _tell(self, intake: Intake, lacking: list[str], page: range) -> None:
        if lacking != self._lacking:
            since = f"Prometheus has no value for {listed(lacking)} since {shown_time(self._grid.seconds(page[0]))}."
            intake.mark("connected", since if lacking else None)
            self._lacking = lacking

    def _rejection(self, page: range, reason: str) -> Rejection:
        first, last = (shown_time(self._grid.seconds(page[i])) for i in (0, -1))
        where = first if len(page) == 1 else f"{first} to {last}"
        content = {"from": first, "to": last, "steps": len(page), "queries": self._queries.every}
        return Rejection(where, json.dumps(content).encode(), reason, self._stream)

    async def _now(self) -> float:
        now = await self._api.now()
        if now > time.time() + AHEAD:
            raise InputError(
                f"The clock of {self._api.url} is at {shown_time(now)}, days ahead of the local clock. "
                "Correct one of them."
            )
        return now

    async def _checked(self, intake: Intake) -> Layout:
        """The layout of the stream. Every query is evaluated once, so a wrong one is refused before any reading."""
        layout = await self._layout_now(intake)
        self._queries.check_names(layout.names)
        now = await self._now()
        latest = self._due(now)
        answers = await self._queries.at(latest)
        self._queries.placed(range(latest, latest + 1), answers, layout.names)  # refuses several series of a variable
        found = self._queries.names_in(answers)
        lacking = [name for name in layout.names if name not in found]
        if lacking and await self._last_time(intake) is None:  # later, it is a target that is down
            await self._check_names_in(range(max(0, self._due(now - self.options["back_fill"])), latest + 1), lacking)
        return layout

    async def _check_names_in(self, steps: range, lacking: list[str]) -> None:
        """Refuse variables that have no series at any of the steps, sampled coarsely."""
        queries = self._queries
        found = queries.names_in(await queries.over(steps[:: math.ceil(len(steps) / MOST_STEPS)]))
        absent = next((name for name in lacking if name not in found), None)
        if absent is None:
            return
        if queries.tags or not found:
            raise queries.returned_nothing(absent, steps)
        raise ParameterError(
            f"No series has {queries.by}={absent!r}, a variable of the detector; found "
            f"{listed(sorted(found))}. Choose the label whose values are the detector's variables, or fit it on these."
        )


def _runs_of(where: Any) -> Iterator[slice]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], where, [False]])))
    for start, stop in edges.reshape(-1, 2).tolist():
        yield slice(start, stop)


def history(address: Address, start: str | datetime, stop: str | datetime | None = None) -> pl.DataFrame:
    """A frame with a time column and one column per variable, to fit a detector on.

    `start` and `stop` are datetimes or text such as 2026-03-01T00:00:00Z, in UTC unless they name a zone; `start` may
    also be a period before `stop`, such as 14d. `stop` defaults to now, less the delay. Steps without any value are
    omitted; other missing values are null. With `query` and `by`, there is a column for each value of the label.
    """
    options = address.read_options(OPTIONS)
    queries = Queries(address, options)
    grid = queries.grid
    end = time.time() - (options["delay"] or grid.step / 1000) if stop is None else _moment(stop)
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
        columns = pool.submit(lambda: asyncio.run(_all_pages(queries, steps))).result()
    return _frame(queries, steps, columns)


async def _all_pages(queries: Queries, steps: range) -> dict[str, Floats]:
    found = {name: np.full(len(steps), np.nan) for name in queries.tags}
    first, most = steps.start, MOST_STEPS
    async with queries.api.opened():
        while first < steps.stop:
            page = range(first, min(steps.stop, first + most))
            try:
                answers = await queries.over(page)
                names = list(queries.tags) or sorted(queries.names_in(answers))
                values = queries.placed(page, answers, names)
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


def _frame(queries: Queries, steps: range, columns: dict[str, Floats]) -> pl.DataFrame:
    for name in queries.tags or [""]:
        if not columns or (name and np.isnan(columns[name]).all()):
            raise queries.returned_nothing(name, steps)
    if "time" in columns:
        raise ParameterError("A variable cannot be called 'time' in a table. Give it another name.")
    times = pl.Series("time", np.arange(steps.start, steps.stop) * queries.grid.step).cast(pl.Datetime("ms", "UTC"))
    frame = pl.DataFrame({"time": times, **columns}).with_columns(pl.col(pl.Float64).fill_nan(None))
    return frame.filter(pl.any_horizontal(pl.col(pl.Float64).is_not_null()))


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

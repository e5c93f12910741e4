"""Long work shown: how far it is, what it says, how long it will take."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int, str], None]

EVERY = 10.0  # seconds between two lines in a log


@contextmanager
def shown(title: str, on: bool) -> Iterator[Report]:
    """A function to call with the steps done, the steps in all and a note; it tells them on stderr if `on`.

    On a terminal it draws a bar; elsewhere, in a log, it writes a line now and then, and the first and the last one.

    >>> from cometad.progress import shown
    >>> with shown("training", on=False) as report:
    ...     report(1, 20, "loss 0.5")
    """
    if not on:
        yield lambda done, total, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title)
        return
    rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)  # where it is narrow, the note is cut, not the count
    columns = (
        TextColumn("{task.description}"),
        BarColumn(10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", table_column=rest),
    )
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task(title, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)


def _lines(title: str) -> Report:
    last = -math.inf

    def report(done: int, total: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY or done == total:
            print(f"{title} {done}/{total} {note}".rstrip(), file=sys.stderr, flush=True)
            last = now

    return report

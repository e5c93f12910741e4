"""Progress reporting: a bar on a terminal, occasional lines in a log."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ProgressCallback = Callable[[int, int, str], None]  # steps done, steps in total, a note such as the current loss

EVERY = 10.0  # seconds between two lines in a log


@contextmanager
def show_progress(title: str, on: bool) -> Iterator[ProgressCallback]:
    """A callback that shows progress on stderr, or does nothing unless `on`.

    Call it with the steps done, the steps in total and a note. On a terminal it draws a bar. Elsewhere it prints a line
    every ten seconds, and always the first and the last one.
    """
    if not on:
        yield lambda done, total, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_lines(title)
        return
    rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)  # a narrow terminal cuts off the note, not the count
    columns = (
        TextColumn("{task.description}"),
        BarColumn(10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", table_column=rest),
    )
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task(title, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)


def _print_lines(title: str) -> ProgressCallback:
    last = -math.inf

    def report(done: int, total: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY or done == total:
            print(f"{title} {done}/{total} {note}".rstrip(), file=sys.stderr, flush=True)
            last = now

    return report


def in_words(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

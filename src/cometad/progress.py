"""Long work shown on the terminal: how far it is, what it says, how long it will take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int, str], None]


@contextmanager
def shown(title: str, on: bool) -> Iterator[Report]:
    """A function to call with the steps done, the steps in all and a note; it draws a bar on stderr if `on`.

    >>> from cometad.progress import shown
    >>> with shown("training", on=False) as report:
    ...     report(1, 20, "loss 0.5")
    """
    if not on:
        yield lambda done, total, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(10), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)

"""`cometad data list` and `cometad data check`."""

from dataclasses import astuple
from typing import TYPE_CHECKING, Annotated

import typer

from cometad.cli import options
from cometad.cli.exits import add_verb

if TYPE_CHECKING:
    from rich.console import Console

    from cometad_bench.datasets.readers import Check, Status


def show_list(data_dir: options.DataDir = None) -> None:
    """List the benchmark datasets: where each was found, and how to get the others. Opens no files."""
    from rich.table import Table

    from cometad_bench.datasets.readers import READERS, status

    table = Table("dataset", "found in", "how to get it")
    for name in READERS:
        found = status(name, data_dir)
        table.add_row(name, str(found.location or "-"), "" if found.found else found.how_to_get)
    _console().print(table)


def show_check(
    names: Annotated[list[str] | None, typer.Argument(help="Datasets such as MSL. Default: all.")] = None,
    data_dir: options.DataDir = None,
) -> None:
    """Read the datasets that were found and compare their counts with the published ones."""
    from cometad.cli.exits import say
    from cometad.errors import InputError, unknown
    from cometad_bench.datasets.readers import READERS, check, status

    for name in names or []:
        if name not in READERS:
            raise unknown("dataset", name, READERS)
    checks: list[Check] = []
    absent: list[Status] = []
    damaged: list[InputError] = []
    for name in names or READERS:
        found = status(name, data_dir)
        if not found.found:
            absent.append(found)
            continue
        say(f"Reading {name} in '{found.location}'.")
        try:
            checks.append(check(name, data_dir))
        except InputError as error:
            damaged.append(error)
    console = _console()
    if checks:
        _print_checks(checks, console)
    for found in absent:
        console.print(f"{found.name} was not found. {found.how_to_get}", highlight=False, markup=False)
    for problem in damaged[:-1]:
        say(problem)
    if damaged:
        raise damaged[-1]


def _print_checks(checks: "list[Check]", console: "Console") -> None:
    from rich.table import Table

    table = Table("dataset", title="found / published")
    for column in ("entities", "train", "test", "variables", "anomalies %"):
        table.add_column(column, justify="right")
    table.add_column("")
    for check in checks:
        pairs = zip(astuple(check.found), astuple(check.published), strict=True)
        verdict = "agrees" if check.agrees else "differs"
        table.add_row(check.name, *(f"{ours:,} / {theirs:,}" for ours, theirs in pairs), verdict)
    console.print(table)


def _console() -> "Console":
    from rich.console import Console

    from cometad.cli.exits import check_open

    check_open()
    console = Console()
    if not console.is_terminal:
        console.width = 200  # do not wrap in a file
    return console


app = typer.Typer(no_args_is_help=True)
add_verb(app, "list", show_list, "cometad data list --data-dir ~/datasets")
add_verb(app, "check", show_check, "cometad data check MSL SMAP")

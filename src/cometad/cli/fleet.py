"""`cometad fleet fit`, `score`, `report`, `list` and `check`."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometad.cli.chosen import DetectorOptions
from cometad.cli.exits import FAILED, plain_table, printable, say, say_first, show, write_output
from cometad.cli.opened import scored
from cometad.cli.options import AlertOptions, Force, ReadingOptions, flag
from cometad.cli.paths import Output, check_ending, check_outputs
from cometad.errors import InputError, ModelFileError

if TYPE_CHECKING:
    import polars as pl

    from cometad.alerting.alerts import Level
    from cometad.fleet.storage import Entry

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Readings of all entities: a .csv or .parquet file, or a folder of them, possibly with subfolders such as "
        "machine=7. With --by, one table; without, a folder with one file per entity.",
    ),
]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Fleet written by cometad fleet fit.")]
By = Annotated[str | None, typer.Option("--by", metavar="COLUMN", help="Column with the entity of each reading.")]


@dataclass(frozen=True)
class WorkOptions:
    """Which readings belong to which entity, how to read them, and where the work runs."""

    by: By = None
    engine: str = flag("local (processes on this machine) or ray.", default="local")
    address: str | None = flag("With --engine ray: an existing cluster. Default: start one here.", metavar="HOST:PORT")
    workers: int | None = flag("Number of workers. Default: one per core.", min=1)
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def value(self) -> dict[str, Any]:
        """The arguments that the methods of a fleet have in common."""
        read = self.reading.value()
        where = {"by": self.by, "engine": self.engine, "address": self.address, "workers": self.workers}
        return where | vars(read) | {"verbose": True}


def fit(
    data: Data,
    output: Path = flag("Folder to write the fleet to.", "--output", "-o", default=..., metavar="FOLDER"),
    pool: int | None = flag(
        "Entities with fewer readings borrow from others with the same variables, such as --pool 2000.",
        metavar="READINGS",
        min=1,
    ),
    *,
    work: WorkOptions,
    retry: bool = flag("Retry entities that failed before.", "--retry", default=False),
    refit: bool = flag("Refit everything, possibly with other parameters.", "--refit", default=False),
    method: DetectorOptions,
) -> None:
    """Fit one detector per entity of a table or a folder, and keep them in one folder.

    An entity that cannot be fitted is recorded with the reason and does not stop the rest; the exit code is then 1.
    After an interrupt, the same command resumes. On a finished fleet, it fits only what is new or has changed.
    """
    from cometad.fleet.fleet import Fleet

    options_given = work.value()
    fleet = Fleet.fit(
        data, folder=output, detector=method.value(), pool=pool or 0, retry=retry, refit=refit, **options_given
    )
    run = fleet.run
    _say_problems(run.failed)
    if run.pooled:
        say(f"Entities with fewer than {pool:,} readings that borrowed from others: {run.pooled:,}.")
    if run.absent:
        say(f"{run.absent:,} entities of the fleet are not in the data; their detectors were kept.")
    if run.failed_before:
        say("Pass --retry to retry entities that failed before.")
    print(f"{run.sentence()} The fleet in '{printable(output)}' has {len(fleet):,} detectors.")
    if run.failed:
        raise typer.Exit(FAILED)


def score(
    folder: Folder,
    data: Data,
    output: Path = flag("The .csv, .parquet or .jsonl file to write.", "--output", "-o", default=...),
    *,
    work: WorkOptions,
    force: Force = False,
    alerts: AlertOptions,
) -> None:
    """Score the readings of all entities, each with its own detector.

    Writes one row per reading: the entity, then the columns of cometad score; columns that do not apply are empty. How
    to read the data (--by, --time-column, --drop, ...) defaults to the options of the fit. An entity that cannot be
    scored is reported and does not stop the rest; the exit code is then 1.
    """
    from cometad.data.writing import check_suffix, write_chunks
    from cometad.fleet.fleet import Fleet

    options_given, rule = work.value(), alerts.value()
    check_suffix(output)
    check_outputs([Output(output, "fleet scores")], [data, folder], force)
    fleet = Fleet.load(folder)
    totals = _ScoreTotals()
    write_chunks(output, totals.over(fleet.score_each(data, alerts=rule, **options_given)))
    _say_problems(totals.failed)
    entities = f" of {totals.entities:,} entities"
    say(f"{scored(totals.readings, totals.anomalous, totals.levels, entities)} Wrote '{output}'.")
    if totals.failed:
        raise typer.Exit(FAILED)


class _ScoreTotals:
    def __init__(self) -> None:
        self.readings = self.anomalous = self.entities = 0
        self.levels: Counter[Level] = Counter()
        self.failed: dict[str, str] = {}

    def over(self, scored: Any) -> "Iterator[pl.DataFrame]":
        for name, answer in scored:
            if answer.rows is None:
                self.failed[name] = answer.error
                continue
            self.entities += 1
            self.readings += len(answer.rows)
            self.anomalous += int(answer.rows["anomaly"].sum())
            self.levels["alert"] += answer.alerts
            self.levels["notice"] += answer.notices
            yield answer.rows
        if not self.entities:
            first = next(iter(self.failed), "")
            raise InputError(f"No entity of the data could be scored. {first!r}: {self.failed.get(first)}")


def _say_problems(failed: Mapping[str, str]) -> None:
    sentences = [f"{name}: {error}" for name, error in failed.items()]
    say_first(sentences, "{:,} more failed; cometad fleet list shows all failed fits.")


def report(
    folder: Folder,
    data: Data,
    output: Path = flag(
        "The .html file to write; entity reports go into a folder next to it.",
        "--output",
        "-o",
        default=Path("fleet.html"),
    ),
    most: int = flag("Number of entities with their own report, worst first.", default=50, min=0),
    most_events: int = flag("Events to explain in each report.", default=10, min=0),
    *,
    work: WorkOptions,
    force: Force = False,
    alerts: AlertOptions,
) -> None:
    """Write a page that lists all entities, worst alert first, and links to reports of the worst."""
    from cometad.fleet.fleet import Fleet

    options_given, rule = work.value(), alerts.value()
    check_ending(output, ".html", ".htm")
    check_outputs([Output(output, "overview")], [data, folder], force)
    written = Fleet.load(folder).report(data, output, most=most, most_events=most_events, alerts=rule, **options_given)
    lost = {line.name: f"no report: {line.no_report}" for line in written.lines if line.no_report is not None}
    _say_problems(lost)
    reports = f"{written.pages:,} report{'' if written.pages == 1 else 's'}"
    say(f"{written.headline}. Wrote '{output}' and {reports} in '{written.folder}'.")
    if lost:
        raise typer.Exit(FAILED)


def show_list(
    folder: Folder,
    failed: bool = flag("Only entities without a detector, with the reason.", "--failed", default=False),
    as_json: bool = flag("Print one JSON object per line instead of a table.", "--json", default=False),
) -> None:
    """List the entities of a fleet: readings, variables, threshold, and why a fit failed."""
    from cometad.fleet.fleet import Fleet

    entries = Fleet.load(folder).entries
    chosen = [entries[name] for name in sorted(entries) if not (failed and entries[name].is_fitted)]
    if as_json:
        for entry in chosen:
            write_output(json.dumps(asdict(entry)) + "\n")
        return
    numbers = ("readings", "variables", "threshold", "seconds")
    show(plain_table(("entity", *numbers, "status"), numbers, map(_row, chosen)))


def _row(entry: "Entry") -> list[str]:
    limit = "" if entry.threshold is None else f"{entry.threshold:.4g}"
    status = entry.status if entry.error is None else f"failed: {entry.error}"
    status += f", borrows from {len(entry.donors)}" if entry.donors and entry.is_fitted else ""
    numbers = (f"{entry.readings or 0:,}", str(len(entry.variables)), limit, f"{entry.seconds:.3g}")
    return [entry.name, *numbers, status]


def check(
    folder: Folder,
    data: Annotated[Path | None, typer.Argument(metavar="[DATA]", help="Readings to compare the fleet with.")] = None,
    by: By = None,
) -> None:
    """Verify every detector of a fleet, and list entities that differ from the rest.

    With DATA, also list entities that the fleet lacks and entities without readings. The exit code is 2 if a detector
    is damaged.
    """
    from cometad.fleet.fleet import Fleet

    fleet = Fleet.load(folder)
    found = fleet.check(data, by)
    _say_problems({name: f"was not fitted. {why}" for name, why in found.failed.items()})
    _say_problems({name: f"{why}, unlike most entities." for name, why in found.different.items()})
    _say_problems(dict.fromkeys(found.unknown, "is in the data, but not in the fleet."))
    _say_problems(dict.fromkeys(found.silent, "is in the fleet, but has no readings in the data."))
    if found.damaged:
        why = next(iter(found.damaged.values()))
        more = f" So are {len(found.damaged) - 1:,} more." if len(found.damaged) > 1 else ""
        raise ModelFileError(why + more)
    print(
        f"Intact detectors: {len(fleet):,}. Entities that were not fitted: {len(found.failed):,}; with other variables "
        f"than most: {len(found.different):,}."
    )

"""The overview of a fleet: one page with all entities, worst first, and reports of the worst."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from cometad.errors import OutputError
from cometad.files import write_whole
from cometad.fleet.engines import EntityWork
from cometad.fleet.jobs import PageAnswer, ScoreTask, page_of_entity
from cometad.report.html import render

if TYPE_CHECKING:
    from cometad.fleet.fleet import EntityScores

MARK = ".cometad-fleet-report"  # marks a folder of reports as ours


class EntityLine(NamedTuple):
    name: str
    readings: int = 0
    flagged: float = 0.0  # share of the readings
    alerts: int = 0
    notices: int = 0
    severity: float = 0.0  # of the worst event
    meaning: str = ""  # how often normal operation reaches that severity
    when: str = ""  # its peak
    variable: str = ""
    error: str | None = None
    link: str | None = None
    no_report: str | None = None  # why it has no report, though it is among the worst


class Overview(NamedTuple):
    headline: str
    pages: int
    folder: Path
    lines: tuple[EntityLine, ...]


def line_of(scored: "EntityScores") -> EntityLine:
    rows = scored.answer.rows
    if rows is None:
        return EntityLine(scored.name, error=scored.answer.error)
    flagged = float(rows["anomaly"].mean() or 0.0)  # type: ignore[arg-type]
    return EntityLine(scored.name, len(rows), flagged, *scored.answer[1:-1])


def worst_first(lines: Sequence[EntityLine]) -> list[EntityLine]:
    """Entities by their worst alert, then by the number of alerts and of flagged readings; failed ones last."""
    return sorted(
        lines, key=lambda line: (line.error is not None, -line.severity, -line.alerts, -line.flagged, line.name)
    )


def write_overview(
    fleet: Path,
    lines: Sequence[EntityLine],
    output: Path,
    work: EntityWork,
    task_of: Callable[[str], ScoreTask],
    most: int,
) -> Overview:
    folder = output.with_name(f"{output.stem}-entities")
    ranked = worst_first(lines)
    chosen = [line.name for line in ranked if line.error is None][:most]
    files = {name: f"{number:05}.html" for number, name in enumerate(chosen, 1)}
    _prepare(folder)
    links: dict[str, str] = {}
    lost: dict[str, str] = {}
    for name, answer in work.answers(page_of_entity, chosen, task_of, "report", failed=PageAnswer):
        if answer.error is not None:
            lost[name] = answer.error
            continue
        _write(folder / files[name], answer.html)
        links[name] = f"{quote(folder.name)}/{files[name]}"
    shown = tuple(line._replace(link=links.get(line.name), no_report=lost.get(line.name)) for line in ranked)
    headline = _headline(shown)
    _write(output, render("fleet.html", title=headline, lines=shown, folder=str(fleet)))
    return Overview(headline, len(links), folder, shown)


def _write(path: Path, text: str) -> None:
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _prepare(folder: Path) -> None:
    """Create or empty the folder for reports; refuses one with other content."""
    try:
        if folder.exists() and any(folder.iterdir()):
            if not (folder / MARK).exists():
                raise OutputError(f"'{folder}' exists and has other content. Choose another name for the page.")
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
        (folder / MARK).touch()
    except OSError as error:
        raise OutputError(f"Cannot write to '{folder}': {error.strerror or os.fspath(folder)}.") from error


def _headline(lines: Sequence[EntityLine]) -> str:
    alarmed, failed = sum(line.alerts > 0 for line in lines), sum(line.error is not None for line in lines)
    worst = f"; worst: {lines[0].name}" if alarmed else ""
    lost = f", {failed:,} not scored" if failed else ""
    return f"{alarmed:,} of {len(lines):,} entities have alerts{lost}{worst}"

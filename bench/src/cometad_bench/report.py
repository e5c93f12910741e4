"""Reports from the results: for each experiment a Markdown, a LaTeX and an HTML file, and its figures.

A report is made of sections, and each section is a function of the results: it yields tables, figures and notes.
"""

import base64
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import polars as pl

from cometad.errors import InputError
from cometad.files import write_whole
from cometad.metrics import METRICS
from cometad.report.html import render
from cometad_bench.compare import compared, without_one_dataset
from cometad_bench.cost import cost_panels, save_costs
from cometad_bench.drift.figures import save_drift
from cometad_bench.drift.report import drift_table, has_own_rule, own_rule_table
from cometad_bench.embedding import save_embedding
from cometad_bench.experiments import EXPERIMENTS, REFERENCES, Experiment, check_known
from cometad_bench.figures import efficiency_points, save_critical_difference, save_efficiency
from cometad_bench.forms import anchor, as_latex, as_markdown
from cometad_bench.forms import shown as printed
from cometad_bench.frame import RANKED_BY, arms_of, blocks, detectors, distinct, family_means, frame_of, ranked
from cometad_bench.leaderboard import leaderboard
from cometad_bench.nested import choice
from cometad_bench.notes import provenance_notes, simple_sentence
from cometad_bench.paired import paired_table, schedules_table
from cometad_bench.published import published
from cometad_bench.results import Record, failed, latest, writing
from cometad_bench.runner import FOLDER, results_of
from cometad_bench.split import DEVELOPMENT, part_of
from cometad_bench.tables import ResultTable, metric_table, threshold_table


class Reported(NamedTuple):
    name: str
    records: Sequence[Record]
    frame: pl.DataFrame
    metric: str

    @property
    def experiment(self) -> Experiment:
        return EXPERIMENTS[self.name]

    @property
    def over(self) -> str:
        return "entity" if self.experiment.protocol == "entity" else "dataset"

    @property
    def has_base(self) -> bool:
        """Whether the arm that others are tested against has results for every entity."""
        return self.experiment.base in blocks(self.frame, self.metric, "entity").columns

    def title(self, more: str) -> str:
        return f"{self.experiment.title}: {more}"


class Figure(NamedTuple):
    name: str
    title: str
    draw: Callable[[Path], object]


# What a section has to show; a text is a note above everything else.
Shown = Iterator[ResultTable | Figure | str]


def report(
    names: Sequence[str] | None = None,
    *,
    folder: str | os.PathLike[str] = FOLDER,
    out: str | os.PathLike[str] | None = None,
    ranked_by: str = RANKED_BY,
    check: Callable[[Sequence[Path]], object] | None = None,
) -> list[Path]:
    """Write the reports of some experiments, or of all that have results, and return the paths of the files.

    `check` gets these paths before the first is written, and may raise an error to keep what is there.
    """
    check_known("metric", [ranked_by], METRICS)
    read = {name: results_of(name, folder).read() for name in names or EXPERIMENTS}
    records = {name: _in_order(name, latest(lines)) for name, lines in read.items()}
    without = [name for name, lines in records.items() if not lines]
    if (names and without) or len(without) == len(records):
        what = f" of {without[0]}" if names else ""
        failures = "; all trials failed, rerun them with --retry" if any(read[name] for name in without) else ""
        raise InputError(
            f"There are no results{what} in '{folder}'{failures}. Create them with cometad bench run EXPERIMENT."
        )
    target = Path(out or folder)
    with writing(f"to '{target}'"):
        target.mkdir(parents=True, exist_ok=True)
    forms: dict[Path, Callable[[Path], object]] = {}
    for name, lines in records.items():
        if lines:
            results = Reported(name, lines, frame_of(lines), ranked_by)
            caveats = (*_failures(_in_order(name, failed(read[name]))), *provenance_notes(results.frame))
            forms |= _forms(name, [*_SECTIONS[EXPERIMENTS[name].report](results), *caveats], target)
    if check is not None:
        check(list(forms))
    for path, write in forms.items():
        write(path)
    return list(forms)


def _failures(records: Sequence[Record]) -> list[str]:
    cells: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        cells.setdefault((record["arm"], record["dataset"]), []).append(record)
    parts = [f"{arm} on {name} ({len(tries)}: {tries[-1]['error']})" for (arm, name), tries in cells.items()]
    return [f"Failed trials, missing from the tables below: {', '.join(parts)}."] if parts else []


def _in_order(name: str, records: Sequence[Record]) -> list[Record]:
    arms, datasets = [arm.name for arm in EXPERIMENTS[name].arms], EXPERIMENTS[name].datasets
    places = {dataset: place for place, dataset in enumerate(datasets)}
    return sorted(
        (record for record in records if record["arm"] in arms),
        key=lambda one: (places.get(one["dataset"], len(places)), arms.index(one["arm"]), one["seed"]),
    )


# --- sections ---------------------------------------------------------------------------------------------------------


def _metrics(results: Reported) -> Shown:
    ours = results.frame, results.experiment.title, published(results.name), results.metric, results.over
    yield metric_table(*ours)


def _unseen(results: Reported) -> Shown:
    """The metrics without the entities whose labels were seen in development."""
    seen = [(dataset, entity) for dataset, names in DEVELOPMENT.items() for entity in names]
    unseen = _part(results.frame, lambda *entity: entity not in seen)
    if results.over == "entity" and 0 < len(unseen) < len(results.frame):
        title = results.title("without the entities whose labels were seen while developing Comet()")
        yield metric_table(unseen, title, ranked_by=results.metric, over="entity")


def _part(frame: pl.DataFrame, wanted: Callable[[str, str], bool]) -> pl.DataFrame:
    entities = [entity for entity in distinct(frame, "dataset", "entity") if wanted(*entity)]
    chosen = pl.DataFrame(entities, schema=frame.select("dataset", "entity").schema, orient="row")
    return frame.join(chosen, on=("dataset", "entity"), how="semi", maintain_order="left")


def _tests(results: Reported) -> Shown:
    """The tests of every arm against the base arm, or against the best one if the base arm lacks trials."""
    frame, metric, base = results.frame, results.metric, results.experiment.base
    found = blocks(frame, metric, "entity")
    if results.over != "entity" or len(found) < 2 or len(arms_of(found)) < 2:
        return
    if not results.has_base:
        means = family_means(frame, metric)
        best = max(means, key=lambda arm: fmean(means[arm].values()))
        why = f"{base} lacks trials, so the arms" if base else "The arms"
        yield f"{why} are tested against {best}, the best by mean {METRICS[metric].title}, which favors it."
        yield from compared(frame, results.title(f"every arm against {best}"), best, metric)
        return
    lacking, others = without_one_dataset(frame, metric)
    unchosen = _part(frame, lambda *entity: part_of(*entity) == "validate")
    against = results.title(f"every arm against {base}")
    yield from compared(frame, against, base, metric)
    if len(others):
        title = f"{against}, without {lacking}, which some arms lack"
        yield from compared(others, title, base, metric, f"Without {lacking}: ")
    if len(distinct(unchosen, "dataset", "entity")) > 1:
        words = f"Only on the entities that did not serve to choose {base} (validate): "
        yield from compared(unchosen, results.title("only validate"), base, metric, words)


def _pairs(results: Reported) -> Shown:
    """Either schedule of the deep baselines, or the differences from the base arm by seed."""
    frame, base = results.frame, results.experiment.base
    if results.over == "entity":
        yield from schedules_table(frame, results.title("schedules of the deep baselines"), base, results.metric)
    elif base in distinct(frame, "arm"):
        yield paired_table(frame, results.title("differences, paired by seed"), base)


def _costs(results: Reported) -> Shown:
    yield threshold_table(results.frame, results.title("performance at a threshold from training scores, and cost"))


def _simple(results: Reported) -> Shown:
    yield simple_sentence(results.frame, results.metric)


def _cost_figure(results: Reported) -> Shown:
    panels = cost_panels(results.frame, results.metric) if results.over == "entity" else []
    if panels:
        titles = " and ".join(panel.title for panel in panels)
        caption = (
            f"{METRICS[results.metric].title} against training time ({titles}). Seconds on a CPU and on a GPU that "
            "several trials shared cannot be compared exactly"
        )
        yield Figure(f"{results.name}-cost.png", caption, partial(save_costs, panels=panels, metric=results.metric))


def _ranks(results: Reported) -> Shown:
    found = ranked(results.frame, results.metric, results.over)
    if found.ranks:
        several = "entities" if results.over == "entity" else "datasets"
        title = f"{METRICS[results.metric].title} over {len(found.blocks)} {several}"
        caption = f"Mean ranks by {title}; bars join arms that do not differ significantly by Nemenyi's test"
        draw = partial(save_critical_difference, found=found, title=title)
        yield Figure(f"{results.name}-ranks.png", caption, draw)


def _detection(results: Reported) -> Shown:
    for section in (_simple, _metrics, _unseen, _tests, _pairs, _costs, _cost_figure, _ranks):
        yield from section(results)


def _choice(results: Reported) -> Shown:
    """Which configuration to choose, and what that choice is worth on a family without a say in it."""
    if len(distinct(results.frame, "dataset")) < 2:
        yield from _detection(results)
    else:
        yield from choice(results.frame, results.experiment.title, results.metric)


def _comparison(results: Reported) -> Shown:
    """The tests of every arm against the base arm, all metrics, and the ranks as a picture."""
    frame, base, metric = results.frame, results.experiment.base, results.metric
    if not results.has_base:
        yield f"{base} lacks some trials, so no arm was compared with it."
        yield from _detection(results)
        return
    yield from compared(frame, results.experiment.title, base, metric)
    yield metric_table(frame, results.title("all metrics"), ranked_by=metric, over="entity")
    for section in (_costs, _simple, _ranks):
        yield from section(results)


def _sensitivity(results: Reported) -> Shown:
    """One table per parameter, as in the paper; the first word of an arm's name is its parameter."""
    frame, first_word = results.frame, pl.col("arm").str.split(" ").list.first()
    if detectors(frame).is_empty():
        yield _only_references(results.name)
    for parameter in distinct(detectors(frame).with_columns(parameter=first_word), "parameter"):
        here = frame.filter(pl.col("arm").is_in(REFERENCES) | (first_word == parameter))
        yield metric_table(here, results.title(parameter), published(results.name), results.metric)


def _only_references(name: str) -> str:
    return (
        f"There is nothing to compare yet: all results are from the no-skill references {' and '.join(REFERENCES)}. "
        f"Create others with cometad bench run {name}."
    )


def _efficiency(results: Reported) -> Shown:
    frame = results.frame
    yield metric_table(frame, results.title("all metrics"), published(results.name), results.metric)
    yield from _costs(results)
    for dataset in distinct(frame, "dataset"):
        here = frame.filter(pl.col("dataset") == dataset)
        if efficiency_points(here):
            caption = (
                f"{dataset}: affiliation F1 (oracle threshold) against training time on "
                f"{' and '.join(distinct(here, 'device'))}; the area of a circle shows the number of parameters"
            )
            yield Figure(f"{results.name}-{dataset}.png", caption, partial(save_efficiency, frame=here))
    yield _only_references(results.name) if detectors(frame).is_empty() else simple_sentence(frame)


def _embedding(results: Reported) -> Shown:
    for record in results.records:
        dataset, name, seed = record["dataset"], results.name, record["seed"]
        several = len(distinct(results.frame.filter(pl.col("dataset") == dataset), "seed")) > 1
        title = f"{dataset}: UMAP projection of patch embeddings and active codes of {record['arm']}"
        file = f"{name}-{dataset}-seed-{seed}.png" if several else f"{name}-{dataset}.png"
        draw = partial(save_embedding, points=record["points"])
        yield Figure(file, f"{title}; seed {seed}" if several else title, draw)


def _drift(results: Reported) -> Shown:
    frame = results.frame
    references = frame.filter(pl.col("arm").is_in(REFERENCES))
    if detectors(frame).is_empty():
        yield _only_references(results.name)
    for number, arm in enumerate(distinct(detectors(frame), "arm"), 1):
        here = frame.filter(pl.col("arm") == arm)
        seeds = here["seed"].n_unique()
        yield drift_table(here, results.title(arm), references)
        if has_own_rule(here):
            yield own_rule_table(here, results.title(f"{arm}, at its own threshold"))
        caption = (
            f"{arm}: false alarms and AUC-ROC after a drift, as fitted and adapting. Left: by kind of drift, "
            "without faults during it. Right: by the share of faulty readings during it. Points are means over the "
            f"entities of a dataset and {seeds} seed{'s' if seeds > 1 else ''}, bars the sample standard "
            "deviation over seeds; the dotted line is the AUC-ROC of random scores"
        )
        yield Figure(f"{results.name}-{number}.png", caption, partial(save_drift, frame=here))


_SECTIONS: dict[str, Callable[[Reported], Shown]] = {
    "detection": _detection,
    "choice": _choice,
    "comparison": _comparison,
    "drift": _drift,
    "sensitivity": _sensitivity,
    "efficiency": _efficiency,
    "leaderboard": lambda results: leaderboard(results.frame, results.experiment.title),
    "embedding": _embedding,
}


# --- files ------------------------------------------------------------------------------------------------------------


def _forms(
    name: str, shown: Sequence[ResultTable | Figure | str], target: Path
) -> dict[Path, Callable[[Path], object]]:
    """Return how to write each file of a report, figures first: its page embeds them."""
    title = EXPERIMENTS[name].title
    tables = [one for one in shown if isinstance(one, ResultTable)]
    figures = [one for one in shown if isinstance(one, Figure)]
    notes = [one for one in shown if isinstance(one, str)]

    def markdown() -> str:
        drawn = [f"![{figure.title}]({figure.name})\n\n{figure.title}." for figure in figures]
        return "\n\n".join([f"# {title}", *notes, *map(as_markdown, tables), *drawn]) + "\n"

    def page() -> str:
        contents = [base64.b64encode((target / figure.name).read_bytes()).decode() for figure in figures]
        drawn = [{"title": one.title, "content": own} for one, own in zip(figures, contents, strict=True)]
        parts = {"notes": notes, "tables": tables, "figures": drawn, "shown": printed, "anchor": anchor}
        return render("bench.html", title=title, **parts)

    def text(of: Callable[[], str]) -> Callable[[Path], object]:
        return lambda path: write_whole(path, lambda temporary: temporary.write_text(of(), encoding="utf-8"))

    forms: dict[str, Callable[[Path], object]] = {figure.name: figure.draw for figure in figures}
    forms |= {f"{name}.md": text(markdown), f"{name}.html": text(page)}
    if tables:
        forms[f"{name}.tex"] = text(lambda: "\n\n".join(map(as_latex, tables)) + "\n")
    return {target / file: write for file, write in forms.items()}

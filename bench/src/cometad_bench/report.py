"""Reports from the results: for each experiment a Markdown, a LaTeX and an HTML file, and its figures.

A report is a list of sections, and each section a function of the results: it returns tables, figures and notes.
"""

import base64
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import polars as pl

from cometad.errors import InputError, OutputError, unknown
from cometad.files import write_whole
from cometad.metrics import METRICS
from cometad.report.html import render
from cometad_bench.compare import compared, without_one_dataset
from cometad_bench.cost import cost_panels, save_costs
from cometad_bench.drift.figures import save_drift
from cometad_bench.drift.report import drift_table, has_own_rule, own_rule_table
from cometad_bench.embedding import save_embedding
from cometad_bench.experiments import EXPERIMENTS, REFERENCES, Experiment
from cometad_bench.figures import efficiency_points, save_critical_difference, save_efficiency
from cometad_bench.forms import anchor, as_latex, as_markdown, shown
from cometad_bench.frame import RANKED_BY, arms_of, blocks, detectors, distinct, family_means, frame_of, ranked
from cometad_bench.leaderboard import leaderboard
from cometad_bench.nested import choice
from cometad_bench.notes import provenance_notes, simple_sentence
from cometad_bench.paired import paired_table, schedules_table
from cometad_bench.published import published
from cometad_bench.results import Record, failed, latest
from cometad_bench.runner import FOLDER, results_of
from cometad_bench.split import DEVELOPMENT, part_of
from cometad_bench.tables import ResultTable, metric_table, threshold_table


class Reported(NamedTuple):
    """The results of an experiment, in the order of its datasets and arms, and the metric that ranks the arms."""

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


class Section(NamedTuple):
    tables: Sequence[ResultTable] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()  # shown above everything else


def joined(sections: Sequence[Section]) -> Section:
    return Section(*([one for part in kind for one in part] for kind in zip(*sections, strict=True)))


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
    for name in names or ():
        if name not in EXPERIMENTS:
            raise unknown("experiment", name, EXPERIMENTS)
    if ranked_by not in METRICS:
        raise unknown("metric", ranked_by, METRICS)
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
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot write to '{target}': {error.strerror or error}. Choose another folder.") from error
    sections: dict[str, Section] = {}
    for name, lines in records.items():
        if lines:
            results = Reported(name, lines, frame_of(lines), ranked_by)
            caveats = (*_failures(_in_order(name, failed(read[name]))), *provenance_notes(results.frame))
            parts = [section(results) for section in _SECTIONS[EXPERIMENTS[name].report]]
            sections[name] = joined([*parts, Section(notes=caveats)])
    forms = {path: write for name, one in sections.items() for path, write in _forms(name, one, target).items()}
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
    """Return the records of the experiment's arms, in the order of its datasets and arms."""
    arms, datasets = [arm.name for arm in EXPERIMENTS[name].arms], EXPERIMENTS[name].datasets
    places = {dataset: place for place, dataset in enumerate(datasets)}
    return sorted(
        (record for record in records if record["arm"] in arms),
        key=lambda one: (places.get(one["dataset"], len(places)), arms.index(one["arm"]), one["seed"]),
    )


# --- sections ---------------------------------------------------------------------------------------------------------


def _metrics(results: Reported) -> Section:
    ours = results.frame, results.experiment.title, published(results.name), results.metric, results.over
    return Section([metric_table(*ours)])


def _unseen(results: Reported) -> Section:
    """The metrics without the entities whose labels were seen in development."""
    seen = [(dataset, entity) for dataset, names in DEVELOPMENT.items() for entity in names]
    unseen = _part(results.frame, lambda *entity: entity not in seen)
    if results.over != "entity" or not 0 < len(unseen) < len(results.frame):
        return Section()
    title = results.title("without the entities whose labels were seen while developing Comet()")
    return Section([metric_table(unseen, title, ranked_by=results.metric, over="entity")])


def _part(frame: pl.DataFrame, wanted: Callable[[str, str], bool]) -> pl.DataFrame:
    entities = [entity for entity in distinct(frame, "dataset", "entity") if wanted(*entity)]
    chosen = pl.DataFrame(entities, schema=frame.select("dataset", "entity").schema, orient="row")
    return frame.join(chosen, on=("dataset", "entity"), how="semi", maintain_order="left")


def _tests(results: Reported) -> Section:
    """The tests of every arm against the base arm, or against the best one if the base arm lacks trials."""
    frame, metric, base = results.frame, results.metric, results.experiment.base
    found = blocks(frame, metric, "entity")
    if results.over != "entity" or len(found) < 2 or len(arms_of(found)) < 2:
        return Section()
    if not results.has_base:
        means = family_means(frame, metric)
        best = max(means, key=lambda arm: fmean(means[arm].values()))
        why = f"{base} lacks trials, so the arms" if base else "The arms"
        note = f"{why} are tested against {best}, the best by mean {METRICS[metric].title}, which favors it."
        table, claim = compared(frame, results.title(f"every arm against {best}"), best, metric)
        return Section([table], notes=[note, claim])
    lacking, others = without_one_dataset(frame, metric)
    unchosen = _part(frame, lambda *entity: part_of(*entity) == "validate")
    parts = [(frame, "", f"every arm against {base}")]
    if len(others):
        parts.append((others, f"Without {lacking}: ", f"{parts[0][2]}, without {lacking}, which some arms lack"))
    if len(distinct(unchosen, "dataset", "entity")) > 1:
        words = f"Only on the entities that did not serve to choose {base} (validate): "
        parts.append((unchosen, words, "only validate"))
    tests = [(compared(part, results.title(title), base, metric), words) for part, words, title in parts]
    return Section([table for (table, _), _ in tests], notes=[words + claim for (_, claim), words in tests])


def _pairs(results: Reported) -> Section:
    """Either schedule of the deep baselines, or the differences from the base arm by seed."""
    frame, base = results.frame, results.experiment.base
    if results.over == "entity":
        table = schedules_table(frame, results.title("schedules of the deep baselines"), base, results.metric)
        return Section([table] if table else [])
    if base not in distinct(frame, "arm"):
        return Section()
    return Section([paired_table(frame, results.title("differences, paired by seed"), base)])


def _costs(results: Reported) -> Section:
    title = results.title("performance at a threshold from training scores, and cost")
    return Section([threshold_table(results.frame, title)])


def _simple(results: Reported) -> Section:
    return Section(notes=[simple_sentence(results.frame, results.metric)])


def _cost_figure(results: Reported) -> Section:
    panels = cost_panels(results.frame, results.metric) if results.over == "entity" else []
    if not panels:
        return Section()
    titles = " and ".join(panel.title for panel in panels)
    caption = (
        f"{METRICS[results.metric].title} against training time ({titles}). Seconds on a CPU and on a GPU that several "
        "trials shared cannot be compared exactly"
    )
    draw = partial(save_costs, frame=results.frame, metric=results.metric)
    return Section(figures=[Figure(f"{results.name}-cost.png", caption, draw)])


def _ranks(results: Reported) -> Section:
    found = ranked(results.frame, results.metric, results.over)
    if not found.ranks:
        return Section()
    title = f"{METRICS[results.metric].title} over {len(found.blocks)} "
    title += "entities" if results.over == "entity" else "datasets"
    caption = f"Mean ranks by {title}; bars join arms that do not differ significantly by Nemenyi's test"
    draw = partial(save_critical_difference, found=found, title=title)
    return Section(figures=[Figure(f"{results.name}-ranks.png", caption, draw)])


_DETECTION = (_simple, _metrics, _unseen, _tests, _pairs, _costs, _cost_figure, _ranks)


def _detection(results: Reported) -> Section:
    return joined([section(results) for section in _DETECTION])


def _choice(results: Reported) -> Section:
    """Which configuration to choose, and what that choice is worth on a family without a say in it."""
    if len(distinct(results.frame, "dataset")) < 2:
        return _detection(results)
    table, headline = choice(results.frame, results.experiment.title, results.metric)
    return Section([table], notes=[headline])


def _comparison(results: Reported) -> Section:
    """The tests of every arm against the base arm, all metrics, and the ranks as a picture."""
    frame, base, metric = results.frame, results.experiment.base, results.metric
    if not results.has_base:
        note = f"{base} lacks some trials, so no arm was compared with it."
        return joined([Section(notes=[note]), _detection(results)])
    tests, claim = compared(frame, results.experiment.title, base, metric)
    metrics = metric_table(frame, results.title("all metrics"), ranked_by=metric, over="entity")
    first = Section([tests, metrics], notes=[claim])
    return joined([first, _costs(results), _simple(results), _ranks(results)])


def _sensitivity(results: Reported) -> Section:
    """One table per parameter, as in the paper; the first word of an arm's name is its parameter."""
    frame, first_word = results.frame, pl.col("arm").str.split(" ").list.first()
    tables = []
    for parameter in distinct(detectors(frame).with_columns(parameter=first_word), "parameter"):
        here = frame.filter(pl.col("arm").is_in(REFERENCES) | (first_word == parameter))
        tables.append(metric_table(here, results.title(parameter), published(results.name), results.metric))
    return Section(tables, notes=[] if tables else [_only_references(results.name)])


def _only_references(name: str) -> str:
    return (
        f"There is nothing to compare yet: all results are from the no-skill references {' and '.join(REFERENCES)}. "
        f"Create others with cometad bench run {name}."
    )


def _efficiency(results: Reported) -> Section:
    frame = results.frame
    metrics = metric_table(frame, results.title("all metrics"), published(results.name), results.metric)
    figures = []
    for dataset in distinct(frame, "dataset"):
        here = frame.filter(pl.col("dataset") == dataset)
        if efficiency_points(here):
            caption = (
                f"{dataset}: affiliation F1 (oracle threshold) against training time on "
                f"{' and '.join(distinct(here, 'device'))}; the area of a circle shows the number of parameters"
            )
            figures.append(Figure(f"{results.name}-{dataset}.png", caption, partial(save_efficiency, frame=here)))
    note = _only_references(results.name) if detectors(frame).is_empty() else simple_sentence(frame)
    return joined([Section([metrics]), _costs(results), Section(figures=figures, notes=[note])])


def _leaderboard(results: Reported) -> Section:
    tables, sentences = leaderboard(results.frame, results.experiment.title)
    return Section(tables, notes=sentences)


def _embedding(results: Reported) -> Section:
    figures = []
    for record in results.records:
        dataset, name, seed = record["dataset"], results.name, record["seed"]
        several = len(distinct(results.frame.filter(pl.col("dataset") == dataset), "seed")) > 1
        title = f"{dataset}: UMAP projection of patch embeddings and active codes of {record['arm']}"
        figures.append(
            Figure(
                f"{name}-{dataset}-seed-{seed}.png" if several else f"{name}-{dataset}.png",
                f"{title}; seed {seed}" if several else title,
                partial(save_embedding, points=record["points"]),
            )
        )
    return Section(figures=figures)


def _drift(results: Reported) -> Section:
    frame = results.frame
    references = frame.filter(pl.col("arm").is_in(REFERENCES))
    tables, figures = [], []
    for number, arm in enumerate(distinct(detectors(frame), "arm")):
        here = frame.filter(pl.col("arm") == arm)
        seeds = here["seed"].n_unique()
        tables.append(drift_table(here, results.title(arm), references))
        if has_own_rule(here):
            tables.append(own_rule_table(here, results.title(f"{arm}, at its own threshold")))
        caption = (
            f"{arm}: false alarms and AUC-ROC after a drift, as fitted and adapting. Left: by kind of drift, "
            "without faults during it. Right: by the share of faulty readings during it. Points are means over the "
            f"entities of a dataset and {seeds} seed{'s' if seeds > 1 else ''}, bars the sample standard "
            "deviation over seeds; the dotted line is the AUC-ROC of random scores"
        )
        figures.append(Figure(f"{results.name}-{number + 1}.png", caption, partial(save_drift, frame=here)))
    return Section(tables, figures, [] if tables else [_only_references(results.name)])


_SECTIONS: dict[str, Sequence[Callable[[Reported], Section]]] = {
    "detection": _DETECTION,
    "choice": (_choice,),
    "comparison": (_comparison,),
    "drift": (_drift,),
    "sensitivity": (_sensitivity,),
    "efficiency": (_efficiency,),
    "leaderboard": (_leaderboard,),
    "embedding": (_embedding,),
}


# --- files ------------------------------------------------------------------------------------------------------------


def _forms(name: str, section: Section, target: Path) -> dict[Path, Callable[[Path], object]]:
    """Return how to write each file of a report, figures first: its page embeds them."""

    def text(of: Callable[[], str]) -> Callable[[Path], object]:
        return lambda path: write_whole(path, lambda temporary: temporary.write_text(of(), encoding="utf-8"))

    forms: dict[str, Callable[[Path], object]] = {figure.name: figure.draw for figure in section.figures}
    forms[f"{name}.md"] = text(lambda: _markdown(name, section))
    forms[f"{name}.html"] = text(lambda: _page(name, section, target))
    if section.tables:
        forms[f"{name}.tex"] = text(lambda: "\n\n".join(map(as_latex, section.tables)) + "\n")
    return {target / file: write for file, write in forms.items()}


def _markdown(name: str, section: Section) -> str:
    parts = [f"# {EXPERIMENTS[name].title}", *section.notes]
    parts += [as_markdown(table) for table in section.tables]
    parts += [f"![{figure.title}]({figure.name})\n\n{figure.title}." for figure in section.figures]
    return "\n\n".join(parts) + "\n"


def _page(name: str, section: Section, target: Path) -> str:
    """Return a self-contained page: the figures are embedded."""
    figures = [
        {"title": figure.title, "content": base64.b64encode((target / figure.name).read_bytes()).decode()}
        for figure in section.figures
    ]
    return render(
        "bench.html",
        title=EXPERIMENTS[name].title,
        notes=section.notes,
        tables=section.tables,
        figures=figures,
        shown=shown,
        anchor=anchor,
    )

"""Reports from the results: for each experiment a Markdown, a LaTeX and an HTML file, and its figures."""

import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from cometad.errors import InputError, OutputError, unknown
from cometad.files import write_whole
from cometad.metrics import METRICS
from cometad.report.html import render
from cometad_bench.compare import claim, compare, comparison_table, missing_arms, without_one_dataset
from cometad_bench.cost import cost_panels, save_costs
from cometad_bench.drift.report import drift_table, has_own_rule, own_rule_table, save_drift
from cometad_bench.embedding import save_embedding
from cometad_bench.experiments import EXPERIMENTS
from cometad_bench.figures import efficiency_points, save_critical_difference, save_efficiency
from cometad_bench.forms import anchor, as_latex, as_markdown, shown
from cometad_bench.leaderboard import leaderboard_notes, leaderboard_tables
from cometad_bench.nested import family_means, headline, nested_table
from cometad_bench.paired import paired_table
from cometad_bench.provenance import provenance_notes
from cometad_bench.published import published
from cometad_bench.results import Record, failed, latest
from cometad_bench.runner import FOLDER, results_of
from cometad_bench.schedules import has_both_schedules, schedules_table
from cometad_bench.simple import simple_sentence
from cometad_bench.split import DEVELOPMENT, part_of
from cometad_bench.summaries import RANKED_BY, REFERENCES, blocks, twins, without_twins
from cometad_bench.tables import ResultTable, metric_table, threshold_table


@dataclass(frozen=True)
class Figure:
    """A figure: its file name, its caption, and the function that writes it to a path."""

    name: str
    title: str
    draw: Callable[[Path], object]


@dataclass(frozen=True)
class Content:
    """The content of the report of one experiment."""

    tables: Sequence[ResultTable] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()  # shown above everything else


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
    contents: dict[str, Content] = {}
    for name, lines in records.items():
        if lines:
            content = _CONTENTS[EXPERIMENTS[name].report](name, lines, ranked_by)
            caveats = (*_failures(_in_order(name, failed(read[name]))), *provenance_notes(lines))
            contents[name] = replace(content, notes=(*content.notes, *caveats))
    paths = [path for name, content in contents.items() for path in _paths(name, content, target)]
    if check is not None:
        check(paths)
    for name, content in contents.items():
        _write(name, content, target)
    return paths


def _failures(records: Sequence[Record]) -> list[str]:
    """Return which arms failed on which datasets, how often, and the last error."""
    cells: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        cells.setdefault((record["arm"], record["dataset"]), []).append(record)
    parts = [f"{arm} on {name} ({len(tries)}: {tries[-1]['error']})" for (arm, name), tries in cells.items()]
    return [f"Failed trials, missing from the tables below: {', '.join(parts)}."] if parts else []


def _in_order(name: str, records: Sequence[Record]) -> list[Record]:
    """Return the records of the experiment's arms, in the order of its datasets and arms."""
    experiment = EXPERIMENTS[name]
    arms = {arm.name: place for place, arm in enumerate(experiment.arms)}
    datasets = {dataset: place for place, dataset in enumerate(experiment.datasets)}
    return sorted(
        (record for record in records if record["arm"] in arms),
        key=lambda record: (datasets.get(record["dataset"], len(datasets)), arms[record["arm"]], record["seed"]),
    )


# --- content by experiment --------------------------------------------------------------------------------------------


def _detection(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    experiment = EXPERIMENTS[name]
    over = "entity" if experiment.protocol == "entity" else "dataset"
    tables = [metric_table(records, experiment.title, published(name), ranked_by, over)]
    notes = [simple_sentence(records, ranked_by)]
    unseen = [record for record in records if record["entity"] not in DEVELOPMENT.get(record["dataset"], ())]
    if over == "entity" and 0 < len(unseen) < len(records):
        title = f"{experiment.title}: without the entities whose labels were seen while developing Comet()"
        tables.append(metric_table(unseen, title, ranked_by=ranked_by, over=over))
    if over == "entity":
        tests, sentences = _tests(name, records, ranked_by)
        tables, notes = tables + tests, notes + sentences
        if has_both_schedules(records):
            title = f"{experiment.title}: schedules of the deep baselines"
            tables.append(schedules_table(records, title, experiment.base, ranked_by))
    elif experiment.base and any(record["arm"] == experiment.base for record in records):
        tables.append(paired_table(records, f"{experiment.title}: differences, paired by seed", experiment.base))
    tables.append(_costs(name, records))
    figures = _rank_diagram(name, records, ranked_by, over)
    if over == "entity" and cost_panels(records, ranked_by):
        figures = [_cost_figure(name, records, ranked_by), *figures]
    return Content(tables, figures, notes)


def _cost_figure(name: str, records: Sequence[Record], ranked_by: str) -> Figure:
    titles = " and ".join(panel.title for panel in cost_panels(records, ranked_by))
    caption = (
        f"{METRICS[ranked_by].title} against training time ({titles}). Seconds on a CPU and on a GPU that several "
        "trials shared cannot be compared exactly"
    )
    return Figure(f"{name}-cost.png", caption, partial(save_costs, records=records, metric=ranked_by))


def _tests(name: str, records: Sequence[Record], ranked_by: str) -> tuple[list[ResultTable], list[str]]:
    """Return the tests of every arm against the base arm, or against the best one if the base arm lacks trials."""
    experiment = EXPERIMENTS[name]
    ranked = blocks(records, ranked_by, "entity")
    if len(ranked.blocks) < 2 or len(ranked.arms) < 2:
        return [], []
    base, notes = experiment.base, []
    if base not in ranked.arms:
        means = family_means(records, ranked_by)
        base = max(means, key=lambda arm: fmean(means[arm].values()))
        why = f"{experiment.base} lacks trials, so the arms" if experiment.base else "The arms"
        notes = [f"{why} are tested against {base}, the best by mean {METRICS[ranked_by].title}, which favors it."]
    found = compare(records, base, ranked_by)
    notes.append(claim(base, found, missing_arms(records, (base, *found))))
    tables = [comparison_table(records, f"{experiment.title}: every arm against {base}", base, ranked_by)]
    lacking, others = without_one_dataset(records, ranked.arms, ranked_by)
    if others and base == experiment.base:
        title = f"{experiment.title}: every arm against {base}, without {lacking}, which some arms lack"
        more = compare(others, base, ranked_by)
        notes.append(f"Without {lacking}: {claim(base, more, missing_arms(others, (base, *more)))}")
        tables.append(comparison_table(others, title, base, ranked_by))
    unchosen = [record for record in records if part_of(record["dataset"], record["entity"]) == "validate"]
    if base == experiment.base and len({(one["dataset"], one["entity"]) for one in unchosen}) > 1:
        fresh = compare(unchosen, base, ranked_by)
        sentence = claim(base, fresh, missing_arms(unchosen, (base, *fresh)))
        notes.append(f"Only on the entities that did not serve to choose {base} (validate): {sentence}")
        tables.append(comparison_table(unchosen, f"{experiment.title}: only validate", base, ranked_by))
    return tables, notes


def _rank_diagram(name: str, records: Sequence[Record], ranked_by: str, over: str) -> list[Figure]:
    ranked = without_twins(blocks(records, ranked_by, over), twins(records))
    if len(ranked.blocks) < 2 or len(ranked.arms) < 2:
        return []
    return [
        Figure(
            f"{name}-ranks.png",
            f"Mean ranks by {METRICS[ranked_by].title} over {len(ranked.blocks)} "
            f"{'entities' if over == 'entity' else 'datasets'}; bars join arms that do not differ significantly by "
            "Nemenyi's test",
            lambda path: save_critical_difference(path, records, ranked_by, over),
        )
    ]


def _choice(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    """Return which configuration to choose, and what that choice is worth on a family without a say in it."""
    if len({record["dataset"] for record in records}) < 2:
        return _detection(name, records, ranked_by)
    return Content([nested_table(records, EXPERIMENTS[name].title, ranked_by)], notes=(headline(records, ranked_by),))


def _comparison(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    """Return the tests of every arm against the base arm, all metrics, and the ranks as a picture."""
    experiment = EXPERIMENTS[name]
    if experiment.base not in blocks(records, ranked_by, "entity").arms:
        content = _detection(name, records, ranked_by)
        return replace(
            content, notes=(f"{experiment.base} lacks some trials, so no arm was compared with it.", *content.notes)
        )
    found = compare(records, experiment.base, ranked_by)
    tables = [
        comparison_table(records, experiment.title, experiment.base, ranked_by),
        metric_table(records, f"{experiment.title}: all metrics", ranked_by=ranked_by, over="entity"),
        _costs(name, records),
    ]
    absent = missing_arms(records, (experiment.base, *found))
    ranks = _rank_diagram(name, records, ranked_by, "entity")
    return Content(tables, ranks, (claim(experiment.base, found, absent), simple_sentence(records, ranked_by)))


def _costs(name: str, records: Sequence[Record]) -> ResultTable:
    return threshold_table(
        records, f"{EXPERIMENTS[name].title}: performance at a threshold from training scores, and cost"
    )


def _sensitivity(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    """Return one table per parameter, as in the paper; the first word of an arm's name is its parameter."""
    tables = []
    for parameter in dict.fromkeys(_first_word(record) for record in records if record["arm"] not in REFERENCES):
        here = [record for record in records if record["arm"] in REFERENCES or _first_word(record) == parameter]
        tables.append(metric_table(here, f"{EXPERIMENTS[name].title}: {parameter}", published(name), ranked_by))
    return Content(tables, notes=() if tables else (_only_references(name),))


def _only_references(name: str) -> str:
    return (
        f"There is nothing to compare yet: all results are from the no-skill references {' and '.join(REFERENCES)}. "
        f"Create others with cometad bench run {name}."
    )


def _first_word(record: Record) -> str:
    return str(record["arm"]).split()[0]


def _efficiency(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    title = EXPERIMENTS[name].title
    tables = [metric_table(records, f"{title}: all metrics", published(name), ranked_by), _costs(name, records)]
    figures = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        here = [record for record in records if record["dataset"] == dataset]
        if efficiency_points(here):
            devices = " and ".join(dict.fromkeys(record["device"] for record in here))
            caption = (
                f"{dataset}: affiliation F1 (oracle threshold) against training time on {devices}; "
                "the area of a circle shows the number of parameters"
            )
            figures.append(Figure(f"{name}-{dataset}.png", caption, partial(save_efficiency, records=here)))
    has_only_references = all(record["arm"] in REFERENCES for record in records)
    return Content(tables, figures, (_only_references(name) if has_only_references else simple_sentence(records),))


def _leaderboard(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    return Content(leaderboard_tables(records, EXPERIMENTS[name].title), notes=leaderboard_notes(records))


def _embedding(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    figures = []
    for record in records:
        dataset = record["dataset"]
        seeds = {other["seed"] for other in records if other["dataset"] == dataset}
        several = len(seeds) > 1
        title = f"{dataset}: UMAP projection of patch embeddings and active codes of {record['arm']}"
        figures.append(
            Figure(
                f"{name}-{dataset}-seed-{record['seed']}.png" if several else f"{name}-{dataset}.png",
                f"{title}; seed {record['seed']}" if several else title,
                partial(save_embedding, points=record["points"]),
            )
        )
    return Content(figures=figures)


def _drift(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    tables, figures = [], []
    references = [record for record in records if record["arm"] in REFERENCES]
    detectors = dict.fromkeys(record["arm"] for record in records if record["arm"] not in REFERENCES)
    for number, arm in enumerate(detectors):
        here = [record for record in records if record["arm"] == arm]
        seeds = len({record["seed"] for record in here})
        tables.append(drift_table(here, f"{EXPERIMENTS[name].title}: {arm}", references))
        if has_own_rule(here):
            tables.append(own_rule_table(here, f"{EXPERIMENTS[name].title}: {arm}, at its own threshold"))
        figures.append(
            Figure(
                f"{name}-{number + 1}.png",
                f"{arm}: false alarms and AUC-ROC after a drift, as fitted and adapting. Left: by kind of drift, "
                "without faults during it. Right: by the share of faulty readings during it. Points are means over the "
                f"entities of a dataset and {seeds} seed{'s' if seeds > 1 else ''}, bars the sample standard "
                "deviation over seeds; the dotted line is the AUC-ROC of random scores",
                partial(save_drift, records=here),
            )
        )
    return Content(tables, figures, () if tables else (_only_references(name),))


_CONTENTS: dict[str, Callable[[str, Sequence[Record], str], Content]] = {
    "detection": _detection,
    "choice": _choice,
    "comparison": _comparison,
    "drift": _drift,
    "sensitivity": _sensitivity,
    "efficiency": _efficiency,
    "leaderboard": _leaderboard,
    "embedding": _embedding,
}


# --- files ------------------------------------------------------------------------------------------------------------


def _paths(name: str, content: Content, target: Path) -> list[Path]:
    """Return the files that `_write` writes."""
    names = [figure.name for figure in content.figures] + [f"{name}.{ending}" for ending in _endings(content)]
    return [target / each for each in names]


def _endings(content: Content) -> list[str]:
    return ["md", "html", "tex"] if content.tables else ["md", "html"]


def _write(name: str, content: Content, target: Path) -> None:
    for figure in content.figures:
        figure.draw(target / figure.name)
    forms: dict[str, Callable[[], str]] = {
        "md": lambda: _markdown(name, content),
        "html": lambda: _page(name, content, target),
        "tex": lambda: "\n\n".join(as_latex(table) for table in content.tables) + "\n",
    }
    for ending in _endings(content):
        text = forms[ending]()
        write_whole(
            target / f"{name}.{ending}",
            lambda temporary, text=text: temporary.write_text(text, encoding="utf-8"),  # type: ignore[misc]
        )


def _markdown(name: str, content: Content) -> str:
    parts = [f"# {EXPERIMENTS[name].title}", *content.notes]
    parts += [as_markdown(table) for table in content.tables]
    parts += [f"![{figure.title}]({figure.name})\n\n{figure.title}." for figure in content.figures]
    return "\n\n".join(parts) + "\n"


def _page(name: str, content: Content, target: Path) -> str:
    """Return a self-contained page: the figures are embedded."""
    figures = [
        {"title": figure.title, "content": base64.b64encode((target / figure.name).read_bytes()).decode()}
        for figure in content.figures
    ]
    return render(
        "bench.html",
        title=EXPERIMENTS[name].title,
        notes=content.notes,
        tables=content.tables,
        figures=figures,
        shown=shown,
        anchor=anchor,
    )

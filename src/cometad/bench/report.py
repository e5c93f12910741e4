"""Tables and figures from the results: for each experiment one Markdown, one LaTeX, one HTML file, and its figures."""

import base64
import html
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cometad.bench.drift.report import drift_table, save_drift
from cometad.bench.embedding import save_embedding
from cometad.bench.experiments import DEVELOPMENT, EXPERIMENTS
from cometad.bench.figures import efficiency_points, save_critical_difference, save_efficiency
from cometad.bench.forms import as_html, as_latex, as_markdown
from cometad.bench.paired import paired_table
from cometad.bench.published import published
from cometad.bench.results import Record, failed, latest
from cometad.bench.runner import FOLDER, results_of
from cometad.bench.summaries import RANKED_BY, REFERENCES, blocks
from cometad.bench.tables import ResultTable, metric_table, threshold_table
from cometad.errors import InputError, OutputError, unknown
from cometad.files import write_whole
from cometad.metrics import METRICS


@dataclass(frozen=True)
class Figure:
    """A picture of some results: its file's name, what it shows, and how it is drawn to a path."""

    name: str
    title: str
    draw: Callable[[Path], object]


@dataclass(frozen=True)
class Content:
    """What the report of one experiment holds."""

    tables: Sequence[ResultTable] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()  # what a reader must know of all of it


def report(
    names: Sequence[str] | None = None,
    *,
    folder: str | os.PathLike[str] = FOLDER,
    out: str | os.PathLike[str] | None = None,
    ranked_by: str = RANKED_BY,
) -> list[Path]:
    """Write the reports of some experiments, or of all that have results; the files that were written.

    >>> import tempfile
    >>> from cometad.bench.report import report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report(folder=folder)
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: There are no results in '...'. Make some with cometad bench run EXPERIMENT.
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
        broken = "; all trials failed, run them again with --retry" if any(read[name] for name in without) else ""
        raise InputError(
            f"There are no results{what} in '{folder}'{broken}. Make some with cometad bench run EXPERIMENT."
        )
    target = Path(out or folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot write to '{target}': {error.strerror or error}. Choose another folder.") from error
    written: list[Path] = []
    for name, lines in records.items():
        if lines:
            content = _CONTENTS[EXPERIMENTS[name].report](name, lines, ranked_by)
            content = replace(content, notes=(*content.notes, *_failures(_in_order(name, failed(read[name])))))
            written += _write(name, content, target)
    return written


def _failures(records: Sequence[Record]) -> list[str]:
    """Who failed where, how often, and with what the last time."""
    cells: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        cells.setdefault((record["arm"], record["dataset"]), []).append(record)
    parts = [f"{arm} on {name} ({len(some)}: {some[-1]['error']})" for (arm, name), some in cells.items()]
    return [f"Trials that failed and have no row or no part in one: {', '.join(parts)}."] if parts else []


def _in_order(name: str, records: Sequence[Record]) -> list[Record]:
    """Those of the experiment's arms, datasets and arms in its order."""
    experiment = EXPERIMENTS[name]
    arms = {arm.name: place for place, arm in enumerate(experiment.arms)}
    datasets = {dataset: place for place, dataset in enumerate(experiment.datasets)}
    return sorted(
        (record for record in records if record["arm"] in arms),
        key=lambda record: (datasets.get(record["dataset"], len(datasets)), arms[record["arm"]], record["seed"]),
    )


# --- what each experiment shows ---------------------------------------------------------------------------------------


def _detection(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    experiment = EXPERIMENTS[name]
    over = "entity" if experiment.protocol == "entity" else "dataset"
    tables = [metric_table(records, experiment.title, published(name), ranked_by, over)]
    unseen = [record for record in records if record["entity"] not in DEVELOPMENT.get(record["dataset"], ())]
    if over == "entity" and 0 < len(unseen) < len(records):
        title = f"{experiment.title}: without the entities whose labels were seen while Comet() was made"
        tables.append(metric_table(unseen, title, ranked_by=ranked_by, over=over))
    if experiment.base and any(record["arm"] == experiment.base for record in records):
        tables.append(paired_table(records, f"{experiment.title}: differences, paired by seed", experiment.base))
    tables.append(_costs(name, records))
    ranked = blocks(records, ranked_by, over)
    figures = []
    if len(ranked.blocks) > 1 and len(ranked.arms) > 1:
        figures.append(
            Figure(
                f"{name}-ranks.png",
                f"Mean ranks by {METRICS[ranked_by].title} over {len(ranked.blocks)} "
                f"{'entities' if over == 'entity' else 'datasets'}; a bar joins arms that are not significantly apart",
                lambda path: save_critical_difference(path, records, ranked_by, over),
            )
        )
    return Content(tables, figures)


def _costs(name: str, records: Sequence[Record]) -> ResultTable:
    return threshold_table(
        records, f"{EXPERIMENTS[name].title}: at a threshold from training scores, and what it costs"
    )


def _sensitivity(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    """One table for each parameter, as in the paper: it is the first word of an arm's name."""
    tables = []
    for parameter in dict.fromkeys(_first_word(record) for record in records if record["arm"] not in REFERENCES):
        here = [record for record in records if record["arm"] in REFERENCES or _first_word(record) == parameter]
        tables.append(metric_table(here, f"{EXPERIMENTS[name].title}: {parameter}", published(name), ranked_by))
    return Content(tables, notes=() if tables else (_only_references(name),))


def _only_references(name: str) -> str:
    return (
        f"There is nothing to compare yet: all results are of {' or '.join(REFERENCES)}, which need no skill. "
        f"Make others with cometad bench run {name}."
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
                f"{dataset}: affiliation F1 (oracle threshold) against seconds to fit, on {devices}; "
                "a circle's area is the number of parameters"
            )
            figures.append(Figure(f"{name}-{dataset}.png", caption, partial(save_efficiency, records=here)))
    is_bare = all(record["arm"] in REFERENCES for record in records)
    return Content(tables, figures, (_only_references(name),) if is_bare else ())


def _embedding(name: str, records: Sequence[Record], ranked_by: str) -> Content:
    figures = []
    for record in records:
        dataset = record["dataset"]
        seeds = {other["seed"] for other in records if other["dataset"] == dataset}
        several = len(seeds) > 1
        title = f"{dataset}: embeddings of patches and active codes of {record['arm']}, laid out by UMAP"
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
        figures.append(
            Figure(
                f"{name}-{number + 1}.png",
                f"{arm}: false alarms and AUC-ROC after a drift, as fitted and adapting. Left by kind of drift, "
                "without faults during it; right by the share of faulty readings during it. Means over the entities "
                f"of a dataset and the seeds ({seeds}), bars the standard deviation over seeds; the dotted line is the "
                "AUC-ROC of scores drawn at random",
                partial(save_drift, records=here),
            )
        )
    return Content(tables, figures, () if tables else (_only_references(name),))


_CONTENTS: dict[str, Callable[[str, Sequence[Record], str], Content]] = {
    "detection": _detection,
    "drift": _drift,
    "sensitivity": _sensitivity,
    "efficiency": _efficiency,
    "embedding": _embedding,
}


# --- files ------------------------------------------------------------------------------------------------------------


def _write(name: str, content: Content, target: Path) -> list[Path]:
    written = []
    for figure in content.figures:
        figure.draw(target / figure.name)
        written.append(target / figure.name)
    texts = {"md": _markdown(name, content), "html": _page(name, content, target)}
    if content.tables:
        texts["tex"] = "\n\n".join(as_latex(table) for table in content.tables) + "\n"
    for ending, text in texts.items():
        path = target / f"{name}.{ending}"
        write_whole(path, lambda aside, text=text: aside.write_text(text, encoding="utf-8"))  # type: ignore[misc]
        written.append(path)
    return written


def _markdown(name: str, content: Content) -> str:
    parts = [f"# {EXPERIMENTS[name].title}", *content.notes]
    parts += [as_markdown(table) for table in content.tables]
    parts += [f"![{figure.title}]({figure.name})\n\n{figure.title}." for figure in content.figures]
    return "\n\n".join(parts) + "\n"


# A row's name stays at the left while its figures scroll below it, so it needs a background.
_STYLE = (
    ":root{color-scheme:light dark;--paper:#fff;--ink:#16181d}"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem;"
    "background:var(--paper);color:var(--ink)}"
    "section,figure{margin:2rem 0}h2{font-size:1.1rem;margin:0 0 .5rem}.scroll{overflow-x:auto}"
    "table{border-collapse:collapse}tbody{border-top:1px solid #888}"
    "th,td{padding:.2rem .6rem;text-align:right;white-space:nowrap}"
    "thead th{white-space:normal;vertical-align:bottom}"
    "th[scope=row],th[scope=rowgroup],thead th:first-child{text-align:left}th[scope=row]{font-weight:400}"
    "th[scope=row],thead th:first-child{position:sticky;left:0;background:var(--paper);"
    "box-shadow:1px 0 #8888}"
    "th[scope=rowgroup] span{position:sticky;left:.6rem}"
    ".notes{font-size:13px;padding-left:1.2rem}img{max-width:100%}"
    "@media(max-width:40rem){th[scope=row]{white-space:normal;min-width:6rem;max-width:8rem}}"
    "@media(prefers-color-scheme:dark){:root{--paper:#16181d;--ink:#e6e6e6}img{background:#fff}}"
)


def _page(name: str, content: Content, target: Path) -> str:
    """One file that opens without a network: the figures are in it."""
    title = html.escape(EXPERIMENTS[name].title)
    parts = [f"<p>{html.escape(note)}</p>" for note in content.notes]
    parts += [as_html(table) for table in content.tables]
    for figure in content.figures:
        picture = base64.b64encode((target / figure.name).read_bytes()).decode()
        image = f'<img alt="{html.escape(figure.title)}" src="data:image/png;base64,{picture}">'
        parts.append(f"<figure>{image}<figcaption>{html.escape(figure.title)}</figcaption></figure>")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{title}</title><style>{_STYLE}</style></head>\n'
        f"<body>\n<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
    )

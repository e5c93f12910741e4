"""The page: one HTML file that holds all it needs, for any width, light or dark, without a script or a network."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

import numpy as np

from cometad.files import write_whole
from cometad.report.axis import Linear, score_axis, text
from cometad.report.contents import Line, Panel, Report, Strip, Trace
from cometad.report.draw import bands, bars, curve, level, plot
from cometad.report.drift import LEVELS, Drift
from cometad.report.times import Tick
from cometad.report.usage import Usage

OPEN = 5  # panels, those of the worst events; the others open with a click

_TIME = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d[\d:.]*)?|\d[\d.,]* (?:min|h|days?|s|%)(?!\w)")

# Nothing may be loaded or run: the browser is told so too.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def save_report(path: str | os.PathLike[str], report: Report) -> None:
    """Write the page of a report, whole or not at all.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from cometad import BASELINES
    >>> from cometad.report.gather import gather
    >>> from cometad.report.page import save_report
    >>> normal = np.random.default_rng(0).normal(size=(500, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_report(Path(folder) / "report.html", gather(BASELINES["squared-norm"]().fit(normal), normal))
    ...     (Path(folder) / "report.html").read_text().startswith("<!doctype html>")
    True
    """
    content = page(report)
    write_whole(path, lambda aside: aside.write_text(content, encoding="utf-8"))


def page(report: Report) -> str:
    """The page of a report as HTML; the same report gives the same text."""
    style = files("cometad.report").joinpath("style.css").read_text("utf-8")
    sections = (
        _overview(report),
        _events(report),
        _codebook(report.usages),
        _drift(report),
        _quality(report.findings),
        _settings(report),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(report.headline)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"{_header(report)}\n{chr(10).join(sections)}\n</main>\n</body>\n</html>\n"
    )


def _header(report: Report) -> str:
    facts = "".join(f"<div><dt>{escape(what)}</dt><dd>{escape(much)}</dd></div>" for what, much in report.summary)
    return (
        f"<header><p>cometad report · {escape(str(report.settings['detector']))} · {_prose(report.period)}</p>"
        f'<h1>{_prose(report.headline)}</h1><dl class="facts">{facts}</dl></header>'
    )


def _prose(words: str) -> str:
    """Words in which no line breaks between a number and its unit or inside a time."""
    return _TIME.sub(lambda found: f'<span class="time">{found.group()}</span>', escape(words))


def _section(name: str, title: str, *parts: str) -> str:
    head = f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
    return f"{head}{''.join(parts)}</section>"


def _keys(*keys: tuple[str, str]) -> str:
    """What the lines and areas of a plot mean: (shape, words)."""
    items = (
        f'<li><svg viewBox="0 0 28 12" aria-hidden="true">{shape}</svg>{escape(words)}</li>' for shape, words in keys
    )
    return f'<ul class="keys">{"".join(items)}</ul>'


def _stroke(kind: str) -> str:
    return f'<path class="curve {kind}" d="M0 6H28"/>'


def _area(kind: str) -> str:
    return f'<path class="bars {kind}" d="M2 11V1H26V11Z"/>'


_EVENT_KEY = '<g class="event"><path class="stretch" d="M2 0H26V12H2Z"/><path class="edge" d="M2 0V12"/></g>'


def _overview(report: Report) -> str:
    axis = score_axis([report.strip.scores.values, report.strip.thresholds.values], report.center, report.threshold)
    bent = "" if isinstance(axis, Linear) else " Above the threshold the axis is logarithmic, so that peaks fit in."
    count = " Across, the time steps count." if report.axis == "time step" else ""
    return _section(
        "overview",
        "Scores over time",
        '<p class="lead">The higher a score, the less its readings look like what was learned as normal.'
        f"{bent}{count}</p>",
        _keys(*_score_keys(report.threshold, "event, with its number" if report.panels else "event")),
        _strip_plot(
            report.strip,
            report,
            "Scores over time",
            f"{report.headline}. The highest score is {text(float(np.nanmax(report.strip.scores.values)))}.",
            "tall",
            numbered=[panel.number for panel in _ranked(report.panels)],
        ),
    )


def _ranked(panels: Iterable[Panel]) -> list[Panel]:
    """The worst first."""
    return sorted(panels, key=lambda panel: (-panel.severity, -panel.score))


def _score_keys(threshold: float, event: str) -> tuple[tuple[str, str], ...]:
    return (_stroke("score"), "score"), (_stroke("threshold"), f"threshold {text(threshold)}"), (_EVENT_KEY, event)


def _strip_plot(
    strip: Strip, report: Report, name: str, description: str, size: str, numbered: Iterable[int] = ()
) -> str:
    axis = score_axis([strip.scores.values, strip.thresholds.values], report.center, report.threshold)
    shapes = [
        bands(strip.marks),
        curve(strip.scores, axis, "score"),
        curve(strip.thresholds, axis, "threshold"),
    ]
    known = {mark.number: mark for mark in strip.marks}
    marks = [known[number] for number in numbered]
    ticks = axis.ticks(4 if size == "tall" else 2)
    return plot(shapes, name=name, description=description, up=ticks, across=strip.ticks, size=size, marks=marks)


def _events(report: Report) -> str:
    if not report.panels:
        return _section("events", "Events", f"<p>{escape(report.headline)}.</p>")
    shown = len(report.panels)
    many = report.event_count > shown
    more = f"There are {report.event_count:,} events; the worst {shown} of them stand here. " if many else ""
    what = "Severity says how rare the highest score is among normal readings: 1 is one in a billion or rarer."
    why = "" if report.explained else " This detector does not say which variables are behind a score."
    opened = {panel.number for panel in _ranked(report.panels)[:OPEN]}
    panels = "".join(_panel(panel, report, panel.number in opened) for panel in report.panels)
    return _section("events", "Events", f'<p class="lead">{more}{what}{why}</p>', _table(report), panels)


def _table(report: Report) -> str:
    rows = [_cells(panel) for panel in report.panels]
    head = "".join(f'<th scope="col">{name}</th>' for name in rows[0])
    body = "".join(f"<tr>{''.join(_cell(*cell) for cell in row.items())}</tr>" for row in rows)
    return f'<div class="scroll"><table class="records"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(panel: Panel) -> dict[str, str]:
    """What the table says of an event, by the names of its columns."""
    link = f'<a href="#event-{panel.number}" aria-label="To event {panel.number}">{panel.number}</a>'
    cells = {
        "event": f'{link} <span class="aside">{_prose(panel.lasting)}</span>',
        "start": _prose(panel.start),
        "end": _prose(panel.end),
        "peak": f"{text(panel.score)} at {_prose(panel.peak)}",
        "severity": _severity(panel.severity),
    }
    blamed = ", ".join(f"{name} {100 * share:.0f} %" for name, share in panel.top)
    return cells | {"top variables": _prose(blamed)} if panel.top else cells


def _cell(name: str, content: str) -> str:
    whole = ' class="whole"' if name == "top variables" else ""
    return f'<td data-name="{name}"{whole}>{content}</td>'


def _severity(severity: float) -> str:
    word = "high" if severity >= 2 / 3 else "medium" if severity >= 1 / 3 else "low"
    return f'<span class="severity"><i style="--part:{100 * severity:.0f}%"></i>{severity:.2f} {word}</span>'


def _panel(panel: Panel, report: Report, is_open: bool) -> str:
    blamed = f"mostly {panel.top[0][0]}" if panel.top else f"score {text(panel.score)}"
    described = f"Event {panel.number} from {panel.start} to {panel.end}, peak {text(panel.score)} at {panel.peak}."
    last = not panel.traces
    strip = panel.strip if last else _without_ticks(panel.strip)
    keys = ((_stroke("observed"), "observed"), (_stroke("normal"), "nearest normal pattern")) if panel.traces else ()
    parts = [
        _keys(*_score_keys(report.threshold, "event"), *keys),
        _strip_plot(strip, report, f"Event {panel.number}: scores", described, "low"),
        *(_trace(trace, panel, position == len(panel.traces)) for position, trace in enumerate(panel.traces, 1)),
    ]
    return (
        f'<details class="event-panel"{" open" if is_open else ""}><summary><h3>Event {panel.number}: '
        f'{_prose(panel.start)}</h3><span class="aside">{_prose(panel.lasting)}, {escape(blamed)}</span></summary>'
        f'<div class="inside" id="event-{panel.number}">{"".join(parts)}</div></details>'
    )


def _without_ticks(strip: Strip) -> Strip:
    """The strip whose axis of time is that of the plots under it."""
    return Strip(strip.scores, strip.thresholds, (), strip.marks)


def _trace(trace: Trace, panel: Panel, last: bool) -> str:
    axis = Linear.over(trace.observed.values, trace.normal.values)
    shapes = [
        bands(panel.strip.marks),
        curve(trace.normal, axis, "normal"),
        curve(trace.observed, axis, "observed"),
    ]
    drawn = plot(
        shapes,
        name=f"Event {panel.number}: {trace.variable}",
        description=trace.sentence,
        up=axis.ticks(3),
        across=panel.strip.ticks if last else (),
    )
    return (
        f'<div class="trace"><h4>{escape(trace.variable)}<span>{100 * trace.share:.0f} % of the score</span></h4>'
        f"{drawn}<p>{_prose(trace.sentence)}</p></div>"
    )


def _codebook(usages: Sequence[Usage]) -> str:
    title = "Codebook usage"
    if not usages:
        return _section("codebook", title, '<p class="lead">This detector has no codebook.</p>')
    keys = _keys((_area("before"), "training, upward"), (_area("here"), "this data, downward"))
    return _section(
        "codebook",
        title,
        '<p class="lead">How often each normal pattern is used, the one first that training used most. Data like the '
        "training's gives two halves that mirror each other.</p>",
        keys,
        f'<div class="side">{"".join(_usage(some) for some in usages)}</div>',
    )


def _usage(some: Usage) -> str:
    highest = max(float(some.training.max()), float(some.here.max()), 1e-9)
    axis = Linear(-1.05 * highest, 1.05 * highest)
    told = (
        f"Training used {some.used:,} of {len(some.training):,} codes, this data uses {some.used_here:,}; "
        f"{100 * some.unseen:.2g} % of its patches are nearest to a code that training never used."
    )
    up = tuple(
        Tick(float(axis.place(sign * value)), f"{100 * value:.2g} %")
        for value in (0.0, _half(highest))
        for sign in (1, -1)
        if value or sign == 1
    )
    last = len(some.training)
    across = (Tick(0.0, "1"), Tick(0.5, f"{(last + 1) // 2:,}"), Tick(1.0, f"{last:,} codes")) if last > 2 else ()
    shapes = [bars(some.training, axis, "before"), bars(-some.here, axis, "here"), level(0.5, "zero")]
    name = f"Patches of {some.patch_size} readings"
    drawn = plot(shapes, name=f"Codebook usage: {name.lower()}", description=told, up=up, across=across)
    return f'<div><h3>{name}</h3>{drawn}<p class="note">{told}</p></div>'


def _half(highest: float) -> float:
    """A round value that is more than half as high."""
    power = 10.0 ** np.floor(np.log10(highest))
    return float(max(value for value in (0.5 * power, power, 2 * power, 5 * power) if value <= highest))


def _drift(report: Report) -> str:
    moved = report.drift
    first, final = float(moved.quantiles[0, 0]), float(moved.quantiles[0, -1])
    told = (
        f"The median score was {text(float(moved.training[0]))} in training, is {text(first)} at the beginning of this "
        f"data and {text(final)} at its end. {100 * moved.above:.2g} % of the scores are above what "
        f"{100 * (1 - LEVELS[-1]):.2g} % of the training scores exceed."
    )
    return _section(
        "drift",
        "Drift of the scores",
        f'<p class="lead">{told}</p>',
        f'<div class="side wide"><div>{_quantiles(moved, report, told)}</div><div>{_histogram(moved)}</div></div>',
    )


def _quantiles(moved: Drift, report: Report, told: str) -> str:
    axis = score_axis([moved.quantiles, moved.training], report.center, report.threshold)
    bins = moved.quantiles.shape[1]
    places = (np.arange(bins) + 0.5) / bins
    kinds = ("middle", "upper", "uppermost")
    shapes = [level(float(axis.place(value)), "then") for value in moved.training]
    shapes += [curve(Line(places, row), axis, kind) for row, kind in zip(moved.quantiles, kinds, strict=True)]
    words = ("median", "90 % are below", "99 % are below")
    keys = _keys(
        *((_stroke(kind), told) for kind, told in zip(kinds, words, strict=True)),
        (_stroke("then"), "the same in training"),
    )
    drawn = plot(
        shapes, name="Quantiles of the scores over time", description=told, up=axis.ticks(4), across=report.strip.ticks
    )
    return f"<h3>Quantiles over time</h3>{keys}{drawn}"


def _histogram(moved: Drift) -> str:
    axis = Linear.over(moved.before, moved.after, foot=0.0)
    scores = Linear(float(moved.edges[0]), float(moved.edges[-1]))
    ticks = scores.ticks(3)
    shapes = [bars(moved.before, axis, "before"), bars(moved.after, axis, "line")]
    up = tuple(Tick(tick.place, f"{100 * float(tick.label.replace(',', '')):.3g} %") for tick in axis.ticks(3))
    drawn = plot(
        shapes,
        name="Histogram of the scores, before and after",
        description="Shares of the scores in training and in this data; the last bar holds all higher scores too.",
        up=up,
        across=ticks,
    )
    keys = _keys((_area("before"), "training"), (_area("line"), "this data"))
    return (
        f'<h3>Before and after</h3>{keys}{drawn}<p class="note">By score; the last bar holds all higher ones too.</p>'
    )


def _quality(findings: Sequence[tuple[str, str]]) -> str:
    if not findings:
        return _section("quality", "Data quality", '<p class="lead">No findings.</p>')
    items = "".join(f"<li><b>{escape(kind)}</b>: {escape(sentence)}</li>" for kind, sentence in findings)
    return _section("quality", "Data quality", f'<ul class="findings">{items}</ul>')


def _settings(report: Report) -> str:
    plain = {name: value for name, value in report.settings.items() if not isinstance(value, dict)}
    items = "".join(f"<dt>{escape(name)}</dt><dd>{_setting(name, value)}</dd>" for name, value in plain.items())
    whole = escape(json.dumps(report.settings, indent=2, ensure_ascii=False))
    return _section(
        "settings",
        "To reproduce",
        f'<dl class="settings">{items}</dl>',
        f"<details><summary>All settings</summary><pre>{whole}</pre></details>",
    )


def _setting(name: str, value: object) -> str:
    words = text(value) if isinstance(value, float) else str(value)
    return f"<code>{escape(words)}</code>" if name == "command" else escape(words)

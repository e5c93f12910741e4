"""`cometad fit`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometad.cli import options
from cometad.cli.exits import printable

if TYPE_CHECKING:
    from cometad.comet import Comet
    from cometad.data.dialect import Dialect
    from cometad.detector import Detector


def fit(
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write the detector to.")],
    detector: Annotated[
        str,
        typer.Option(
            help="comet, network (trained) or a baseline such as knn or vtt. An unknown name lists all of them."
        ),
    ] = "comet",
    preset: Annotated[
        str, typer.Option(help="default, or paper for the published method with its published sizes; needs torch.")
    ] = "default",
    dataset: Annotated[
        str | None, typer.Option(help="With --preset paper: dataset whose published sizes to use, such as MSL.")
    ] = None,
    views: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:LENGTH],...",
            help="Views of comet, such as patterns:64,joint,forecast. An unknown name lists all of them.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="START..STOP",
            help="Readings not to learn from, such as 1200..1260 or 2026-03-01T08:00..2026-03-01T09:30, without the "
            "stop; repeatable.",
        ),
    ] = None,
    trim: Annotated[
        bool,
        typer.Option("--trim/--no-trim", help="Whether comet leaves out stretches that do not fit the rest."),
    ] = True,
    trends: Annotated[
        bool,
        typer.Option(
            "--trends/--no-trends",
            help="Whether comet looks for variables that only grow or wander, and scores their movement.",
        ),
    ] = True,
    time_column: options.TimeColumn = None,
    drop: options.Drop = None,
    resample: options.Resample = None,
    gaps: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="Gap rule for missing readings, in training and scoring: refuse, forward-fill:LIMIT, "
            "interpolate:LIMIT or score-measured.",
        ),
    ] = "refuse",
    steps: Annotated[
        int | None,
        typer.Option(
            help="Training steps of network and the deep baselines, with one cycle of the learning rate; with --preset "
            "paper they replace the published schedule of 20 epochs.",
            min=1,
        ),
    ] = None,
    threshold: options.Threshold = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same detector.", min=0)] = 42,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda, for network and the deep baselines. Default: cpu.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other hyperparameter, such as pooling=8 or 'smoothing=[16]'; repeatable. An unknown name lists "
            "all of them.",
        ),
    ] = None,
    force: options.Force = False,
    dialect: "Dialect | None" = None,
) -> None:
    """Learn what is normal from a file of readings and write the detector to a file.

    The readings should come from normal operation. comet leaves out stretches that do not fit the rest, such as faults
    among them, and lists them on stderr; --exclude adds your own, --no-trim keeps everything else. Of variables that
    only grow or wander, it scores the movement; --no-trends scores the readings. Every column except the time is a
    variable. Problems found in the readings are reported on stderr.
    """
    from cometad.cli.chosen import parse_stretch
    from cometad.cli.opened import Source, say_findings
    from cometad.cli.paths import Output, check_outputs
    from cometad.data.quality import Statistics, findings

    check_outputs([Output(output, "detector")], [data], force)
    stretches = [parse_stretch(text) for text in exclude or ()]
    made = requested_detector(
        detector=detector,
        preset=preset,
        dataset=dataset,
        views=views,
        trim=trim,
        trends=trends,
        gaps=gaps,
        steps=steps,
        threshold=threshold,
        seed=seed,
        device=device,
        changes=changes,
    ).set_params(verbose=True)
    series = Source(data, time_column, drop, resample, dialect).series(missing=made.gaps.allowed)
    say_findings(findings(series, Statistics.fit(series)))
    if stretches:
        _excluding(made, detector).fit(series, exclude=stretches)
    else:
        made.fit(series)
    made.set_params(verbose=False).save(output)  # verbosity is not part of a saved detector
    _say_trends(made)
    _say_left_out(made)
    print(
        f"Fitted on {len(series):,} readings of {len(series.names)} variables; threshold {made.threshold_:.4g}; "
        f"wrote '{printable(output)}'."
    )
    print(_expected_flags(made))


def requested_detector(
    *,
    detector: str,
    preset: str,
    dataset: str | None,
    views: str | None,
    trim: bool,
    trends: bool,
    gaps: str,
    steps: int | None,
    threshold: str | None,
    seed: int,
    device: str | None,
    changes: list[str] | None,
) -> "Detector":
    """The detector that options of `fit` ask for, not fitted yet."""
    from cometad.alerting.thresholds import parse_threshold
    from cometad.cli.chosen import chosen_detector, parse_views
    from cometad.data.gaps import parse_gaps

    own: dict[str, Any] = {"seed": seed, "gaps": parse_gaps(gaps)}
    own |= {} if threshold is None else {"threshold": parse_threshold(threshold)}
    own |= {} if device is None else {"device": device}
    own |= {} if views is None else {"views": parse_views(views)}
    own |= {} if trim else {"trim": False}
    own |= {} if trends else {"trends": False}
    return chosen_detector(detector, preset, dataset, steps, changes or [], own)


def _excluding(detector: "Detector", name: str) -> "Comet":
    from cometad.comet import Comet
    from cometad.errors import ParameterError

    if not isinstance(detector, Comet):
        raise ParameterError(f"--exclude is an option of comet, not of {name}. Remove those readings from the file.")
    return detector


def _say_trends(detector: "Detector") -> None:
    """Print which variables have trends."""
    from cometad.cli.exits import say

    for sentence in detector.trends_.sentences(detector.names_):
        say(f"{sentence} To score the readings, pass --no-trends.")


def _say_left_out(detector: "Detector") -> None:
    """Print the stretches that were not learned from."""
    from cometad.cli.exits import say
    from cometad.cli.opened import MOST_FINDINGS
    from cometad.report.gather import trimmed

    sentences = trimmed(detector)
    for sentence in sentences[:MOST_FINDINGS]:
        say(sentence)
    if len(sentences) > MOST_FINDINGS:
        say(f"{len(sentences) - MOST_FINDINGS} more stretches were left out; cometad report lists all of them.")


def _expected_flags(detector: "Detector") -> str:
    """A sentence with the false alarms to expect at this threshold."""
    from cometad.alerting.budget import Budget
    from cometad.alerting.thresholds import expected_per_day

    rule, seconds = detector.threshold, detector.statistics_.period
    if isinstance(rule, Budget) and rule.rate is None:
        daily = "" if math.isnan(seconds) else f", {rule.share(seconds) * 86_400 / seconds:.2g} a day"
        return f"Expect at most 1 event in {1 / rule.share(seconds):,.0f} readings{daily}."
    if rule.rate is None:
        return "The threshold rule does not say how many readings it flags."
    per_day = ""
    if not math.isnan(seconds):
        per_day = f": {expected_per_day(rule, seconds):.3g} a day at one reading every {seconds:g} s"
    return f"Expect {100 * rule.rate:.3g} % of normal readings like these to be flagged{per_day}."

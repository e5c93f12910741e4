"""`cometad fit`."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometad.cli import options
from cometad.validation import is_integer

if TYPE_CHECKING:
    from cometad.comet import Comet
    from cometad.detector import Detector
    from cometad.errors import ParameterError
    from cometad.series import Series
    from cometad.views.view import View

OWN_OPTIONS = ("seed", "device", "verbose", "views")  # not set with --set: they have flags of their own, or none


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
    steps: Annotated[int | None, typer.Option(help="Training steps of network and the deep baselines.", min=1)] = None,
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
) -> None:
    """Learn what is normal from a file of readings and write the detector to a file.

    The readings should come from normal operation. comet leaves out stretches that do not fit the rest, such as faults
    among them, and lists them on stderr; --exclude adds your own, --no-trim keeps everything else. Every column except
    the time is a variable. Problems found in the readings are reported on stderr.
    """
    from cometad.alerting.thresholds import parse_threshold
    from cometad.cli.opened import Source, say_findings
    from cometad.cli.paths import check_writable
    from cometad.data.gaps import parse_gaps
    from cometad.data.quality import Statistics, findings

    check_writable(output)
    rule = parse_gaps(gaps)
    own: dict[str, Any] = {"seed": seed, "gaps": rule}
    own |= {} if threshold is None else {"threshold": parse_threshold(threshold)}
    own |= {} if device is None else {"device": device}
    own |= {} if views is None else {"views": _parsed_views(views)}
    own |= {} if trim else {"trim": False}
    stretches = [_parsed_stretch(text) for text in exclude or ()]
    series = Source(data, time_column, drop, resample).series(missing=rule.allowed)
    made = _detector(detector, preset, dataset, steps, changes or [], own)
    say_findings(findings(series, Statistics.fit(series)))
    made.set_params(verbose=True)
    if stretches:
        _excluding(made, detector).fit(series, exclude=stretches)
    else:
        made.fit(series)
    made.set_params(verbose=False).save(output)  # verbosity is not part of a saved detector
    _say_left_out(made, series)
    print(
        f"Fitted on {len(series):,} readings of {len(series.names)} variables; threshold {made.threshold_:.4g}; "
        f"wrote '{output}'."
    )
    print(_expected_flags(made))


def _excluding(detector: "Detector", name: str) -> "Comet":
    from cometad.comet import Comet
    from cometad.errors import ParameterError

    if not isinstance(detector, Comet):
        raise ParameterError(f"--exclude is an option of comet, not of {name}. Remove those readings from the file.")
    return detector


def _say_left_out(detector: "Detector", series: "Series") -> None:
    """Print the stretches that were not learned from."""
    from cometad.cli.exits import say
    from cometad.cli.opened import MOST_FINDINGS
    from cometad.report.left_out import left_out, sentence
    from cometad.report.times import TimeAxis

    axis, stretches = TimeAxis(len(series), series.times), left_out(detector)
    for stretch in stretches[:MOST_FINDINGS]:
        say(sentence(stretch, axis))
    if len(stretches) > MOST_FINDINGS:
        say(f"{len(stretches) - MOST_FINDINGS} more stretches were left out; cometad report lists all of them.")


def _expected_flags(detector: "Detector") -> str:
    """A sentence with the false alarms to expect at this threshold."""
    from cometad.alerting.thresholds import expected_per_day

    rate, seconds = detector.threshold.rate, detector.statistics_.period
    per_day = ""
    if not math.isnan(seconds):
        per_day = f": {expected_per_day(detector.threshold, seconds):.3g} a day at one reading every {seconds:g} s"
    return f"Expect {100 * rate:.3g} % of normal readings like these to be flagged{per_day}."


def _detector(
    name: str, preset: str, dataset: str | None, steps: int | None, changes: list[str], own: dict[str, Any]
) -> "Detector":
    from cometad.comet import Comet
    from cometad.detectors import DETECTORS
    from cometad.errors import ParameterError, unknown

    if name not in DETECTORS:
        raise unknown("detector", name, DETECTORS)
    if preset not in ("default", "paper"):
        raise unknown("preset", preset, ["default", "paper"])
    if dataset is not None and preset != "paper":
        raise ParameterError("--dataset selects sizes from the paper. Pass --preset paper with it.")
    published = preset == "paper" and name in ("comet", "network")  # a baseline's defaults are the published ones
    if dataset is not None and not published:
        raise ParameterError(f"--dataset selects sizes of comet, not of {name}. Leave it out.")
    kind = DETECTORS["network" if published else name]
    defaults = kind().get_params(deep=False)
    for option in own:
        if option not in defaults:
            raise _misplaced(f"--{'no-trim' if option == 'trim' else option}", name, published)
    if steps is not None and "schedule" not in defaults:
        raise _misplaced("--steps", name, published)
    parameters = dict(_parsed(change, defaults) for change in changes) | own
    if steps is not None:
        from cometad.network.schedules import OneCycle

        parameters["schedule"] = OneCycle(steps, defaults["schedule"].learning_rate)
    return Comet.paper(dataset, **parameters) if published else kind(**parameters)


def _misplaced(option: str, name: str, published: bool) -> "ParameterError":
    """The error for an option that this detector does not have."""
    from cometad.errors import ParameterError

    if option not in ("--device", "--steps"):
        chosen = "--preset paper" if published else name
        return ParameterError(f"{option} is an option of comet, not of {chosen}. Leave it out.")
    instead = "Pass --detector network or --preset paper with it." if name == "comet" else "Leave it out."
    what = "runs on the CPU only" if option == "--device" else "is not trained in steps"
    return ParameterError(f"The detector {name} {what}, so it has no {option}. {instead}")


def _parsed_views(text: str) -> "tuple[View, ...]":
    """The views in NAME[:LENGTH],..."""
    from cometad.specs import parse
    from cometad.views import VIEWS

    return tuple(parse(part.strip(), VIEWS, kind="view", value="LENGTH", convert=int) for part in text.split(","))


def _parsed_stretch(text: str) -> tuple[int, int] | tuple[str, str]:
    """The two ends in START..STOP, both time steps or both timestamps."""
    from cometad.errors import ParameterError

    start, _, stop = text.partition("..")
    if start.isdecimal() and stop.isdecimal():
        return int(start), int(stop)
    try:
        return _iso(start), _iso(stop)
    except ValueError as error:
        raise ParameterError(
            f"Cannot read --exclude {text!r}. Write time steps like 1200..1260, or times like "
            "2026-03-01T08:00..2026-03-01T09:30."
        ) from error


def _iso(text: str) -> str:
    """A timestamp as the series has it: without a time zone, in UTC if it had one."""
    time = datetime.fromisoformat(text.strip())
    return (time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)).isoformat()


def _parsed(change: str, defaults: dict[str, Any]) -> tuple[str, Any]:
    """The name and value in NAME=VALUE; the value must have the type of the default."""
    from cometad.errors import ParameterError, unknown

    name, equals, text = change.partition("=")
    plain = {
        known: default
        for known, default in defaults.items()
        if isinstance(default, bool | int | float | str | tuple) and known not in OWN_OPTIONS
    }
    if name not in plain:
        raise unknown("hyperparameter", name, plain)
    try:
        value = json.loads(text)
    except ValueError:
        value = text  # scaler=min-max needs no quotes
    for kind, (wanted, fits) in _KINDS.items():
        if equals and isinstance(plain[name], kind) and fits(value):
            return name, tuple(value) if kind is tuple else value
        if isinstance(plain[name], kind):
            raise ParameterError(
                f"The hyperparameter {name!r} must be {wanted}, got --set {change!r}. "
                f"Write it like --set '{name}={json.dumps(plain[name])}'."
            )
    raise AssertionError(name)


def _is_number(value: Any) -> bool:
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


_KINDS: dict[type, tuple[str, Any]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("an integer", is_integer),
    float: ("a number", _is_number),
    str: ("a word", lambda value: isinstance(value, str) and value != ""),
    tuple: ("a list of integers", lambda value: isinstance(value, list) and all(map(is_integer, value))),
}

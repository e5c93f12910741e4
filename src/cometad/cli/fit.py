"""`cometad fit`."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometad.cli import options
from cometad.validation import is_integer

if TYPE_CHECKING:
    from cometad.detector import Detector

OWN_OPTIONS = ("seed", "device", "verbose")  # not set with --set: they have flags of their own, or none


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
        str, typer.Option(help="default, or paper for the published method with its published sizes.")
    ] = "default",
    dataset: Annotated[
        str | None, typer.Option(help="With --preset paper: dataset whose published sizes to use, such as MSL.")
    ] = None,
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
        int | None, typer.Option(help="Training steps; the learning rate rises, then falls.", min=1)
    ] = None,
    threshold: options.Threshold = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same detector.", min=0)] = 42,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other hyperparameter, such as window=64 or 'patch_sizes=[2,4]'; repeatable. An unknown name "
            "lists all of them.",
        ),
    ] = None,
) -> None:
    """Learn what is normal from a file of readings and write the detector to a file.

    The readings should come from normal operation: faults among them will not be detected later. Every column except
    the time is a variable. Problems found in the readings are reported on stderr.
    """
    from cometad.alerting.thresholds import parse_threshold
    from cometad.cli.opened import Source, say_findings
    from cometad.cli.paths import check_writable
    from cometad.data.gaps import parse_gaps
    from cometad.data.quality import Statistics, findings

    check_writable(output)
    rule = parse_gaps(gaps)
    own = {"seed": seed, "device": device, "gaps": rule}
    own |= {} if threshold is None else {"threshold": parse_threshold(threshold)}
    series = Source(data, time_column, drop, resample).series(missing=rule.allowed)
    made = _detector(detector, preset, dataset, steps, changes or [], own)
    say_findings(findings(series, Statistics.fit(series)))
    made.set_params(verbose=True).fit(series)
    made.set_params(verbose=False).save(output)  # verbosity is not part of a saved detector
    print(
        f"Fitted on {len(series):,} readings of {len(series.names)} variables; threshold {made.threshold_:.4g}; "
        f"wrote '{output}'."
    )
    print(_expected_flags(made))


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
    from cometad.network.schedules import OneCycle

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
    if "device" not in defaults and own["device"] != "cpu":
        raise ParameterError(f"The detector {name} runs on the CPU only. Leave out --device.")
    own = {option: value for option, value in own.items() if option in defaults or option != "device"}
    parameters = dict(_parsed(change, defaults) for change in changes) | own
    if steps is not None and "schedule" not in defaults:
        raise ParameterError(f"The detector {name} is not trained in steps. Leave out --steps.")
    if steps is not None:
        parameters["schedule"] = OneCycle(steps, defaults["schedule"].learning_rate)
    return Comet.paper(dataset, **parameters) if published else kind(**parameters)


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

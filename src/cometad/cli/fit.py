"""`cometad fit`."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometad.cli import options

if TYPE_CHECKING:
    from cometad.detector import Detector
    from cometad.series import Series

OWN_OPTIONS = ("seed", "device", "verbose")  # not for --set


def fit(
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write the detector to.")],
    detector: Annotated[
        str,
        typer.Option(help="comet, or a baseline such as knn or vtt. A name that does not exist shows those that do."),
    ] = "comet",
    preset: Annotated[
        str, typer.Option(help="default, or paper: the published method with its published sizes.")
    ] = "default",
    dataset: Annotated[
        str | None, typer.Option(help="With --preset paper: the dataset whose published sizes to use, such as MSL.")
    ] = None,
    time_column: options.TimeColumn = None,
    drop: options.Drop = None,
    resample: options.Resample = None,
    gaps: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="What happens to missing readings, here and when scoring: refuse, forward-fill:LIMIT, "
            "interpolate:LIMIT or score-measured.",
        ),
    ] = "refuse",
    steps: Annotated[
        int | None, typer.Option(help="Training steps, with a learning rate that rises, then falls.", min=1)
    ] = None,
    threshold: options.Threshold = None,
    seed: Annotated[int, typer.Option(help="Same seed, same detector.", min=0)] = 42,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Another hyper-parameter, such as window=64 or 'patch_sizes=[2,4]'; may be given several "
            "times. A name that does not exist shows those that do.",
        ),
    ] = None,
) -> None:
    """Learn what is normal from a file of readings, and write the detector to a file.

    The readings should be of normal operation: what is in them will not be found later. Every column but the time is
    a variable. What is wrong with the readings is told on stderr.
    """
    from cometad.alerting.thresholds import parse_threshold
    from cometad.cli.paths import check_writable
    from cometad.cli.prepare import resampled, tell
    from cometad.data.gaps import parse_gaps
    from cometad.data.quality import Statistics, findings
    from cometad.data.resample import parse_resampling
    from cometad.data.tables import read_table
    from cometad.series import as_series, together

    check_writable(output)
    rule, grid = parse_gaps(gaps), None if resample is None else parse_resampling(resample)
    own = {"seed": seed, "device": device, "gaps": rule}
    own |= {} if threshold is None else {"threshold": parse_threshold(threshold)}
    readings: Any = read_table(data, time_column, drop or ())
    if grid is not None:
        readings = together(list(resampled([readings], grid)))
    series = as_series(readings, missing=rule.allowed)
    made = _detector(detector, preset, dataset, steps, changes or [], own)
    tell(findings(series, Statistics.fit(series)))
    made.set_params(verbose=True).fit(series)
    made.set_params(verbose=False).save(output)  # whether somebody watched is no part of what is saved
    print(
        f"Fitted on {len(series):,} readings of {len(series.names)} variables; threshold {made.threshold_:.4g}; "
        f"wrote '{output}'."
    )
    print(_promise(made, series))


def _promise(detector: "Detector", series: "Series") -> str:
    """How many false alarms the threshold allows."""
    import numpy as np

    from cometad.alerting.thresholds import expected_per_day

    rate = detector.threshold.rate
    per_day = ""
    if series.times is not None and len(series) > 1:
        seconds = float(np.median(np.diff(series.times)) / np.timedelta64(1, "s"))
        per_day = f": {expected_per_day(detector.threshold, seconds):.3g} a day at one reading in {seconds:g} s"
    return f"Of normal readings like these {100 * rate:.3g} % may be flagged{per_day}."


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
        raise ParameterError("The option --dataset chooses the paper's sizes. Pass --preset paper with it.")
    if dataset is not None and name != "comet":
        raise ParameterError(f"The option --dataset chooses sizes of comet; {name} has none. Leave it out.")
    defaults = DETECTORS[name]().get_params(deep=False)
    parameters = dict(_parsed(change, defaults) for change in changes) | own
    if steps is not None and "schedule" not in defaults:
        raise ParameterError(f"The detector {name} is not trained in steps. Leave out --steps.")
    if steps is not None:
        parameters["schedule"] = OneCycle(steps, defaults["schedule"].learning_rate)
    # The defaults of a baseline are the published ones.
    return (
        Comet.paper(dataset, **parameters) if name == "comet" and preset == "paper" else DETECTORS[name](**parameters)
    )


def _parsed(change: str, defaults: dict[str, Any]) -> tuple[str, Any]:
    """The name and the value in NAME=VALUE; the value must be of the default's type."""
    from cometad.errors import ParameterError, unknown

    name, equals, text = change.partition("=")
    plain = {
        known: default
        for known, default in defaults.items()
        if isinstance(default, bool | int | float | str | tuple) and known not in OWN_OPTIONS
    }
    if name not in plain:
        raise unknown("hyper-parameter", name, plain)
    try:
        value = json.loads(text)
    except ValueError:
        value = text  # scaler=min-max needs no quotes
    for kind, (wanted, fits) in _KINDS.items():
        if equals and isinstance(plain[name], kind) and fits(value):
            return name, tuple(value) if kind is tuple else value
        if isinstance(plain[name], kind):
            raise ParameterError(
                f"The hyper-parameter {name!r} needs {wanted}; --set {change!r} gives none. "
                f"Pass it like --set '{name}={json.dumps(plain[name])}'."
            )
    raise AssertionError(name)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


_KINDS: dict[type, tuple[str, Any]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", _is_whole),
    float: ("a number", _is_number),
    str: ("a word", lambda value: isinstance(value, str) and value != ""),
    tuple: ("a list of whole numbers", lambda value: isinstance(value, list) and all(map(_is_whole, value))),
}

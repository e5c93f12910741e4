"""The options of a detector to fit."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cometad.cli.exits import say
from cometad.cli.options import Threshold, flag
from cometad.errors import ParameterError, unknown
from cometad.parameters import is_integer, parse

if TYPE_CHECKING:
    from cometad.detector import Detector

EXAMPLES = {"pooling": 8}  # of parameters whose default depends on the series
TEMPORAL = {"season": "auto", "timezone": "UTC", "holidays": None}
OWN_OPTIONS = ("seed", "device", "verbose", "views", "kinds", *TEMPORAL)  # not set with --set: they have flags, or none
SWITCHES = ("trim", "trends")  # turned off with --no-...


@dataclass(frozen=True)
class DetectorOptions:
    detector: str = flag(
        "comet, network (trained) or a baseline such as knn or vtt. An unknown name lists all of them.", default="comet"
    )
    preset: str = flag(
        "default, or paper for the published method with its published sizes; needs torch.", default="default"
    )
    dataset: str | None = flag("With --preset paper: dataset whose published sizes to use, such as MSL.")
    views: str | None = flag(
        "Views of comet, such as patterns:64,joint,forecast. An unknown name lists all of them.",
        metavar="NAME[:LENGTH],...",
    )
    trim: bool = flag("Whether comet leaves out stretches that do not fit the rest.", "--trim/--no-trim", default=True)
    trends: bool = flag(
        "Whether comet looks for variables that only grow or wander, and scores their movement.",
        "--trends/--no-trends",
        default=True,
    )
    counter: list[str] | None = flag("Variable that counts: score its increments; repeatable.", metavar="NAME")
    state: list[str] | None = flag("Variable that holds one of a few values; repeatable.", metavar="NAME")
    season: str = flag(
        "What depends on the time, for comet: auto looks for it; 1d, 1w or a number of readings is for all variables; "
        "none ignores the time.",
        default="auto",
        metavar="auto|1d|1w|none|READINGS",
    )
    timezone: str = flag("Local time of the season, such as Europe/Berlin.", default="UTC", metavar="ZONE")
    holidays: str | None = flag(
        "Country whose public holidays are like Sundays, such as DE, DE-BY or US-CA.", metavar="COUNTRY"
    )
    gaps: str = flag(
        "Gap rule for missing readings, in training and scoring: refuse, forward-fill:LIMIT, "
        "interpolate:LIMIT or score-measured.",
        default="refuse",
        metavar="RULE",
    )
    steps: int | None = flag(
        "Training steps of network and the deep baselines, with one cycle of the learning rate; with --preset "
        "paper they replace the published schedule of 20 epochs.",
        min=1,
    )
    threshold: Threshold = None
    seed: int = flag("Random seed; the same seed gives the same detector.", default=42, min=0)
    device: str | None = flag("cpu or cuda, for network and the deep baselines. Default: cpu.")
    changes: list[str] | None = flag(
        "Any other hyperparameter, such as pooling=8 or 'smoothing=[16]'; repeatable. An unknown name lists "
        "all of them.",
        "--set",
        metavar="NAME=VALUE",
    )

    def value(self) -> "Detector":
        from cometad.comet import Comet
        from cometad.detectors import DETECTORS

        own, name = self._own(), self.detector
        for both in set(self.counter or ()) & set(self.state or ()):
            raise ParameterError(f"A variable is a counter or a state, not both. Pass {both!r} once.")
        if name not in DETECTORS:
            raise unknown("detector", name, DETECTORS)
        if self.preset not in ("default", "paper"):
            raise unknown("preset", self.preset, ["default", "paper"])
        if self.dataset is not None and self.preset != "paper":
            raise ParameterError("--dataset selects sizes from the paper. Pass --preset paper with it.")
        published = self.preset == "paper" and name in ("comet", "network")  # defaults of baselines are published ones
        if self.dataset is not None and not published:
            raise ParameterError(f"--dataset selects sizes of comet, not of {name}. Leave it out.")
        kind = DETECTORS["network" if published else name]
        defaults = kind().get_params(deep=False)
        for option in own:
            if option not in defaults:
                flags = {"kinds": "counter" if self.counter else "state", "trim": "no-trim", "trends": "no-trends"}
                raise _misplaced(f"--{flags.get(option, option)}", name, published)
        if self.steps is not None and "schedule" not in defaults:
            raise _misplaced("--steps", name, published)
        parameters = dict(_parsed(change, defaults) for change in self.changes or ()) | own
        if self.steps is not None:
            from cometad.network.schedules import OneCycle

            if published:
                say("--steps replaces the published schedule of 20 epochs by one cycle of the learning rate.")
            parameters["schedule"] = OneCycle(self.steps, defaults["schedule"].learning_rate)
        made = Comet.paper(self.dataset, **parameters) if published else kind(**parameters)
        made.check_parameters()
        return made

    def _own(self) -> dict[str, Any]:
        """The parameters that have options of their own, unless they are left to the detector."""
        from cometad.alerting.thresholds import parse_threshold
        from cometad.data.gaps import parse_gaps

        own = {
            "seed": self.seed,
            "gaps": parse_gaps(self.gaps),
            "threshold": None if self.threshold is None else parse_threshold(self.threshold),
            "device": self.device,
            "views": None if self.views is None else _parse_views(self.views),
            "kinds": dict.fromkeys(self.counter or (), "counter") | dict.fromkeys(self.state or (), "state") or None,
            **{name: None if getattr(self, name) else False for name in SWITCHES},
            **{name: own for name, usual in TEMPORAL.items() if (own := getattr(self, name)) != usual},
        }
        if self.season.isdecimal():
            own["season"] = int(self.season)
        return {name: value for name, value in own.items() if value is not None}


def _misplaced(option: str, name: str, published: bool) -> ParameterError:
    if option not in ("--device", "--steps"):
        chosen = "--preset paper" if published else name
        return ParameterError(f"{option} is an option of comet, not of {chosen}. Leave it out.")
    instead = "Pass --detector network or --preset paper with it." if name == "comet" else "Leave it out."
    what = "runs on the CPU only" if option == "--device" else "is not trained in steps"
    return ParameterError(f"The detector {name} {what}, so it has no {option}. {instead}")


def _parse_views(text: str) -> tuple[Any, ...]:
    from cometad.views import VIEWS

    parts = [part.strip() for part in text.split(",")]
    if any(part.startswith("network:") for part in parts):
        raise ParameterError("The view network has several patch sizes, not one length. Write it as network.")
    return tuple(parse(part, VIEWS, kind="view", value="LENGTH", convert=int) for part in parts)


def parse_stretch(text: str) -> tuple[int, int] | tuple[str, str]:
    """The two ends in START..STOP, both time steps or both timestamps."""
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
    from cometad.comet import REMOVED

    name, equals, text = change.partition("=")
    plain = {
        known: default
        for known, default in defaults.items()
        if isinstance(default, tuple(_KINDS)) and known not in OWN_OPTIONS
    }
    if name not in plain and name in REMOVED and "views" in defaults:
        raise ParameterError(
            f"The hyperparameter {name!r} belongs to the trained network. Pass --detector network or --preset paper "
            "with it."
        )
    if name not in plain:
        raise unknown("hyperparameter", name, plain)
    try:
        value = json.loads(text)
    except ValueError:
        value = text  # scaler=min-max needs no quotes
    wanted, fits = next(rule for kind, rule in _KINDS.items() if isinstance(plain[name], kind))
    if not (equals and fits(value)):
        raise ParameterError(
            f"The hyperparameter {name!r} must be {wanted}, got --set {change!r}. "
            f"Write it like --set '{name}={json.dumps(EXAMPLES.get(name, plain[name]))}'."
        )
    return name, tuple(value) if isinstance(value, list) else value


def _is_number(value: Any) -> bool:
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


_KINDS: dict[type, tuple[str, Callable[[Any], bool]]] = {  # the first that fits: a bool is an int, too
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("an integer", is_integer),
    type(None): ("an integer", is_integer),
    float: ("a number", _is_number),
    str: ("a word", lambda value: isinstance(value, str) and value != ""),
    tuple: ("a list of integers", lambda value: isinstance(value, list) and all(map(is_integer, value))),
}

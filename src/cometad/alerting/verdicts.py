"""What people say about events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cometad.errors import ParameterError
from cometad.saving import counted, require_state, texts

Called = Literal["normal", "fault"]
CALLED: tuple[Called, ...] = ("normal", "fault")


@dataclass(frozen=True)
class Verdict:
    """What a person said about an event: `stream.verdicts` and `detector.verdicts_` list them.

    >>> from cometad.alerting.verdicts import Verdict
    >>> Verdict(number=3, start=120, stop=180, called="normal", variables=("flow",)).called
    'normal'
    """

    number: int  # of the event in its stream; in a detector, of the verdict
    start: int  # first time step
    stop: int  # one after the last time step
    called: Called
    variables: tuple[str, ...]  # up to five, the most unusual first


def restored_verdict(facts: Mapping[str, Any]) -> Verdict:
    """A verdict from the facts that `dataclasses.asdict` gave."""
    number, start, stop = (counted(facts[name], name) for name in ("number", "start", "stop"))
    require_state(facts["called"] in CALLED, "one of its verdicts is neither normal nor a fault")
    return Verdict(number, start, stop, facts["called"], texts(facts["variables"], "variables"))


def check_called(called: object) -> Any:
    """Return `called` if a verdict can be that."""
    if called not in CALLED:
        raise ParameterError(f'A verdict is "normal", "fault", or None to withdraw one. Got {called!r} instead.')
    return called

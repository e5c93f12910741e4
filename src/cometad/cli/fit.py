"""`cometad fit`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from cometad.cli.chosen import DetectorOptions, parse_stretch
from cometad.cli.exits import printable, say, say_first
from cometad.cli.opened import Source, say_findings
from cometad.cli.options import Data, Force, ReadingOptions, flag
from cometad.cli.paths import Output, check_outputs
from cometad.errors import ParameterError

if TYPE_CHECKING:
    from cometad.detector import Detector


def fit(
    data: Data,
    output: Path = flag("File to write the detector to.", "--output", "-o", default=...),
    exclude: list[str] | None = flag(
        "Readings not to learn from, such as 1200..1260 or 2026-03-01T08:00..2026-03-01T09:30, without the "
        "stop; repeatable.",
        metavar="START..STOP",
    ),
    *,
    method: DetectorOptions,
    reading: ReadingOptions,
    force: Force = False,
) -> None:
    """Learn what is normal from a file of readings and write the detector to a file.

    The readings should come from normal operation. comet leaves out stretches that do not fit the rest, such as faults
    among them, and lists them on stderr; --exclude adds your own, --no-trim keeps everything else. Of variables that
    only grow or wander, it scores the movement; --no-trends scores the readings. Where times are known, it looks for
    days and weeks that repeat; --season none ignores the time. Every column except the time is a variable. Problems
    found in the readings are reported on stderr.
    """
    from cometad.comet import Comet
    from cometad.data.kinds import DOUBTFUL, questions
    from cometad.data.quality import Statistics, findings
    from cometad.report.gather import trimmed

    read = reading.value()
    check_outputs([Output(output, "detector")], [data], force)
    stretches = [parse_stretch(text) for text in exclude or ()]
    made = method.value().set_params(verbose=True)
    series = Source(data, read, gaps=made.gaps.allowed).series()
    say_findings(findings(series, Statistics.fit(series)) + questions(series), ("constant", *DOUBTFUL))
    if isinstance(made, Comet):
        made.fit(series, exclude=stretches)
    elif stretches:
        raise ParameterError(
            f"--exclude is an option of comet, not of {method.detector}. Remove those readings from the file."
        )
    else:
        made.fit(series)
    made.set_params(verbose=False).save(output)  # verbosity is not part of a saved detector
    for sentence in made.trends_.sentences(made.names_):
        say(sentence if getattr(made, "kinds", None) else f"{sentence} To score the readings, pass --no-trends.")
    for sentence in [] if made.season_ is None else made.season_.sentences(made.names_):
        say(f"{sentence} To ignore the time, pass --season none.")
    say_first(trimmed(made), "{} more stretches were left out; cometad report lists all of them.")
    print(
        f"Fitted on {len(series):,} readings of {len(series.names)} variables; threshold {made.threshold_:.4g}; "
        f"wrote '{printable(output)}'."
    )
    print(_expected_flags(made))


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

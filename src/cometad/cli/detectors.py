"""The detectors by the names that the command line knows them by."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometad.estimator import Estimator


def detectors() -> "dict[str, type[Estimator]]":
    """Comet and every baseline.

    >>> from cometad.cli.detectors import detectors
    >>> detectors()["comet"].__name__, detectors()["vtt"].__name__
    ('Comet', 'Vtt')
    """
    from cometad.baselines import BASELINES
    from cometad.comet import Comet

    return {"comet": Comet, **BASELINES}


def load_detector(path: Path) -> "Estimator":
    """The detector in a file, whichever it is."""
    from cometad.checkpoint import kind_of
    from cometad.comet import Comet

    known = {kind.__name__: kind for kind in detectors().values()}
    return known.get(kind_of(path), Comet).load(path)  # what nobody knows, Comet refuses with a sentence

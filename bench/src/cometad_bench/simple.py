"""The best simple baseline beside the best detector: whether a simple method would have done."""

from collections.abc import Sequence

from cometad.metrics import METRICS
from cometad_bench.experiments import SIMPLE
from cometad_bench.results import Record, latest
from cometad_bench.summaries import RANKED_BY, REFERENCES, blocks


def simple_sentence(records: Sequence[Record], metric: str = RANKED_BY) -> str:
    """Return the best simple baseline and the best other detector by the mean over datasets, and whether it wins.

    Simple baselines with the calibration, pooling and smoothing of Comet count too; they are called fair.
    """
    kinds = {record["arm"]: _kind(record["detector"]) for record in latest(records) if record["arm"] not in REFERENCES}
    _, arms, values = blocks(records, metric)
    best: dict[str, tuple[float, str]] = {}  # by kind of arm
    for arm, column in zip(arms, values.T, strict=True):
        best[kinds[arm]] = max(best.get(kinds[arm], (-1.0, "")), (float(column.mean()), arm))
    if not set(_SIMPLE_KINDS) & set(kinds.values()):
        return "No simple baseline was run here."
    found = sorted(((best[kind], kind) for kind in _SIMPLE_KINDS if kind in best), reverse=True)
    if not found:
        return "Every simple baseline lacks trials."
    (figure, simple), kind = found[0]
    more = "".join(f" The best {kind}, {arm}, has {100 * mean:.1f}." for (mean, arm), kind in found[1:])
    title = METRICS[metric].title
    if _OTHER not in best:
        own = f"The best {kind}, {simple}, has a mean {title} of {100 * figure:.1f}"
        return f"{own}; all other detectors lack trials.{more}"
    other, detector = best[_OTHER]
    if figure > other:
        return (
            f"A {kind} wins: by mean {title}, {simple} has {100 * figure:.1f} and the best other detector, {detector}, "
            f"{100 * other:.1f}.{more}"
        )
    return (
        f"The best detector is {detector}, with a mean {title} of {100 * other:.1f}. The best {kind}, {simple}, has "
        f"{100 * figure:.1f}.{more}"
    )


_SIMPLE_KINDS, _OTHER = ("simple baseline", "fair simple baseline"), "detector"


def _kind(detector: str) -> str:
    if detector == "fair":
        return _SIMPLE_KINDS[1]
    return _SIMPLE_KINDS[0] if detector in SIMPLE else _OTHER

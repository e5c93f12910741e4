"""Which results do not say what code they came from, and which came from an older split of the training series."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from cometad_bench.results import Record

UNKNOWN = (None, "not installed")


def provenance_notes(records: Sequence[Record]) -> list[str]:
    """Return which arms have trials without a fingerprint of the source or a version of cometad, and how many."""
    facts: dict[str, Callable[[Record], bool]] = {
        "a fingerprint of the source": lambda record: bool(record.get("source")),
        "the installed version of cometad": lambda record: (record.get("versions") or {}).get("cometad") not in UNKNOWN,
    }
    found = {fact: lacking(records, has) for fact, has in facts.items()}
    notes = [f"Results without {fact}: {which}." for fact, which in found.items() if which]
    older = lacking(records, _holds_out_each)
    return notes + (
        [f"Trained on all but the end of the joined series, not of each channel: {older}."] if older else []
    )


def _holds_out_each(record: Record) -> bool:
    """Whether the end of each entity was held out, if entities were joined and anything was held out at all."""
    share = (record.get("hyper_parameters") or {}).get("validation_share", 0)
    return record.get("entity") != "all" or share == 0 or share >= 1


def lacking(records: Iterable[Record], has: Callable[[Record], bool]) -> str:
    """Return the arms that have trials without something, in words; empty if no trial lacks it."""
    trials, without = Counter[str](), Counter[str]()
    for record in records:
        trials[record["arm"]] += 1
        without[record["arm"]] += not has(record)
    if trials and without == trials:
        return "all arms"
    parts = [
        arm if count == trials[arm] else f"{arm} ({count} of {trials[arm]} trials)"
        for arm, count in without.items()
        if count
    ]
    return ", ".join(parts)

"""Footnotes of tables: how to read the figures, and their caveats."""

from collections.abc import Iterable, Mapping, Sequence

from cometad.metrics import METRICS
from cometad_bench.provenance import lacking
from cometad_bench.results import Record
from cometad_bench.summaries import ALL_POSITIVE, REFERENCES, Summary, several_versions

FEW_SEEDS = 3  # with fewer, a deviation says little

Summaries = Mapping[tuple[str, str], Summary]


def metric_notes(summaries: Summaries, records: Iterable[Record], metrics: Sequence[str]) -> list[str]:
    """Return the footnotes of a table of these metrics."""
    return [
        _reading("Figures are in percent.", summaries),
        *_oracle(metrics),
        *_floors(metrics),
        *_coverage(summaries),
        *_versions(records),
    ]


def threshold_notes(summaries: Summaries, records: Sequence[Record]) -> list[str]:
    """Return the footnotes of a table at thresholds from training scores."""
    return [
        _reading("Precision, recall and F1 are in percent.", summaries),
        "The threshold is the 99 % quantile of the training scores, set without labels.",
        "° F1 not above the better of the no-skill references random and all-positive.",
        "An alarm that overlaps an anomaly is never false, however long it is, so flagging everything causes no false "
        "alarms.",
        *_devices(records),
        *_entities(summaries),
        *_silence(summaries),
        *_coverage(summaries),
        *_versions(records),
    ]


def _reading(unit: str, summaries: Summaries) -> str:
    several = any(summary.seeds > 1 for summary in summaries.values())
    spread = " ± is the sample standard deviation (n - 1) over seeds." if several else ""
    return f"{unit} The best detector of each group is bold, the second best underlined.{spread}"


def _oracle(metrics: Sequence[str]) -> list[str]:
    if not any(METRICS[name].needs_oracle_threshold for name in metrics):
        return []
    return ["* oracle threshold: chosen with the labels to maximize the metric, which is not possible in practice."]


def _floors(metrics: Sequence[str]) -> list[str]:
    notes = ["° at the floor: not above the better of the no-skill references random and all-positive."]
    if "aff_f1" in metrics:
        floor = f"{100 * (METRICS['aff_f1'].floor or 0):.1f} (2/3)"
        notes.append(f"Random flags reach an Aff-F1 of about {floor} on any labels; the oracle threshold adds to that.")
    if "f1_k0" in metrics:
        notes.append("F1 (K=0) is point-adjusted, so its floor is the random row, which may be high.")
    if {"r_auc_pr", "vus_pr"} & set(metrics):
        notes.append("R-AUC-PR and VUS-PR are high for constant scores, so their floor is the all-positive row.")
    return notes


def _coverage(summaries: Summaries) -> list[str]:
    datasets = dict.fromkeys(dataset for dataset, _ in summaries)
    notes = []
    for reference in REFERENCES:
        without = [dataset for dataset in datasets if (dataset, reference) not in summaries]
        if without:
            notes.append(f"No {reference} row, so ° disregards it: {', '.join(without)}.")
    if not all(summary.covers_all_entities for summary in summaries.values()):
        notes.append("Rows that lack entities cannot be compared with the others: they get no marks and no average.")
    return notes + _few_seeds(summaries)


def _few_seeds(summaries: Summaries) -> list[str]:
    seeds: dict[str, int] = {}
    for (_, arm), summary in summaries.items():
        seeds[arm] = min(seeds.get(arm, summary.seeds), summary.seeds)
    if all(count == 1 for count in seeds.values()) and seeds:
        return ["All rows are from a single seed."]
    few = [f"{arm} ({count})" for arm, count in seeds.items() if count < FEW_SEEDS and arm != ALL_POSITIVE]
    return [f"Fewer than {FEW_SEEDS} seeds: {', '.join(few)}."] if few else []


def _entities(summaries: Summaries) -> list[str]:
    if all(summary.all_entities == 1 for summary in summaries.values()):
        return []
    return ["Over entities, anomalies and seconds are sums, memory and parameters maxima, and all other figures means."]


def _devices(records: Sequence[Record]) -> list[str]:
    """Return the hardware that costs were measured on; costs on different hardware cannot be compared."""
    arms: dict[str, dict[str, None]] = {}
    for record in records:
        if record.get("device"):
            arms.setdefault(record["device"], {})[record["arm"]] = None
    lists = [device if len(arms) == 1 else f"{device}: {', '.join(names)}" for device, names in arms.items()]
    return [f"Seconds were measured on {'; '.join(lists)}. {_memory(records)}"] if lists else []


def _memory(records: Iterable[Record]) -> str:
    """Return what the peak memory contains."""
    text = (
        "Memory is the peak of the trial's own process, with the interpreter, the libraries and the series, or on a "
        "GPU the peak allocated there."
    )
    older = lacking(records, lambda record: record.get("start_bytes") is not None)
    return f"{text} In older results it includes what earlier trials left behind: {older}." if older else text


def _silence(summaries: Summaries) -> list[str]:
    silent = [
        f"{summary.arm} on {summary.dataset} ({summary.trials_without_alarm} of {summary.trials})"
        for summary in summaries.values()
        if summary.trials_without_alarm
    ]
    return (
        [f"Trials without any alarm have no precision and are left out of its mean: {', '.join(silent)}."]
        if silent
        else []
    )


def _versions(records: Iterable[Record]) -> list[str]:
    mixed = several_versions(records)
    return [f"Not all rows used the same series (the fingerprints differ): {', '.join(mixed)}."] if mixed else []

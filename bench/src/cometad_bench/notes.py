"""Notes of a report: the footnotes of its tables, how simple baselines do, and where results came from."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from cometad.metrics import METRICS
from cometad_bench.experiments import ALL_POSITIVE, REFERENCES, SIMPLE
from cometad_bench.frame import COVERS_ALL, HELD_OUT, RANKED_BY, arms_of, blocks, detectors, distinct, lacking

FEW_SEEDS = 3  # with fewer, a deviation says little


def metric_notes(means: pl.DataFrame, frame: pl.DataFrame, metrics: Sequence[str]) -> Iterator[str]:
    yield _reading("Figures are in percent.", means)
    if any(METRICS[name].needs_oracle_threshold for name in metrics):
        yield "* oracle threshold: chosen with the labels to maximize the metric, which is not possible in practice."
    yield "° at the floor: not above the better of the no-skill references random and all-positive."
    if "aff_f1" in metrics:
        floor = f"{100 * (METRICS['aff_f1'].floor or 0):.1f} (2/3)"
        yield f"Random flags reach an Aff-F1 of about {floor} on any labels; the oracle threshold adds to that."
    if "f1_k0" in metrics:
        yield "F1 (K=0) is point-adjusted, so its floor is the random row, which may be high."
    if {"r_auc_pr", "vus_pr"} & set(metrics):
        yield "R-AUC-PR and VUS-PR are high for constant scores, so their floor is the all-positive row."
    yield from _coverage(means, frame)


def threshold_notes(means: pl.DataFrame, frame: pl.DataFrame) -> Iterator[str]:
    yield _reading("Precision, recall and F1 are in percent.", means)
    yield "The threshold is the 99 % quantile of the training scores, set without labels."
    yield "° F1 not above the better of the no-skill references random and all-positive."
    yield (
        "An alarm that overlaps an anomaly is never false, however long it is, so flagging everything causes no false "
        "alarms."
    )
    # Costs on different hardware cannot be compared.
    known = frame.filter(pl.col("device").fill_null("") != "")
    arms = {device: distinct(known.filter(pl.col("device") == device), "arm") for device in distinct(known, "device")}
    if arms:
        lists = [device if len(arms) == 1 else f"{device}: {', '.join(names)}" for device, names in arms.items()]
        yield f"Seconds were measured on {'; '.join(lists)}. {_memory(frame)}"
    if (means["all_entities"] > 1).any():
        yield (
            "Over entities, anomalies and seconds are sums, memory and parameters maxima, and all other figures means."
        )
    silent = means.filter(pl.col("silent") > 0).select("arm", "dataset", "silent", "trials").iter_rows()
    parts = [f"{arm} on {dataset} ({count} of {trials})" for arm, dataset, count, trials in silent]
    if parts:
        yield f"Trials without any alarm have no precision and are left out of its mean: {', '.join(parts)}."
    yield from _coverage(means, frame)


def coverage(one: Mapping[str, Any]) -> str:
    """Return the part of the trials of a dataset and arm that has results, in words; empty if all have."""
    seeds, entities, all_entities = one["seeds"], one["entities"], one["all_entities"]
    parts = [f"{entities} of {all_entities} entities"] if entities < all_entities else []
    if seeds < one["all_seeds"] and one["arm"] != ALL_POSITIVE:  # that arm is deterministic
        parts.append("one seed" if seeds == 1 else f"{seeds} of {one['all_seeds']} seeds")
    return ", ".join(parts)


def fewest_seeds(means: pl.DataFrame) -> dict[str, int]:
    return dict(means.group_by("arm", maintain_order=True).agg(pl.col("seeds").min()).iter_rows())


def _reading(unit: str, means: pl.DataFrame) -> str:
    several = (means["seeds"] > 1).any()
    spread = " ± is the sample standard deviation (n - 1) over seeds." if several else ""
    return f"{unit} The best detector of each group is bold, the second best underlined.{spread}"


def _coverage(means: pl.DataFrame, frame: pl.DataFrame) -> Iterator[str]:
    for reference in REFERENCES:
        its = distinct(means.filter(pl.col("arm") == reference), "dataset")
        without = [dataset for dataset in distinct(means, "dataset") if dataset not in its]
        if without:
            yield f"No {reference} row, so ° disregards it: {', '.join(without)}."
    if not means.select(COVERS_ALL.all()).item():
        yield "Rows that lack entities cannot be compared with the others: they get no marks and no average."
    seeds = fewest_seeds(means)
    few = [f"{arm} ({count})" for arm, count in seeds.items() if count < FEW_SEEDS and arm != ALL_POSITIVE]
    if all(count == 1 for count in seeds.values()):
        yield "All rows are from a single seed."
    elif few:
        yield f"Fewer than {FEW_SEEDS} seeds: {', '.join(few)}."
    several = frame.filter((pl.col("fingerprint").n_unique() > 1).over("dataset", "entity"))
    if len(several):
        mixed = ", ".join(distinct(several, "dataset"))
        yield f"Not all rows used the same series (the fingerprints differ): {mixed}."


def _memory(frame: pl.DataFrame) -> str:
    text = (
        "Memory is the peak of the trial's own process, with the interpreter, the libraries and the series, or on a "
        "GPU the peak allocated there."
    )
    older = lacking(frame, pl.col("start_bytes").is_not_null())
    return f"{text} In older results it includes what earlier trials left behind: {older}." if older else text


# --- above the tables -------------------------------------------------------------------------------------------------


def simple_sentence(frame: pl.DataFrame, metric: str = RANKED_BY) -> str:
    """Return the best simple baseline and the best other detector by the mean over datasets, and whether it wins.

    Simple baselines with the calibration, pooling and smoothing of Comet count too; they are called fair.
    """
    fair_or_not = {"fair": "fair simple baseline", **dict.fromkeys(SIMPLE, "simple baseline")}
    kinds = {arm: fair_or_not.get(detector, "") for arm, detector in distinct(detectors(frame), "arm", "detector")}
    if not any(kinds.values()):
        return "No simple baseline was run here."
    found = blocks(frame, metric)
    best: dict[str, tuple[float, str]] = {}  # by kind of arm
    for arm in arms_of(found):
        best[kinds[arm]] = max(best.get(kinds[arm], (-1.0, "")), (float(found[arm].to_numpy().mean()), arm))
    detector, simple = best.pop("", None), sorted(((one, kind) for kind, one in best.items()), reverse=True)
    if not simple:
        return "Every simple baseline lacks trials."
    ((figure, first), kind), title = simple[0], METRICS[metric].title
    more = "".join(f" The best {kind}, {arm}, has {100 * mean:.1f}." for (mean, arm), kind in simple[1:])
    if detector is None:
        own = f"The best {kind}, {first}, has a mean {title} of {100 * figure:.1f}"
        return f"{own}; all other detectors lack trials.{more}"
    other, name = detector
    if figure > other:
        return (
            f"A {kind} wins: by mean {title}, {first} has {100 * figure:.1f} and the best other detector, {name}, "
            f"{100 * other:.1f}.{more}"
        )
    return (
        f"The best detector is {name}, with a mean {title} of {100 * other:.1f}. The best {kind}, {first}, has "
        f"{100 * figure:.1f}.{more}"
    )


def provenance_notes(frame: pl.DataFrame) -> list[str]:
    """Return which arms have trials that do not say what code they came from, or that are of an older split."""
    installed = pl.col("versions.cometad").fill_null("not installed") != "not installed"
    share = pl.col(HELD_OUT).fill_null(0)
    # Where entities were joined, the end of each is held out now, if anything is.
    held_out_each = (pl.col("entity") != "all") | (share == 0) | (share >= 1)
    notes = {
        "Results without a fingerprint of the source": lacking(frame, pl.col("source").fill_null("") != ""),
        "Results without the installed version of cometad": lacking(frame, installed),
        "Trained on all but the end of the joined series, not of each channel": lacking(frame, held_out_each),
    }
    return [f"{what}: {which}." for what, which in notes.items() if which]

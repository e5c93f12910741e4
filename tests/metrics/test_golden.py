"""The metrics agree to 1e-9 with values recorded from public implementations of the same conventions.

    python tests/metrics/test_golden.py    prints the largest difference per metric and reference

Not compared, because the convention differs or the reference is wrong (see docs/metrics.md): trapezoid areas under
plain PR curves, sweeps over 100 evenly spaced or 10-step thresholds, point adjustment that skips index 0, range AUC of
TSB-AD for windows of 2 and more, the default ramps of timeeval and dtaianomaly, an unreachable variant in vus, and aeon
on constant scores.
"""

import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cometad import metrics
from cometad.errors import InputError

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
REFUSED = {"no_anomaly": "no anomaly", "all_anomaly": "only anomalies", "inf_score": "is inf"}

pytestmark = pytest.mark.skipif(
    not GOLDEN.exists(), reason="the recorded values (../shared/golden/metrics.json) are missing"
)


@cache
def recorded():
    return json.loads((GOLDEN / "metrics.json").read_text())["cases"] if GOLDEN.exists() else {}


@cache
def series(case):
    with np.load(GOLDEN / "metrics.npz") as arrays:
        return arrays[f"{case}__y"], arrays[f"{case}__s"]


USABLE = sorted(set(recorded()) - set(REFUSED))


def pointwise(case):
    labels, scores = series(case)
    values = recorded()[case]["refs"]
    roc, pr = metrics.auc_roc(labels, scores), metrics.auc_pr(labels, scores)
    yield "AUC-ROC", "scikit-learn", roc, values["auc_roc"]["sklearn"]
    if np.ptp(scores) > 0:  # aeon returns 0 for constant scores
        yield "AUC-ROC", "aeon", roc, values["auc_roc"]["aeon"]
    yield "AUC-PR", "scikit-learn", pr, values["auc_pr"]["sklearn_average_precision"]
    yield "AUC-PR", "TSB-AD", pr, values["auc_pr"]["TSB-AD_metric_PR"]
    best = metrics.best_f1(labels, scores).f1
    yield "best F1", "scikit-learn", best, values["best_f1"]["sklearn_pr_curve_exact"]


def adjusted(case):
    labels, scores = series(case)
    values = recorded()[case]["refs"]
    best = metrics.best_adjusted_f1(labels, scores, k=0).f1
    yield "F1 (K=0)", "CATCH", best, values["pa_f1"].get("CATCH_adjust_predicts_all_thresholds_ge")
    if not labels[0]:  # the loop in DCdetector never fills index 0
        yield "F1 (K=0)", "DCdetector", best, values["pa_f1"].get("thuml_DCdetector_adjustment_all_thresholds_ge")
    over_k = values["pak_best_f1"]
    curve = metrics.adjusted_f1_curve(labels, scores, share="more_than")[over_k["K"]]
    yield "F1 (every K)", "tadpak", curve, over_k["tadpak_pak_all_thresholds_ge"]
    yield "area over K", "tadpak, mean", curve.mean(), over_k["area_mean"]
    if len(over_k["K"]) == 101:
        area = metrics.adjusted_f1_area(labels, scores, share="more_than")
        yield "area over K", "tadpak, trapezoid", area, over_k["area_trapz"]


def affiliation(case):
    labels, scores = series(case)
    values = recorded()[case]["refs"]
    best = metrics.best_affiliation(labels, scores).f1
    yield "best Aff-F1", "ahstat", best, values["affiliation_best_f1"].get("ahstat_all_thresholds_ge")
    ours, theirs = metrics.affiliation_curve(labels, scores), values["affiliation_curve_ge"]
    places = np.searchsorted(-ours.thresholds, -np.array(theirs["thresholds"]))
    yield "affiliation precision, curve", "ahstat", ours.precision[places], theirs["ahstat_P"]
    yield "affiliation recall, curve", "ahstat", ours.recall[places], theirs["ahstat_R"]
    at = values["affiliation_q90_gt"]
    found = metrics.affiliation_at(labels, scores, just_above(at["threshold"]))[1:3]
    yield "affiliation at a threshold", "ahstat", found, at["ahstat"]
    yield "affiliation at a threshold", "dtaianomaly", found, at["dtaianomaly"]
    for ratio, expected in values["affiliation_catch_ratios"].items():
        threshold = just_above(np.percentile(scores, 100 - float(ratio)))
        yield "affiliation at a threshold", "CATCH", metrics.affiliation_at(labels, scores, threshold)[1:3], expected


def just_above(threshold):
    """The value for which `score >= just_above(threshold)` means `score > threshold`."""
    return float(np.nextafter(float(threshold), math.inf))


# reference -> flavor
RANGE_AUC = {
    "classic_CATCH": "classic",
    "aeon": "classic",
    "timeeval_compat": "classic",
    "dtaianomaly_compat": "classic",
    "sym_vus": "symmetric",
    "TSB-AD": "vus",
}
# reference -> flavor, ranks
VUS = {
    "classic_CATCH": ("classic", 250),
    "aeon": ("classic", 250),
    "opt_vus": ("vus", 250),
    "opt_TSB-AD": ("vus", 250),
    "opt_mem_vus": ("vus", 250),
    "opt_exact_vus(thre=n)": ("vus", None),
}


def ranges(case):
    labels, scores = series(case)
    for window, values in recorded()[case]["refs"]["range_auc[roc,pr]"].items():
        for name, flavor in RANGE_AUC.items():
            if (name == "TSB-AD" and int(window) > 1) or (name == "aeon" and np.ptp(scores) == 0):
                continue  # the reference is wrong here, see above
            ours = metrics.range_auc(labels, scores, int(window), flavor, ranks=250)
            yield f"R-AUC, {flavor}", name, ours, values.get(name)


def volumes(case):
    labels, scores = series(case)
    for window, values in recorded()[case]["refs"]["vus[roc,pr]"].items():
        for name, (flavor, ranks) in VUS.items():
            if name == "aeon" and np.ptp(scores) == 0:
                continue  # the reference is wrong here, see above
            yield f"VUS, {flavor}", name, metrics.vus(labels, scores, int(window), flavor, ranks), values.get(name)


def differences(compare, case):
    """(metric, reference, largest difference) per comparison; values the reference could not compute are skipped."""
    for metric, reference, ours, theirs in compare(case):
        if theirs is None or isinstance(theirs, dict):
            continue
        mine, other = np.array(ours, dtype=float), np.array(theirs, dtype=float)  # turns "nan" into nan
        undefined = np.isnan(other)
        assert (np.isnan(mine) == undefined).all(), (metric, reference)
        yield metric, reference, float(np.max(np.where(undefined, 0, np.abs(mine - other))))


@pytest.mark.parametrize("case", USABLE)
@pytest.mark.parametrize("compare", [pointwise, adjusted, affiliation, ranges, volumes])
def test_metrics_agree_with_recorded_values(compare, case):
    found = list(differences(compare, case))
    assert found
    assert [row for row in found if row[2] > 1e-9] == []


@pytest.mark.parametrize("case", REFUSED)
def test_input_that_makes_references_crash_or_return_nan_is_refused(case):
    with pytest.raises(InputError, match=REFUSED[case]):
        metrics.evaluate(*series(case))


def print_table():
    worst = {}
    for compare in (pointwise, adjusted, affiliation, ranges, volumes):
        for case in USABLE:
            for metric, reference, difference in differences(compare, case):
                values = worst.setdefault((metric, reference), [])
                values.append(difference)
    print("| metric | reference | values compared | largest difference |\n|---|---|---|---|")
    for (metric, reference), values in worst.items():
        print(f"| {metric} | {reference} | {len(values)} | {max(values):.1e} |")


if __name__ == "__main__":
    print_table()

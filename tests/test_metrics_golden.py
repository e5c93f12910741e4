"""Agreement with public implementations: values recorded from them, of the same convention, to 1e-9.

Not compared, because the convention differs or the reference is wrong (docs/metrics.md says how): trapezoid areas under
plain PR curves, sweeps of 100 evenly spaced or 10-step thresholds, point adjustment that skips index 0, range AUC of
TSB-AD from window 2 on, the default ramps of timeeval and dtaianomaly, an unreachable variant in vus, and aeon on
constant scores.
"""

import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cometad import metrics
from cometad.errors import InputError

GOLDEN = Path(__file__).parents[2] / "shared" / "golden"
REFUSED = {"no_anomaly": "no anomaly", "all_anomaly": "only anomalies", "inf_score": "is inf"}

pytestmark = pytest.mark.skipif(
    not GOLDEN.exists(), reason="the recorded values (../shared/golden/metrics.json) are not here"
)


@cache
def recorded():
    return json.loads((GOLDEN / "metrics.json").read_text())["cases"] if GOLDEN.exists() else {}


@cache
def series(case):
    with np.load(GOLDEN / "metrics.npz") as arrays:
        return arrays[f"{case}__y"], arrays[f"{case}__s"]


USABLE = sorted(set(recorded()) - set(REFUSED))


def agrees(ours, theirs):
    """Equal to 1e-9; "nan" stands for an undefined value. What a reference could not compute says nothing."""
    if theirs is None or isinstance(theirs, dict):
        return True
    return ours == pytest.approx(np.array(theirs, dtype=float), abs=1e-9, rel=0, nan_ok=True)


def just_above(threshold):
    """`score > threshold` as `score >= just_above(threshold)`."""
    return float(np.nextafter(float(threshold), math.inf))


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_references_crash_or_return_nan_is_refused(case):
    with pytest.raises(InputError, match=REFUSED[case]):
        metrics.evaluate(*series(case))


@pytest.mark.parametrize("case", USABLE)
def test_pointwise_metrics_agree(case):
    labels, scores = series(case)
    values = recorded()[case]["refs"]
    assert agrees(metrics.auc_roc(labels, scores), values["auc_roc"]["sklearn"])
    if np.ptp(scores) > 0:  # aeon gives 0 for constant scores
        assert agrees(metrics.auc_roc(labels, scores), values["auc_roc"]["aeon"])
    for name in ("sklearn_average_precision", "TSB-AD_metric_PR"):
        assert agrees(metrics.auc_pr(labels, scores), values["auc_pr"][name])
    assert agrees(metrics.best_f1(labels, scores).f1, values["best_f1"]["sklearn_pr_curve_exact"])


@pytest.mark.parametrize("case", USABLE)
def test_point_adjusted_f1_agrees(case):
    labels, scores = series(case)
    values = recorded()[case]["refs"]["pa_f1"]
    if "CATCH_adjust_predicts_all_thresholds_ge" not in values:
        pytest.skip("the references were not run on so long a series")
    ours = metrics.best_adjusted_f1(labels, scores, k=0).f1
    assert agrees(ours, values["CATCH_adjust_predicts_all_thresholds_ge"])
    if not labels[0]:  # DCdetector's loop never fills index 0
        assert agrees(ours, values["thuml_DCdetector_adjustment_all_thresholds_ge"])


@pytest.mark.parametrize("case", USABLE)
def test_adjusted_f1_over_k_agrees(case):
    labels, scores = series(case)
    values = recorded()[case]["refs"]["pak_best_f1"]
    curve = metrics.adjusted_f1_curve(labels, scores, share="more_than")[values["K"]]
    assert agrees(curve, values["tadpak_pak_all_thresholds_ge"])
    assert agrees(curve.mean(), values["area_mean"])
    assert agrees(np.trapezoid(curve, np.array(values["K"]) / 100), values["area_trapz"])
    if len(values["K"]) == 101:
        assert agrees(metrics.adjusted_f1_area(labels, scores, share="more_than"), values["area_trapz"])


@pytest.mark.parametrize("case", USABLE)
def test_affiliation_agrees(case):
    labels, scores = series(case)
    values = recorded()[case]["refs"]
    best = values["affiliation_best_f1"].get("ahstat_all_thresholds_ge")  # not run on long series
    assert agrees(metrics.best_affiliation(labels, scores).f1, best)
    ours = metrics.affiliation_curve(labels, scores)
    theirs = values["affiliation_curve_ge"]
    places = np.searchsorted(-ours.thresholds, -np.array(theirs["thresholds"]))
    assert agrees(ours.precision[places], theirs["ahstat_P"])
    assert agrees(ours.recall[places], theirs["ahstat_R"])
    at = values["affiliation_q90_gt"]
    found = metrics.affiliation_at(labels, scores, just_above(at["threshold"]))
    assert agrees(found[1:3], at["ahstat"])
    assert agrees(found[1:3], at["dtaianomaly"])
    for ratio, expected in values["affiliation_catch_ratios"].items():
        threshold = just_above(np.percentile(scores, 100 - float(ratio)))
        assert agrees(metrics.affiliation_at(labels, scores, threshold)[1:3], expected)


# reference: flavor
RANGE_AUC = {
    "classic_CATCH": "classic",
    "aeon": "classic",
    "timeeval_compat": "classic",
    "dtaianomaly_compat": "classic",
    "sym_vus": "symmetric",
    "TSB-AD": "vus",
}
# reference: flavor, ranks
VUS = {
    "classic_CATCH": ("classic", 250),
    "aeon": ("classic", 250),
    "opt_vus": ("vus", 250),
    "opt_TSB-AD": ("vus", 250),
    "opt_mem_vus": ("vus", 250),
    "opt_exact_vus(thre=n)": ("vus", None),
}


@pytest.mark.parametrize("case", USABLE)
def test_range_auc_agrees(case):
    labels, scores = series(case)
    for window, values in recorded()[case]["refs"]["range_auc[roc,pr]"].items():
        for name, flavor in RANGE_AUC.items():
            if (name == "TSB-AD" and int(window) > 1) or (name == "aeon" and np.ptp(scores) == 0):
                continue  # wrong there, see above
            assert agrees(metrics.range_auc(labels, scores, int(window), flavor, ranks=250), values.get(name)), name


@pytest.mark.parametrize("case", USABLE)
def test_vus_agrees(case):
    labels, scores = series(case)
    for window, values in recorded()[case]["refs"]["vus[roc,pr]"].items():
        for name, (flavor, ranks) in VUS.items():
            if name == "aeon" and np.ptp(scores) == 0:
                continue  # wrong there, see above
            assert agrees(metrics.vus(labels, scores, int(window), flavor, ranks), values.get(name)), name

"""Every arm is in the figure of accuracy against training time, where the figures say it is."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import trials
from cometad_bench.cost import ArmCost, CostPanel, cost_panels, plot_costs
from cometad_bench.frame import frame_of

ENTITIES = [("ASD", "omi-1"), ("ASD", "omi-2"), ("ASD", "omi-3"), ("SMD", "machine-1-1")]
ARMS = {"comet": (0.6, 4.0), "comet-paper": (0.3, 9.0), "knn": (0.5, 0.1), "usad": (0.4, 20.0), "random": (0.1, 0.01)}


def figures(arm, place, seed):
    rng = np.random.default_rng([len(arm), place, seed])
    accuracy, seconds = ARMS[arm]
    return accuracy + rng.normal() / 50, seconds * rng.uniform(0.5, 2)


def trial(arm, place, seed=0):
    accuracy, seconds = figures(arm, place, seed)
    device = "NVIDIA H200" if arm == "usad" else "A processor"
    return trials.trial(arm, accuracy, *ENTITIES[place], seed, fit_seconds=seconds, device=device)


def all_trials():
    return [trial(arm, place, seed) for arm in ARMS for place in range(len(ENTITIES)) for seed in (0, 1)]


def over_datasets(values):
    """Return the mean over datasets of values by place: three of ASD, one of SMD."""
    return (np.mean(values[:3]) + values[3]) / 2


def means(arm, which):
    return [np.mean([figures(arm, place, seed)[which] for seed in (0, 1)]) for place in range(len(ENTITIES))]


def test_time_and_accuracy_are_means_over_datasets_of_means_over_entities():
    (panel,) = cost_panels(frame_of(all_trials()))
    assert panel.title == "ASD, SMD: 4 entities"
    assert [one.arm for one in panel.costs] == ["comet", "comet-paper", "knn", "usad"]
    for one in panel.costs:
        expected = [over_datasets(means(one.arm, which)) for which in (0, 1)]
        assert [one.accuracy, one.seconds] == pytest.approx(expected)
        assert one.on_gpu == (one.arm == "usad")
    assert [one.kind for one in panel.costs] == ["comet", "comet", "simple", "deep"]
    assert panel.floor == pytest.approx(over_datasets(means("random", 0)))


def test_arms_that_lack_entities_are_in_a_panel_of_the_entities_that_every_arm_has():
    records = [one for one in all_trials() if one["arm"] != "usad" or one["entity"] in ("omi-1", "omi-2")]
    first, second = cost_panels(frame_of(records))
    assert [one.arm for one in first.costs] == ["comet", "comet-paper", "knn"]
    assert second.title == "ASD: the 2 entities that every arm has"
    assert [one.arm for one in second.costs] == ["comet", "comet-paper", "knn", "usad"]
    for one in second.costs:
        assert one.accuracy == pytest.approx(np.mean(means(one.arm, 0)[:2]))


def test_the_first_panel_is_without_a_dataset_that_some_arms_lack():
    records = [one for one in all_trials() if one["arm"] != "usad" or one["dataset"] == "ASD"]
    (panel,) = cost_panels(frame_of(records))
    assert panel.title == "ASD: 3 entities"
    assert [one.arm for one in panel.costs] == ["comet", "comet-paper", "knn", "usad"]


def test_every_arm_is_drawn_and_named_without_overlaps():
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    costs = [ArmCost(f"arm {n}", "simple", 1 + n / 10, 0.3 + n / 100, n > 2) for n in range(5)]
    plot_costs(axes, CostPanel("Five arms", costs, 0.1))
    figure.draw_without_rendering()
    names = [text for text in axes.texts if text.get_text() != " no skill"]
    assert [text.get_text() for text in names] == [f"arm {n}" for n in range(5)]
    boxes = [text.get_window_extent() for text in names]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])

"""Every arm is in the figure of accuracy against training time, where the figures say it is."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from cometad.bench.cost import ArmCost, arm_costs, floor_of, plot_costs, save_costs
from cometad.errors import InputError

ENTITIES = [("ASD", "omi-1"), ("ASD", "omi-2"), ("ASD", "omi-3"), ("SMD", "machine-1-1")]
ARMS = {"comet": (0.6, 4.0), "comet-paper": (0.3, 9.0), "knn": (0.5, 0.1), "usad": (0.4, 20.0), "random": (0.1, 0.01)}


def figures(arm, place, seed):
    rng = np.random.default_rng([len(arm), place, seed])
    accuracy, seconds = ARMS[arm]
    return accuracy + rng.normal() / 50, seconds * rng.uniform(0.5, 2)


def trial(arm, place, seed=0):
    dataset, entity = ENTITIES[place]
    accuracy, seconds = figures(arm, place, seed)
    return {
        **{"experiment": "entity", "dataset": dataset, "entity": entity, "arm": arm, "detector": arm, "seed": seed},
        **{"setting": {}, "error": None, "metrics": {"auc_pr": accuracy}, "fit_seconds": seconds},
        "device": "NVIDIA H200" if arm == "usad" else "A processor",
    }


def all_trials():
    return [trial(arm, place, seed) for arm in ARMS for place in range(len(ENTITIES)) for seed in (0, 1)]


def over_datasets(values):
    """Return the mean over datasets of values by place: three of ASD, one of SMD."""
    return (np.mean(values[:3]) + values[3]) / 2


def means(arm, which):
    return [np.mean([figures(arm, place, seed)[which] for seed in (0, 1)]) for place in range(len(ENTITIES))]


def test_time_and_accuracy_are_means_over_datasets_of_means_over_entities():
    costs = {one.arm: one for one in arm_costs(all_trials(), "comet")}
    assert list(costs) == ["comet", "comet-paper", "knn", "usad"]
    for arm, one in costs.items():
        expected = [over_datasets(means(arm, which)) for which in (0, 1)]
        assert [one.accuracy, one.seconds] == pytest.approx(expected)
        assert (one.missing, one.on_gpu) == (0, arm == "usad")
    assert [one.kind for one in costs.values()] == ["comet", "comet", "simple", "deep"]
    assert floor_of(all_trials()) == pytest.approx(over_datasets(means("random", 0)))


def test_an_arm_that_lacks_entities_is_placed_by_its_distance_from_the_base_arm():
    records = [one for one in all_trials() if one["arm"] != "usad" or one["entity"] in ("omi-1", "omi-2")]
    (one,) = [one for one in arm_costs(records, "comet") if one.arm == "usad"]
    ours, theirs = means("comet", 0), means("usad", 0)
    assert one.missing == 2
    assert one.accuracy == pytest.approx(over_datasets(ours) + np.mean(theirs[:2]) - np.mean(ours[:2]))


def test_a_converged_arm_that_lacks_entities_is_placed_by_its_distance_from_its_published_schedule():
    records = all_trials()
    better = [
        one | {"arm": "usad, converged", "metrics": {"auc_pr": one["metrics"]["auc_pr"] + 0.25}}
        for one in records
        if one["arm"] == "usad" and one["entity"] == "omi-1"
    ]
    (one,) = [one for one in arm_costs(records + better, "comet") if one.arm == "usad, converged"]
    assert one.accuracy == pytest.approx(over_datasets(means("usad", 0)) + 0.25)


def test_without_a_complete_base_arm_only_complete_arms_are_shown():
    records = [one for one in all_trials() if one["arm"] == "knn" or one["entity"] != "omi-1"]
    assert [one.arm for one in arm_costs(records, "comet")] == ["knn"]


def test_identical_arms_are_one_point():
    records = all_trials()
    again = [one | {"arm": "comet-paper w/o TTA"} for one in records if one["arm"] == "comet-paper"]
    assert [one.arm for one in arm_costs(records + again, "comet")] == ["comet", "comet-paper", "knn", "usad"]


def test_every_arm_is_drawn_and_named_without_overlaps():
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    costs = [ArmCost(f"arm {n}", "simple", 1 + n / 10, 0.3 + n / 100, n % 2, n > 2) for n in range(5)]
    plot_costs(axes, costs, floor=0.1)
    figure.draw_without_rendering()
    names = [text for text in axes.texts if text.get_text() != "no skill "]
    assert [text.get_text() for text in names] == ["arm 0", "arm 1*", "arm 2", "arm 3*", "arm 4"]
    boxes = [text.get_window_extent() for text in names]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["simple, on a CPU", "simple, on a GPU"]


def test_the_figure_is_written_and_an_empty_one_refused(tmp_path):
    save_costs(tmp_path / "cost.png", all_trials(), "comet")
    assert (tmp_path / "cost.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="run more trials"):
        plot_costs(Figure().subplots(), [])

"""Shares of the true variable in faults of a single variable, by the character of the plant."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cometad import Comet
from cometad.datasets.synthetic import Plant, synthetic_plant
from cometad_bench.datasets.characters import CHARACTERS, plant_of
from threshold_tables.shared import head, row

UNITS = "units"  # the synthetic plant of the demo, beside those of one character


class Blamed(NamedTuple):
    """The share of the true variable of a fault, and whether it is the largest."""

    share: float
    is_first: bool


def shares_of_single_faults(seeds: Iterable[int]) -> dict[str, list[Blamed]]:
    """Print a table of the faults of one variable in plants of these seeds, and return them by character."""
    seeds = list(seeds)
    head("plant", "faults", "median share of the true variable", "first")
    found = {}
    for name in (UNITS, *CHARACTERS):
        plants = [synthetic_plant(seed=seed) if name == UNITS else plant_of(name, seed=seed) for seed in seeds]
        found[name] = [blamed for plant in plants for blamed in blamed_in(plant)]
        show(name, found[name])
    show("all", [blamed for own in found.values() for blamed in own])
    return found


def blamed_in(plant: Plant) -> list[Blamed]:
    explain = Comet().fit(plant.train).explainer(plant.test)
    found = []
    for fault in plant.faults:
        if len(fault.variables) == 1:
            explanation = explain((fault.start, fault.stop), 0)
            (name,) = (explanation.names[i] for i in fault.variables)
            share = next(reason.share for reason in explanation.reasons if reason.variable == name)
            found.append(Blamed(share, explanation.reasons[0].variable == name))
    return found


def show(name: str, found: list[Blamed]) -> None:
    row(name, len(found), f"{np.median([one.share for one in found]):.2f}", sum(one.is_first for one in found))

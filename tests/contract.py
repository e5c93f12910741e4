"""Checks that every detector must pass.

A check takes a `Subject`, which makes new detectors and holds one fitted detector. `CHECKS` maps names to checks.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone

from cometad.data import ScoreMeasured
from cometad.detector import Detector
from cometad.errors import InputError, NotFittedError
from fitted import fitted

SPIKE = 130  # the time step of the planted spike


def waves(rows: int, variables: int = 3, seed: int = 0) -> np.ndarray:
    """A normal series (time, variable): a sine with its own period for each variable, and a little noise."""
    rng = np.random.default_rng(seed)
    time = np.arange(rows)[:, None]
    periods = 11 + 7 * np.arange(variables)
    return np.sin(2 * np.pi * time / periods) + 0.1 * rng.normal(size=(rows, variables))


NORMAL = waves(500)
FRESH = waves(300, seed=1)
SPIKED = FRESH.copy()
SPIKED[SPIKE] += 25.0  # in every variable, because a selection may use only a few
NAMES = ["flow", "level", "heat"]


@dataclass(frozen=True)
class Subject:
    """A detector under test."""

    make: Callable[[], Any]  # returns a new, unfitted detector, always with the same parameters
    late: int = 0  # readings by which the highest alert score may follow a spike

    @cached_property
    def fitted(self) -> Any:
        """One fitted detector, shared by all checks; a check must not change it."""
        return fitted(self.make(), NORMAL)

    @cached_property
    def refit(self) -> Any:
        """A clone that was fitted again here, on a series that nobody may write to."""
        given = NORMAL.copy()
        given.flags.writeable = False
        detector = clone(self.fitted)
        with pytest.raises(NotFittedError):
            detector.decision_function(FRESH)
        state, here = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        assert detector.fit(given) is detector
        assert torch.equal(torch.get_rng_state(), state), "fit changed the random state of torch"
        assert np.array_equal(np.random.get_state()[1], here), "fit changed the random state of numpy"  # noqa: NPY002
        assert np.array_equal(given, NORMAL)
        return detector

    @cached_property
    def named(self) -> Any:
        """A detector fitted on named variables."""
        return fitted(self.make(), pl.DataFrame(NORMAL, schema=NAMES))

    @cached_property
    def scores(self) -> np.ndarray:
        """The scores of the fresh series."""
        return self.fitted.decision_function(FRESH)


def saved(detector: Any) -> bytes:
    """The bytes that a detector saves."""
    with tempfile.TemporaryDirectory() as folder:
        detector.save(Path(folder) / "detector")
        return (Path(folder) / "detector").read_bytes()


def is_a_sentence(message: str) -> bool:
    """Whether a message consists of whole sentences on one line."""
    return message.endswith(".") and "\n" not in message and (message[0].isupper() or message[0] == "'")


def check_it_is_a_detector(subject: Subject) -> None:
    assert isinstance(subject.make(), Detector)


def check_there_is_one_finite_score_per_time_step(subject: Subject) -> None:
    for rows in (len(FRESH), len(FRESH) - 1, len(FRESH) - 13):
        scores = subject.fitted.decision_function(FRESH[:rows])
        assert scores.shape == (rows,)
        assert scores.dtype == np.float64
        assert np.isfinite(scores).all()


def check_a_planted_spike_scores_highest(subject: Subject) -> None:
    scores, alerts, _ = subject.fitted.step_scores(SPIKED)
    late = subject.late
    assert alerts[SPIKE : SPIKE + late + 1].max() == alerts.max()
    apart = 0 if np.array_equal(scores, alerts) else 4  # smoothing may move the peak of the ranking score a little
    assert scores[SPIKE - apart : SPIKE + late + apart + 1].max() == scores.max()


def check_a_broken_sensor_gives_finite_scores(subject: Subject) -> None:
    broken = FRESH.copy()
    broken[SPIKE, 1] = 1e30
    assert np.isfinite(subject.fitted.decision_function(broken)).all()


def check_a_constant_variable_gives_finite_scores_and_a_second_fit_forgets_it(subject: Subject) -> None:
    still = 3 * NORMAL[:300, :2]
    still[:, 1] = 5.0
    detector = subject.make().fit(still)
    assert np.isfinite(detector.decision_function(FRESH[:, :2])).all()
    assert saved(detector.fit(NORMAL)) == saved(subject.fitted)


def check_the_same_seed_gives_the_same_bytes_and_leaves_random_states_parameters_and_input_alone(
    subject: Subject,
) -> None:
    assert saved(subject.refit) == saved(subject.fitted)
    assert subject.refit.decision_function(FRESH).tobytes() == subject.scores.tobytes()
    assert subject.refit.get_params() == subject.fitted.get_params() == subject.make().get_params()


def check_scoring_changes_neither_detector_nor_input(subject: Subject) -> None:
    given = SPIKED.copy()
    given.flags.writeable = False
    detector, before, parameters = subject.fitted, saved(subject.fitted), subject.fitted.get_params()
    first = detector.decision_function(given)
    detector.predict(given)
    assert np.array_equal(given, SPIKED)
    assert detector.get_params() == parameters
    assert saved(detector) == before
    assert detector.decision_function(given).tobytes() == first.tobytes()


def check_a_detector_can_be_rebuilt_from_its_parameters(subject: Subject) -> None:
    detector = subject.make()
    parameters = detector.get_params(deep=False)
    assert type(detector)(**parameters).get_params(deep=False) == parameters
    assert detector.set_params(**parameters).get_params(deep=False) == parameters


def check_use_before_fit_is_refused_with_advice(subject: Subject) -> None:
    detector = subject.make()
    uses = [lambda: detector.decision_function(FRESH), lambda: detector.predict(FRESH), lambda: saved(detector)]
    if detector.can_stream:
        uses += [detector.stream]
    if hasattr(detector, "score_map"):
        uses += [lambda: detector.score_map(FRESH)]
    for use in uses:
        with pytest.raises(NotFittedError, match="Call fit") as caught:
            use()
        assert is_a_sentence(str(caught.value))


def check_a_wrong_number_of_variables_is_refused(subject: Subject) -> None:
    for width in (2, 4):
        with pytest.raises(InputError, match=f"fitted on 3 variables, but this series has {width}") as caught:
            subject.fitted.decision_function(np.zeros((300, width)))
        assert is_a_sentence(str(caught.value))


def check_a_wrong_shape_and_missing_readings_are_refused(subject: Subject) -> None:
    missing = FRESH.copy()
    missing[7, 2] = np.nan
    for series, words in ((FRESH[:, 0], "shape"), (FRESH[None], "shape"), (missing, "'v2' is nan at time step 7")):
        for use in (subject.make().fit, subject.fitted.decision_function, subject.fitted.predict):
            with pytest.raises(InputError, match=words) as caught:
                use(series)
            assert is_a_sentence(str(caught.value))


def check_missing_readings_are_imputed_and_never_flagged(subject: Subject) -> None:
    gappy = FRESH.copy()
    gappy[60:110] = np.nan
    gappy[200, 1] = np.nan
    detector = fitted(subject.make().set_params(gaps=ScoreMeasured()), NORMAL)
    assert detector.decision_function(FRESH).tobytes() == subject.scores.tobytes()
    scores, alerts, imputed = detector.step_scores(gappy)
    assert np.isfinite(scores).all()
    assert np.isfinite(alerts).all()
    assert imputed[60:110].all()
    assert not imputed[:40].any()
    assert not detector.predict(gappy)[imputed].any()
    broken = np.where(np.arange(500)[:, None] == 250, np.nan, NORMAL)
    learned = fitted(subject.make().set_params(gaps=ScoreMeasured()), broken)
    assert np.isfinite(learned.decision_scores_).all()
    assert learned.imputed_[250]
    assert np.isfinite(learned.decision_function(FRESH)).all()


def check_saving_and_loading_keep_the_scores(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subject.fitted.save(Path(folder) / "detector")
        loaded = type(subject.fitted).load(str(Path(folder) / "detector"))
    assert loaded.get_params() == subject.fitted.get_params()
    assert loaded.threshold_ == subject.fitted.threshold_
    assert loaded.decision_scores_.tobytes() == subject.fitted.decision_scores_.tobytes()
    assert loaded.decision_function(FRESH).tobytes() == subject.scores.tobytes()
    assert saved(loaded) == saved(subject.fitted)


def check_frames_give_the_same_scores_as_arrays(subject: Subject) -> None:
    times = pd.date_range("2024-03-01", periods=len(FRESH), freq="min")
    series = [
        FRESH,
        FRESH.tolist(),
        pd.DataFrame(FRESH, columns=NAMES),
        pd.DataFrame(FRESH, columns=NAMES, index=times),
        pl.DataFrame(FRESH, schema=NAMES),
        pl.DataFrame(FRESH, schema=NAMES).with_columns(pl.Series("time", times.to_numpy())),
    ]
    for detector in (subject.named, subject.fitted):
        for one in series:
            assert detector.decision_function(one).tobytes() == subject.scores.tobytes()


def check_variables_with_other_names_are_refused(subject: Subject) -> None:
    with pytest.raises(InputError, match="'level' where this series has 'speed'") as caught:
        subject.named.decision_function(pl.DataFrame(FRESH, schema=["flow", "speed", "heat"]))
    assert is_a_sentence(str(caught.value))


def check_predictions_are_scores_above_the_threshold(subject: Subject) -> None:
    flags = subject.fitted.predict(FRESH)
    assert set(np.unique(flags)) <= {0, 1}
    watch = subject.fitted.threshold.watch(subject.fitted.threshold_state_)
    assert watch.threshold == subject.fitted.threshold_
    assert np.array_equal(flags, watch.push(subject.fitted.step_scores(FRESH).alerts))


def check_training_scores_and_threshold_are_kept(subject: Subject) -> None:
    detector = subject.fitted
    assert detector.decision_scores_.shape == (len(NORMAL),)
    assert np.isfinite(detector.decision_scores_).all()
    assert detector.decision_scores_.tobytes() == detector.decision_function(NORMAL).tobytes()
    assert isinstance(detector.threshold_, float)
    assert (detector.alert_scores_ > detector.threshold_).mean() < 0.05


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}

"""Parameters behave like those of scikit-learn's own base class, which is the reference here."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from cometad import BASELINES, NetworkComet
from cometad.errors import ParameterError
from cometad.parameters import Parameters
from cometad.saved_detector import _on_device

NORMAL = np.random.default_rng(0).normal(size=(300, 2))


class Ours(Parameters):
    def __init__(self, *, width=3, name="x", sizes=(1, 2)):
        self.width, self.name, self.sizes = width, name, sizes


class Theirs(BaseEstimator):
    def __init__(self, *, width=3, name="x", sizes=(1, 2)):
        self.width, self.name, self.sizes = width, name, sizes


@pytest.mark.parametrize("changes", [{}, {"width": 4}, {"name": "y", "sizes": ()}])
def test_parameters_and_their_text_are_those_of_scikit_learn(changes):
    ours, theirs = Ours(**changes), Theirs(**changes)
    assert list(ours.get_params().items()) == list(theirs.get_params().items())
    assert repr(ours).removeprefix("Ours") == repr(theirs).removeprefix("Theirs")
    assert ours.set_params(width=9) is ours
    assert ours.get_params() == theirs.set_params(width=9).get_params()


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ParameterError, match=r"Unknown parameter 'widht'\. Did you mean width\?"):
        Ours().set_params(widht=3)


@pytest.mark.parametrize("kind", [NetworkComet, BASELINES["pca"]])
def test_a_detector_has_the_parameters_of_its_signature_in_alphabetical_order(kind):
    names = list(kind().get_params())
    assert names == sorted(names)
    assert names == BaseEstimator.__dict__["_get_param_names"].__func__(kind)


def test_scikit_learn_clones_and_pipes_a_detector():
    detector = BASELINES["squared-norm"](seed=3)
    copy = clone(detector)
    assert copy is not detector
    assert copy.get_params() == detector.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    pipeline = make_pipeline(StandardScaler(), detector).fit(NORMAL)
    check_is_fitted(detector)
    scaled = StandardScaler().fit_transform(NORMAL)
    assert np.array_equal(pipeline.decision_function(NORMAL), detector.decision_function(scaled))


def test_a_file_of_a_detector_without_a_device_loads_on_the_cpu_only():
    assert _on_device("Comet", {"seed": 1}, "cpu") == _on_device("Comet", {"seed": 1}, None) == {"seed": 1}
    assert _on_device("Comet", {"device": "cuda"}, "cpu") == {"device": "cpu"}
    with pytest.raises(ParameterError, match="Comet runs on the CPU only"):
        _on_device("Comet", {"seed": 1}, "cuda")

"""What is imported when: torch is optional, and nobody waits for packages that are not used."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cometad import BASELINES

FIXTURES = Path(__file__).parent / "fixtures"
HEAVY = ("torch", "pandas", "polars", "matplotlib", "sklearn", "scipy.stats", "scipy.optimize", "rich")
HIDDEN = """
import contextlib, io, json, sys
class Hidden:  # as if it were not installed
    def find_spec(self, name, path=None, target=None):
        if name == HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
import cometad
from cometad.cli import main
def attempt(case):
    if isinstance(case, list):  # words of a command
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(case)
        return [code, out.getvalue(), err.getvalue()]
    try:
        exec(case)
    except cometad.CometadError as error:
        return [type(error).__name__, str(error)]
print(json.dumps([attempt(case) for case in json.loads(sys.argv[1])]))
"""
DEEP = ("lstm-ae", "lstm-vae", "usad", "anomaly-transformer", "vtt", "catch", "d3r")


def python(code, *arguments, folder=None):
    """Run code in a process of its own and return what it printed."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_after(code):
    """The heavy packages that a process has imported after running some code."""
    return python(f"import sys\n{code}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))").split()


def attempts(hidden, cases, folder=None):
    """What becomes of code and commands, all in one process in which a module cannot be imported."""
    return json.loads(python(f"HIDDEN = {hidden!r}{HIDDEN}", json.dumps(cases), folder=folder))


def needs(user, module, extra=None):
    return f"{user} needs {module}. Install it with pip install 'cometad[{extra or module}]'."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with normal readings and a detector without a network."""
    folder = tmp_path_factory.mktemp("imports")
    readings = pl.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), schema=["flow", "level"])
    readings.write_csv(folder / "normal.csv")
    BASELINES["squared-norm"]().fit(readings).save(folder / "plain.comet")
    return folder


def test_importing_comet_imports_no_heavy_package():
    assert loaded_after("from cometad import Comet, BASELINES, Detector, Scored, Stream, load") == []


def test_the_names_of_the_baselines_cost_nothing():
    assert loaded_after("from cometad import BASELINES; list(BASELINES), len(BASELINES), 'vtt' in BASELINES") == []


def test_loading_and_scoring_without_a_network_imports_no_heavy_package(folder):
    code = f"import cometad, numpy; cometad.load({str(folder / 'plain.comet')!r}).predict(numpy.zeros((5, 2)))"
    assert loaded_after(code) == []


def test_the_schedules_need_no_torch():
    assert loaded_after("from cometad.network import Epochs, Halving, OneCycle") == []


def test_without_torch_whatever_needs_it_says_so_in_one_sentence():
    users = {
        "cometad.Comet.paper()": "Comet.paper()",
        "cometad.NetworkComet": "NetworkComet",
        "from cometad import NetworkComet": "NetworkComet",
        "import cometad.network_comet": "NetworkComet",
        "cometad.network.NoAdaptation": "NoAdaptation",
        "cometad.BASELINES['squared-norm'](device='cuda').check_parameters()": "The device 'cuda'",
        **{f"cometad.BASELINES[{name!r}]": f"The baseline '{name}'" for name in DEEP},
        f"cometad.load({str(FIXTURES / 'comet.comet')!r})": "The detector 'network'",
    }
    said = {code: message for code, (_, message) in zip(users, attempts("torch", [*users]), strict=True)}
    assert said == {code: needs(user, "torch") for code, user in users.items()}


def test_without_torch_the_command_line_says_so_in_one_sentence(folder):
    users = {
        ("fit", "normal.csv", "-o", "x.comet", "--detector", "network"): "The detector 'network'",
        ("fit", "normal.csv", "-o", "x.comet", "--detector", "vtt"): "The detector 'vtt'",
        ("fit", "normal.csv", "-o", "x.comet", "--preset", "paper"): "The detector 'network'",
        ("score", str(FIXTURES / "comet.comet"), "normal.csv"): "The detector 'network'",
        ("bench", "list"): "This command",
    }
    said = dict(zip(users, attempts("torch", [*users], folder), strict=True))
    assert said == {words: [2, "", f"cometad: {needs(user, 'torch')}\n"] for words, user in users.items()}
    assert not (folder / "x.comet").exists()


def test_without_torch_the_command_line_does_the_rest(folder):
    fits = ["fit", "normal.csv", "-o", "pca.comet", "--detector", "pca"]
    scores = ["score", "pca.comet", "normal.csv", "-o", "scores.csv"]
    reports = ["report", "pca.comet", "normal.csv", "-o", "report.html"]
    streams, explains = ["stream", "plain.comet"], ["explain", "plain.comet", "normal.csv", "--step", "3"]
    *done, streamed, explained = attempts("torch", [["--help"], fits, scores, reports, streams, explains], folder)
    assert [code for code, *_ in done] == [0, 0, 0, 0], done
    assert pl.read_csv(folder / "scores.csv").height == 300
    for (code, _, errors), cannot in ((streamed, "score a stream"), (explained, "explain its scores")):
        assert code == 2
        assert f"holds a SquaredNorm, which cannot {cannot}." in errors
        assert errors.count("\n") == 1


def test_without_the_research_package_a_verb_says_how_to_install_it(folder):
    users = {
        ("bench", "run", "main", "--seed", "1"): "cometad bench",
        ("data", "--data-dir", "x"): "cometad data",
        ("fit", "normal.csv", "-o", "x.comet", "--detector", "usad"): "The detector 'usad'",
    }
    said = dict(zip(users, attempts("cometad_bench", [*users], folder), strict=True))
    sentences = {words: needs(user, "cometad_bench", "bench") for words, user in users.items()}
    assert said == {words: [2, "", f"cometad: {sentence}\n"] for words, sentence in sentences.items()}


def test_without_scikit_learn_what_needs_it_says_so():
    names = ("pca", "knn", "kmeans", "isolation-forest")
    *said, unfitted = attempts(
        "sklearn", [*(f"cometad.BASELINES[{name!r}]" for name in names), "cometad.Comet().predict([[1.0]])"]
    )
    assert [message for _, message in said] == [
        needs(f"The baseline {name!r}", "sklearn", "baselines") for name in names
    ]
    assert unfitted[0] == "NotFittedError"


def test_without_psycopg_a_postgresql_url_says_how_to_install_it(tmp_path):
    words = ["token", "list", "--database", "postgresql://a@127.0.0.1:1/b"]
    ((code, _, errors),) = attempts("psycopg", [words], tmp_path)
    assert code == 2
    assert "run pip install 'cometad[postgres]'" in errors


def test_modules_keep_the_names_of_earlier_versions():
    import cometad.baselines.window_knn
    from cometad.datasets.readers import READERS

    import cometad_bench.datasets.drift
    from cometad.datasets import drift

    assert "SMD" in READERS
    assert drift.DRIFTS is cometad_bench.datasets.drift.DRIFTS
    assert cometad.baselines.window_knn.WindowKnn is cometad.BASELINES["window-knn"]
    assert not hasattr(cometad.baselines.window_knn, "__path__")
    with pytest.raises(ImportError, match="READER"):
        from cometad.datasets.readers import READER  # noqa: F401

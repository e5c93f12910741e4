"""What is imported when: torch is optional, and nobody waits for packages that are not used."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cometad import BASELINES
from contract import is_a_sentence

FIXTURES = Path(__file__).parent / "fixtures"
HEAVY = ("torch", "pandas", "polars", "matplotlib", "sklearn", "scipy.stats", "scipy.optimize", "rich")
WITHOUT_TORCH = """
import sys
class NoTorch:  # as if it were not installed
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch())
"""
DEEP = ("lstm-ae", "lstm-vae", "usad", "anomaly-transformer", "vtt", "catch", "d3r")


def python(code, *arguments, folder=None):
    """Run code in a process of its own; return its exit code, output and errors."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr


def loaded_after(code):
    """The heavy packages that a process has imported after running some code."""
    shown = f"import sys\n{code}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    exit_code, output, errors = python(shown)
    assert exit_code == 0, errors
    return output.split()


def refusal(code):
    """The message of the error that code raises without torch."""
    caught = f"{WITHOUT_TORCH}import cometad\ntry:\n    {code}\nexcept cometad.CometadError as error:\n    print(error)"
    exit_code, output, errors = python(caught)
    assert exit_code == 0, errors
    return output.strip()


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


@pytest.mark.parametrize(
    "code, user",
    [
        ("cometad.Comet.paper()", "Comet.paper()"),
        ("cometad.NetworkComet", "NetworkComet"),
        ("from cometad import NetworkComet", "NetworkComet"),
        ("import cometad.network_comet", "NetworkComet"),
        ("cometad.network.NoAdaptation", "NoAdaptation"),
        ("cometad.BASELINES['squared-norm'](device='cuda').check_parameters()", "The device 'cuda'"),
        *((f"cometad.BASELINES[{name!r}]", f"The baseline '{name}'") for name in DEEP),
        (f"cometad.load({str(FIXTURES / 'comet.comet')!r})", "The detector 'network'"),
    ],
)
def test_without_torch_whatever_needs_it_says_so_in_one_sentence(code, user):
    assert refusal(code) == f"{user} needs torch. Install it with pip install 'cometad[torch]'."


@pytest.mark.parametrize(
    "arguments, user",
    [
        (["bench", "run", "main", "--seed", "1"], "cometad bench"),
        (["data", "--data-dir", "x"], "cometad data"),
        (["fit", "normal.csv", "-o", "x.comet", "--detector", "usad"], "The detector 'usad'"),
    ],
)
def test_without_the_research_package_a_verb_says_how_to_install_it(folder, arguments, user):
    hidden = WITHOUT_TORCH.replace("torch", "cometad_bench")
    exit_code, output, errors = python(
        f"{hidden}from cometad.cli import main; sys.exit(main(sys.argv[1:]))", *arguments, folder=folder
    )
    assert (exit_code, output) == (2, "")
    assert errors == f"cometad: {user} needs cometad_bench. Install it with pip install 'cometad[bench]'.\n"


@pytest.mark.parametrize("name", ["pca", "knn", "kmeans", "isolation-forest"])
def test_without_scikit_learn_the_baselines_that_need_it_say_so(name):
    hidden = WITHOUT_TORCH.replace("torch", "sklearn")
    caught = f"import cometad\ntry:\n    cometad.BASELINES[{name!r}]\n"
    caught += "except cometad.CometadError as error:\n    print(error)"
    assert python(hidden + caught)[1] == (
        f"The baseline {name!r} needs sklearn. Install it with pip install 'cometad[baselines]'.\n"
    )


def test_without_scikit_learn_a_detector_that_is_not_fitted_says_so():
    hidden = WITHOUT_TORCH.replace("torch", "sklearn")
    caught = "import cometad\ntry:\n    cometad.Comet().predict([[1.0]])\n"
    caught += "except cometad.CometadError as error:\n    print(type(error).__name__)"
    assert python(hidden + caught)[1] == "NotFittedError\n"


def test_without_psycopg_a_postgresql_url_says_how_to_install_it(tmp_path):
    hidden = WITHOUT_TORCH.replace("torch", "psycopg")
    code = f"{hidden}from cometad.cli import main; sys.exit(main(sys.argv[1:]))"
    exit_code, _, errors = python(code, "token", "list", "--database", "postgresql://a@127.0.0.1:1/b", folder=tmp_path)
    assert exit_code == 2
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


def test_without_torch_the_command_line_fits_scores_and_reports(folder):
    verbs = [
        ["--help"],
        ["fit", "normal.csv", "-o", "pca.comet", "--detector", "pca"],
        ["score", "pca.comet", "normal.csv", "-o", "scores.csv"],
        ["report", "pca.comet", "normal.csv", "-o", "report.html"],
    ]
    code = f"{WITHOUT_TORCH}from cometad.cli import main\nsys.exit(any(main(verb) for verb in {verbs!r}))"
    exit_code, _, errors = python(code, folder=folder)
    assert exit_code == 0, errors
    assert pl.read_csv(folder / "scores.csv").height == 300


@pytest.mark.parametrize(
    "arguments, user",
    [
        (["fit", "normal.csv", "-o", "x.comet", "--detector", "network"], "The detector 'network'"),
        (["fit", "normal.csv", "-o", "x.comet", "--detector", "vtt"], "The detector 'vtt'"),
        (["fit", "normal.csv", "-o", "x.comet", "--preset", "paper"], "The detector 'network'"),
        (["score", str(FIXTURES / "comet.comet"), "normal.csv"], "The detector 'network'"),
        (["bench", "list"], "This command"),
    ],
)
def test_without_torch_the_command_line_says_so_in_one_sentence(folder, arguments, user):
    code = f"{WITHOUT_TORCH}from cometad.cli import main; sys.exit(main(sys.argv[1:]))"
    exit_code, output, errors = python(code, *arguments, folder=folder)
    assert (exit_code, output) == (2, "")
    assert errors == f"cometad: {user} needs torch. Install it with pip install 'cometad[torch]'.\n"
    assert is_a_sentence(errors.removeprefix("cometad: ").strip())
    assert not (folder / "x.comet").exists()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["stream", "plain.comet"], "holds a SquaredNorm, which cannot score a stream."),
        (
            ["explain", "plain.comet", "normal.csv", "--step", "3"],
            "holds a SquaredNorm, which cannot explain its scores.",
        ),
    ],
)
def test_without_torch_a_detector_that_cannot_stream_or_explain_says_so(folder, arguments, words):
    code = f"{WITHOUT_TORCH}from cometad.cli import main; sys.exit(main(sys.argv[1:]))"
    exit_code, _, errors = python(code, *arguments, folder=folder)
    assert exit_code == 2
    assert words in errors
    assert errors.count("\n") == 1

"""What an install without torch takes: disk, memory, time to import and time to the first score.

    python bench/scripts/light.py [--repeats 5] [--folder FOLDER]

It builds the wheel, installs it into three empty environments (cometad; cometad[onnx]; onnxruntime without cometad),
fits and exports one detector of 24 variables, and starts each environment in cold processes that score one reading. The
first process of an environment compiles kernels, which later ones find on disk. Of the later ones the best counts,
because other processes only add to it. Memory is the peak of a process. It needs an index of packages, and no torch is
installed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# No numpy here: a child's peak memory is at least what its parent had when it started it.
ROOT = Path(__file__).parents[2]
FIT = """
from cometad import Comet
from cometad.datasets.synthetic import synthetic_plant
Comet().fit(synthetic_plant(train_rows=1500, test_rows=1500).train).save("plant.comet")
"""
EXPORT = 'from cometad import load; from cometad.export import to_onnx; to_onnx(load("plant.comet"), "plant.onnx")'
MEASURED = """
import json, resource, time
started = time.perf_counter()
{imports}
imported = time.perf_counter()
{score}
scored = time.perf_counter()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB, on Linux
print(json.dumps({{"import": imported - started, "score": scored - started, "memory": memory}}))
"""
COMETAD = ("from cometad import load", 'load("plant.comet").stream().update([0.5] * 24)')
ONNX = (
    "import numpy as np, onnxruntime as ort",
    'session = ort.InferenceSession("plant.onnx")\n'
    "size = session.get_inputs()[1].shape\n"
    'session.run(None, {"reading": np.full((1, 24), 0.5), "state": np.zeros(size)})',
)
NO_CODE = ("", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="Keep the environments here. Default: a temporary folder.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure((arguments.folder or Path(temporary)).resolve(), arguments.repeats)


def measure(folder: Path, repeats: int) -> None:
    folder.mkdir(exist_ok=True)
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT], folder)
    (wheel,) = folder.glob("cometad-*.whl")
    environments = {
        "`cometad`": (installed(folder / "core", str(wheel)), COMETAD),
        "`cometad[onnx]`": (installed(folder / "onnx", f"{wheel}[onnx]"), COMETAD),
        "`onnxruntime` and an exported file": (installed(folder / "runtime", "onnxruntime"), ONNX),
    }
    first, second, _ = (python for python, _ in environments.values())
    print("| installed | disk, MB | import, s | memory, MB | first score, s | the very first, s |")
    print("|---|---|---|---|---|---|")
    bare = best(first, NO_CODE, folder, repeats)
    print(f"| Python alone | 0 | {bare['import']:.2f} | {bare['memory']:.0f} | | |")
    for name, (python, code) in environments.items():
        if python == first:
            run([python, "-c", FIT], folder)
            clear_kernels(python)
        if python == second:
            run([python, "-c", EXPORT], folder)
            clear_kernels(python)
        cold = process(python, code, folder)
        warm = best(python, code, folder, repeats)
        figures = (warm["import"], warm["memory"], warm["score"], cold["score"])
        shown = "{:.2f} | {:.0f} | {:.2f} | {:.1f}".format(*figures)
        print(f"| {name} | {size_of(python):.0f} | {shown} |", flush=True)
    print(f"\nplant.comet: {(folder / 'plant.comet').stat().st_size / 1000:.0f} kB; ", end="")
    print(f"plant.onnx: {(folder / 'plant.onnx').stat().st_size / 1000:.0f} kB")


def installed(folder: Path, package: str) -> Path:
    """The Python of a new environment with a package and what it requires, and without pip."""
    run([sys.executable, "-m", "venv", "--without-pip", folder], folder.parent)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "-c", ROOT / "constraints.txt", package], folder.parent)
    return python


def size_of(python: Path) -> float:
    """MB of all packages, without kernels that were compiled here."""
    files = packages(python).rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file() and path.suffix not in (".nbi", ".nbc")) / 1e6


def clear_kernels(python: Path) -> None:
    """Delete the kernels that were compiled here."""
    for path in (packages(python) / "cometad").rglob("*.nb[ic]"):
        path.unlink()


def packages(python: Path) -> Path:
    (folder,) = python.parents[1].glob("lib/python*/site-packages")
    return folder


def best(python: Path, code: tuple[str, str], folder: Path, repeats: int) -> dict[str, float]:
    """The least of each figure of several processes."""
    runs = [process(python, code, folder) for _ in range(repeats)]
    return {name: min(one[name] for one in runs) for name in runs[0]}


def process(python: Path, code: tuple[str, str], folder: Path) -> dict[str, float]:
    """The figures of a process that imports and scores one reading."""
    imports, score = code
    figures: dict[str, float] = json.loads(run([python, "-c", MEASURED.format(imports=imports, score=score)], folder))
    return figures


def run(command: list[object], folder: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False, timeout=600, env=environment()
    )
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def environment() -> dict[str, str]:
    """The environment of a process, without this checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}


if __name__ == "__main__":
    main()

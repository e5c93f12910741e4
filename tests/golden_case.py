"""Golden files: what the package does today, as text under tests/golden, and how tests compare with it.

`COMETAD_RECORD=1 pytest tests/golden` writes the files anew; look at the diff before you commit it. A transcript has
calls, each behind a prompt, and the indented answers; to add a case, write the call and record.

The last bits of a float depend on the processor and on the versions of numpy and others. `fingerprint` names both:
hashes of exact bits are compared where it is the one of the recording, and values to within 1e-9 everywhere.
"""

import difflib
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import scipy.linalg
import torch

FOLDER = Path(__file__).with_name("golden")
RECORD = bool(os.environ.get("COMETAD_RECORD"))
SHOWN = 40  # lines of a difference
TOLERANCE = 1e-9
NOW, RECENT = time.time() - 3600, 1e9  # floats above are times: of the clock, or of readings
LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "llvmlite", "torch", "safetensors")  # that decide about bits


def compare(name: str, text: str) -> None:
    """Fail with a short difference unless a golden file has this text; write the file when recording."""
    file = FOLDER / name
    if RECORD:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return
    recorded = file.read_text("utf-8") if file.exists() else ""
    if text != recorded:
        lines = list(
            difflib.unified_diff(recorded.splitlines(), text.splitlines(), f"{name} recorded", f"{name} now", "", "", 1)
        )
        more = [f"... and {len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
        pytest.fail("\n".join([line[:1000] for line in lines[:SHOWN]] + more), pytrace=False)


def replay(name: str, prompt: str, answer: Callable[[str], str]) -> None:
    """Compare a transcript with what its calls answer now."""
    lines = []
    for line in (FOLDER / name).read_text("utf-8").splitlines():
        if line.startswith(prompt):
            answered = answer(line.removeprefix(prompt)).splitlines()
            lines += [line, *(f"    {each.rstrip()}" for each in answered if each.strip())]
        elif not line.startswith("    "):
            lines.append(line)  # headings and empty lines
    compare(name, "\n".join(lines) + "\n")


def rounded(value: Any, unstable: dict[str, str] | None = None) -> Any:
    """JSON with floats of 6 digits, and with words in place of the clock and of the values of unstable fields."""
    if isinstance(value, dict):
        words = unstable or {}
        return {
            key: words[key] if key in words and one is not None else rounded(one, unstable)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [rounded(one, unstable) for one in value]
    if isinstance(value, float) and abs(value) > RECENT:
        return "CLOCK" if value > NOW else value
    return float(f"{value:.6g}") if isinstance(value, float) else value


def as_lines(value: Any) -> str:
    """JSON with one line per entry, so that differences are short."""
    if isinstance(value, dict) and len(json.dumps(value)) > 100:
        return "\n".join(f"{key}: {json.dumps(one, ensure_ascii=False)}" for key, one in value.items())
    return json.dumps(value, ensure_ascii=False)


def digest(content: bytes) -> str:
    """The beginning of a SHA-256."""
    return hashlib.sha256(content).hexdigest()[:20]


@numba.njit(fastmath={"contract"})
def _fused(values: np.ndarray) -> float:
    total = 0.0
    for value in values:
        total = total * 0.999 + value * np.exp(-value * value)
    return total


def fingerprint() -> str:
    """The machine's numerics: versions of the libraries, and the bits of a fixed computation with each."""
    rng = np.random.default_rng(0)
    square, row = rng.normal(size=(65, 65)), rng.normal(size=10_001)
    small = square.astype(np.float32)
    parts = [
        *(square @ square, small @ small, np.einsum("ij,kj->ik", square, square), np.linalg.svd(square)[1]),
        *(np.sin(row), np.exp(row), np.log(np.abs(row)), np.sum(row), row.std(), scipy.linalg.eigvalsh(square)),
        *(np.array(_fused(row)), torch.tanh(torch.from_numpy(small) @ torch.from_numpy(small)).numpy()),
    ]
    versions = " ".join(f"{name}={version(name)}" for name in LIBRARIES)
    bits = digest(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{platform.system()} {platform.machine()} python={python} {versions} bits={bits}"

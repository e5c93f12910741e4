"""The command line in tests: in this process or in a shell, on small readings with times, with a deadline."""

import io
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import polars as pl
import pytest

from cometad.cli import main

COMETAD = [sys.executable, "-m", "cometad"]
TIMEOUT = 300  # seconds, for a process on a slow machine

NETWORK = [
    *("--detector", "network"),
    *("--set", "window=32", "--set", "patch_sizes=[2,4]", "--set", "patch_strides=[1,2]"),
    *("--set", "codebook_size=16", "--set", "dim=16", "--set", "core_dim=8", "--steps", "10"),
]


def table_of_readings(rows: int, seed: int) -> pl.DataFrame:
    """One reading a minute of three variables."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(rows) / 5)
    columns = {"flow": wave, "level": np.cos(np.arange(rows) / 5), "valve": wave**2}
    return pl.DataFrame(
        {"time": [datetime(2024, 3, 1) + timedelta(minutes=i) for i in range(rows)]}
        | {name: column + 0.1 * rng.normal(size=rows) for name, column in columns.items()}
    )


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a block that waits for a signal or a process for too long."""

    def expire(number, frame):
        raise TimeoutError(f"Not finished after {seconds} s.")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Killed(BaseException):
    """Ends a verb in this process without cleaning up."""


class Ended(NamedTuple):
    """How a verb ended."""

    code: int | None  # None if it was killed
    out: str
    err: str

    @property
    def table(self) -> pl.DataFrame:
        """The CSV that was printed."""
        return pl.read_csv(io.StringIO(self.out))

    @property
    def lines(self) -> list[dict]:
        """The JSON lines that were printed."""
        return list(map(json.loads, self.out.splitlines()))


def run(*words: object, stdin: str | bytes = b"", stdout: TextIO | None = None) -> Ended:
    """Run a verb in this process; the first word may be several, as in a shell."""
    out, err = io.StringIO(), io.StringIO()
    content = stdin.encode() if isinstance(stdin, str) else stdin
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout or out), redirect_stderr(err):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        try:
            code = main([*shlex.split(str(words[0])), *map(str, words[1:])])
        except Killed:
            code = None
    return Ended(code, out.getvalue(), err.getvalue())


def done(*words: object, stdin: str | bytes = b"") -> Ended:
    """Run a verb that ends well."""
    ended = run(*words, stdin=stdin)
    assert ended.code == 0, ended.err
    return ended


def refused(sentence: str, *words: object, stdin: str | bytes = b"", stdout: TextIO | None = None) -> Ended:
    """Run a verb that ends with a sentence about a mistake."""
    return check_refused(run(*words, stdin=stdin, stdout=stdout), sentence)


def check_refused(ended: Ended, sentence: str) -> Ended:
    """Check that a verb ended with a sentence about a mistake."""
    assert ended.code == 2, ended.err
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("cometad: "), ended.err
    assert sentence in last
    assert "Traceback" not in ended.err
    return ended


def in_shell(command: str) -> Ended:
    """Run `cometad ...` in a shell, in the current folder; without the line about compiling."""
    full = command.replace("cometad ", f"{sys.executable} -m cometad ", 1)
    ended = subprocess.run(
        full, shell=True, capture_output=True, text=True, timeout=TIMEOUT, check=False, executable="/bin/bash"
    )
    err = [line for line in ended.stderr.splitlines(keepends=True) if "Compiling for this machine" not in line]
    return Ended(ended.returncode, ended.stdout, "".join(err))


def fitted(folder: Path, rows: int = 60, **names: str) -> Path:
    """A folder with readings in normal.csv and today.csv, of renamed variables, and a detector in plant.comet."""
    table_of_readings(300, seed=0).rename(names).write_csv(folder / "normal.csv")
    table_of_readings(rows, seed=1).rename(names).write_csv(folder / "today.csv")
    done("fit", folder / "normal.csv", "-o", folder / "plant.comet")
    return folder

"""What `kill -9` leaves behind: processes of `cometad fit`, `score`, `stream` and `serve`, killed at random moments.

    python bench/scripts/kill.py [--times 200] [--seed 0] [--verb fit score stream serve]

After each kill, the output must be the old one or the new one, whole. After the next complete run, the folder must hold
nothing else, and the output must equal that of a run that nobody killed. A stream resumes from its snapshot.

A service is killed under load and started again with the same data: see `kill_service.py`.

Processes are forked from one that has imported everything, so that they spend their time working, not importing.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

os.environ |= dict.fromkeys(("COMETAD_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")

import numpy as np
import polars as pl

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["cometad.cli", "cometad.detectors", "cometad.comet", "cometad.live", "cometad.report"]
)
LOG = "log.txt"
TIMEOUT = 300  # seconds for one process
KILLS = 8  # at most so many in a row before a stream is left to finish
VERBS: dict[str, list[str]] = {
    "fit": ["fit", "normal.csv", "-o", "new.comet"],
    "score": ["score", "plant.comet", "today.csv", "-o", "scores.parquet", "--events", "events.csv"],
    "stream": ["stream", "plant.comet", "-o", "lines.jsonl", "--snapshot", "state", "--snapshot-every", "50"],
}
OUTPUTS = {"fit": ["new.comet"], "score": ["scores.parquet", "events.csv"], "stream": ["lines.jsonl"]}


@dataclass
class Tally:
    """What happened to the processes of one verb."""

    kills: int = 0
    ended: int = 0  # before they could be killed
    old: int = 0  # kills that left the old output
    new: int = 0  # kills that left the new output, whole
    resumed: int = 0  # streams that were resumed after one or more kills
    litter: int = 0  # hidden files that kills left
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{self.kills} kills, {self.ended} ended before; "
        counts += f"output old {self.old}, new {self.new}; {self.resumed} resumed; {self.litter} hidden files left, "
        return counts + f"all deleted by the next run; {len(self.problems)} problems"


def readings(rows: int, seed: int) -> pl.DataFrame:
    """One reading a minute of three variables."""
    rng = np.random.default_rng(seed)
    time = np.arange(rows)[:, None]
    values = np.sin(time / [5, 7, 9]) + 0.1 * rng.normal(size=(rows, 3))
    values[rows // 2 : rows // 2 + 20, 1] += 4
    times = [datetime(2024, 3, 1) + timedelta(minutes=minute) for minute in range(rows)]
    return pl.DataFrame({"time": times, **dict(zip(("flow", "level", "valve"), values.T, strict=True))})


def prepare(folder: Path, rows: int) -> None:
    """Write the inputs of all verbs."""
    readings(300, seed=0).write_csv(folder / "normal.csv")
    readings(rows, seed=1).write_csv(folder / "today.csv")
    _whole(["fit", "normal.csv", "-o", "plant.comet"], folder)


def kill_often(verb: str, times: int, inputs: Path, random_: random.Random) -> Tally:
    """Kill a verb at random moments, `times` times in all."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(inputs, folder, dirs_exist_ok=True)
        own = {LOG, *(path.name for path in folder.iterdir())}
        took = _whole(VERBS[verb], folder)  # compiles, if this is the first run on this machine
        took = min(took, _whole(VERBS[verb], _copy(inputs, folder / "second")))
        wanted = {name: (folder / name).read_bytes() for name in OUTPUTS[verb]}
        shutil.rmtree(folder / "second")
        for name in (*OUTPUTS[verb], "state"):
            (folder / name).unlink(missing_ok=True)
        check: Callable[..., None] = _stream if verb == "stream" else _atomic
        while tally.kills < times:
            check(verb, folder, took, wanted, tally, random_, times)
            left = {path.name for path in folder.iterdir()} - own - {*OUTPUTS[verb], "state"}
            if left:
                tally.problems.append(f"The next run did not delete {sorted(left)}.")
    return tally


def _copy(inputs: Path, folder: Path) -> Path:
    shutil.copytree(inputs, folder)
    return folder


def _atomic(
    verb: str, folder: Path, took: float, wanted: dict[str, bytes], tally: Tally, random_: random.Random, times: int
) -> None:
    """Kill a run over an old output, then let one finish."""
    old = {}
    for name, content in wanted.items():  # an earlier output of the same kind, which differs
        old[name] = _older(name, content)
        (folder / name).write_bytes(old[name])
    _killed(VERBS[verb], folder, random_.uniform(0, 1.1) * took, tally)
    for name in wanted:
        content = (folder / name).read_bytes()
        tally.old += content == old[name]
        tally.new += content == wanted[name]
        if content not in (old[name], wanted[name]):
            tally.problems.append(f"After a kill, {name} is neither old nor new.")
    if tally.kills >= times or _hidden(folder):
        tally.litter += len(_hidden(folder))
        _whole(VERBS[verb], folder)
        if {name: (folder / name).read_bytes() for name in wanted} != wanted:
            tally.problems.append("The next run wrote something else.")


def _older(name: str, content: bytes) -> bytes:
    """An output of the same kind with other content."""
    if name.endswith(".csv"):
        return content.partition(b"\n")[0] + b"\n"
    if name.endswith(".parquet"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(content)
            pl.read_parquet(path)[:1].write_parquet(path)
            return path.read_bytes()
    return content + b" "  # a detector, by its header


def _stream(
    verb: str, folder: Path, took: float, wanted: dict[str, bytes], tally: Tally, random_: random.Random, times: int
) -> None:
    """Kill a stream again and again, resume it each time with the same input, and let it finish."""
    kills = tally.kills
    for _ in range(min(KILLS, times - tally.kills)):
        _killed(VERBS[verb], folder, random_.uniform(0, 1.1) * took, tally)
        tally.litter += len(_hidden(folder))
        lines = folder / "lines.jsonl"
        done, so_far = wanted["lines.jsonl"], lines.read_bytes() if lines.exists() else b""
        tally.old += not so_far
        tally.new += so_far == done
        if not done.startswith(so_far):
            tally.problems.append("After a kill, the lines are not those of a whole run.")
    _whole(VERBS[verb], folder)
    tally.resumed += tally.kills > kills
    if (folder / "lines.jsonl").read_bytes() != wanted["lines.jsonl"]:
        tally.problems.append("The lines of a resumed stream differ from those of a whole run.")
    for name in ("lines.jsonl", "state"):
        (folder / name).unlink()


def _hidden(folder: Path) -> list[Path]:
    return list(folder.glob(".*"))


def _whole(arguments: Sequence[str], folder: Path) -> float:
    """Run to the end; the seconds it took."""
    start = time.monotonic()
    code = _run(arguments, folder, TIMEOUT)
    if code:
        raise RuntimeError(f"cometad {' '.join(arguments)} ended with code {code}: {(folder / LOG).read_text()}")
    return time.monotonic() - start


def _killed(arguments: Sequence[str], folder: Path, after: float, tally: Tally) -> None:
    """Start a process and kill it after some seconds, unless it has ended."""
    code = _run(arguments, folder, after)
    if code == -signal.SIGKILL:
        tally.kills += 1
        return
    tally.ended += 1
    if code:
        tally.problems.append(f"A run that was not killed ended with code {code}: {(folder / LOG).read_text()}")


def _run(arguments: Sequence[str], folder: Path, seconds: float) -> int | None:
    """The exit code of a process that is killed after some seconds."""
    process = PROCESSES.Process(target=_cometad, args=(list(arguments), str(folder)))
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode


def _cometad(arguments: list[str], folder: str) -> None:
    """Be `cometad ARGUMENTS < today.csv > LOG 2>&1`."""
    from cometad.cli import main

    os.chdir(folder)
    for number, name, flags in ((0, "today.csv", os.O_RDONLY), (1, LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
        os.dup2(os.open(name, flags, 0o666), number)
    os.dup2(1, 2)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - that of a forked process is closed
    sys.exit(main(arguments))


def kill_served(times: int, random_: random.Random) -> Tally:
    """Kill a service under load; it prints what it counted."""
    from kill_service import kill_service

    counts, problems = kill_service(times, random_)
    return Served(kills=times, problems=problems, counts=counts)


@dataclass
class Served(Tally):
    """What happened to a service."""

    counts: str = ""

    def __str__(self) -> str:
        return self.counts


def main(arguments: Sequence[str] | None = None) -> dict[str, Tally]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200, help="per verb")
    parser.add_argument("--rows", type=int, default=3000, help="readings to score")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verb", nargs="+", choices=[*VERBS, "serve"], default=[*VERBS, "serve"])
    options = parser.parse_args(arguments)
    random_, tallies = random.Random(options.seed), {}
    with tempfile.TemporaryDirectory() as inputs:
        if options.verb != ["serve"]:
            prepare(Path(inputs), options.rows)
        for verb in options.verb:
            if verb == "serve":
                tallies[verb] = kill_served(options.times, random_)
            else:
                tallies[verb] = kill_often(verb, options.times, Path(inputs), random_)
            print(f"{verb}: {tallies[verb]}.", flush=True)
            for problem in sorted(set(tallies[verb].problems)):
                print(f"  {problem}", flush=True)
    return tallies


if __name__ == "__main__":
    sys.exit(any(tally.problems for tally in main().values()))

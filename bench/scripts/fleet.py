"""How fast, how large and how robust a fleet is: tables in Markdown.

    python bench/scripts/fleet.py scale [--entities 100 1000 10000]
    python bench/scripts/fleet.py speed [--entities 2000] [--sample 60]
    python bench/scripts/fleet.py memory [--entities 400]
    python bench/scripts/fleet.py costs
    python bench/scripts/fleet.py ray [--entities 200]
    python bench/scripts/fleet.py faults [--entities 60]
    python bench/scripts/fleet.py pooling [--dataset SKAB] [--dataset SMD] [--entities 9]

`speed` compares with single fits in one process; a sample of them runs in pauses of the fleet. `ray` takes turns with
the local engine, `faults` compares with an undisturbed run.
`pooling` gives one entity at a time 5, 10 and 25 % of its training part, with and without the others.
"""

import argparse
import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from cometad import Comet, Fleet
from cometad.data.dialect import Dialect
from cometad.data.tables import TableReader
from cometad.datasets.dataset import Dataset
from cometad.detector import Detector
from cometad.detectors import load_bytes
from cometad.errors import CometadError
from cometad.fleet.engines import Engine
from cometad.fleet.entities import ObjectReadings
from cometad.fleet.jobs import FitTask, parameters_of
from cometad.fleet.local_engine import LocalEngine, one_thread
from cometad.fleet.pooling import Donation, correlations, donation, nearest, pooled
from cometad.fleet.ray_engine import RayEngine
from cometad.fleet.split import BUFFER, split_table
from cometad.fleet.storage import JOURNAL, Entry, FleetFolder, writing
from cometad.series import Series, as_series
from fleet_work import Sizes, fit_and_measure, named, readings_of, write_history
from fleet_work import memory as used

TINY = (300, 3)  # readings and variables of a tiny entity
PLANT = (5_000, 20)
PAUSES = 10  # of a fleet, for single fits
SHARES = (0.05, 0.10, 0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=sorted(PARTS))
    parser.add_argument("--entities", type=int, nargs="*")
    parser.add_argument("--sample", type=int, default=60, help="single fits to compare with")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dataset", action="append")
    arguments = parser.parse_args()
    PARTS[arguments.what](arguments)


@contextmanager
def history(sizes: Sizes) -> Iterator[tuple[Path, Path]]:
    """A folder, and the readings of a fleet in it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name), write_history(Path(name), sizes)


def fitted(data: Path, folder: Path, engine: str | Engine, workers: int) -> float:
    """Fit a fleet; returns the seconds it took."""
    begun = time.perf_counter()
    fleet = Fleet.fit(data, by="machine", folder=folder, engine=engine, workers=workers)
    assert not fleet.run.failed, fleet.run.failed
    return time.perf_counter() - begun


# --- scale ------------------------------------------------------------------------------------------------------------


def scale(arguments: argparse.Namespace) -> None:
    points = []
    with history(Sizes(2, *TINY)) as (folder, data):
        fitted(data, folder / "fleet", "local", arguments.workers)  # start the server that forks the workers
    print("| tiny entities | fit, s | ms per entity | load the folder, s | packs | bytes per entity |")
    print("|---|---|---|---|---|---|")
    for entities in arguments.entities or (100, 1_000, 10_000):
        with history(Sizes(entities, *TINY)) as (folder, data):
            seconds = fitted(data, folder / "fleet", "local", arguments.workers)
            begun = time.perf_counter()
            fleet = Fleet.load(folder / "fleet")
            loading = time.perf_counter() - begun
            packs = FleetFolder(folder / "fleet").packs()
            size = sum(file.stat().st_size for file in (folder / "fleet").iterdir())
            assert len(fleet) == entities
        points.append((entities, seconds))
        cells = (
            f"{seconds:.1f} | {1000 * seconds / entities:.1f} | {loading:.2f} | {len(packs)} | {size / entities:,.0f}"
        )
        print(f"| {entities:,} | {cells} |", flush=True)
    if len(points) > 1:
        exponent = np.polyfit(*np.log(points).T, 1)[0]
        print(f"\nExponent {exponent:.2f} (1 is linear).")


# --- speed ------------------------------------------------------------------------------------------------------------


def speed(arguments: argparse.Namespace) -> None:
    """A fleet against single fits: the fleet pauses again and again, and some entities are done alone meanwhile."""
    sizes = Sizes((arguments.entities or [2_000])[0], *PLANT)
    one_thread()
    alone = Alone(sizes, max(1, round(arguments.sample / PAUSES)))
    alone.fit()  # compile first
    alone.score()
    alone.fits.clear()
    alone.scores.clear()
    with history(sizes) as (folder, data):
        print(f"{sizes.entities:,} entities written.", file=sys.stderr, flush=True)
        engine = Pausing(LocalEngine(arguments.workers), -(-sizes.entities // PAUSES), alone.fit)
        begun = time.perf_counter()
        fleet = Fleet.fit(data, by="machine", folder=folder / "fleet", engine=engine, verbose=True)
        fit = time.perf_counter() - begun - engine.paused
        assert not fleet.run.failed, fleet.run.failed
        busy = sum(entry.seconds for entry in fleet.entries.values())
        fit_shares = engine.shares(alone.fits, arguments.workers)
        engine = Pausing(LocalEngine(arguments.workers), -(-sizes.entities // PAUSES), alone.score)
        begun = time.perf_counter()
        for entity in fleet.score_each(data, engine=engine, verbose=True):
            assert entity.answer.error is None, entity
        score = time.perf_counter() - begun - engine.paused
    each = np.mean(alone.fits) + np.mean(alone.scores)
    singles = sizes.entities * each
    ratio = (fit + score) / (singles / arguments.workers)
    print(
        f"\n{sizes.entities:,} entities of {sizes.readings:,} readings x {sizes.variables} variables, "
        f"{arguments.workers} workers.\n\n| what | figure |\n|---|---|\n"
        f"| single fit, with saving, s | {spread(alone.fits)} |\n"
        f"| single score of all readings, with loading, ms | {spread([1000 * one for one in alone.scores])} |\n"
        f"| sum of single fits and scores, s | {singles:.1f}, estimated from {len(alone.fits)} entities done alone in "
        f"{PAUSES} pauses of the same run |\n"
        f"| fleet fit, with splitting the table, s | {fit:.1f} |\n"
        f"| fleet score, with splitting the table, s | {score:.1f} |\n"
        f"| share of the fit that workers were busy | {busy / (arguments.workers * fit):.0%} |\n"
        f"| fit between two pauses, compared with singles / workers | {spread(fit_shares)} |\n"
        f"| **fit and score, compared with singles / workers** | **{ratio:.3f}**, at most 1.15 is wanted |"
    )


def spread(values: Sequence[float]) -> str:
    """The median of some figures, and the smallest and the largest."""
    return f"{np.median(values):.3f} (median of {len(values)}; {min(values):.3f} to {max(values):.3f})"


class Alone:
    """Fits and scores entities alone, a few at a time, with one thread in this process; without making readings."""

    def __init__(self, sizes: Sizes, each: int) -> None:
        self._sizes, self._each = sizes, each
        self.fits: list[float] = []
        self.scores: list[float] = []

    def fit(self) -> list[float]:
        """Fit and save the next ones; returns the seconds of each."""
        return self._timed(self.fits, lambda readings: lambda: Comet().fit(readings).to_bytes())

    def score(self) -> list[float]:
        """Load and score the next ones; returns the seconds of each."""

        def work(readings: pl.DataFrame) -> Callable[[], object]:
            content = Comet().fit(readings).to_bytes()
            return lambda: stream_over(content, readings)

        return self._timed(self.scores, work)

    def _timed(self, kept: list[float], work: Callable[[pl.DataFrame], Callable[[], object]]) -> list[float]:
        for _ in range(self._each):
            ready = work(readings_of(len(kept), self._sizes))
            begun = time.perf_counter()
            ready()
            kept.append(time.perf_counter() - begun)
        return kept[-self._each :]


class Pausing:
    """An engine that finishes `size` tasks, does something else, and goes on; the time of that is not the fleet's.

    New workers start after each pause, and none has work at the end of a part: both are the fleet's cost.
    """

    def __init__(self, engine: Engine, size: int, between: Callable[[], list[float]]) -> None:
        self._engine, self._size, self._between = engine, size, between
        self.same_disk, self.workers, self.paused = engine.same_disk, engine.workers, 0.0
        self._parts: list[tuple[int, float]] = []  # tasks and seconds of each

    def run(self, function, tasks):
        """Yield the outcomes of all parts."""
        first, waiting = 0, iter(tasks)
        while part := list(itertools.islice(waiting, self._size)):
            begun = time.perf_counter()
            for outcome in self._engine.run(function, part):
                yield outcome._replace(number=first + outcome.number)
            done = time.perf_counter()
            self._between()
            self.paused += time.perf_counter() - done
            self._parts.append((len(part), done - begun))
            first += len(part)

    def shares(self, singles: Sequence[float], workers: int) -> list[float]:
        """The seconds of each part, compared with singles / workers in the pause that followed."""
        pauses = np.array_split(singles, len(self._parts))
        return [
            seconds * workers / (count * float(np.mean(alone)))
            for (count, seconds), alone in zip(self._parts, pauses, strict=True)
        ]


# --- memory -----------------------------------------------------------------------------------------------------------


def memory(arguments: argparse.Namespace) -> None:
    sizes = Sizes((arguments.entities or [400])[0], *PLANT)

    def tasks() -> Iterator[FitTask]:
        for number in range(sizes.entities):
            yield FitTask(named(number), ObjectReadings(readings_of(number, sizes)), Comet())

    used = [0.0] * sizes.entities
    for outcome in LocalEngine(1, recycle=sizes.entities + 1).run(fit_and_measure, tasks()):
        used[outcome.number] = outcome.result[1]
    print(f"Memory of one worker that is never replaced, {sizes.readings:,} x {sizes.variables}:\n")
    print("| entities fitted | MiB |\n|---|---|")
    for count in sorted({1, 10, sizes.entities // 4, sizes.entities // 2, sizes.entities}):
        print(f"| {count:,} | {used[count - 1]:.0f} |")
    half = used[sizes.entities // 2 :]
    slope = np.polyfit(np.arange(len(half)), half, 1)[0]
    print(f"\nGrowth in the second half: {1024 * slope:.1f} KiB per entity.")


# --- costs ------------------------------------------------------------------------------------------------------------


def costs(arguments: argparse.Namespace) -> None:
    """What one entity costs: CPU seconds, so that other work on the machine counts little, and memory."""
    one_thread()
    count, sizes = (arguments.entities or [300])[0], Sizes(1, *PLANT)
    readings = readings_of(0, sizes)
    content = Comet().fit(readings).to_bytes()
    load_bytes(content).stream().update_many(readings)  # compile first
    rows = {
        "fit, ms": 1000 * cpu(lambda: Comet().fit(readings).to_bytes(), 5),
        "score, ms": 1000 * cpu(lambda: stream_over(content, readings), 5),
        "saved detector, KiB": len(content) / 1024,
    }
    begun = used()
    detectors = [load_bytes(content) for _ in range(count)]
    loaded = used()
    streams = [detector.stream() for detector in detectors]
    for stream in streams:
        stream.update_many(readings[:100])
    rows |= {
        "loaded detector, KiB": 1024 * (loaded - begun) / count,
        "its stream, KiB": 1024 * (used() - loaded) / count,
    }
    rows |= {"load, ms": 1000 * cpu(lambda: load_bytes(content), 100)}
    rows |= splitting() | splitting_memory() | manifest()
    print(f"{sizes.readings:,} readings x {sizes.variables} variables:\n\n| what | one entity |\n|---|---|")
    for what, figure in rows.items():
        print(f"| {what} | {figure:,.3g} |" if figure < 1000 else f"| {what} | {figure:,.0f} |")


def cpu(work: Callable[[], object], times: int) -> float:
    """CPU seconds of some work."""
    begun = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begun) / times


def stream_over(content: bytes, readings: pl.DataFrame) -> None:
    stream = load_bytes(content).stream()
    stream.update_many(readings)
    stream.finish()


def splitting() -> dict[str, float]:
    """How many rows of a table the one process that splits it handles in a CPU second."""
    rates = {}
    with history(Sizes(100, *PLANT)) as (folder, data):
        table = pl.read_parquet(data / "*.parquet")
        table[:100_000].write_csv(folder / "table.csv")
        for path, rows in ((data, len(table)), (folder / "table.csv", 100_000)):
            tables = TableReader(path, text=("machine",))
            seconds = cpu(lambda: split_table(tables, "machine", folder / f"split-{path.name}", "", Dialect()), 1)  # noqa: B023
            rates[f"rows of {'CSV' if path.suffix else 'Parquet'} split in a CPU second"] = rows / seconds
    return rates


def splitting_memory() -> dict[str, float]:
    """The peak of memory of a process that splits a table four times as large as its buffer."""
    variables = PLANT[1]
    with history(Sizes(4 * BUFFER // (8 * variables * PLANT[0]), *PLANT)) as (_, data):
        command = [sys.executable, "-c", "import sys, fleet_work; fleet_work.split(sys.argv[1])", str(data)]
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        printed = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path}
        )
    return {"memory of a process that splits a table, MiB": float(printed.stdout)}


def manifest(entities: int = 100_000) -> dict[str, float]:
    """What the rows of a manifest cost."""
    fixed = {
        "variables": tuple(readings_of(0, Sizes(1, *PLANT)).columns),
        "parameters": json.dumps(parameters_of(Comet())),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = FleetFolder(name)
        with writing(folder) as writer:
            writer.describe({})
            for number in range(entities):
                digest = hashlib.sha256(str(number).encode()).hexdigest()
                place = {"pack": 1, "offset": number, "length": 1, "sha256": digest[::-1]}
                writer.entries[named(number)] = Entry(named(number), "fitted", fingerprint=digest, **place, **fixed)
            saving = cpu(writer.settle, 1)
            writer.entries = {}
        loading = cpu(lambda: Fleet.load(name), 1)
        tracemalloc.start()
        kept = Fleet.load(name)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(kept) == entities
        return {
            "manifest row, saving, µs": 1e6 * saving / entities,
            "manifest row, loading, µs": 1e6 * loading / entities,
            "manifest row on disk, bytes": (folder.path / "manifest.parquet").stat().st_size / entities,
            "manifest row in memory, bytes": held / entities,
        }


# --- Ray --------------------------------------------------------------------------------------------------------------


def on_ray(arguments: argparse.Namespace) -> None:
    import ray

    sizes = Sizes((arguments.entities or [200])[0], *PLANT)
    seconds: dict[str, list[float]] = {"local": [], "ray": []}
    shares: dict[str, list[float]] = {"local": [], "ray": []}
    with history(sizes) as (folder, data):
        begun = time.perf_counter()
        ray.init("local", num_cpus=arguments.workers, include_dashboard=False, log_to_driver=False, **ONE_MACHINE)
        start = time.perf_counter() - begun
        begun = time.perf_counter()
        list(RayEngine().run(abs, range(arguments.workers)))  # its workers start with their first tasks
        first = time.perf_counter() - begun
        for turn, name in enumerate(("local", "ray", "ray", "local")):
            place = folder / f"{name}-{turn}"
            taken = fitted(data, place, RayEngine() if name == "ray" else "local", arguments.workers)
            seconds[name].append(taken)
            worked = sum(entry.seconds for entry in Fleet.load(place).entries.values())
            shares[name].append(worked / (arguments.workers * taken))
            print(f"{name}: {taken:.1f} s", file=sys.stderr, flush=True)
        same = contents(folder / "local-0") == contents(folder / "ray-1")
        ray.shutdown()
    local, remote = sum(seconds["local"]) / 2, sum(seconds["ray"]) / 2
    print(
        f"\n{sizes.entities:,} entities, {arguments.workers} workers; bytes {'equal' if same else 'DIFFERENT'}. "
        f"Ray starts in {start:.1f} s, and its workers in {first:.1f} s more.\n\n"
        "| engine | first run, s | second run, s | mean, s | workers busy |\n|---|---|---|---|---|"
    )
    for name, taken in seconds.items():
        cells = " | ".join(f"{one:.1f}" for one in (*taken, sum(taken) / 2))
        print(f"| {name} | {cells} | {', '.join(f'{share:.0%}' for share in shares[name])} |")
    print(
        f"\nRay / local: {remote / local:.3f}. With its start: {remote + start + first:.1f} s, compared with "
        f"{1.15 * local + start + first:.1f} s (local and 15 %, and the start), which is the most that is wanted."
    )


ONE_MACHINE = {"_node_ip_address": "127.0.0.1"}


# --- faults -----------------------------------------------------------------------------------------------------------


def faults(arguments: argparse.Namespace) -> None:
    sizes = Sizes((arguments.entities or [60])[0], 2_000, 10)
    with history(sizes) as (folder, data):
        fitted(data, folder / "calm", "serial", 1)
        calm = contents(folder / "calm")
        print("| what happened | entities | missing | different |\n|---|---|---|---|")
        for what, fault in FAULTS.items():
            note = fault(data, folder / what.replace(" ", "-"), arguments.workers)
            found = contents(folder / what.replace(" ", "-"))
            missing = calm.keys() - found.keys()
            different = [name for name in found if found[name] != calm[name]]
            print(f"| {what} ({note}) | {len(calm)} | {len(missing)} | {len(different)} |", flush=True)


def contents(folder: Path) -> dict[str, bytes]:
    fleet = Fleet.load(folder)
    return {name: fleet.content(name) for name in fleet}


class _Killing:
    """An engine whose workers are killed while they work."""

    def __init__(self, engine: Engine, kills: int, pause: float) -> None:
        self._engine, self._left, self._pause = engine, kills, pause
        self.same_disk, self.workers, self.killed = engine.same_disk, engine.workers, 0

    def run(self, function, tasks):
        stopped = threading.Event()
        killer = threading.Thread(target=self._kill, args=(stopped,))
        killer.start()
        try:
            yield from self._engine.run(function, tasks)
        finally:
            stopped.set()
            killer.join()

    def _kill(self, stopped: threading.Event) -> None:
        rng = random.Random(0)
        while self.killed < self._left and not stopped.wait(self._pause):
            workers = children(os.getpid())
            if workers:
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    self.killed += 1


def children(parent: int) -> list[int]:
    """Workers of a process: those that the fork server, its child, has forked."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    servers = {pid for pid, ppid, args in rows if int(ppid) == parent and "forkserver" in args}
    return [int(pid) for pid, ppid, _ in rows if ppid in servers]


def kill_local_workers(data: Path, folder: Path, workers: int) -> str:
    engine = _Killing(LocalEngine(workers), kills=5, pause=0.5)
    Fleet.fit(data, by="machine", folder=folder, engine=engine)
    return f"{engine.killed} workers killed"


def kill_run(data: Path, folder: Path, workers: int) -> str:
    code = "import sys; from cometad import Fleet; Fleet.fit(sys.argv[1], by='machine', folder=sys.argv[2], workers=2)"
    before = 0
    kills = 0
    while True:
        process = subprocess.Popen([sys.executable, "-c", code, str(data), str(folder)])
        until = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:
            # One more batch of results than before, then the end.
            grown = (folder / JOURNAL).exists() and len(Fleet.load(folder).entries) > before
            if grown and kills < 5:
                process.kill()
                kills += 1
            time.sleep(0.02)
        process.wait()
        before = len(Fleet.load(folder).entries)
        if process.returncode == 0:
            return f"kill -9 of the run {kills} times, each time continued"


def kill_node(data: Path, folder: Path, workers: int) -> str:
    """Two Ray nodes on this machine; one of them is killed in the middle of the run."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()

    class Losing(RayEngine):
        lost_at = None

        def run(self, function, tasks):
            for done, outcome in enumerate(super().run(function, tasks), 1):
                yield outcome
                if done == 15:
                    cluster.remove_node(node, allow_graceful=False)
                    self.lost_at = done

    engine = Losing()
    Fleet.fit(data, by="machine", folder=folder, engine=engine)
    ray.shutdown()
    cluster.shutdown()
    return f"one of two nodes killed after {engine.lost_at} results"


FAULTS = {
    "local workers": kill_local_workers,
    "the whole run": kill_run,
    "a Ray node": kill_node,
}


# --- pooling ----------------------------------------------------------------------------------------------------------


def pooling(arguments: argparse.Namespace) -> None:
    from cometad_bench.datasets.readers import load

    one_thread()
    print(
        "AUC-PR, mean over entities; alone: an entity that cannot be fitted counts as no skill (its anomaly share).\n"
    )
    print(
        "| dataset | history | entities | fitted alone | alone | pooled | pooled is better | all history | no skill |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in arguments.dataset or ["SKAB", "SMD"]:
        entities = load(name)
        step = max(1, len(entities) // (arguments.entities or [len(entities)])[0])
        chosen = range(0, len(entities), step)
        lent = [donation(entity.entity, series_of(entity.train)) for entity in entities]
        no_skill = np.array([entities[place].labels.mean() for place in chosen])
        full = [precision(entities[place], lambda own: Comet().fit(own), 1.0) for place in chosen]
        for share in SHARES:
            alone = np.array([precision(entities[place], lambda own: Comet().fit(own), share) for place in chosen])
            pool = np.array([precision(entities[place], partial(borrowing, lent, place), share) for place in chosen])
            fits = ~np.isnan(alone)
            alone = np.where(fits, alone, no_skill)
            means = " | ".join(f"{np.mean(each):.3f}" for each in (full, no_skill))
            print(
                f"| {name} | {share:.0%} | {len(chosen)} | {fits.sum()} | {alone.mean():.3f} | {pool.mean():.3f} | "
                f"{(pool > alone).sum()} | {means} |",
                flush=True,
            )


def precision(entity: Dataset, fit: Callable[[Series], Detector], share: float) -> float:
    """The AUC-PR of a detector fitted on the first share of the training part; NaN if it cannot be fitted."""
    from cometad.metrics.pointwise import auc_pr

    own = series_of(entity.train[: max(2, int(share * len(entity.train)))])
    try:
        return auc_pr(entity.labels, fit(own).decision_function(entity.test))
    except CometadError:
        return float("nan")


def borrowing(lent: Sequence[Donation], place: int, own: Series) -> Detector:
    """A detector that borrows from all other entities of the dataset, as a fleet chooses them."""
    others = [each for k, each in enumerate(lent) if k != place]
    return pooled(Comet(), own, nearest(correlations(own.values), others))


def series_of(values: np.ndarray) -> Series:
    return as_series(np.asarray(values, float))


PARTS = {
    "costs": costs,
    "scale": scale,
    "speed": speed,
    "memory": memory,
    "ray": on_ray,
    "faults": faults,
    "pooling": pooling,
}

if __name__ == "__main__":
    main()

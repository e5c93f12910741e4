"""The connector for Prometheus, against the real server: steps a second of a back-fill, and what `kill -9` loses.

    python bench/scripts/connecting/prometheus.py [--steps 40000] [--kills 100] [--seed 0]

promtool writes the samples, one a second for each of 25 series, from half a day ago to two hours ahead, so that every
step has a known value. The figure of the back-fill is from the first request to the last score on disk, with 25
queries; Prometheus runs on the same machine. For the kills, `cometad connect` runs in pages of 20 steps, is killed at
random moments and started again; at the end, all lines and everything stored are compared with an uninterrupted run.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

os.environ |= dict.fromkeys(("COMETAD_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
sys.path.extend([str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "tests")])

import numpy as np
import polars as pl

from prometheus_consumer import Consumer
from servers.prometheus import PrometheusServer
from serving import NAMES, fitted, plant

PAST, AHEAD = 43_200, 7200  # seconds of samples
QUERIES = {name: f'plant{{variable="{name}"}}' for name in NAMES}


class Samples:
    """A plant with 25 variables, one sample a second."""

    def __init__(self) -> None:
        self.start = int(time.time()) - PAST
        self.values = plant(PAST + AHEAD, seed=0, run=1)  # (second, variable)

    def __iter__(self) -> Iterator[tuple[str, float, float]]:
        for second, row in enumerate(self.values.tolist(), self.start):
            yield from ((f'plant{{variable="{name}"}}', second, cell) for name, cell in zip(NAMES, row, strict=True))

    def rows(self, times: np.ndarray, count: int) -> np.ndarray:
        """The values (time, variable) of the first variables."""
        found: np.ndarray = self.values[np.rint(times).astype(int) - self.start, :count]
        return found


def throughput(server: PrometheusServer, steps: int) -> str:
    """Steps of 25 variables a second, from the first request to the last score on disk."""
    from cometad.connect.address import Address
    from cometad.serve.models import StreamSettings
    from cometad.serve.service import Service
    from cometad.serve.settings import Settings

    with tempfile.TemporaryDirectory() as folder, closing(Service(Settings(data_dir=Path(folder)))) as service:
        service.start()
        service.detectors.add("plant", fitted()[0])
        stream, _ = service.put_stream("plant", StreamSettings(detector="plant"))
        options = {"back_fill": f"{steps}s"}
        begun = time.perf_counter()
        service.connect(
            [Address(f"prometheus+{server.url}", "plant", QUERIES, "1s", options=options)], lambda one: None
        )
        while stream.scoring.scored_seq < steps:
            time.sleep(0.005)
        count = stream.scoring.scored_seq
        service.recorder.flush()
        seconds = time.perf_counter() - begun
    return (
        f"back-fill, 25 queries: {count:,} steps in {seconds:.1f} s, {count / seconds:,.0f} a second to a stored score"
    )


def kills(server: PrometheusServer, samples: Samples, times: int, seed: int) -> tuple[str, list[str]]:
    """Kill the consumer, and compare what it left: a sentence, and the problems."""
    from cometad import Comet

    names, problems = NAMES[:3], list[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        detector = Comet().fit(pl.DataFrame(plant(1000, 0)[:, :3], schema=names))
        detector.save(folder / "plant.comet")
        tags = [f"--tag={one}={QUERIES[one]}" for one in names]
        options = ["--stream=plant", f"--detector={folder / 'plant.comet'}", "--period=1s", "--option=back_fill=11h"]
        consumer = Consumer(folder, f"prometheus+{server.url}", *tags, *options)
        consumer.kill_often(times, random.Random(seed))
        lines = consumer.finish()
        stored = _stored(folder / "data")
    ats = np.array([line["time"] for line in lines])
    if not (np.diff(ats) == 1).all():
        problems.append("Steps are missing or twice.")
    scored = detector.stream().update_many(pl.DataFrame(samples.rows(ats, 3), schema=names))
    wanted = np.column_stack([scored.alert_scores, scored.thresholds, scored.flags])
    found = np.array([[line["alert_score"], line["threshold"], line["anomaly"]] for line in lines])
    if not np.array_equal(found, wanted):
        problems.append("The lines are not those of an uninterrupted run.")
    if not (np.array_equal(stored[0], ats) and np.array_equal(stored[1], wanted)):
        problems.append("The stored scores are not those of an uninterrupted run.")
    return f"{times} kills of cometad connect; {len(lines):,} steps; {len(problems)} problems", problems


def _stored(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The times and scores that are on disk."""
    from cometad.serve.service import Service
    from cometad.serve.settings import Settings
    from cometad.serve.storage import schema
    from cometad.serve.storage.history import by_time

    with closing(Service(Settings(data_dir=folder))) as service:
        service.start()
        with service.store.read() as connection:
            rows = by_time(connection, schema.scores, service.stream("plant").id, 0, 1e12)
    return rows.ats, rows.cells.reshape(len(rows.ats), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    samples = Samples()
    with tempfile.TemporaryDirectory() as folder, PrometheusServer(Path(folder), samples) as server:
        if given.steps:
            print(throughput(server, given.steps), flush=True)
        if given.kills:
            sentence, problems = kills(server, samples, given.kills, given.seed)
            print(sentence, *problems, sep="\n", flush=True)
            sys.exit(bool(problems))


if __name__ == "__main__":
    main()

"""The real Prometheus for tests: with exact samples that promtool wrote, from two hours ago to half an hour ahead.

Samples that are ahead let a test go on live without a target to scrape: each step has the value it was given here.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from serve_case import NAMES, WAIT, faulty
from servers.program import Program

PAST, AHEAD = 7200, 1800  # seconds of samples
MANY = 10_000  # series of the metric `many`

Sample = tuple[str, float, float]  # series, seconds since 1970, value


class PrometheusServer(Program):
    """A Prometheus of Debian as a process, on a port of its own."""

    def __init__(self, folder: Path, samples: Iterable[Sample], *flags: str, lookback: str = "900ms") -> None:
        for program in ("prometheus", "promtool"):
            if shutil.which(program) is None:
                pytest.skip(f"There is no {program}: apt-get install prometheus")
        super().__init__(folder)
        # By default, a sample holds for its own second only.
        self.flags = [*flags, f"--query.lookback-delta={lookback}"]
        (folder / "prometheus.yml").write_text("global: {scrape_interval: 1s}\n")
        write_blocks(folder, samples)
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [
            "prometheus",
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=error",
            *self.flags,
        ]

    def is_ready(self) -> bool:
        return super().is_ready() and self.get("/-/ready").status_code == 200

    def get(self, path: str, **parameters: str | float) -> httpx.Response:
        """An answer of the server."""
        return httpx.get(f"{self.url}{path}", params=parameters, timeout=WAIT, trust_env=False)

    def at(self, query: str, seconds: float) -> list[dict]:
        """The series of a query at one time: the naive way to read a step."""
        return self.get("/api/v1/query", query=query, time=seconds).json()["data"]["result"]


def write_blocks(folder: Path, samples: Iterable[Sample]) -> None:
    """Write samples to the database of a server that is not running."""
    by_metric: dict[str, list[str]] = {}
    for series, at, value in samples:
        by_metric.setdefault(series.partition("{")[0], []).append(f"{series} {value!r} {at:.3f}")
    text = "".join(f"# TYPE {name} gauge\n" + "\n".join(lines) + "\n" for name, lines in by_metric.items())
    (folder / "samples.txt").write_text(f"{text}# EOF\n")
    subprocess.run(
        [
            "promtool",
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "--max-block-duration=1500h",  # hidden; blocks of two hours take a pass over the file each
            folder / "samples.txt",
            folder / "data",
        ],
        check=True,
        capture_output=True,
        timeout=WAIT,
    )


class Plant:
    """Samples of a plant, one a second: `plant` with a label `sensor`, and others that are odd."""

    def __init__(self) -> None:
        self.start = int(time.time()) - PAST
        self.values = faulty(PAST + AHEAD, seed=3)  # (second, variable)

    def samples(self) -> Iterable[Sample]:
        for second, row in enumerate(self.values.tolist()):
            at = self.start + second
            for name, value in zip(NAMES, row, strict=True):
                yield f'plant{{sensor="{name}",version="{"old" if second < PAST // 2 else "new"}"}}', at, value
                if not self.is_missing(name, second):
                    yield f'holes{{sensor="{name}"}}', at, value
            yield "odd", at, (float("nan"), float("inf"), float("-inf"), 1e200, 1.0)[second % 5]
        for number in range(MANY):
            yield f'many{{number="{number}"}}', self.start, 1.0

    def is_missing(self, name: str, second: int) -> bool:
        """Whether the metric `holes` has no sample."""
        return second % 50 == 20 or (name == "level" and second % 50 in (30, 31))

    def row(self, at: float) -> np.ndarray:
        """The values at a time."""
        return self.values[round(at) - self.start]


def web_samples(days: int = 15) -> Iterable[Sample]:
    """The metrics of a web server, one sample a minute; for half an hour, an hour ago, it was slow."""
    minutes, rng = days * 1440, np.random.default_rng(0)
    start = int(time.time()) // 60 * 60 - 60 * minutes
    minute = np.arange(minutes + 10)  # some of them ahead
    load = 1 + 0.5 * np.sin(2 * np.pi * minute / 1440)
    slow = (minute >= minutes - 90) & (minute < minutes - 60)
    noise = 1 + 0.05 * rng.normal(size=(4, len(minute)))
    requests = 6000 * load * noise[0]
    seconds = requests * 0.05 * (1 + load**2) * noise[1] * np.where(slow, 4, 1)
    idle = 60 * (1 - np.clip(0.3 * load * noise[2], 0, 1))
    counters = {
        'http_requests_total{code="200"}': 0.99 * requests,
        'http_requests_total{code="500"}': 0.01 * requests * noise[3],
        "http_request_duration_seconds_sum": seconds,
        "http_request_duration_seconds_count": requests,
        'node_cpu_seconds_total{mode="idle"}': idle,
    }
    for series, growth in counters.items():
        for at, value in zip((start + 60 * minute).tolist(), np.cumsum(growth).tolist(), strict=True):
            yield series, at, value


@contextmanager
def web_prometheus() -> Iterator[int]:
    """A Prometheus that has watched a web server for two weeks; gives its port."""
    with (
        tempfile.TemporaryDirectory() as folder,
        PrometheusServer(Path(folder), web_samples(), "--storage.tsdb.retention.time=90d", lookback="5m") as server,
    ):
        yield server.port

"""`cometad connect` in a process that is killed again and again; it is forked, so that it spends its time working."""

import json
import multiprocessing
import random
import time
from pathlib import Path

from serve_case import WAIT, until

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["cometad.serve.follow", "cometad.cli", "cometad.detectors", "cometad.connect.prometheus"]
)
PAGE = 20  # steps in a request, so that a kill comes between two pages or within one


class Consumer:
    """The command, with its lines in a file of the folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._lines, self._log = folder / "lines.jsonl", folder / "log.txt"
        self._arguments = ["connect", *arguments, f"--data-dir={folder / 'data'}", f"--output={self._lines}"]
        self._process = None

    def start(self) -> None:
        """Start it; returns once it has scored something new."""
        before = self._size()
        self._process = PROCESSES.Process(target=_consume, args=(self._arguments, self._log))
        self._process.start()
        until(lambda: self._size() > before or not self._process.is_alive())

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self._process.is_alive(), self._log.read_text()
        self._process.kill()
        self._process.join(WAIT)

    def kill_often(self, times: int, rng: random.Random) -> None:
        """Start it and kill it at a random moment, again and again."""
        for _ in range(times):
            self.start()
            time.sleep(rng.uniform(0, 0.2))
            self.kill()

    def finish(self) -> list[dict]:
        """Start it, let it catch up, and stop it; returns all lines that were ever written."""
        self.start()
        until(lambda: self._last_time() > time.time() - 4)
        self._process.terminate()
        self._process.join(WAIT)
        return [json.loads(line) for line in self._lines.read_text().splitlines()]

    def _size(self) -> int:
        return self._lines.stat().st_size if self._lines.exists() else 0

    def _last_time(self) -> float:
        return json.loads(self._lines.read_bytes()[-4096:].split(b"\n")[-2])["time"]


def _consume(arguments: list[str], log: Path) -> None:
    import sys

    from cometad.cli import main
    from cometad.connect import prometheus

    prometheus.MOST_STEPS = PAGE
    sys.stdout = sys.stderr = log.open("a")
    sys.exit(main(arguments))

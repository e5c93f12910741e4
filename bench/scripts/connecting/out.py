"""Messages about events, against a real receiver: what `kill -9` loses or invents, and what a dead receiver costs.

    python bench/scripts/connecting/out.py [--kills 100] [--seed 0]

For the kills, the service scores a plant with a fault in every 300 readings, and its receiver answers every other
request with 500; the service is killed at random moments and started again. At the end, each event must have been told
as opened and as closed, every message always with the same id. For the dead receiver, the same readings are scored
with no receiver, with one that refuses connections, and with one that never answers.
"""

import argparse
import logging
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("COMETAD_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
sys.path.extend([str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "tests")])

import httpx
import structlog

from serve_case import Server, as_readings, faulty, frame, in_process, plant, post, put, until, upload
from servers.webhook import hook

STREAM, PART = "pump", 50  # readings in a request


def detector(folder: Path) -> bytes:
    """A fitted detector, as it is uploaded."""
    from cometad import Budget, Comet

    Comet(threshold=Budget(rate=0.01)).fit(frame(plant(1500))).save(folder / "pump.comet")
    return (folder / "pump.comet").read_bytes()


def kills(folder: Path, times: int, seed: int) -> tuple[str, list[str]]:
    """Kill the service, and compare what the receiver was told: a sentence, and the problems."""
    chance = random.Random(seed)
    with hook() as receiver:
        (folder / "cometad.toml").write_text(f'[[notify]]\nname = "chat"\nurl = "{receiver.url}"\n')
        receiver.answers = [(200, 500)[chance.random() < 0.5] for _ in range(100_000)]
        with Server(folder, f"--config={folder / 'cometad.toml'}") as server:
            upload(server.client, STREAM, detector(folder))
            put(server.client, STREAM)
            first, kill_at = 0, time.monotonic() + chance.uniform(0.1, 1.5)
            readings = as_readings(faulty(500_000, every=300))
            while times:
                post(server.client, STREAM, readings[first : first + PART])
                first += PART
                if time.monotonic() > kill_at:
                    server.kill()
                    server.start()
                    times, kill_at = times - 1, time.monotonic() + chance.uniform(0.1, 1.5)
                time.sleep(0.02)
            receiver.answers = []
            events, deliveries = until(lambda: _done(server.client), 600)
    return _compared(receiver, events, deliveries)


def _done(client: httpx.Client) -> tuple[list[Any], list[Any]] | None:
    """All events and deliveries once no delivery waits; the lists of the API are bounded, so none may be longer."""
    if client.get("/v1/deliveries?state=waiting").json()["deliveries"]:
        return None
    events = client.get("/v1/events?limit=1000").json()["events"]
    return events, client.get("/v1/deliveries?limit=1000").json()["deliveries"]


def _compared(receiver: Any, events: Sequence[Any], deliveries: Sequence[Any]) -> tuple[str, list[str]]:
    told = [(one["event"], one["change"], one["id"]) for one in receiver.taken]
    wanted = {(one["event"], one["change"], one["message"]) for one in deliveries}
    changes = {(one["id"], "opened") for one in events} | {(one["id"], "closed") for one in events if one["closed_at"]}
    lost = len({(event, change) for event, change in changes} - {one[:2] for one in told})
    invented = len({one[:2] for one in told} - changes) + len(set(told) - wanted)
    ids = {one[:2]: {other[2] for other in told if other[:2] == one[:2]} for one in told}
    problems = [f"{lost} messages lost."] if lost else []
    problems += [f"{invented} messages invented."] if invented else []
    problems += ["A message came with two ids."] if any(len(found) > 1 for found in ids.values()) else []
    repeats = len(told) - len(set(told))
    return (
        f"{len(events)} events, {len(changes)} messages, {repeats} of them came again; {len(problems)} problems",
        problems,
    )


def dead(folder: Path) -> list[str]:
    """Readings a second to a stored score, with and without receivers that do not answer."""
    content, lines = detector(folder), []
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:  # connections wait, and nobody answers
        refusing = {"name": "refuses", "url": "webhook+http://127.0.0.1:9/"}
        silent = {"name": "silent", "url": f"webhook+http://127.0.0.1:{mute.getsockname()[1]}/", "timeout": 300}
        for name, receivers in (("none", []), ("refuses connections", [refusing]), ("never answers", [silent])) * 2:
            with in_process(folder / f"{name}-{len(lines)}", notify=receivers) as (service, client):
                upload(client, STREAM, content)
                put(client, STREAM)
                stream, readings = service.stream(STREAM), as_readings(faulty(30_000))
                begun = time.perf_counter()
                for first in range(0, len(readings), 1000):
                    post(client, STREAM, readings[first : first + 1000])
                until(lambda stream=stream: stream.scoring.scored_seq == 30_000)
                service.recorder.flush()
                seconds = time.perf_counter() - begun
            lines.append(f"receiver: {name}; {30_000 / seconds:,.0f} readings a second to a stored score")
    return lines


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(*dead(Path(folder)), sep="\n", flush=True)
    if given.kills:
        with tempfile.TemporaryDirectory() as folder:
            sentence, problems = kills(Path(folder), given.kills, given.seed)
        print(f"{given.kills} kills of cometad serve; {sentence}", *problems, sep="\n", flush=True)
        sys.exit(bool(problems))


if __name__ == "__main__":
    main()

"""Ray: the same function on the same tasks, on the processes of a cluster.

A task runs on one core. Ray retries it elsewhere if its process or its machine dies. Readings travel with the task, so
machines need no shared disk; at most two tasks per core are in flight.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cometad.errors import InputError, needs_extra
from cometad.fleet.engines import ATTEMPTS, TaskOutcome

REACH = 5.0  # seconds to wait for a cluster
AHEAD = 2  # tasks in flight per core


class RayEngine:
    """Runs tasks on a Ray cluster at `address`, or on one that it starts on this machine with `workers` cores.

    If this process is already connected to a cluster, that one is used.
    """

    same_disk = False

    def __init__(self, address: str | None = None, workers: int | None = None, attempts: int = ATTEMPTS) -> None:
        self._address, self._asked, self._attempts = address, workers, attempts
        self.workers = workers or 1  # known once it is connected

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[TaskOutcome]:
        ray = self._connected()
        cores = int(ray.cluster_resources().get("CPU", 1))
        self.workers = min(self._asked or cores, cores)
        remote = ray.remote(num_cpus=1, max_retries=self._attempts - 1)(_call).remote
        called = ray.put(function)
        running: dict[Any, int] = {}
        waiting = enumerate(tasks)
        try:
            while True:
                self._send(remote, called, waiting, running)
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                for reference in ready:
                    yield self._outcome(ray, reference, running.pop(reference))
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def _send(self, remote: Any, called: Any, waiting: Iterator[tuple[int, Any]], running: dict[Any, int]) -> None:
        while len(running) < AHEAD * self.workers:
            number, task = next(waiting, (-1, None))
            if number < 0:
                return
            running[remote(called, task)] = number

    def _outcome(self, ray: Any, reference: Any, number: int) -> TaskOutcome:
        try:
            return TaskOutcome(number, ray.get(reference))
        except ray.exceptions.RayTaskError as error:  # the function raised: a bug, or a class missing on a node
            raise error.as_instanceof_cause() from None
        except ray.exceptions.RayError as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            return TaskOutcome(number, None, f"All {self._attempts} attempts failed ({reason}).")

    def _connected(self) -> Any:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if self._address is not None:  # 30 s if something else listens at the address, not 20 times that
            os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
        ray = needs_extra("ray", "ray")
        if ray.is_initialized():
            return ray
        options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            ray.init("local", num_cpus=self._asked, _node_ip_address="127.0.0.1", **options)
            return ray
        check_reachable(self._address)
        del options["include_dashboard"]
        try:
            ray.init(self._address, **options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise unreachable(self._address, str(error)) from error
        return ray


def _call(function: Callable[[Any], Any], task: Any) -> Any:
    from cometad.fleet.local_engine import one_thread

    one_thread()
    return function(task)


def check_reachable(address: str) -> None:
    """Refuse an address where nobody listens, because Ray would retry for minutes."""
    if address in ("auto", "local"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise InputError(f"Cannot read the address {address!r}. Write it like 10.0.0.5:6379.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise unreachable(address, getattr(error, "strerror", None) or str(error)) from error


def unreachable(address: str, reason: str) -> InputError:
    first = reason.strip().partition("\n")[0].rstrip(".")
    return InputError(
        f"Cannot reach a Ray cluster at {address!r} ({first}). Check the address, or start one with ray start --head."
    )

"""Trials in processes of their own: their memory, their deaths, and the death of their parent."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cometad.compute import thread_count
from cometad.errors import InputError
from cometad_bench.isolation import isolated
from cometad_bench.runner import results_of, run
from cometad_bench.trial import attempt

LARGE = 200 * 2**20  # bytes
kept = []  # what a careless trial never frees


def allocate(plans):
    for plan in plans:
        yield plan | attempt(lambda plan=plan: kept.append(np.ones(plan["bytes"] // 8)) or {}, "cpu")


def die(how, plans):
    for plan in plans:
        if plan["arm"] == "fatal":
            how()
        yield plan | {"error": None, "process": os.getpid()}


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def complain():
    raise InputError("This series is too short. Use a longer one.")


def plans(*arms):
    return [{"arm": arm} for arm in arms]


def test_the_peak_of_a_trial_has_nothing_of_the_trial_before():
    large, small = (next(isolated(allocate, [{"arm": "pca", "bytes": size}], "cpu")) for size in (LARGE, 2**20))
    assert large["peak_bytes"] - large["start_bytes"] > 0.9 * LARGE
    assert small["peak_bytes"] - small["start_bytes"] < 0.2 * LARGE
    assert small["peak_bytes"] < large["peak_bytes"] - 0.8 * LARGE


def test_a_process_that_is_killed_fails_its_trial_and_the_rest_run_in_another():
    found = list(isolated(partial(die, kill_itself), plans("first", "fatal", "second", "third"), "cpu"))
    assert [record["arm"] for record in found] == ["first", "fatal", "second", "third"]
    killed = found.pop(1)
    assert killed["error"] == "The process of this trial was killed (SIGKILL), probably because memory ran out."
    assert killed["metrics"] is killed["peak_bytes"] is None
    assert killed["source"]
    assert [record["error"] for record in found] == [None] * 3
    assert found[0]["process"] != found[1]["process"] == found[2]["process"] != os.getpid()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (partial(os._exit, 3), "ended early, with exit code 3."),
        (partial(signal.raise_signal, signal.SIGTERM), "was ended by SIGTERM."),
    ],
    ids=["exit", "signal"],
)
def test_other_deaths_name_their_cause(how, words):
    (record,) = isolated(partial(die, how), plans("fatal"), "cpu")
    assert record["error"] == f"The process of this trial {words}"


def test_an_error_outside_of_a_trial_reaches_the_caller():
    with pytest.raises(InputError, match="Use a longer one"):
        list(isolated(partial(die, complain), plans("fatal"), "cpu"))


def count_threads(plans):
    for plan in plans:
        yield plan | {"threads": thread_count()}


@pytest.mark.parametrize("threads", [1, 3])
def test_a_process_has_the_threads_of_its_parent(threads, monkeypatch):
    monkeypatch.setenv("COMETAD_THREADS", str(threads))
    assert next(isolated(count_threads, plans("pca"), "cpu"))["threads"] == threads


def test_results_are_the_same_in_this_process_and_in_another(tmp_path):
    asked = {"datasets": ["plants"], "entities": ["seed-1"], "arms": ["comet", "hbos"]}
    own, other = tmp_path / "own", tmp_path / "other"
    run("validate", **asked, folder=own, isolate=False)
    run("validate", **asked, folder=other)
    here, there = ({line["arm"]: line for line in results_of("validate", folder).read()} for folder in (own, other))
    assert set(here) == set(there) == {"comet", "hbos"}
    for arm in here:
        assert here[arm]["metrics"] == there[arm]["metrics"]
        assert here[arm]["at_threshold"] == there[arm]["at_threshold"]


# Whatever asks for a GPU fails; a process that has asked cannot fork.
LOADING = """
import re
from pathlib import Path
import torch
import cometad_bench.trial

def refuse(*_, **__):
    raise AssertionError("the server asked for a GPU")

for name in ("is_available", "device_count", "current_device", "init", "_lazy_init", "synchronize"):
    setattr(torch.cuda, name, refuse)
threads = lambda: int(re.search(r"Threads:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = threads()
import cometad_bench.warm
print(threads() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_the_server_that_forks_asks_for_no_gpu_and_starts_no_thread():
    many = os.environ | dict.fromkeys(("COMETAD_THREADS", "OMP_NUM_THREADS"), "4")
    ended = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, timeout=150, env=many)
    assert (ended.stdout, ended.returncode) == ("0\n", 0), ended.stderr


# A script without the usual check of __name__: its processes must not run it again.
SCRIPT = """
import os, sys, time
from cometad_bench.isolation import isolated
sys.path.insert(0, {folder!r})
from test_isolation import sleep
for record in isolated(sleep, [{{"arm": "first"}}, {{"arm": "second"}}], "cpu"):
    print(record["process"], flush=True)
"""


def sleep(plans):
    yield plans[0] | {"process": os.getpid()}
    time.sleep(600)


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"  # a zombie
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_its_parent(how, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent)))
    # With SIGINT ignored, as in a background job, Python would not raise KeyboardInterrupt.
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as parent:
        child = int(parent.stdout.readline())
        assert is_running(child)
        deadline = time.monotonic() + 60
        while parent.poll() is None and time.monotonic() < deadline:
            parent.send_signal(how)  # Python drops a KeyboardInterrupt that comes in a callback of the collector
            time.sleep(1)
        ended = parent.poll() is not None
        parent.kill()
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ended
    assert not is_running(child)

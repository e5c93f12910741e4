"""Detectors for the tests of the service, fitted once, and a PostgreSQL server that the tests start themselves."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from cometad import Budget, Comet, load
from cometad.data import ForwardFill
from serve_case import frame, in_process, plant, upload


@pytest.fixture(scope="session")
def pump(tmp_path_factory):
    """A fitted detector, and the file it was saved to."""
    file = tmp_path_factory.mktemp("detectors") / "pump.comet"
    Comet(threshold=Budget(rate=0.01)).fit(frame(plant(1500))).save(file)
    return load(file), file.read_bytes()


@pytest.fixture(scope="session")
def gappy(tmp_path_factory):
    """A fitted detector with a gap rule, and the file it was saved to."""
    file = tmp_path_factory.mktemp("detectors") / "gappy.comet"
    Comet(threshold=Budget(rate=0.01), gaps=ForwardFill(3)).fit(frame(plant(1500))).save(file)
    return load(file), file.read_bytes()


@pytest.fixture(scope="module")
def running(tmp_path_factory, pump, gappy):
    """One service for tests that use streams of their own."""
    with in_process(tmp_path_factory.mktemp("data")) as (service, client):
        upload(client, "pump", pump[1])
        upload(client, "gappy", gappy[1])
        yield service, client


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A real PostgreSQL server; gives the URL of a new database at each call."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    as_root = os.geteuid() == 0
    if as_root and shutil.which("runuser") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no runuser.")
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True, timeout=10).strip())  # a path short enough
    if as_root:
        shutil.chown(folder, "postgres")
    prefix = ["runuser", "-u", "postgres", "--"] if as_root else []

    def run(program, *flags):
        subprocess.run(
            [*prefix, str(programs / program), *flags], check=True, capture_output=True, timeout=60, cwd=folder
        )

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / "data"
    run("initdb", "-D", str(data), "-A", "trust", "-U", "cometad", "--no-sync", "-E", "UTF8", "--no-locale")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run("pg_ctl", "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start")
    count = iter(range(1000))

    def new_database():
        name = f"test{next(count)}"
        run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "cometad", name)
        return f"postgresql://cometad@127.0.0.1:{port}/{name}"

    yield new_database
    run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder)

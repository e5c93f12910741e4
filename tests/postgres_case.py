"""A PostgreSQL server that tests and benchmarks start themselves."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest


@contextmanager
def postgres_server() -> Iterator[Callable[..., str]]:
    """A real PostgreSQL server; gives the URL of a new database at each call. Raises `LookupError` without one."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    if programs is None:
        raise LookupError("PostgreSQL is not installed: apt-get install postgresql")
    as_root = os.geteuid() == 0
    if as_root and shutil.which("runuser") is None:
        raise LookupError("PostgreSQL does not run as root, and there is no runuser.")
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True, timeout=10).strip())  # a path short enough
    if as_root:
        shutil.chown(folder, "postgres")
    prefix = ["runuser", "-u", "postgres", "--"] if as_root else []

    def run(program: str, *flags: str) -> None:
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

    def new_database(name: str | None = None) -> str:
        name = name or f"test{next(count)}"
        run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "cometad", name)
        return f"postgresql://cometad@127.0.0.1:{port}/{name}"

    try:
        yield new_database
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


@contextmanager
def page_postgres() -> Iterator[int]:
    """A server with a database `cometad` for a page of the docs; gives its port, and skips the test without one."""
    with ExitStack() as stack:
        try:
            new_database = stack.enter_context(postgres_server())
        except LookupError as error:
            pytest.skip(str(error))
        yield int(new_database("cometad").rpartition(":")[2].partition("/")[0])


@pytest.fixture(scope="session")
def postgres():
    """A real PostgreSQL server; gives the URL of a new database at each call."""
    server = postgres_server()
    try:
        new_database = server.__enter__()
    except LookupError as error:
        pytest.skip(str(error))
    yield new_database
    server.__exit__(None, None, None)

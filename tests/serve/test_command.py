"""`cometad serve` on the command line: what cannot work ends with code 2 and one sentence."""

import logging
import os
import socket
import subprocess
import sys

import pytest
import structlog
from typer.testing import CliRunner

from cometad.cli.verbs import app
from cometad.serve.models import BudgetOf
from cometad.serve.settings import load_settings
from cometad.serve.storage.store import FILE, Store
from contract import is_a_sentence


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder to work in; logs are as before afterwards."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    structlog.reset_defaults()
    logging.getLogger("uvicorn").handlers = []


@pytest.fixture
def taken():
    """A port that something else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield str(other.getsockname()[1])


def serve(*flags):
    return CliRunner().invoke(app, ["serve", *flags])


def refused(*flags):
    """What the command says when it refuses to start."""
    run = serve(*flags)
    assert run.exit_code == 2, run.output
    said = run.stderr.strip().splitlines()[-1]
    assert "Traceback" not in run.stderr
    assert is_a_sentence(said.removeprefix("cometad: ")), said
    return said


def test_a_check_says_what_it_would_do(here):
    run = serve("--check")
    assert run.exit_code == 0
    sentences = run.stdout.strip().splitlines()
    assert "http://127.0.0.1:8080" in sentences[0]
    assert "from this machine only, because there is no token" in sentences[0]
    assert "'cometad-data' (format 3): 0 detectors and 0 streams" in sentences[1]
    assert all(is_a_sentence(sentence) for sentence in sentences)


def test_flags_come_before_the_environment_and_that_before_the_file(here, monkeypatch):
    (here / "cometad.toml").write_text('[serve]\nport = 1111\nhost = "127.0.0.2"\nkeep_readings_days = 7\n')
    assert "http://127.0.0.2:1111" in serve("--check").stdout
    assert "after 7 days" in serve("--check").stdout
    monkeypatch.setenv("COMETAD_SERVE_PORT", "2222")
    assert "http://127.0.0.2:2222" in serve("--check").stdout
    assert "http://127.0.0.2:3333" in serve("--check", "--port=3333").stdout
    other = here / "other.toml"
    other.write_text("[serve]\nport = 4444\n")
    monkeypatch.delenv("COMETAD_SERVE_PORT")
    assert "http://127.0.0.1:4444" in serve("--check", f"--config={other}").stdout


@pytest.mark.parametrize(
    "text",
    [
        *("[serve", "[serve]\nport = 'many'", "[serve]\ncolor = 1", "serve = 3", "[serve]\nport = -1", "\x00"),
        *("port = 1111", "[server]\nport = 1111"),
    ],
)
def test_a_bad_file_of_settings_is_refused(here, text):
    (here / "cometad.toml").write_text(text)
    refused("--check")
    refused()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "many"),
        ("ALERTS", "3/week"),
        ("PORT", "70000"),
        ("LOG_FORMAT", "xml"),
        ("KEEP_GIGABYTES", "0"),
        ("DATABASE", "mysql://host/name"),
    ],
)
def test_a_bad_environment_variable_is_refused(monkeypatch, name, value):
    monkeypatch.setenv(f"COMETAD_SERVE_{name}", value)
    refused("--check")


def test_what_flags_ask_for_is_refused_if_it_cannot_work(here, taken):
    assert "port" in refused("--port=70000")
    assert "use" in refused(f"--port={taken}")
    refused("--config=nothing.toml")
    refused("--log-format=xml")
    (here / "file").write_text("")
    assert "folder" in refused("--data-dir=file/below")
    assert "folder" in refused("--data-dir=file")
    refused("--database=postgresql://nobody:secret-word@127.0.0.1:1/none")
    assert "secret-word" not in refused("--database=postgresql://nobody:secret-word@127.0.0.1:1/none", "--check")
    refused("--database=what is this")


@pytest.mark.parametrize("source", ["file", "environment"])
def test_streams_that_name_no_budget_have_that_of_the_settings(here, monkeypatch, source):
    if source == "environment":
        monkeypatch.setenv("COMETAD_SERVE_ALERTS", "2/1000")
    else:
        (here / "cometad.toml").write_text('[serve]\nalerts = "2/1000"\n')
    assert load_settings(None).alerts == BudgetOf(alerts=2)


def test_a_misspelled_environment_variable_is_refused(monkeypatch):
    monkeypatch.setenv("COMETAD_SERVE_PRT", "8081")
    assert "Did you mean COMETAD_SERVE_PORT?" in refused("--check")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_in_the_log_shows_no_values(form):
    code = (
        "import logging, sys, structlog\n"
        "from cometad.serve.logs import configure_logs\n"
        "configure_logs(sys.argv[1])\n"
        "def fail(secret):\n"
        "    try:\n"
        "        1 / 0\n"
        "    except ZeroDivisionError:\n"
        "        structlog.get_logger('cometad.serve').exception('failed')\n"
        "        logging.getLogger('uvicorn.error').exception('failed')\n"
        "fail('cmt_' + 'hidden' * 3)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, form], capture_output=True, text=True, timeout=60, check=True)
    assert run.stderr.count("ZeroDivisionError") >= 2
    assert "hiddenhidden" not in run.stderr


def test_two_services_do_not_share_a_folder(here):
    store = Store.in_folder(here / "cometad-data")
    store.claim()
    assert "Another service uses" in refused("--port=0")
    assert serve("--check").exit_code == 0
    assert CliRunner().invoke(app, ["token", "list"]).exit_code == 0
    store.close()
    again = Store.in_folder(here / "cometad-data")
    again.claim()
    again.close()


@pytest.mark.parametrize("flags", [[], ["--check"]])
def test_listening_beyond_this_machine_needs_a_token(flags):
    said = refused("--host=0.0.0.0", *flags)
    assert "Create a token with cometad token create" in said


def test_a_damaged_database_is_refused(here):
    folder = here / "cometad-data"
    folder.mkdir()
    (folder / FILE).write_bytes(b"This is no database at all. " * 400)
    assert "database" in refused("--check")
    assert "database" in refused()
    run = CliRunner().invoke(app, ["token", "list"])
    assert run.exit_code == 2
    assert is_a_sentence(run.stderr.strip().removeprefix("cometad: "))


def test_a_database_that_is_a_folder_is_refused(here):
    (here / "cometad-data" / FILE).mkdir(parents=True)
    assert "database" in refused("--check")


def test_data_of_a_newer_format_is_refused(here):
    store = Store.in_folder(here / "cometad-data")
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '99'")
    store.close()
    assert "Upgrade cometad." in refused()


def test_the_command_ends_with_its_code_as_a_process_too(taken):
    command = [sys.executable, "-m", "cometad", "serve", f"--port={taken}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert run.returncode == 2
    said = run.stderr.strip().splitlines()
    assert len(said) <= 2
    assert said[-1].startswith("cometad: Cannot listen on 127.0.0.1:")
    assert said[-1].endswith("Choose another with --port.")

"""`cometad serve` on the command line: what cannot work ends with code 2 and one sentence."""

import logging
import os
import signal
import socket
import subprocess
import sys

import pytest
import structlog
from typer.testing import CliRunner

from cometad.cli.verbs import app
from cometad.errors import ParameterError
from cometad.serve.models import BudgetOf
from cometad.serve.server import run
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


def test_a_signal_that_answers_the_first_line_stops_the_service(here, monkeypatch):
    # A program that starts the service reads "listening" and may stop it in the same instant.
    def unhandled(number, frame):
        pytest.fail("the service says that it listens before it handles signals")

    before = signal.signal(signal.SIGTERM, unhandled)
    try:
        run(load_settings(None, port=0), say=lambda sentence: signal.raise_signal(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)


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
    ("text", "words"),
    [
        ("serve = 3", "serve is not a table. Write [serve] above its settings"),
        ("[serve]\nport = -1", "'port': Input should be greater than"),
        ("\x00", "it is written in TOML"),
        ("[server]\nport = 1111", "Unknown table in '{file}' 'server'"),
        ('[serve]\npublic_url = "plant"', "'public_url'"),
        ('[connect]\nurl = "mqtt://plant/x"', "Write [[connect]] above each"),
        ('[[connect]]\nstream = "pump"', "'connect.0.url'"),
        ('[[connect]]\nurl = "mqtt://plant/x"\nstreem = "pump"', "'connect.0.streem': it is not known"),
        ('[notify]\nname = "a"', "Write [[notify]] above each"),
        ('[[notify]]\nname = "a"', "give either url or url_variable"),
        ('[[notify]]\nname = "a"\nurl = "webhook+http://a/"\nstream = "b"', "'notify.0.stream': it is not known"),
        ('[[notify]]\nname = "a"\nurl = "webhook+http://a/"\nmin_severity = 3', "less than or equal to 1"),
    ],
)
def test_a_bad_file_of_settings_is_refused(here, text, words):
    file = here / "cometad.toml"
    file.write_text(text)
    with pytest.raises(ParameterError) as caught:
        load_settings()
    assert is_a_sentence(str(caught.value))
    assert words.format(file=file.name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "many"), ("ALERTS", "3/week"), ("KEEP_GIGABYTES", "0"), ("DATABASE", "mysql://host/name"), ("PRT", "80")],
)
def test_a_bad_environment_variable_is_refused(monkeypatch, name, value):
    monkeypatch.setenv(f"COMETAD_SERVE_{name}", value)
    assert name != "PRT" or "Did you mean COMETAD_SERVE_PORT?" in refused("--check")
    refused("--check")


def test_what_flags_ask_for_is_refused_if_it_cannot_work(here, taken):
    assert "use" in refused(f"--port={taken}")
    (here / "file").write_text("")
    assert "folder" in refused("--data-dir=file/below")
    assert "folder" in refused("--data-dir=file")
    for flags in ([], ["--check"]):
        assert "secret-word" not in refused("--database=postgresql://nobody:secret-word@127.0.0.1:1/none", *flags)
    refused("--database=what is this")


@pytest.mark.parametrize("source", ["file", "environment"])
def test_streams_that_name_no_budget_have_that_of_the_settings(here, monkeypatch, source):
    if source == "environment":
        monkeypatch.setenv("COMETAD_SERVE_ALERTS", "2/1000")
    else:
        (here / "cometad.toml").write_text('[serve]\nalerts = "2/1000"\n')
    assert load_settings(None).alerts == BudgetOf(alerts=2)


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
    (here / "cometad-data").mkdir()
    (here / "cometad-data" / FILE).write_bytes(b"This is no database at all. " * 400)
    (here / "folder" / FILE).mkdir(parents=True)
    for flags in (["--check"], [], ["--check", "--data-dir=folder"]):
        assert "database" in refused(*flags)
    assert CliRunner().invoke(app, ["token", "list"]).exit_code == 2


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

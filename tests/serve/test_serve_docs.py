"""The pages about the service name every setting, metric and route, with the defaults and bounds of the code."""

import re
import tomllib
from configparser import RawConfigParser
from pathlib import Path

import pytest

from cometad.cli import main
from cometad.serve.api.app import make_app
from cometad.serve.service import Service
from cometad.serve.settings import LISTS, PREFIX, Settings, load_settings

DOCS = Path(__file__).parents[2] / "docs"
OPERATIONS = (DOCS / "operations.md").read_text()
API = (DOCS / "api" / "service.md").read_text()


@pytest.fixture
def service(tmp_path):
    found = Service(Settings(data_dir=tmp_path))
    yield found
    found.close()


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its header."""
    below = page.split(f"## {heading}\n")[1]
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert lines is not None
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in lines[0].splitlines()[2:]]


def shown(default: object) -> str:
    if default is None:
        return "none"
    return f"{default:g}" if isinstance(default, float) else str(default)


def test_the_settings_of_the_page_are_those_of_the_service(capsys):
    assert main(["serve", "--help"]) == 0
    usage = capsys.readouterr().out
    rows = {row[0].strip("`"): row[1:] for row in rows_of(OPERATIONS, "Settings")}
    assert list(rows) == [name for name in Settings.model_fields if name not in LISTS]
    for name, (default, flag, variable, meaning) in rows.items():
        assert default.strip("`") == shown(Settings.model_fields[name].default), name
        assert variable == f"`{PREFIX}{name.upper()}`"
        expected = "--" + name.replace("_", "-")
        assert (flag == f"`{expected}`") == (f"{expected} " in usage), name
        assert meaning


def test_the_example_file_can_be_used(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", OPERATIONS, re.DOTALL)
    file = tmp_path / "cometad.toml"
    file.write_text(text)
    settings = load_settings(file)
    for name, value in tomllib.loads(text)["serve"].items():
        found = getattr(settings, name)
        assert found == type(found)(value)


def test_every_metric_is_explained(service):
    names = re.findall(r"^# TYPE (\w+)", service.figures.page().decode(), re.MULTILINE)
    explained = [row[0].strip("`") for row in rows_of(OPERATIONS, "Metrics")]
    assert sorted(explained) == sorted(name for name in names if not name.endswith("_created"))


def test_every_route_is_listed(service):
    listed = set(re.findall(r"`((?:GET|PUT|POST|DELETE) /\S*)`", API.split("## Tokens")[0]))
    paths = make_app(service).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert listed == routes | {"GET /"}


def test_every_log_line_is_explained():
    explained = set(re.findall(r"`([a-z ]+)`", OPERATIONS.split("## Logs")[1].split("## ")[0]))
    source = "".join(path.read_text() for path in (DOCS.parent / "src" / "cometad" / "serve").rglob("*.py"))
    logged = set(re.findall(r'_log\.\w+\(\s*"([^"]+)"', source))
    assert logged <= explained


def test_the_unit_runs_the_command_as_its_own_user():
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DOCS / "cometad.service")
    service = unit["Service"]
    assert service["User"] == "cometad"
    words = service["ExecStart"].split()
    assert words[1] == "serve"
    assert set(words[2::2]) <= {"--config", "--data-dir", "--log-format"}
    assert "MemoryDenyWriteExecute" not in service, "kernels are compiled at run time"

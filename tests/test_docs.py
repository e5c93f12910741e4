"""Every code block of README.md and docs/ runs. The blocks of a page share one namespace and one folder, in order.

A `python` block with >>> is a doctest; one without is executed, and an `output` block right after it must equal what it
printed. In a `console` block, lines after "$ " are run, and the lines below must appear in their output in that order;
in an `sh` block every line is run. Commands are `cometad ...` and the few in `PLAIN`, with pipes and redirections, and
those in `SHELL`, which bash runs. HTML comments hide what readers do not need: <!-- run first --> holds Python that
prepares data, <!-- not run: reason --> skips the block below it, and <!-- write: name --> writes that block to a file.

`cometad serve` starts the real service on a free port, which replaces 8080 in the blocks of that page. It runs until
the page ends or starts it again; with `--port 8081`, a second one runs beside it. A page that names an address in
`SERVERS` gets that server, on a port of its own.
"""

import ast
import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from cometad.alerting.thresholds import THRESHOLDS
from cometad.baselines import BASELINES
from cometad.cli import main
from cometad.metrics import METRICS
from cometad_bench.datasets.readers import READERS
from postgres_case import page_postgres
from servers.mosquitto import plant_broker
from servers.nats import page_nats
from servers.opcua import plant_server
from servers.program import Program
from servers.prometheus import web_prometheus

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "bench").glob("*.md"))]
PLAIN = ("cat", "head", "tail")
SHELL = ("curl", "export", "sqlite3")
SENDS = ("-X", "-T", "--json", "--data-binary")  # options of curl that change something: not to be repeated
RUN = ("python", "console", "sh", "output")
DIRECTIVES = ("{eval-rst}", "{include} ../CHANGELOG.md", "{literalinclude} cometad.service", "{toctree}")  # for Sphinx
FILES = ("json", "nginx", "text", "toml", "yaml")  # shown, not run; tests/serve/test_serve_docs.py reads some of them
ADDRESSES = ("127.0.0.1:8080", "127.0.0.1:8081")  # of the service, and of a second process
SERVERS = {
    "127.0.0.1:9090": web_prometheus,
    "127.0.0.1:1883": plant_broker,
    "127.0.0.1:4840": plant_server,
    "127.0.0.1:4222": page_nats,
    "127.0.0.1:5432": page_postgres,
}
PATIENCE = 60  # seconds for the service to say or do something
TABLES = (BASELINES, METRICS, READERS, THRESHOLDS)  # rows that a page adds are removed again
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

BLOCK = re.compile(
    r"^<!-- run first\n(?P<first>.*?)^-->$"
    r"|(?:^<!-- not run:(?P<reason>[^\n]*)-->\s*)?(?:^<!-- write: (?P<file>[\w.-]+) -->\s*)?"
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    line: int
    language: str
    text: str
    reason: str | None  # why it is not run
    file: str | None = None  # where it is written


def blocks(page: Path) -> Iterator[Block]:
    content = page.read_text()
    for match in BLOCK.finditer(content):
        group = "text" if match["first"] is None else "first"
        line = content.count("\n", 0, match.start(group)) + 1
        indent = len(match["indent"] or "")
        text = "".join(part[indent:] or "\n" for part in match[group].splitlines(keepends=True))
        language = "python" if match["first"] is not None else match["language"]
        yield Block(line, language, text, match["reason"], match["file"])


def run_python(block: Block, page: Path, names: dict[str, Any]) -> str:
    """Run a block and return what it printed."""
    if ">>>" not in block.text:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
        return printed.getvalue()
    test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line - 1)
    test.globs = names  # not a copy: later blocks use it
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=failures.append, clear_globs=False)
    assert not failures, "".join(failures)
    return ""


class Service(Program):
    """The service that a page starts; it is stopped at the end of the page, or before the next one starts."""

    end = signal.SIGTERM
    words: Sequence[str] = ()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def command(self) -> list[str]:
        return [sys.executable, "-m", "cometad", *self.words]

    def is_ready(self) -> bool:
        return "listening" in self.log

    def restart(self, words: list[str]) -> None:
        self.stop()
        (self.folder / "log").unlink(missing_ok=True)
        self.words = words
        self.start()

    def stop(self) -> None:
        process = self.process
        super().stop()
        assert process is None or process.returncode == 0, self.log


Services = tuple[Service, Service]  # the second beside the first


def run_commands(block: Block, services: Services) -> None:
    console = block.language == "console"
    command, expected = "", []
    text = re.sub(r" *\\\n *", " ", block.text)  # a line that goes on
    for line in [*text.splitlines(), "$ " if console else ""]:
        if console and not line.startswith("$ "):
            expected.append(line)
            continue
        if command:
            lines = (".*".join(map(re.escape, wanted.split("..."))) for wanted in expected)
            pattern = "(?:.*\n)*?".join(rf"^{wanted} *\n" for wanted in lines)
            printed = run_command(command, services)
            until = time.monotonic() + PATIENCE
            while not re.search(pattern, printed, re.MULTILINE):
                asks = command.startswith("curl ") and not any(f" {word} " in command for word in SENDS)
                assert asks, printed
                assert time.monotonic() < until, printed
                time.sleep(0.2)  # what was sent may not be scored yet
                printed = run_command(command, services)
        command, expected = line.removeprefix("$ "), []


def run_shell(line: str) -> str:
    """Run a line in bash, return what it printed, and keep what it exports."""
    program = line.split()[0]
    if program != "export" and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    assigned = re.match(r"export (\w+)=", line)
    if assigned:
        line += f'; printf %s "${assigned[1]}"'
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{line}: {done.stderr}"
    if assigned:
        os.environ[assigned[1]] = done.stdout
    return done.stdout if done.stdout.endswith("\n") else f"{done.stdout}\n"


def run_command(line: str, services: Services) -> str:
    """Run a line of the shell and return what it printed."""
    if line.split()[0] in SHELL:
        return run_shell(line)
    if line.startswith("cometad serve") and "--check" not in line:
        service = services[f"--port {services[1].port}" in line]
        service.restart(shlex.split(line, comments=True)[1:])
        return service.log
    written = messages = ""
    for part in line.split(" | "):
        words = shlex.split(part, comments=True)
        target = source = None
        if ">" in words:
            *words, _, target = words
        if "<" in words:
            *words, _, source = words
        given = written if source is None else Path(source).read_text()
        written, errors = run_program(words, given)
        messages += errors
        if target is not None:
            Path(target).write_text(written)
            written = ""
    return messages + written


def run_program(words: list[str], given: str) -> tuple[str, str]:
    """Run a program and return what it wrote to stdout and stderr."""
    if words[0] != "cometad":
        assert words[0] in PLAIN, f"Cannot run {words[0]}: put <!-- not run: reason --> before its block"
        once = [word for word in words if word != "-f"]  # no file grows here
        return subprocess.run(once, input=given, capture_output=True, text=True, check=True, timeout=60).stdout, ""
    output, errors = io.StringIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), mock.patch("sys.stdin", stdin):
        code = main(words[1:])
    assert code == 0, f"{shlex.join(words)}: {errors.getvalue()}"
    return output.getvalue(), errors.getvalue()


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_has_a_known_language(page):
    content = page.read_text()
    for block in blocks(page):
        assert block.language in (*RUN, *DIRECTIVES, *FILES), f"{name(page)}:{block.line}"
        if block.reason is not None:
            assert len(block.reason.split()) > 1, f"{name(page)}:{block.line} does not give a reason"
            assert block.language in RUN, f"{name(page)}:{block.line} would not run anyway"
    outside = BLOCK.sub("", content)
    assert not re.search(r"```|~~~|<!-- (run|not run|write)", outside), "a block or a comment that was not recognized"
    assert not re.search(r"^\s*$\n^(    |\t)(?! *[-*\d])", outside, re.MULTILINE), "an indented block: fence it"


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    """Pages that start servers are left to `make test-all`."""
    content = page.read_text()
    return [pytest.mark.servers] if "cometad serve" in content or any(each in content for each in SERVERS) else []


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=name(page), marks=marks_of(page)) for page in PAGES if any(blocks(page))]
)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize(
    "block",
    [
        "```python\n>>> 1 + 1\n3\n```\n",
        "```python\nassert False\n```\n",
        "```python\nprint(1)\n```\n\n```output\n2\n```\n",
        "```console\n$ cometad --version\ncometad 9\n```\n",
        "```sh\ncometad score no.comet no.csv\n```\n",
        "```sh\nrm no.csv\n```\n",
    ],
)
def test_a_wrong_block_fails(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(block)
    with pytest.raises(AssertionError):
        run_page(page)


def run_page(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.ExitStack() as kept:
        for table in (*TABLES, os.environ):
            kept.enter_context(mock.patch.dict(table))
        services = Service(Path(".serve-1")), Service(Path(".serve-2"))
        os.environ["COMETAD_SERVE_PORT"] = str(services[0].port)
        for service in services:
            kept.callback(service.stop)
        ports = {address: service.port for address, service in zip(ADDRESSES, services, strict=True)}
        ports |= {one: kept.enter_context(run()) for one, run in SERVERS.items() if one in page.read_text()}
        printed = ""
        for found in blocks(page):
            text = found.text
            for address, port in ports.items():
                text = text.replace(address, f"127.0.0.1:{port}")
            text = text.replace("--port 8081", f"--port {services[1].port}")
            block = found._replace(text=text)
            if block.file is not None:
                Path(block.file).write_text(text)
            if block.reason is not None or block.language not in RUN:
                continue
            if block.language == "output":
                assert printed == block.text, f"{page.name}:{block.line} does not show what was printed:\n{printed}"
            elif block.language == "python":
                printed = run_python(block, page, names)
            else:
                run_commands(block, services)


def test_the_site_builds_offline_without_a_warning(tmp_path):
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--doctree-dir", str(tmp_path / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(tmp_path / "site")]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert built.returncode == 0, built.stdout + built.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        remote = re.findall(
            r"<(?:script|img|iframe)[^>]* src=.?https?:[^>]*|<link[^>]* href=.?https?:[^>]*", page.read_text()
        )
        assert not remote, f"{page.name}: {remote[0]}"


def test_few_blocks_are_skipped():
    every = [block for page in PAGES for block in blocks(page) if block.language in RUN]
    assert sum(block.reason is not None for block in every) < len(every) / 4


def defined(path: Path) -> set[str]:
    """Functions and classes of a module, methods as `Class.method`."""
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = {node.name for node in tree.body if isinstance(node, kinds)}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return found | {f"{kind.name}.{node.name}" for kind in classes for node in kind.body if isinstance(node, kinds)}


@pytest.mark.parametrize("page", ["trace.md", "notation.md", "extend.md", "architecture.md"])
def test_every_function_named_with_its_file_exists(page):
    content = (ROOT / "docs" / page).read_text()
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", content)
    assert named
    for file, function in named:
        path = ROOT / "src" / "cometad" / file
        assert path.is_file(), f"{page} names {file}"
        assert function in defined(path), f"{page} names {file}:{function}"


def test_every_file_named_in_a_page_exists():
    for page in PAGES:
        for file in re.findall(r"`((?:tests|bench|docs)/[\w/.-]+\.\w+)`", page.read_text()):
            assert (ROOT / file).exists(), f"{name(page)} names {file}"


def section(title: str) -> str:
    """The text below a heading of the architecture page."""
    return (ROOT / "docs" / "architecture.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def test_the_architecture_page_lists_every_module_and_package():
    shown = set(re.findall(r"^  ([\w.]+)/?  ", section("The tree"), re.MULTILINE))
    package = ROOT / "src" / "cometad"
    assert shown == {path.name for path in package.iterdir() if not path.name.startswith("__")} - {"py.typed"}


def test_the_layers_of_the_architecture_page_are_the_import_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract, _ = settings["tool"]["importlinter"]["contracts"]
    (block,) = re.findall(r"^```text\n(.*?)^```$", section("The layers"), re.MULTILINE | re.DOTALL)
    assert block.splitlines() == contract["layers"]


def test_the_readme_is_short():
    before_links = (ROOT / "README.md").read_text().split("## Learn more")[0]
    assert len(before_links.split()) < 400
    example = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    assert len(list(filter(str.strip, example.text.splitlines()))) == 6

"""Every code block of README.md and of docs/ runs: those of one page in their order, in one namespace and one folder.

A `python` block with >>> is a doctest, one without is executed. Of `console` the lines after "$ " are run, and the
lines below them must come in their output, in this order; of `sh` every line is run. Commands are `cometad ...` and the
few in `PLAIN`, joined by pipes and redirections. What readers do not need to see stands in HTML comments: <!-- run
first --> holds Python that prepares data, <!-- not run: reason --> leaves out the block below it. A fit whose size a
page leaves open (`Comet()`, `cometad fit` without --steps) is a small one here.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from cometad.alerting.thresholds import THRESHOLDS
from cometad.baselines import BASELINES
from cometad.cli import main
from cometad.datasets.readers import READERS
from cometad.metrics import METRICS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLAIN = ("cat", "head", "tail")
TABLES = (BASELINES, METRICS, READERS, THRESHOLDS)  # a page may add a row, for itself
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

BLOCK = re.compile(
    r"^<!-- run first\n(?P<first>.*?)^-->$"
    r"|(?:^<!-- not run:(?P<reason>[^\n]*)-->\s*)?"
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    line: int
    language: str
    text: str
    reason: str | None  # why it is not run


def blocks(page: Path) -> Iterator[Block]:
    content = page.read_text()
    for match in BLOCK.finditer(content):
        group = "text" if match["first"] is None else "first"
        line = content.count("\n", 0, match.start(group)) + 1
        indent = len(match["indent"] or "")
        text = "".join(part[indent:] or "\n" for part in match[group].splitlines(keepends=True))
        yield Block(line, "python" if match["first"] is not None else match["language"], text, match["reason"])


def run_python(block: Block, page: Path, names: dict[str, Any]) -> None:
    if ">>>" not in block.text:
        exec(compile("\n" * (block.line - 1) + small(block.text), str(page), "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line - 1)
    test.globs = names  # not a copy: later blocks go on with it
    told: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=told.append, clear_globs=False)
    assert not told, "".join(told)


def run_commands(block: Block) -> None:
    console = block.language == "console"
    command, expected = "", []
    for line in [*block.text.splitlines(), "$ " if console else ""]:
        if console and not line.startswith("$ "):
            expected.append(line)
            continue
        if command:
            printed = run_command(command)
            lines = (".*".join(map(re.escape, wanted.split("..."))) for wanted in expected)
            pattern = "(?:.*\n)*?".join(rf"^{wanted} *\n" for wanted in lines)
            assert re.search(pattern, printed, re.MULTILINE), printed
        command, expected = line.removeprefix("$ "), []


def run_command(line: str) -> str:
    """What a line of the shell prints."""
    written = said = ""
    for part in line.split(" | "):
        words = shlex.split(part, comments=True)
        target = source = None
        if ">" in words:
            *words, _, target = words
        if "<" in words:
            *words, _, source = words
        given = written if source is None else Path(source).read_text()
        written, errors = run_program(words, given)
        said += errors
        if target is not None:
            Path(target).write_text(written)
            written = ""
    return said + written


def run_program(words: list[str], given: str) -> tuple[str, str]:
    """What a program writes to both of its outputs."""
    if words[0] != "cometad":
        assert words[0] in PLAIN, f"{words[0]} is not run here: put <!-- not run: reason --> before its block"
        still = [word for word in words if word != "-f"]  # no file grows here
        return subprocess.run(still, input=given, capture_output=True, text=True, check=True).stdout, ""
    if words[1] == "fit" and "--steps" not in words and "--detector" not in words:
        words = [*words, "--steps", "5", "--set", "codebook_size=32"]
    output, errors = io.StringIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), mock.patch("sys.stdin", stdin):
        code = main(words[1:])
    assert code == 0, f"{shlex.join(words)}: {errors.getvalue()}"
    return output.getvalue(), errors.getvalue()


def small(code: str) -> str:
    schedule = "__import__('cometad.network', fromlist=['OneCycle']).OneCycle(5)"
    return code.replace("Comet()", f"Comet(schedule={schedule}, codebook_size=32)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page):
    content = page.read_text()
    found = list(blocks(page))
    for block in found:
        assert block.language in ("python", "console", "sh", "text"), f"{name(page)}:{block.line}"
        if block.reason is not None:
            assert len(block.reason.split()) > 1, f"{name(page)}:{block.line} does not say why it is not run"
            assert block.language != "text", f"{name(page)}:{block.line} would not be run anyway"
    outside = BLOCK.sub("", content)
    assert not re.search(r"```|~~~|<!-- (run|not run)", outside), "a block or a mark that was not recognized"
    assert not re.search(r"^\s*$\n^(    |\t)(?! *[-*\d])", outside, re.MULTILINE), "an indented block: fence it"


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))], ids=name)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize(
    "block",
    [
        "```python\n>>> 1 + 1\n3\n```\n",
        "```python\nassert False\n```\n",
        "```console\n$ cometad --version\ncometad 9\n```\n",
        "```sh\ncometad score no.comet no.csv\n```\n",
        "```sh\nrm no.csv\n```\n",
    ],
)
def test_a_block_that_is_wrong_fails(block, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(block)
    with pytest.raises(AssertionError):
        run_page(page)


def run_page(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.ExitStack() as kept:
        for table in TABLES:
            kept.enter_context(mock.patch.dict(table))
        for block in blocks(page):
            if block.reason is not None or block.language == "text":
                continue
            if block.language == "python":
                run_python(block, page, names)
            else:
                run_commands(block)


def test_the_site_builds_without_a_warning_and_asks_nothing_of_the_web(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    for page in tmp_path.rglob("*.html"):
        asked = re.findall(
            r"<(?:script|img|iframe)[^>]* src=.?https?:[^>]*|<link[^>]* href=.?https?:[^>]*", page.read_text()
        )
        assert not asked, f"{page.name}: {asked[0]}"


def test_few_blocks_are_left_out():
    every = [block for page in PAGES for block in blocks(page) if block.language != "text"]
    assert sum(block.reason is not None for block in every) < len(every) / 4

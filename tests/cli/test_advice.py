"""Errors on the command line speak of flags, never of Python arguments."""

import ast
import pickle
import re
from pathlib import Path

import pytest

import cometad
import cometad_bench
from cometad.cli import main
from cometad.cli.exits import FLAGS, message
from cometad.errors import ADVICE, InputError

VERBS = (["fit"], ["check"], ["score"], ["explain"], ["report"], ["stream"], ["data", "list"])


def keys_in_the_source():
    """Every `advice="..."` in both packages."""
    for path in (path for package in (cometad, cometad_bench) for path in Path(package.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "advice" and isinstance(node.value, ast.Constant):
                yield node.value.value


def test_every_piece_of_advice_has_a_python_and_a_command_line_wording():
    used = {key for key in keys_in_the_source() if key is not None}
    assert used == set(ADVICE) == set(FLAGS)


@pytest.mark.parametrize("words", FLAGS.values())
def test_advice_on_the_command_line_names_no_python(words):
    assert not re.search(r"\w=|\(|frame|parameter|argument|feature|\bsample|n_samples", words)


def test_every_flag_in_advice_exists(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for verb in VERBS:
        assert main([*verb, "--help"]) == 0
    help_texts = capsys.readouterr().out
    for flag in {flag for words in FLAGS.values() for flag in re.findall(r"--[a-z-]+", words)}:
        assert flag in help_texts


def test_a_message_quotes_names_for_the_shell():
    error = InputError("Column 'pump state' is not numeric.", advice="text", name="pump state")
    assert str(error) == "Column 'pump state' is not numeric. Convert the column to numbers or drop it."
    assert message(error).endswith("or leave it out with --drop 'pump state'.")
    assert message(InputError("Correct it.")) == "Correct it."


def test_an_error_keeps_its_advice_when_it_crosses_processes():
    error = pickle.loads(pickle.dumps(InputError("No times.", advice="no times")))
    assert str(error) == "No times. Pass a frame with a column of dates."
    assert message(error) == "No times. Name the time column with --time-column."

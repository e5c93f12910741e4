"""Rules written as NAME:VALUE."""

from dataclasses import dataclass

import pytest

from cometad.errors import ParameterError
from cometad.parameters import parse, split
from contract import is_a_sentence


@dataclass(frozen=True)
class Above:
    limit: float = 1.0
    strict: bool = True


@dataclass(frozen=True)
class Never:
    pass


RULES = {"above": Above, "never": Never}


def read(text):
    return parse(text, RULES, kind="rule", value="LIMIT", convert=float)


def test_a_rule_is_a_name_with_or_without_a_value():
    assert [read("above"), read("above:2.5"), read("never")] == [Above(), Above(2.5), Never()]
    assert split("5min:mean:x") == ("5min", "mean:x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("abov:2", r"Unknown rule 'abov'\. Did you mean above\? Available: above, never\."),
        ("", "Unknown rule ''"),
        ("above:high", r"Cannot read the rule 'above:high'\. Write it as above or above:LIMIT\."),
        ("above:", "Write it as above or above:LIMIT"),
        ("never:2", r"Cannot read the rule 'never:2'\. Write it as never\."),
    ],
)
def test_an_unreadable_rule_shows_how_to_write_it(text, words):
    with pytest.raises(ParameterError, match=words) as caught:
        read(text)
    assert is_a_sentence(str(caught.value))

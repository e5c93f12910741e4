"""How a verb ends: 0; 2 with one sentence for a user's mistake; 1 with a traceback for a bug; 130 when interrupted.

A verb that runs many trials ends with 1 too where some failed, after a sentence for each.
"""

import errno
import functools
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec

import typer

P = ParamSpec("P")

MISTAKE, BUG, INTERRUPTED = 2, 1, 130
FAILED = 1  # some of many pieces of work failed, each with its own sentence


def say(sentence: object) -> None:
    """Tell the user something on stderr: stdout is for results."""
    print(f"cometad: {sentence}", file=sys.stderr, flush=True)


class _Told(logging.Handler):
    """What the library has to tell, said to the user."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def listen() -> None:
    """Say what the library tells."""
    log = logging.getLogger("cometad")
    log.setLevel(logging.INFO)
    if not any(isinstance(handler, _Told) for handler in log.handlers):
        log.addHandler(_Told())


def guarded(verb: Callable[P, None], interrupted: str = "Interrupted.") -> Callable[P, None]:
    """The verb, with every way it can fail turned into an exit code and a sentence."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        listen()
        try:
            verb(*args, **kwargs)
            sys.stdout.flush()
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            say(interrupted)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            silence_output()  # as in `cometad score ... | head`: whoever reads has seen enough
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise typer.Exit(_explain(error)) from None
            silence_output()
            say("Cannot write the result: No space left on device. Choose an output with room.")
            raise typer.Exit(MISTAKE) from None
        except Exception as error:
            raise typer.Exit(_explain(error)) from None

    return run


def write_output(text: str) -> None:
    """Write to stdout at once, so that a reader at the other end of a pipe never waits for more."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        from cometad.errors import OutputError

        silence_output()
        raise OutputError(f"Cannot write the scores: {error.strerror or error}. Choose an output with room.") from error


def silence_output() -> None:
    """Send what stdout still holds nowhere: Python's own flush at exit would fail on it once more."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _explain(error: Exception) -> int:
    from cometad.errors import CometadError  # here: it takes 1.5 s, which --help should not wait for

    if isinstance(error, CometadError):
        say(error)
        return MISTAKE
    traceback.print_exception(error)
    say("This is a bug in cometad, not a mistake of yours. Please report it with the lines above.")
    return BUG

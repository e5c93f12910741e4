"""Exit codes: 0 for success, 1 for a bug (with a traceback), 2 for a user's mistake (with a message), 130 for Ctrl-C.

`cometad bench run` also exits with 1 if a trial failed, after a message for each.
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
FAILED = 1  # some trials failed, each with its own message


def say(sentence: object) -> None:
    """Print a message on stderr: stdout is for results."""
    print(f"cometad: {printable(sentence)}", file=sys.stderr, flush=True)


def printable(text: object) -> str:
    r"""A text without characters that control a terminal: names and cells of a table may hold them.

    >>> from cometad.cli.exits import printable
    >>> printable("flow\x1b[2J")
    'flow\\x1b[2J'
    """
    plain = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(text))
    return plain.encode(sys.stderr.encoding or "utf-8", errors="backslashreplace").decode(
        sys.stderr.encoding or "utf-8", errors="replace"
    )


class _LogHandler(logging.Handler):
    """Prints the library's log messages on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def listen() -> None:
    """Print the library's log messages on stderr."""
    log = logging.getLogger("cometad")
    log.setLevel(logging.INFO)
    if not any(isinstance(handler, _LogHandler) for handler in log.handlers):
        log.addHandler(_LogHandler())


def guarded(verb: Callable[P, None], interrupted: str = "Interrupted.") -> Callable[P, None]:
    """Wrap a verb so that every failure becomes an exit code and a message."""

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
            silence_output()  # as in `cometad score ... | head`
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise typer.Exit(_explain(error)) from None
            silence_output()
            say("Cannot write the output: No space left on device. Free some space or write elsewhere.")
            raise typer.Exit(MISTAKE) from None
        except Exception as error:
            raise typer.Exit(_explain(error)) from None

    return run


def write_output(text: str) -> None:
    """Write to stdout and flush, so that a pipe's reader gets each line at once."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        from cometad.errors import OutputError

        silence_output()
        raise OutputError(
            f"Cannot write the output: {error.strerror or error}. Free some space or write elsewhere."
        ) from error


def silence_output() -> None:
    """Discard what stdout still buffers: Python's flush at exit would fail on it again."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _explain(error: Exception) -> int:
    from cometad.cli.advice import message
    from cometad.errors import OPTIONAL, CometadError, missing_for

    if isinstance(error, CometadError):
        say(message(error))
        return MISTAKE
    if isinstance(error, ModuleNotFoundError) and error.name in OPTIONAL:
        say(missing_for("This command", error.name))
        return MISTAKE
    traceback.print_exception(error)
    say("This is a bug in cometad, not your mistake. Please report it with the lines above.")
    return BUG

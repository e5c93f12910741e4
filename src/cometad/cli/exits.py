"""Exit codes: 0 for success, 1 for a bug (with a traceback), 2 for a user's mistake (with a message), 130 for Ctrl-C
and 143 for SIGTERM.

`cometad bench run` also exits with 1 if a trial failed, after a message for each.
"""

import errno
import functools
import inspect
import json
import logging
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from cometad.cli.options import with_options
from cometad.errors import OPTIONAL, CometadError, OutputError, missing_for

if TYPE_CHECKING:
    from rich.table import Table

MISTAKE, BUG, INTERRUPTED, TERMINATED = 2, 1, 130, 143
LONGEST = 2000  # characters of a message
MOST = 10  # messages of one kind
FAILED = 1  # some trials failed, each with its own message


def say(sentence: object) -> None:
    """Print a message on stderr: stdout is for results. Of a very long one, only the beginning and the end."""
    text = printable(sentence)
    if len(text) > LONGEST:  # a cell or a name may have any length
        text = f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 4 :]}"
    print(f"cometad: {text}", file=sys.stderr, flush=True)


def say_first(sentences: Sequence[object], more: str) -> None:
    """Print the first messages; `more` has a place for the number of the others."""
    for sentence in sentences[:MOST]:
        say(sentence)
    if len(sentences) > MOST:
        say(more.format(len(sentences) - MOST))


def printable(text: object) -> str:
    r"""A text without characters that control a terminal: names and cells of a table may hold them."""
    plain = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(text))
    return plain.encode(sys.stderr.encoding or "utf-8", errors="backslashreplace").decode(
        sys.stderr.encoding or "utf-8", errors="replace"
    )


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def listen() -> None:
    log = logging.getLogger("cometad")
    log.setLevel(logging.INFO)
    if not any(isinstance(handler, _LogHandler) for handler in log.handlers):
        log.addHandler(_LogHandler())


def open_standard_streams() -> None:
    """Replace closed ones (`2>&-`): the next file that is opened would get their number, and messages with it.

    Where standard input or output was closed, `sys.stdin` or `sys.stdout` stays None.
    """
    while (file := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(file)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


class _Terminated(KeyboardInterrupt):
    """SIGTERM, as an exception: temporary files are deleted on the way out."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception, unless it is handled or ignored already."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the cleaning up
        raise _Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def guarded(verb: Callable[..., None], interrupted: str = "Interrupted.") -> Callable[..., None]:
    """Wrap a verb so that every failure becomes an exit code and a message."""

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> None:
        listen()
        try:
            with _terminable():
                verb(*args, **kwargs)
            flush_output()
        except typer.Exit:
            raise
        except KeyboardInterrupt as error:
            say(interrupted)
            raise typer.Exit(TERMINATED if isinstance(error, _Terminated) else INTERRUPTED) from None
        except BrokenPipeError:
            silence_output()  # as in `cometad score ... | head`
        except OSError as error:
            raise typer.Exit(explain_system(error)) from None
        except Exception as error:
            raise typer.Exit(_explain(error)) from None

    return run


def add_verb(
    to: typer.Typer,
    name: str,
    verb: Callable[..., None],
    example: str,
    interrupted: str = "Interrupted.",
    *,
    order: str = "",
) -> None:
    """Add a guarded verb; its help is its docstring, and begins with the options named in `order`."""
    paragraphs = inspect.cleandoc(verb.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)  # typer keeps single line breaks
    to.command(name, help=text, epilog=f"Example: {example}")(guarded(with_options(verb, order), interrupted))


def explain_system(error: OSError) -> int:
    """Say what the system refused, and return the exit code; anything that is not about a file or space is a bug."""
    if error.errno in _FULL:
        silence_output()
        say(f"Cannot write the output: {error.strerror}. Free some space or write elsewhere.")
        return MISTAKE
    if error.errno in _REFUSED and error.filename is not None:
        say(f"Cannot open '{os.fsdecode(error.filename)}': {error.strerror}. Check its name and permissions.")
        return MISTAKE
    return _explain(error)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG)


def flush_output() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def show(table: "Table") -> None:
    from rich.console import Console

    check_open()
    Console().print(table)


def plain_table(
    headings: Sequence[str], right: Sequence[str], rows: Iterable[Iterable[str]], title: str | None = None
) -> "Table":
    """A table of texts; long cells are folded, and those below the headings `right` are aligned there."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = None if title is None else Text(title)
    table = Table(title=shown, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def check_open() -> None:
    """Refuse to print on a closed stdout: Python would silently print nothing."""
    if sys.stdout is None:
        raise OutputError("Standard output is closed. Redirect it to a file instead.")


def write_output(text: str) -> None:
    """Write to stdout and flush, so that a pipe's reader gets each line at once."""
    check_open()
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_output()
        raise OutputError(
            f"Cannot write the output: {error.strerror or error}. Free some space or write elsewhere."
        ) from error


def print_json(found: object, allow_nan: bool = True) -> None:
    write_output(json.dumps(found, indent=2, allow_nan=allow_nan) + "\n")


def silence_output() -> None:
    """Discard what stdout still buffers: Python's flush at exit would fail on it again."""
    if sys.stdout is None:
        return
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


# The advice in error messages, in terms of flags instead of Python arguments, by the keys of `ADVICE`.
FLAGS = {
    "gaps": "Fill or drop missing readings first, or pass a gap rule such as --gaps forward-fill:5.",
    "missing value": "Send it, or fit the detector with a gap rule such as --gaps forward-fill:5.",
    "too many gaps": "Leave it out with --drop {name}, raise the limit in --gaps or pass more readings.",
    "late": "Send readings in time order, each once, or pass --late drop.",
    "no times": "Name the time column with --time-column.",
    "season times": "Name the time column with --time-column, or fit with --season none.",
    "no period": "Fit on readings with times; name their column with --time-column if need be.",
    "no dates": "Name another column with --time-column.",
    "bad dates": "Write times like 2024-03-01 04:10:00, or pass --drop {name} to count time steps instead.",
    "bad time": "Send times like 2024-03-01 04:10:00 or numbers, or name another field with --time-column.",
    "two time fields": "Send the date and the time of day in one field, or name one with --time-column.",
    "day or month": "Write times like 2024-03-01 04:10:00, or pass --date-order day-first or --date-order month-first.",
    "no header": "Put a header with the column names above it, or pass --no-header.",
    "decimal": "Write numbers without thousands separators and with one decimal mark: --decimal names it.",
    "encoding": "Pass its encoding with --encoding.",
    "too large": "Leave it out with --drop {name}, or write it in a larger unit.",
    "bad cell": "Declare it missing with --na {value}, or leave out the column with --drop {name}.",
    "text": "Convert the column to numbers, or leave it out with --drop {name}.",
    "two times": "Keep one and leave out the others with --drop.",
    "not saved": "Pass a file written by cometad.",
    "not json": "Send one JSON object per line, or pass --format csv.",
    "no data folder": "Pass --data-dir, or set COMETAD_DATA to the folder with the datasets.",
    "no readings": "Send CSV with a header line, or JSON lines, on standard input.",
    "too short": "Pass a longer series or a shorter window.",
    "no variables": "Pass a file with at least one column besides the time.",
    "other variables": "Pass the same variables as at fit.",
    "lacking": "Pass the same variables as at fit, or pass a gap rule such as --gaps forward-fill:5 to treat them as "
    "missing.",
    "refuse gaps": "Pass --gaps refuse, and only complete readings to the graph.",
    "exportable threshold": "Pass --alerts 1/1000 or 3/day, or --threshold with budget, quantile or conformal.",
    "no gap rule": "Pass a gap rule such as --gaps forward-fill:5, or leave out --resample.",
}


def message(error: CometadError) -> str:
    """The message of an error for a command-line user."""
    quoted = {name: shlex.quote(str(value)) for name, value in error.values.items()}
    return error.problem if error.advice is None else f"{error.problem} {FLAGS[error.advice].format(**quoted)}"


def _explain(error: Exception) -> int:
    if isinstance(error, CometadError):
        say(message(error))
        return MISTAKE
    if isinstance(error, ModuleNotFoundError) and error.name in OPTIONAL:
        say(missing_for("This command", error.name))
        return MISTAKE
    traceback.print_exception(error)
    say("This is a bug in cometad, not your mistake. Please report it with the lines above.")
    return BUG

"""Every error that cometad raises on purpose.

    CometadError
    ├── InputError          the data cannot be used as it is (also a ValueError)
    │   └── CellError       a cell of an array is no number (also a TypeError)
    ├── ParameterError      a hyperparameter or an option is invalid (also a ValueError)
    ├── NotFittedError      a detector was used before `fit` (also scikit-learn's NotFittedError)
    ├── ModelFileError      a file is not a detector that this version can load
    ├── OutputError         a result could not be written
    └── MissingExtraError   an optional package is not installed (also an ImportError)

A message is one or two sentences that make sense without knowing the code and say what to do. The command line prints
it and exits with code 2; any other exception is a bug.
"""

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from types import ModuleType

# What to do about a problem, for Python users; cli/exits.py has the same advice in terms of command-line flags.
# Some of it is in the words that scikit-learn's `check_estimator` asks for.
ADVICE = {
    "gaps": "Fill or drop missing readings (NaN) first, or choose a gap rule such as gaps=ForwardFill(limit=5).",
    "missing value": "Send it, or fit the detector with a gap rule: gaps=ForwardFill(5) or --gaps forward-fill:5.",
    "too many gaps": "Drop that variable, raise the limit of the gap rule or pass a longer series.",
    "late": 'Send readings in time order, each once, or pass late="drop".',
    "no times": "Pass a frame with a column of dates.",
    "season times": "Pass a frame with a column of dates, or to a stream at=SECONDS; or fit with season='none'.",
    "no period": "Fit on readings with times, or pass period=SECONDS to the budget.",
    "no dates": "Name another column with time_column.",
    "bad dates": "Write times like 2024-03-01 04:10:00, or drop the column to count time steps instead.",
    "bad time": "Send times like 2024-03-01 04:10:00, or numbers.",
    "two time fields": "Send the date and the time of day in one field, or name one with time_column.",
    "day or month": "Write times like 2024-03-01 04:10:00, or pass Dialect(date_order='day-first') or 'month-first'.",
    "no header": "Put a header with the column names above it, or pass Dialect(header=False).",
    "decimal": "Write numbers without thousands separators and with one decimal mark: Dialect(decimal=...) names it.",
    "encoding": "Pass Dialect(encoding=...) with its encoding.",
    "too large": "Drop the column, or write it in a larger unit.",
    "text": "Convert the column to numbers or drop it.",
    "bad cell": "Declare it missing with Dialect(missing=({value!r},)), convert the column to numbers or drop it.",
    "two times": "Keep one column of dates or a datetime index.",
    "not saved": "Pass a file written by save.",
    "not json": 'Send one JSON object per line, or pass form="csv".',
    "no data folder": "Pass data_dir, or set COMETAD_DATA to the folder with the datasets.",
    "no readings": "Send at least one reading.",
    "too short": "Pass a longer series than this one (n_samples={rows}) or a shorter window.",
    "no variables": "Pass at least one variable: X has 0 feature(s) (shape={shape}) while a minimum of 1 is required.",
    "other variables": "Pass the same variables as at fit: X has {given} features, but {detector} is expecting "
    "{fitted} features as input.",
    "lacking": "Pass the same variables as at fit, or choose a gap rule such as gaps=ForwardFill(limit=5) to treat "
    "them as missing.",
    "refuse gaps": "Pass detector.with_gaps(RefuseGaps()), and only complete readings to the graph.",
    "exportable threshold": "Pass detector.with_threshold(...) with a Budget, Quantile or Conformal.",
    "no gap rule": "Fit the detector with a gap rule such as gaps=ForwardFill(limit=5), or do not resample.",
}


# Optional packages that our own modules import, and the extra of cometad that installs each.
OPTIONAL = {"cometad_bench": "bench", "holidays": "calendar", "onnx": "onnx", "onnxruntime": "onnx"}
OPTIONAL |= {"sklearn": "baselines", "torch": "torch"}


class CometadError(Exception):
    """Base class: catch it to catch every error that cometad raises on purpose.

    `advice` is a key of `ADVICE`, and `values` fill its blanks: the message is the problem followed by that sentence.

    >>> from cometad.errors import CometadError
    >>> CometadError("The readings have no times.", advice="no times")
    CometadError('The readings have no times. Pass a frame with a column of dates.')
    """

    def __init__(self, problem: str = "", advice: str | None = None, **values: object) -> None:
        self.problem, self.advice, self.values = problem, advice, values
        super().__init__(problem if advice is None else f"{problem} {ADVICE[advice].format(**values)}")


class InputError(CometadError, ValueError):
    """The data cannot be used as it is."""


class CellError(InputError, TypeError):
    """A cell of an array is no number; also a TypeError, as scikit-learn expects."""


class ParameterError(CometadError, ValueError):
    """A hyperparameter or an option is invalid."""


class NotFittedError(CometadError, ValueError, AttributeError):
    """A detector was used before `fit`. Each one is scikit-learn's error of that name, too, if that is installed.

    >>> from sklearn import exceptions
    >>> from cometad.errors import NotFittedError
    >>> isinstance(NotFittedError("Call fit first."), exceptions.NotFittedError)
    True
    """

    def __new__(cls, *problem: object, **values: object) -> "NotFittedError":
        """An error of both packages, if both are installed."""
        # Not in the list of bases: to import scikit-learn takes a second, and few programs get this error.
        return super().__new__(_not_fitted_of_both() if cls is NotFittedError else cls)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return NotFittedError, self.args


@cache
def _not_fitted_of_both() -> type[NotFittedError]:
    try:
        theirs = importlib.import_module("sklearn.exceptions").NotFittedError
    except ModuleNotFoundError:
        return NotFittedError
    return type("NotFittedError", (NotFittedError, theirs), {"__module__": __name__})


class ModelFileError(CometadError):
    """A file is not a detector that this version can load."""


class OutputError(CometadError):
    """A result could not be written."""


class MissingExtraError(CometadError, ImportError):
    """An optional package is not installed."""


def unknown(kind: str, name: object, known: Iterable[object]) -> ParameterError:
    """The error for an unknown name; suggests the closest known one.

    >>> from cometad.errors import unknown
    >>> str(unknown("dataset", "PMS", ["MSL", "PSM"]))
    "Unknown dataset 'PMS'. Did you mean PSM? Available: MSL, PSM."
    """
    by_lowercase = {str(each).lower(): str(each) for each in known}
    close = get_close_matches(str(name).lower(), by_lowercase, n=1)
    hint = f" Did you mean {by_lowercase[close[0]]}?" if close else ""
    return ParameterError(f"Unknown {kind} {name!r}.{hint} Available: {', '.join(by_lowercase.values())}.")


def imported_for(user: str, module: str) -> ModuleType:
    """Import a module, or raise an error that says who needs a package that is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError | MissingExtraError) or error.name not in OPTIONAL:
            raise
        raise missing_extra(user, error.name) from error


def missing_extra(user: str, package: str) -> MissingExtraError:
    """The error for an optional package that is not installed."""
    error = MissingExtraError(missing_for(user, package))
    error.name = package  # as in the error of Python
    return error


def missing_for(user: str, package: str) -> str:
    """The message for an optional package that is not installed."""
    return f"{user} needs {package}. Install it with pip install 'cometad[{OPTIONAL[package]}]'."


def needs_extra(module: str, extra: str) -> ModuleType:
    """Import an optional module, or raise an error that names the extra of cometad to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(f"This needs the package '{package}'; run pip install 'cometad[{extra}]'.") from error

"""The advice in error messages, in terms of command-line flags instead of Python arguments."""

import shlex

from cometad.errors import CometadError

# The keys of cometad.errors.ADVICE.
FLAGS = {
    "gaps": "Fill or drop missing readings first, or pass a gap rule such as --gaps forward-fill:5.",
    "missing value": "Send it, or fit the detector with a gap rule such as --gaps forward-fill:5.",
    "too many gaps": "Leave it out with --drop {name}, raise the limit in --gaps or pass more readings.",
    "late": "Send readings in time order, each once, or pass --late drop.",
    "no times": "Name the time column with --time-column.",
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

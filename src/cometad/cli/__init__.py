"""The command line: thin verbs over the Python API.

In: flags and files. Out: results on standard output, messages on standard error, exit code 2 for a user's mistake.
Always: no input is changed, no foreign file overwritten, and no output half written.
"""

from cometad.cli.verbs import main

__all__ = ["main"]

"""The command line: thin verbs with the words of the Python API."""

from cometad.cli.app import main

__all__ = ["main"]

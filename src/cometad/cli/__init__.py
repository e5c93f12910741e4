"""The command line: thin verbs over the Python API."""

from cometad.cli.main import main

__all__ = ["main"]

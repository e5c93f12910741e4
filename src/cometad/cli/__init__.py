"""The command line: thin verbs over the Python API."""

from cometad.cli.app import main

__all__ = ["main"]

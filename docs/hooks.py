"""What mkdocs cannot do by itself: links to files outside docs/, and docstrings of our kind as markdown."""

import re
from typing import Any

import griffe

LEAVING = re.compile(
    r"(?<!!)\[([^\]]+)\]\(\.\./(?!\w+\.md)([^)\s]+)\)"
)  # [main](../results/main.md), not ../metrics.md
EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
PARAMETERS = re.compile(r"^Parameters\n-+\n(?P<entries>(?:\S.*\n(?: {4}.*(?:\n|\Z))+)+)", re.MULTILINE)
ENTRY = re.compile(r"^(?P<names>\S.*)\n(?P<text>(?: {4}.*(?:\n|\Z))+)", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with links that leave docs/ as text: what it was called, and the file's place in the repository."""
    return LEAVING.sub(r"\1 (`\2`)", markdown)


class Docstrings(griffe.Extension):
    """Fences the examples of docstrings, which markdown would take for quotations, and lists their parameters."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            fenced = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = PARAMETERS.sub(_listed, fenced)


def _listed(section: re.Match[str]) -> str:
    entries = [
        f"* {', '.join(f'`{name}`' for name in entry['names'].split(', '))}: {' '.join(entry['text'].split())}\n"
        for entry in ENTRY.finditer(section["entries"])
    ]
    return f"**Parameters**\n\n{''.join(entries)}"

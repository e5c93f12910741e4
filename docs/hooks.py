"""What mkdocs cannot do by itself: links to files outside docs/, and examples in docstrings shown as code."""

import re
from typing import Any

import griffe

LEAVING = re.compile(
    r"(?<!!)\[([^\]]+)\]\(\.\./(?!\w+\.md)([^)\s]+)\)"
)  # [main](../results/main.md), not ../metrics.md
EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with links that leave docs/ as text: what it was called, and the file's place in the repository."""
    return LEAVING.sub(r"\1 (`\2`)", markdown)


class Examples(griffe.Extension):
    """Fences the examples of docstrings, which markdown would take for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples of one object."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)

"""Sphinx configuration: `make docs` builds site/ from these pages, offline, and any warning fails the build."""

import re
from typing import Any

project = "cometad"
html_title = "cometad"
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # summaries are fetched, which a browser refuses for files on disk
exclude_patterns = ["*.py"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 4  # [text](page.md#heading), checked
default_role = "code"  # `x` in a docstring is code
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./(?!\w+\.md)([^)\s]+)\)")  # [main](../results/main.md)


def name_files_outside(_app: Any, _page: str, source: list[str]) -> None:
    """Replace links to files outside docs/ by their path in the repository: the site does not contain them."""
    source[0] = OUTSIDE.sub(r"\1 (`\2`)", source[0])


def skip_generated(_app: Any, _what: str, _name: str, member: Any, skip: bool, _options: Any) -> bool | None:
    """Leave out the docstrings that `NamedTuple` writes for its fields."""
    return True if (getattr(member, "__doc__", None) or "").startswith("Alias for field number") else None


def setup(app: Any) -> None:
    """Connect the two functions above; Sphinx calls this."""
    app.connect("source-read", name_files_outside)
    app.connect("autodoc-skip-member", skip_generated)

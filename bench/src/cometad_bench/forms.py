"""A table as Markdown, LaTeX or HTML."""

import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from cometad_bench.tables import Cell, Group, ResultColumn, ResultTable

NOTHING = "–"

Marks = dict[str, tuple[str, str]]  # the markup before and after a figure, by its mark

MARKDOWN_MARKS: Marks = {"": ("", ""), "best": ("**", "**"), "second": ("<u>", "</u>")}
LATEX_MARKS: Marks = {"": ("", ""), "best": (r"\textbf{", "}"), "second": (r"\underline{", "}")}

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "°": r"$^{\circ}$",
    "–": "--",
    "*": "{*}",  # after \\, a bare star or bracket would be read as part of the command
    "[": "{[}",
    "<": "$<$",
    ">": "$>$",
} | {character: f"\\{character}" for character in "%_&#${}"}

# In \scriptsize, a figure such as 85.3 ± 10.2 takes 42 points plus 6 of space, and the name of a row up to 130. A4
# paper with 1-inch margins has 452 points, in landscape 702: these are the numbers of columns that fit.
PORTRAIT, LANDSCAPE = 6, 10
HEADER = 9  # characters per line of a header, about as wide as a figure


def shown(cell: Cell, column: ResultColumn) -> str:
    if cell.value is None:
        return NOTHING
    if cell.total is not None and cell.deviation is None:  # a count from one trial is whole
        return f"{cell.value:,g} of {cell.total:,g}"
    deviation = "" if cell.deviation is None else f" ± {column.shown(cell.deviation)}"
    total = "" if cell.total is None else f" of {cell.total:,g}"
    return f"{column.shown(cell.value)}{deviation}{total}"


def as_markdown(table: ResultTable) -> str:
    r"""Return the table in Markdown; underlines are HTML, since Markdown has none."""
    header = ["dataset", table.rows, *(_markdown(column.header + column.note) for column in table.columns)]
    lines = [f"**{_markdown(table.title)}**", "", _line(header), "|---|---|" + "--:|" * len(table.columns)]
    lines += [_line(cells) for group in table.groups for cells in _markdown_rows(group, table)]
    return "\n".join([*lines, "", *(f"- {_markdown(note)}" for note in table.footnotes)]).rstrip("\n")


def as_latex(table: ResultTable) -> str:
    r"""Return the table in LaTeX, over as many pages as it needs; wide tables are in landscape, then split."""
    template = _latex_environment().get_template("table.tex")
    is_landscape = len(table.columns) > PORTRAIT
    return template.render(parts=_parts(table), footnotes=table.footnotes, is_landscape=is_landscape)


def anchor(title: str) -> str:
    return "-".join(re.findall(r"\w+", title.lower()))


def _marked(cell: Cell, column: ResultColumn, escape: Callable[[str], str], marks: Marks) -> str:
    before, after = marks[cell.mark]
    return before + escape(shown(cell, column)) + after + escape("°" if cell.at_floor else "")


def _line(cells: list[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _markdown(text: str) -> str:
    return "".join(f"\\{character}" if character in "\\`*_|<>[]" else character for character in text)


def _markdown_rows(group: Group, table: ResultTable) -> list[list[str]]:
    return [
        [
            "" if number else _markdown(group.name),
            _markdown(row.label),
            *(
                _marked(cell, column, _markdown, MARKDOWN_MARKS)
                for cell, column in zip(row.cells, table.columns, strict=True)
            ),
        ]
        for number, row in enumerate(group.rows)
    ]


@cache
def _latex_environment() -> Environment:
    environment = Environment(  # the usual delimiters are too common in LaTeX
        loader=PackageLoader("cometad_bench"),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "latex": _latex,
        "header": lambda column: _stacked(column.header + column.note),
        "figure": lambda cell, column: _marked(cell, column, _latex, LATEX_MARKS),
    }
    return environment


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def _stacked(header: str) -> str:
    """Return a header in lines no wider than its figures, if its words allow it."""
    lines = [_latex(line) for line in textwrap.wrap(header, HEADER, break_long_words=False, break_on_hyphens=False)]
    return lines[0] if len(lines) == 1 else r"\shortstack[r]{" + r"\\".join(lines) + "}"


def _parts(table: ResultTable) -> list[ResultTable]:
    starts = range(0, len(table.columns), LANDSCAPE)
    if len(starts) == 1:
        return [table]
    return [
        replace(
            table,
            title=f"{table.title} (part {number} of {len(starts)})",
            columns=table.columns[start : start + LANDSCAPE],
            groups=tuple(
                Group(group.name, tuple(replace(row, cells=row.cells[start : start + LANDSCAPE]) for row in group.rows))
                for group in table.groups
            ),
        )
        for number, start in enumerate(starts, 1)
    ]

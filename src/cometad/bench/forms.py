"""A table as Markdown, LaTeX or HTML."""

import html
import re
import textwrap
from collections.abc import Callable
from dataclasses import replace

from cometad.bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable

NOTHING = "–"

Markup = dict[str, tuple[str, str]]  # what stands before and behind a figure with this mark

MARKDOWN_MARKS: Markup = {"": ("", ""), "best": ("**", "**"), "second": ("<u>", "</u>")}
LATEX_MARKS: Markup = {"": ("", ""), "best": (r"\textbf{", "}"), "second": (r"\underline{", "}")}
HTML_MARKS: Markup = {"": ("", ""), "best": ("<strong>", "</strong>"), "second": ("<u>", "</u>")}

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "°": r"$^{\circ}$",
    "–": "--",
    "*": "{*}",  # behind the end of a line, a bare star or bracket would be read as part of the command
    "[": "{[}",
    "<": "$<$",
    ">": "$>$",
} | {sign: f"\\{sign}" for sign in "%_&#${}"}


# In \scriptsize a figure such as 85.3 ± 10.2 needs 42 points and 6 beside them, the name of a row up to 130. A4 with
# margins of 1 inch has 452, turned 702: up to so many columns of figures fit on such a page.
UPRIGHT, TURNED = 6, 10
HEADER = 9  # letters in a line of a header, about as wide as a figure


def shown(cell: Cell, column: ResultColumn) -> str:
    """A figure with its deviation and its total, without marks.

    >>> from cometad.bench.forms import shown
    >>> from cometad.bench.tables import Cell, ResultColumn
    >>> shown(Cell(0.123, 0.004), ResultColumn("Aff-F1", scale=100)), shown(Cell(3, total=5), ResultColumn("found"))
    ('12.3 ± 0.4', '3 of 5')
    """
    if cell.value is None:
        return NOTHING
    if cell.total is not None and cell.deviation is None:  # a count of one trial is whole
        return f"{cell.value:,g} of {cell.total:,g}"
    deviation = "" if cell.deviation is None else f" ± {column.shown(cell.deviation)}"
    total = "" if cell.total is None else f" of {cell.total:,g}"
    return f"{column.shown(cell.value)}{deviation}{total}"


def as_markdown(table: ResultTable) -> str:
    r"""The table in Markdown; underlines are HTML, since Markdown has none.

    >>> from cometad.bench.forms import as_markdown
    >>> from cometad.bench.tables import Cell, ResultColumn, Group, ResultRow, ResultTable
    >>> columns = (ResultColumn("Aff-F1", "*", scale=100),)
    >>> cells = Cell(0.7, mark="best"), Cell(0.6, mark="second", at_floor=True)
    >>> rows = (ResultRow("pca", cells[:1]), ResultRow("knn", cells[1:]))
    >>> print(as_markdown(ResultTable("Main", columns, (Group("MSL", rows),), ("* oracle",))))
    **Main**
    <BLANKLINE>
    | dataset | arm | Aff-F1\* |
    |---|---|--:|
    | MSL | pca | **70.0** |
    | | knn | <u>60.0</u>° |
    <BLANKLINE>
    - \* oracle
    """
    header = ["dataset", table.rows, *(_markdown(column.header + column.note) for column in table.columns)]
    lines = [f"**{_markdown(table.title)}**", "", _line(header), "|---|---|" + "--:|" * len(table.columns)]
    lines += [_line(cells) for group in table.groups for cells in _markdown_rows(group, table)]
    return "\n".join([*lines, "", *(f"- {_markdown(note)}" for note in table.footnotes)]).rstrip("\n")


def as_latex(table: ResultTable) -> str:
    r"""The table in LaTeX, over as many pages as it needs; more columns than fit on a page are turned, then parted.

    >>> from cometad.bench.forms import as_latex
    >>> from cometad.bench.tables import Cell, ResultColumn, Group, ResultRow, ResultTable
    >>> rows = (ResultRow("a_b", (Cell(0.7, 0.01, mark="best"),)),)
    >>> columns = (ResultColumn("rank by Aff-F1", scale=100),)
    >>> print(as_latex(ResultTable("Main", columns, (Group("MSL", rows),), ("In %.",))))
    % Needs \usepackage{booktabs,longtable}
    \begingroup
    \scriptsize
    \setlength{\tabcolsep}{3pt}
    \setlength{\LTcapwidth}{\linewidth}
    \begin{longtable}{lr}
    \caption{Main} \\
    \toprule
    arm & \shortstack[r]{rank by\\Aff-F1} \\
    \midrule
    \endfirsthead
    \toprule
    arm & \shortstack[r]{rank by\\Aff-F1} \\
    \midrule
    \endhead
    \bottomrule
    \endfoot
    \multicolumn{2}{l}{\textit{MSL}} \\*
    a\_b & \textbf{70.0 $\pm$ 1.0} \\
    \end{longtable}
    \noindent In \%.\par
    \endgroup
    """
    is_turned = len(table.columns) > UPRIGHT
    begin, end = (r"\begin{landscape}", r"\end{landscape}") if is_turned else (r"\begingroup", r"\endgroup")
    packages = "booktabs,longtable,pdflscape" if is_turned else "booktabs,longtable"
    lines = [rf"% Needs \usepackage{{{packages}}}", begin, r"\scriptsize"]
    lines += [r"\setlength{\tabcolsep}{3pt}", r"\setlength{\LTcapwidth}{\linewidth}"]
    for part in _parts(table):
        lines += _longtable(part)
    return "\n".join([*lines, *(rf"\noindent {_latex(note)}\par" for note in table.footnotes), end])


def as_html(table: ResultTable) -> str:
    """The table as one section of HTML: its title, the part that may scroll sideways, and the footnotes.

    >>> from cometad.bench.forms import as_html
    >>> from cometad.bench.tables import Cell, ResultColumn, Group, ResultRow, ResultTable
    >>> rows = (ResultRow("pca", (Cell(0.7, mark="best"),)),)
    >>> print(as_html(ResultTable("A & B", (ResultColumn("Aff-F1", scale=100),), (Group("MSL", rows),), ("In %.",))))
    <section>
    <h2 id="a-b">A &amp; B</h2>
    <div class="scroll" role="region" aria-labelledby="a-b" tabindex="0">
    <table aria-labelledby="a-b">
    <thead>
    <tr><th scope="col">arm</th><th scope="col">Aff-F1</th></tr>
    </thead>
    <tbody>
    <tr><th scope="rowgroup" colspan="2"><span>MSL</span></th></tr>
    <tr><th scope="row">pca</th><td><strong>70.0</strong></td></tr>
    </tbody>
    </table>
    </div>
    <ul class="notes">
    <li>In %.</li>
    </ul>
    </section>
    """
    header = "".join(
        f'<th scope="col">{html.escape(text)}</th>'
        for text in (table.rows, *(column.header + column.note for column in table.columns))
    )
    name = "-".join(re.findall(r"\w+", table.title.lower()))
    lines = ["<section>", f'<h2 id="{name}">{html.escape(table.title)}</h2>']
    # What scrolls has to take the focus: without it, no key moves it.
    lines += [f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0">']
    lines += [f'<table aria-labelledby="{name}">', "<thead>", f"<tr>{header}</tr>", "</thead>"]
    for group in table.groups:
        lines += ["<tbody>", *_html_rows(group, table), "</tbody>"]
    lines += ["</table>", "</div>"]
    if table.footnotes:
        lines += ['<ul class="notes">', *(f"<li>{html.escape(note)}</li>" for note in table.footnotes), "</ul>"]
    return "\n".join([*lines, "</section>"])


def _marked(cell: Cell, column: ResultColumn, escape: Callable[[str], str], marks: Markup) -> str:
    """A figure in the markup of its mark, with the sign of the floor behind it."""
    before, behind = marks[cell.mark]
    return before + escape(shown(cell, column)) + behind + escape("°" if cell.at_floor else "")


def _named(row: ResultRow) -> str:
    return f"{row.arm} ({row.note})" if row.note else row.arm


def _line(cells: list[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _markdown(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return "".join(f"\\{sign}" if sign in "\\`*_|<>[]" else sign for sign in text)


def _markdown_rows(group: Group, table: ResultTable) -> list[list[str]]:
    """The cells of each row; the dataset stands in the first."""
    return [
        [
            "" if number else _markdown(group.name),
            _markdown(_named(row)),
            *(
                _marked(cell, column, _markdown, MARKDOWN_MARKS)
                for cell, column in zip(row.cells, table.columns, strict=True)
            ),
        ]
        for number, row in enumerate(group.rows)
    ]


def _latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(LATEX.get(sign, sign) for sign in text)


def _parts(table: ResultTable) -> list[ResultTable]:
    """The table in parts of as many columns as fit on a turned page."""
    starts = range(0, len(table.columns), TURNED)
    if len(starts) == 1:
        return [table]
    return [
        replace(
            table,
            title=f"{table.title} (part {number} of {len(starts)})",
            columns=table.columns[start : start + TURNED],
            groups=tuple(
                Group(group.name, tuple(replace(row, cells=row.cells[start : start + TURNED]) for row in group.rows))
                for group in table.groups
            ),
        )
        for number, start in enumerate(starts, 1)
    ]


def _longtable(table: ResultTable) -> list[str]:
    """The lines of a table that repeats its head on every page."""
    headers = [_stacked(column.header + column.note) for column in table.columns]
    head = [r"\toprule", rf"{' & '.join([_latex(table.rows), *headers])} \\", r"\midrule"]
    lines = [rf"\begin{{longtable}}{{l{'r' * len(table.columns)}}}", rf"\caption{{{_latex(table.title)}}} \\"]
    lines += [*head, r"\endfirsthead", *head, r"\endhead", r"\bottomrule", r"\endfoot"]
    for number, group in enumerate(table.groups):
        lines += [r"\midrule"] * (number > 0)  # the head ends with one
        # The star keeps a group's name on the page of its first row.
        lines += [rf"\multicolumn{{{1 + len(table.columns)}}}{{l}}{{\textit{{{_latex(group.name)}}}}} \\*"]
        lines += [_latex_row(row, table) for row in group.rows]
    return [*lines, r"\end{longtable}"]


def _stacked(header: str) -> str:
    """A header in lines no wider than its figures, where its words allow it."""
    lines = [_latex(line) for line in textwrap.wrap(header, HEADER, break_long_words=False, break_on_hyphens=False)]
    return lines[0] if len(lines) == 1 else r"\shortstack[r]{" + r"\\".join(lines) + "}"


def _latex_row(row: ResultRow, table: ResultTable) -> str:
    cells = [_marked(cell, column, _latex, LATEX_MARKS) for cell, column in zip(row.cells, table.columns, strict=True)]
    return rf"{' & '.join([_latex(_named(row)), *cells])} \\"


def _html_rows(group: Group, table: ResultTable) -> list[str]:
    name = f"<span>{html.escape(group.name)}</span>"  # the cell is as wide as the table: only a part of it can stay put
    lines = [f'<tr><th scope="rowgroup" colspan="{1 + len(table.columns)}">{name}</th></tr>']
    for row in group.rows:
        figures = "".join(
            f"<td>{_marked(cell, column, html.escape, HTML_MARKS)}</td>"
            for cell, column in zip(row.cells, table.columns, strict=True)
        )
        lines.append(f'<tr><th scope="row">{html.escape(_named(row))}</th>{figures}</tr>')
    return lines

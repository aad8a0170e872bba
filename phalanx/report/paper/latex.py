"""LaTeX from plain text and cells: escaping, numbers, citations, tables."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from phalanx.report.statistics import Interval

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
}
PRINTED = 0x17F  # the last character that pdflatex prints without further packages: Latin letters
LIGATURES = re.compile(r"([-,'?!])(?=[-,'`])")  # two characters that TeX would join


def escape(text: object) -> str:
    """Plain text as LaTeX that prints it; nothing in it is a command."""
    kept = LIGATURES.sub("\\1\0", printable(text))
    return "".join("{}" if char == "\0" else SPECIAL.get(char, char) for char in kept)


def printable(text: object) -> str:
    """Text on one line, with characters that pdflatex does not know as their code: [U+4E2D]."""
    return " ".join("".join(_known(char) for char in unicodedata.normalize("NFC", str(text))).split())


def _known(char: str) -> str:
    if unicodedata.category(char).startswith(("C", "Z")):  # control characters and kinds of space
        return " "
    return char if ord(char) <= PRINTED else f"[U+{ord(char):04X}]"


def comment(text: object) -> str:
    """A line of text for the reader of a .tex file."""
    return "% " + " ".join(str(text).split()) + "\n"


def joined(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def cite(keys: Iterable[str]) -> str:
    """A citation with a tie before it; nothing without keys."""
    found = ",".join(keys)
    return rf"~\cite{{{found}}}" if found else ""


def number(value: float, digits: int = 2) -> str:
    """A number in running text or in a table, with a real minus."""
    text = f"{value:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text
    return text.replace("-", "$-$")


def count(value: int) -> str:
    """A whole number with thin spaces between thousands."""
    return f"{value:,}".replace(",", r"\,")


def between(interval: Interval, digits: int = 2) -> str:
    """`0.93 [0.81, 0.99]`; without the interval if it is unknown."""
    value, low, high = (number(float(each), digits) for each in interval)
    return value if np.isnan(interval.low) else f"{value} [{low}, {high}]"


def stacked(interval: Interval, bold: bool = False, digits: int = 2) -> str:
    """A value above its interval, for a cell of a table."""
    value, _, rest = between(interval, digits).partition(" ")
    value = rf"\textbf{{{value}}}" if bold else value
    if not rest:
        return value
    return rf"\begin{{tabular}}[c]{{@{{}}c@{{}}}}{value}\\[-2pt]{{\scriptsize {rest}}}\end{{tabular}}"


def tabulars(
    columns: str, head: Sequence[str], groups: Iterable[Iterable[Sequence[str]]], most: int = 40
) -> list[str]:
    """Tables with booktabs' rules, of cells that are LaTeX already; a rule between groups of rows.

    Rows that do not fit on a page go into a further table. Tables that are wider than the line are scaled
    down.
    """
    rows = [(row, i) for i, group in enumerate(groups) for row in group] or [(["none"], 0)]
    return [_tabular(columns, head, rows[at : at + most]) for at in range(0, len(rows), most)]


def _tabular(columns: str, head: Sequence[str], rows: Sequence[tuple[Sequence[str], int]]) -> str:
    inside, last = "", rows[0][1]
    for row, group in rows:
        inside += "\\midrule\n" * (group != last) + f"{' & '.join(row)} \\\\\n"
        last = group
    return (
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{' & '.join(head)} \\\\\n\\midrule\n{inside}"
        "\\bottomrule\n\\end{tabular}}\n"
    )


def floating(kind: str, body: str, caption: str, label: str) -> str:
    """A table or figure with its caption: above a table, below a figure."""
    named = f"\\caption{{{caption}}}\n\\label{{{label}}}\n"
    inside = named + body if kind == "table" else body + named
    return f"\\begin{{{kind}}}[!htbp]\n\\centering\n{inside}\\end{{{kind}}}\n"

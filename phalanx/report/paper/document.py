"""The documents of a paper kit: main.tex, which holds everything together, and a README with the commands."""

from collections.abc import Mapping, Sequence

from phalanx import __version__
from phalanx.report.compare import Comparison, many
from phalanx.report.paper import bibliography as bib
from phalanx.report.paper.figures import Figure
from phalanx.report.paper.latex import escape, floating, joined
from phalanx.report.paper.methods import unfinished

PREAMBLE = r"""\documentclass[10pt,a4paper]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{mathptmx}  % Times, as in the figures
\usepackage{courier}
\usepackage[margin=2.5cm]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\usepackage[hyphens]{url}
\usepackage[hidelinks]{hyperref}
\setlength{\abovetopsep}{6pt}  % between a caption and its table
\emergencystretch=2em
"""
TABLES = {
    "scores": "Scores: mean over seeds{scale}, and {measures} of normalised scores{over}, with 95\\,\\% "
    "confidence intervals. Bold: better than all other arms.",
    "verdicts": "Arms compared in pairs{over}. $p$ values are corrected for the number of pairs.",
    "arrivals": "Environment steps until a seed first has a normalised score of {threshold:g}: median over "
    "seeds, and in brackets how many seeds get there.",
    "budgets": "What every arm was given: version of the task's rules, seeds, environment steps of each "
    "seed, environment steps between evaluations, episodes of an evaluation and of the final one.",
    "options": "Options that differ between arms or are not at their defaults. Values for several tasks are "
    "separated by slashes{order}.",
}
COMPILE = "pdflatex main && bibtex main && pdflatex main && pdflatex main"
ROW = 2  # figures beside each other


def main_tex(
    result: Comparison, parts: Mapping[str, int], curves: Sequence[Figure], over: Sequence[Figure]
) -> str:
    """A document that compiles by itself and shows all of the kit; `parts` are the files of each table."""
    missing = unfinished(result)
    warning = f"\\noindent\\textbf{{Note.}} {missing}\n\n" if missing else ""
    shown_tables = {name: _table(result, name, count) for name, count in parts.items()}
    results = [shown_tables[name] for name in ("scores", "verdicts", "arrivals")]
    shown = [
        _figures(curves, "Learning curves: mean over seeds with its 95\\,\\% confidence interval; thin lines "
                 "are single seeds.", "fig:curves"),
        _figures(over, "Normalised scores, probability of improvement and performance profile, with 95\\,\\% "
                 "confidence intervals.", "fig:all"),
    ]  # fmt: skip
    return (
        f"{PREAMBLE}\n\\title{{{escape(result.title)}}}\n\\author{{}}\n\\date{{}}\n\n"
        f"\\begin{{document}}\n\\maketitle\n\n{warning}"
        f"\\section{{Methods}}\n\\input{{methods}}\n\n"
        f"\\section{{Results}}\n\\input{{verdicts}}\n\n{''.join(results)}\n{''.join(shown)}\n"
        f"\\clearpage\n\\appendix\n\\section{{Budgets and options}}\n{shown_tables['budgets']}"
        f"{shown_tables['options']}\n"
        "\\clearpage\n\\bibliographystyle{plain}\n\\bibliography{references}\n\\end{document}\n"
    )


def verdicts(result: Comparison) -> str:
    """The conclusion about each pair, in sentences with references to the tables and figures."""
    said = " ".join(_sentence(escape(result.verdict(pair))) for pair in result.pairs)
    return (
        f"{said} Table~\\ref{{tab:scores}} has the scores, Table~\\ref{{tab:verdicts}} the tests, "
        "Table~\\ref{tab:arrivals} the environment steps to a good score, Figure~\\ref{fig:curves} the "
        "learning curves and Figure~\\ref{fig:all} measures of normalised scores.\n"
    )


def _sentence(text: str) -> str:
    return text.replace("no difference", "No difference", 1) + "."


def _table(result: Comparison, name: str, parts: int) -> str:
    several = len(result.tasks) > 1
    rates = all(result.metric[task].endswith("/win_rate") for task in result.tasks)
    caption = TABLES[name].format(
        scale=" (win rates)" if rates else "",
        measures="interquartile mean (IQM), mean and median" if several else "interquartile mean (IQM)",
        over=" over all tasks" if several else "",
        threshold=result.threshold,
        order=f", in the order {joined([escape(task) for task in result.tasks])}" if several else "",
    )
    found = [floating("table", f"\\input{{tables/{name}}}\n", caption, f"tab:{name}")]
    for part in range(2, parts + 1):
        body = f"\\input{{tables/{name}-{part}}}\n"
        found.append(floating("table", body, "Continued from the table before.", f"tab:{name}-{part}"))
    return "\n".join(found) + "\n"


def _figures(figures: Sequence[Figure], caption: str, label: str) -> str:
    """Figures side by side; the caption stands under the last."""
    width = 0.49 if len(figures) > 1 else 0.55
    drawn = [f"\\includegraphics[width={width}\\linewidth]{{figures/{each.name}.pdf}}" for each in figures]
    rows = ["\\hfill\n".join(drawn[i : i + ROW]) for i in range(0, len(drawn), ROW)]
    pages = [rows[i : i + 3] for i in range(0, len(rows), 3)]  # rows that fit on a page
    parts = []
    for i, page in enumerate(pages):
        last = i == len(pages) - 1
        body = "\\\\[1ex]\n".join(page) + "\n"
        text, name = (caption, label) if last else (f"{caption} Continued.", f"{label}-{i + 1}")
        parts.append(floating("figure", body, text, name))
    return "\n".join(parts) + "\n"


def readme(result: Comparison, command: str) -> str:
    """How to compile the kit, use it in a thesis, and make it again."""
    runs = [run for _, run in result.all_runs()]
    versions = sorted({str(run.facts.get("versions", {}).get("phalanx", __version__)) for run in runs})
    commands = [_line(run.facts.get("command", "")) for run in runs]
    seeds = sum(len(cell.seeds) for cell in result.cells.values())
    parts = [
        f"# {_line(result.title)}\n",
        "".join(f"**Note:** {_line(note)}.\n\n" for note in result.notes)
        + f"{many(len(result.arms), 'arm')} on {many(len(result.tasks), 'task')}, {seeds} trained seeds in "
        f"all. Written by phalanx {__version__}.\n",
        f"## Compile\n\n    {COMPILE}\n",
        FILES,
        _own(bib.without_entry(runs)),
        "## Make it again\n\n"
        f"The runs were made with phalanx {joined(versions)}; `run.json` in each run folder has all versions."
        "\n\n" + "".join(f"    {each}\n" for each in [*commands, _line(command)]),
    ]
    return "\n".join(part for part in parts if part)


FILES = """## Files

| file | holds |
|---|---|
| `main.tex` | a document with all of it |
| `methods.tex`, `verdicts.tex` | text for your own document: `\\input{methods}` |
| `tables/*.tex` | tables for `table` environments; they need the packages `booktabs` and `graphicx` |
| `figures/*.pdf`, `*.svg` | figures 3.3 inches wide, which is one column |
| `references.bib` | the entries that are cited, and no others; some names need `\\usepackage[T1]{fontenc}` |
| `comparison.json` | every number |

Lines with `TODO` in `methods.tex` are what only you know.
"""


def _own(names: Sequence[str]) -> str:
    if not names:
        return ""
    listed = ", ".join(_line(name) for name in names)
    return f"`references.bib` has no entry for {listed}: add your own.\n"


def _line(text: object) -> str:
    """Put text from a run folder on one line, so that it cannot start a heading or block."""
    return " ".join(str(text).split())

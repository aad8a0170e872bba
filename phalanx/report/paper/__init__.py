"""A comparison as the parts of a paper: LaTeX tables, vector figures, methods, references, and a document.

All is read from run folders. Text from them is escaped, so that LaTeX prints it and never runs it.
"""

import json
from pathlib import Path

from phalanx.errors import PhalanxError
from phalanx.report.compare import Comparison, summary
from phalanx.report.paper import bibliography, document, figures, methods, tables
from phalanx.report.paper.bibliography import without_entry
from phalanx.report.paper.document import COMPILE

__all__ = ["COMPILE", "without_entry", "write"]


def write(result: Comparison, out: Path, command: str, steps: int | None = None) -> Path:
    """Write the kit into a folder; returns main.tex.

    `steps` is where the runs were compared, if not at the end.
    """
    curves, over = figures.write(result, out / "figures")
    made = {
        "scores": tables.scores(result),
        "verdicts": tables.verdicts(result),
        "arrivals": tables.arrivals(result),
        "budgets": tables.budgets(result),
        "options": tables.options(result),
    }
    texts = {
        "main.tex": document.main_tex(
            result, {name: len(parts) for name, parts in made.items()}, curves, over
        ),
        "methods.tex": methods.section(result, steps),
        "verdicts.tex": document.verdicts(result),
        "README.md": document.readme(result, command),
        "comparison.json": json.dumps(summary(result), indent=1) + "\n",
    }
    for name, parts in made.items():
        for i, text in enumerate(parts, 1):
            texts[f"tables/{name}.tex" if i == 1 else f"tables/{name}-{i}.tex"] = text
    texts["references.bib"] = bibliography.bibtex("".join(texts.values()))
    try:
        for name, text in texts.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PhalanxError(f"cannot write {out}: {error.strerror}") from None
    return out / "main.tex"

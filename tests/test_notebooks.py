"""The notebooks run from the first cell to the last, with smaller budgets."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SMALLER = {r"\bsteps = [\d_]+": "steps = 4_096", r"\bsteps, seeds = [\d_]+, \d+": "steps, seeds = 4_096, 2"}


def cells(path: Path) -> list[str]:
    """The code of a notebook. Lines for Jupyter itself, such as %pip, are left out."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [text for text in code if not text.startswith("%")]


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["comparison", "first_team", "own_environment"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    shown = []
    display = ModuleType("IPython.display")
    display.IFrame = lambda page, **size: shown.append(Path(page).is_file())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    namespace = {"__name__": "notebook"}
    changed = 0
    for text in cells(path):
        small = text
        for old, new in SMALLER.items():
            small, count = re.subn(old, new, small)
            changed += count
        exec(compile(small, path.name, "exec"), namespace)
    assert changed == 1
    assert all(shown)
    if path.stem == "own_environment":
        assert namespace["phalanx"].check_env(namespace["Agree"]()) == []
        assert namespace["run"].facts["final"]["last"]["return"] > 5

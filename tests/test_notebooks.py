"""The notebooks run from the first cell to the last, with smaller budgets."""

import html
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SMALLER = {r"\bsteps = [\d_]+": "steps = 4_096", r"\bsteps, seeds = [\d_]+, \d+": "steps, seeds = 4_096, 2"}


def cells(path: Path) -> list[str]:
    """The code of a notebook."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["comparison", "first_team", "own_environment"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    shown: list[str] = []
    display = ModuleType("IPython.display")
    display.HTML = shown.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    namespace = {"__name__": "notebook"}
    changed = 0
    install, *code = cells(path)
    (where,) = re.findall(r"^%pip install -q (\S+)$", install)
    about = (path.parent / where).resolve() / "pyproject.toml"  # of the clone that the notebook is in
    assert tomllib.loads(about.read_text(encoding="utf-8"))["project"]["name"] == "phalanx"
    for text in code:
        small = text
        for old, new in SMALLER.items():
            small, count = re.subn(old, new, small)
            changed += count
        exec(compile(small, path.name, "exec"), namespace)
    assert changed == 1
    # Pages are shown whole: what is hosted elsewhere cannot load files.
    for frame in shown:
        (page,) = re.findall(r'^<iframe srcdoc="([^"]*)" [^<>]*></iframe>$', frame)
        assert html.unescape(page).startswith("<!doctype html>")
    assert len(shown) == (path.stem != "own_environment")
    if path.stem == "own_environment":
        assert namespace["phalanx"].check_env(namespace["Agree"]()) == []
        assert namespace["run"].facts["final"]["last"]["return"] > 5

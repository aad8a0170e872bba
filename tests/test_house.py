"""Rules of the house: files and functions are short, and modules are where the map and the laws say."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "phalanx"
FILES = sorted(PACKAGE.rglob("*.py"))
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 400, 50
REASON = re.compile(r"# long: \S+")


def too_long(text):
    """What is too long without a reason: "" for the file, the names of functions.

    The reason is a comment `# long: ...`: of a file below its docstring, of a function from the line above it
    to the first line of its body.
    """
    lines, tree = text.splitlines(), ast.parse(text)
    begin = next((node.lineno for node in tree.body[1:]), len(lines))
    if len(lines) > LINES_OF_A_FILE and not REASON.search("\n".join(lines[:begin])):
        yield ""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assert node.end_lineno is not None
        head = "\n".join(lines[max(node.lineno - 2, 0) : node.body[0].lineno])
        if node.end_lineno - node.lineno >= LINES_OF_A_FUNCTION and not REASON.search(head):
            yield node.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_are_short_or_say_why_not(path):
    file = path.relative_to(PACKAGE).as_posix()
    found = {f"{file}:{name}" if name else file for name in too_long(path.read_text(encoding="utf-8"))}
    assert not found, f"more than {LINES_OF_A_FILE} lines, or {LINES_OF_A_FUNCTION} in a function: {found}"


def test_the_measure_of_length_can_fail():
    body = "    x = 1\n" * LINES_OF_A_FUNCTION
    assert list(too_long(f"def short():\n{body[10:]}")) == []
    assert list(too_long(f"def long():\n{body}")) == ["long"]
    assert list(too_long(f"class A:\n    def long(self):\n{body.replace('    ', '        ')}")) == ["long"]
    assert list(too_long(f"# long: a table\ndef long():\n{body}")) == []
    assert list(too_long('"""A file."""\n' + "x = 1\n" * LINES_OF_A_FILE)) == [""]
    assert list(too_long('"""A file."""\n\n# long: a table\n' + "x = 1\n" * LINES_OF_A_FILE)) == []


def test_every_algorithm_is_kept_from_importing_others():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (independent,) = [contract["modules"] for contract in contracts if contract["type"] == "independence"]
    modules = {path.stem for path in (PACKAGE / "algorithms").glob("*.py")} - {"__init__", "base"}
    assert set(independent) == {f"phalanx.algorithms.{module}" for module in modules}


def test_the_map_of_the_code_names_every_room():
    _, _, after = (
        (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("## The map of the code")
    )
    rooms = set(re.findall(r"^  ([\w.]+)/? ", after.split("```")[1], re.MULTILINE))
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.*") if path.parent.name != "__pycache__"]
    assert rooms == {file.parts[0] for file in files} - {"__init__.py", "__main__.py", "py.typed"}

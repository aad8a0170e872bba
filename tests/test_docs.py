"""What the pages say is what the code and the data say."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["battle.md", "mpe.md"])
def test_a_page_has_the_tables_of_the_code(page):
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.fill(page) == (DOCS / page).read_text(encoding="utf-8"), "run: python docs/tables.py"

"""The files of a run folder, as every command reads them.

A run folder may come from somebody else. Nothing outside of it is read, and a broken file gives one line.
"""

import json
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.files import read_inside
from phalanx.registry import parse_toml

FACTS, CONFIG = "run.json", "config.toml"
MOST = 32_000_000  # bytes of such a file


def facts(folder: Path) -> dict[str, Any]:
    """The contents of run.json."""
    try:
        found = json.loads(read_inside(folder, FACTS, MOST))
    except OSError:
        raise PhalanxError(f"{folder} is not a run folder: it has no {FACTS}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise PhalanxError(f"{folder / FACTS} is not readable")
    return found


def config_text(folder: Path) -> bytes:
    """The unchanged text of config.toml."""
    try:
        return read_inside(folder, CONFIG, MOST)
    except OSError as error:
        raise PhalanxError(f"cannot read {folder / CONFIG}: {error.strerror}") from None


def config(folder: Path) -> dict[str, Any]:
    """The tables of config.toml."""
    return parse_toml(config_text(folder), folder / CONFIG)

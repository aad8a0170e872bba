"""Checks that the files of a run have the form that training writes: run folders are not trusted."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.files import inside, read_inside
from phalanx.report.folder import CONFIG, FACTS, MOST

LARGEST = 1e100  # of a number with which statistics can be made
LETTERS = 300  # of a name


def number(value: Any) -> bool:
    """Whether a value is a number, finite and not too large."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _name(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= LETTERS


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _seeds(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_count(each) for each in value)


def _origins(value: Any) -> bool:
    """Where each option of each table comes from."""
    return _mapping(value) and all(
        _mapping(table) and all(_text(origin) for origin in table.values()) for table in value.values()
    )


def _final(value: Any) -> bool:
    """Final evaluations by which parameters they are of: episodes, and a row for each seed."""
    return _mapping(value) and all(
        _mapping(each)
        and _count(each.get("episodes"))
        and isinstance(each.get("seeds"), list)
        and all(_mapping(row) and _count(row.get("seed")) for row in each["seeds"])
        for each in value.values()
    )


NEEDED = {
    CONFIG: {"algorithm": _name, "env": _name, "steps": _count, "eval_episodes": _count},
    FACTS: {"seeds": _seeds},
}
IF_THERE = {
    "status": _text,
    "command": _text,
    "started": _text,
    "versions": _mapping,
    "seconds": number,
    "env_version": _count,
    "origins": _origins,
    "final": _final,
}


def require_sound(folder: Path, config: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Refuse a run whose files are readable but do not have the form of a run's files."""

    def check(file: str, name: str, value: Any, fits: Callable[[Any], bool]) -> None:
        if not fits(value):
            raise PhalanxError(f"{folder / file} is not what training writes: see {name!r}")

    for name, fits in NEEDED[CONFIG].items():
        check(CONFIG, name, config.get("run", {}).get(name), fits)
    for name, fits in NEEDED[FACTS].items():
        check(FACTS, name, facts.get(name), fits)
    for name, fits in IF_THERE.items():
        if name in facts:
            check(FACTS, name, facts[name], fits)


def read_plan(out: Path, file: str) -> dict[str, Any]:
    """Read the file of an experiment; its runs are in its folder."""
    try:
        plan = json.loads(read_inside(out, file, MOST))
        for cell in plan["cells"]:
            if not (_name(cell["arm"]) and _name(cell["env"]) and _text(cell["folder"])):
                raise ValueError
            inside(out, cell["folder"])
            cell["failed"] = cell["failed"] and str(cell["failed"])
        plan["bounds"] = {task: (low, high) for task, (low, high) in plan["bounds"].items()}
        numbers = [each for bounds in plan["bounds"].values() for each in bounds]
        control = plan["control"]
        if not (all(map(number, numbers)) and _name(plan["title"]) and (control is None or _name(control))):
            raise ValueError
        return {**plan, "file": str(plan["file"])}
    except OSError as error:
        raise PhalanxError(f"cannot read {out / file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PhalanxError(f"{out / file} is not what `phalanx experiment` writes") from None

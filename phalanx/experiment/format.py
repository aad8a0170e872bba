"""Experiment files: tables of arms and environments, read and checked."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import registry
from phalanx.errors import PhalanxError, suggest
from phalanx.experiment.cell import Cell

TABLES = ("experiment", "all", "on", "arms", "bounds")


class Experiment(NamedTuple):
    """An experiment file, read."""

    path: Path
    title: str
    out: Path
    cells: list[Cell]
    control: str | None
    bounds: Mapping[str, list[float]]


def read(path: Path, out: Path | None = None) -> Experiment:
    """Read an experiment file; say in one line what is wrong with it."""
    tables = {table: {} for table in TABLES} | registry.read_toml(path, TABLES)
    try:
        _require_sound(tables)
    except PhalanxError as error:
        raise PhalanxError(f"{path}: {error}") from None
    about, out = tables["experiment"], out or Path("results", "experiments", path.stem)
    cells = []
    for env in about["envs"]:
        for arm, given in tables["arms"].items():
            options, env_options, preset = {}, {}, "auto"
            for part in (tables["all"], tables["on"].get(env, {}), given):
                given_here = {k: v for k, v in part.items() if k not in ("algorithm", "preset", "env")}
                options = over(options, given_here)
                env_options |= part.get("env", {})
                preset = part.get("preset", preset)
            folder = out / _file_name(arm) / _file_name(env)
            cells.append(Cell(arm, env, given["algorithm"], preset, options, env_options, folder))
    if len({cell.folder for cell in cells}) < len(cells):
        raise PhalanxError(f"{path}: two arms or environments have the same name, or the same as a folder")
    return Experiment(path, about.get("title", path.stem), out, cells, about.get("control"), tables["bounds"])


def over(options: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Lay later options over earlier ones; `steps` and `run.steps` are the same one."""

    def same(one: str, other: str) -> bool:
        (table, _, name), (other_table, _, other_name) = one.rpartition("."), other.rpartition(".")
        return name == other_name and (table == other_table or not (table and other_table))

    kept = {name: value for name, value in options.items() if not any(same(name, new) for new in later)}
    return {**kept, **later}


def _require_sound(tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse tables that do not name arms and environments; their options are checked cell by cell."""
    for table in tables:
        if table not in TABLES:
            raise PhalanxError(f"unknown table [{table}].{suggest(table, TABLES)}")
    about, arms = tables["experiment"], tables["arms"]
    _require_known(about)
    envs = about.get("envs")
    if not envs:
        raise PhalanxError('it names no environments: [experiment] needs a line such as envs = ["switch/2"]')
    if not arms:
        raise PhalanxError("it names no arms: every arm is a table [arms.NAME]")
    _require_parts(tables)
    for env in tables["on"]:
        if env not in envs:
            raise PhalanxError(f"[on.{env!r}] is for an environment that is not in envs.{suggest(env, envs)}")
    if about.get("control", next(iter(arms))) not in arms:
        raise PhalanxError(f"control = {about['control']!r} is not an arm.{suggest(about['control'], arms)}")
    for task, pair in tables["bounds"].items():
        if task not in envs or not (isinstance(pair, list) and len(pair) == 2 and pair[0] < pair[1]):
            line = f"{json.dumps(envs[0])} = [0, 20]"
            raise PhalanxError(f"[bounds] holds lines such as {line}, the lower first")


def _require_parts(tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Every part is a table, as is its `env`; every arm has an algorithm, and no other part has one."""
    arms = {f"[arms.{name}]": part for name, part in tables["arms"].items()}
    others = {"[all]": tables["all"], **{f"[on.{env!r}]": part for env, part in tables["on"].items()}}
    for name, part in {**others, **arms}.items():
        if not isinstance(part, Mapping) or not isinstance(part.get("env", {}), Mapping):
            raise PhalanxError(f"{name} must be a table of options, and env in it one too")
        if not isinstance(part.get("preset", ""), str):
            raise PhalanxError(f"preset in {name} must be a name or FILE.toml, not {part['preset']!r}")
        if name in arms and not isinstance(part.get("algorithm"), str):
            raise PhalanxError(f'{name} must say algorithm = "mappo" or another')
        if name in others and "algorithm" in part:
            raise PhalanxError(f"algorithm belongs to an arm: write it in [arms.NAME], not in {name}")


def _require_known(about: Mapping[str, Any]) -> None:
    known = {"title": str, "envs": list, "control": str}
    for name, value in about.items():
        if name not in known:
            raise PhalanxError(f"unknown option {name!r} in [experiment].{suggest(name, known)}")
        if not isinstance(value, known[name]):
            raise PhalanxError(f"{name} in [experiment] must be a {known[name].__name__}, not {value!r}")


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]", "-", name)

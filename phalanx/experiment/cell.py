"""A cell of an experiment, one arm on one environment: its command, its parts, and how far its run is."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import api
from phalanx.config import COMMAND_OPTIONS, Layer
from phalanx.errors import PhalanxError
from phalanx.training import checkpoint
from phalanx.training.setup import Setup

# What a run folder holds before its first checkpoint.
BEGINNINGS = {"config.toml", "run.json", ".run.json", "metrics.jsonl", "tb", "checkpoints"}


class Cell(NamedTuple):
    """One arm on one environment."""

    arm: str
    env: str
    algorithm: str
    preset: str
    options: Mapping[str, Any]
    env_options: Mapping[str, Any]
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.arm} on {self.env}"

    @property
    def log(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")

    @property
    def lock(self) -> Path:
        """Held by the process that runs this cell."""
        return self.folder.with_name(f".{self.folder.name}.lock")

    @property
    def command(self) -> list[str]:
        """The words behind `phalanx` that make this cell."""
        words = ["train", self.algorithm, self.env]
        if self.preset != "auto":
            words += ["--preset", self.preset]
        for name, value in self.options.items():
            table, _, plain = name.rpartition(".")
            table = table or ("algorithm" if plain in COMMAND_OPTIONS else "")
            words += _flag(f"{table}." if table else "", plain, value)
        for name, value in self.env_options.items():
            words += _flag("env.", name, value)
        return [*words, "--out", str(self.folder)]

    def setup(self) -> Setup:
        """Its parts, or what is wrong with them."""
        try:
            layer = Layer("experiment", api.tables_of(self.algorithm, self.options, self.env_options))
            return api.resolve(self.algorithm, self.env, layer, preset=self.preset)
        except PhalanxError as error:
            raise PhalanxError(f"{self.name}: {error}") from None

    def facts(self) -> dict[str, Any]:
        """What its run.json says; nothing before it has begun."""
        return facts_of(self.folder)

    @property
    def state(self) -> str:
        """`done`, `begun` if there is a checkpoint to go on from, or `new`."""
        return state_of(self.folder)


def _flag(prefix: str, name: str, value: Any) -> list[str]:
    """An option as the command line takes it."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{prefix}{'' if value else 'no-'}{name}"]
    whole = isinstance(value, float) and value.is_integer()  # 1e6 steps
    return [f"--{prefix}{name}", str(int(value) if whole else value)]


def facts_of(folder: Path) -> dict[str, Any]:
    """What a folder's run.json says; nothing before it has begun."""
    try:
        return json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def state_of(folder: Path) -> str:
    """`done`, `begun` if there is a checkpoint to go on from, or `new`."""
    status = facts_of(folder).get("status")
    if status == "finished":
        return "done"
    return "begun" if status and checkpoint.listing(folder / "checkpoints") else "new"


def clear(folder: Path) -> None:
    """Take away what a run left that was killed before its first checkpoint, and nothing else."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= BEGINNINGS:
        shutil.rmtree(folder)

"""Run folders as a comparison reads them, and what differs between them."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import one_line
from phalanx.report import folder as run_folder
from phalanx.report import metrics
from phalanx.report.compare.sound import require_sound

LETTERS = 80  # of an option in the name of an arm
SPEED = ("env.kernel",)  # options for speed: they change results by rounding alone


class Trained(NamedTuple):
    """A run folder, read."""

    folder: Path
    config: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, Any]
    rows: list[dict[str, Any]]

    @property
    def algorithm(self) -> str:
        return self.config["run"]["algorithm"]

    @property
    def task(self) -> str:
        return self.config["run"]["env"]


def read(folder: Path) -> Trained:
    """Read a run folder; other folders are refused."""
    facts, config = run_folder.facts(folder), run_folder.config(folder)
    require_sound(folder, config, facts)
    return Trained(folder, config, facts, metrics.read(folder))


def label(runs: Sequence[Trained]) -> list[str]:
    """The name of each run's arm: its algorithm, and options that differ between its runs on one task."""
    differing: dict[str, list[str]] = {}
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        mine = [run for run in runs if run.algorithm == algorithm]
        found = {}
        for run, other in itertools.combinations(mine, 2):
            if run.task == other.task:
                found |= dict.fromkeys(notable([run, other], ("algorithm", "env")))
        differing[algorithm] = list(found)

    def name(run: Trained) -> str:
        options = (
            one_line(f"{key.rpartition('.')[2]}={_option(run, key)}")[:LETTERS]
            for key in differing[run.algorithm]
        )
        return " ".join([run.algorithm, *options])

    return [name(run) for run in runs]


def _option(run: Trained, key: str) -> Any:
    table, _, name = key.partition(".")
    return run.config.get(table, {}).get(name)


def differences(runs: Sequence[Trained], tables: Iterable[str] = ("run", "algorithm", "env")) -> list[str]:
    """The options, as table.name, that are not the same in all runs."""
    keys = dict.fromkeys(
        f"{table}.{name}" for table in tables for run in runs for name in run.config.get(table, {})
    )
    return [key for key in keys if len({repr(_option(run, key)) for run in runs}) > 1]


def notable(runs: Sequence[Trained], tables: Iterable[str]) -> list[str]:
    """`differences` that can change what a run learns."""
    return [key for key in differences(runs, tables) if key not in SPEED]

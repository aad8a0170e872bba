"""The plan of an experiment: whether every cell can be run, and what memory, disk and time it will take."""

import dataclasses
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

from phalanx import registry
from phalanx.errors import PhalanxError
from phalanx.experiment.cell import Cell
from phalanx.experiment.format import Experiment
from phalanx.experiment.trial import Trial, prepare, try_out
from phalanx.training import checkpoint, kept
from phalanx.training.devices import require_divisible
from phalanx.training.footprint import checkpoint_bytes, memory_parts
from phalanx.training.setup import Setup

BYTES_OF_A_ROW = 1_500  # of metrics.jsonl and of TensorBoard's events, for one seed and evaluation


def keep_off_the_device() -> None:
    """Plan on the CPU: a process that has touched a GPU would hold most of its memory while runs need it."""
    import jax

    jax.config.update("jax_platforms", "cpu")


class Planned(NamedTuple):
    """What a cell will take."""

    cell: Cell
    state: str
    seeds: int
    steps: int
    memory: int
    disk: int
    seconds: float | None
    """still to come; None where nothing was measured"""


def plan(
    experiment: Experiment, measure: bool, say: Callable[[str], None] = lambda line: None
) -> list[Planned]:
    """Check every cell, and estimate what it will take.

    With `measure`, cells that were never measured are tried out. Each takes a compilation, and `say` is told.
    """
    setups = [(cell, cell.setup()) for cell in experiment.cells]
    for cell, setup in setups:
        require_unchanged(cell, setup)
        require_divisible(setup.loop, setup.config.devices)
    rates = {(c.algorithm, c.env): r for c, setup in setups if (r := rate(c, setup)) is not None}
    planned = []
    # Trials run in other processes: this one keeps off the device. Each has its own, as each run will.
    with ProcessPoolExecutor(
        1, get_context("spawn"), kept.use, (time.time(),), max_tasks_per_child=1
    ) as pool:
        for number, (cell, setup) in enumerate(setups, 1):
            config, parts, left = setup.config, memory_parts(setup), 1 - progress(cell, setup)
            memory, seconds = sum(parts.values()), rates.get((cell.algorithm, cell.env))
            if seconds is not None:
                seconds *= left * config.steps * config.seeds
            elif measure and left:
                say(f"trying run {number} of {len(setups)}: {cell.name}")
                pool.submit(prepare, cell).result()
                tried = pool.submit(try_out, cell, time.monotonic()).result()
                memory, seconds = tried.memory, length(setup, tried)
            rows = config.seeds * (2 + setup.total_updates // setup.updates_between_evaluations)
            disk = checkpoint_bytes(parts, config) + rows * BYTES_OF_A_ROW
            left_seconds = seconds if left else 0.0
            planned.append(Planned(cell, cell.state, config.seeds, config.steps, memory, disk, left_seconds))
    return planned


def require_unchanged(cell: Cell, setup: Setup) -> None:
    """Raise an error if the run in a folder was made with other options than the file has now."""
    facts = cell.facts()
    if not facts:
        return
    there = registry.read_toml(cell.folder / "config.toml")
    for table, values in settings(setup).items():
        for name, value in values.items():
            was = there.get(table, {}).get(name)
            new_option = was is None and setup.resolved.origins[table].get(name) == "default"
            if was != value and not new_option:
                raise PhalanxError(
                    f"{cell.folder} was made with {name} = {was}, and the experiment now says {value}: "
                    f"remove that folder, or give another --out"
                )
    if facts.get("env_version") != setup.env.spec.version:
        raise PhalanxError(
            f"{cell.folder} was made with version {facts.get('env_version')} of {cell.env}, and this is "
            f"version {setup.env.spec.version}: remove that folder, or give another --out"
        )


def settings(setup: Setup) -> dict[str, dict[str, Any]]:
    """The merged configuration, as config.toml has it."""
    return {
        "run": dataclasses.asdict(setup.config),
        "algorithm": dataclasses.asdict(setup.resolved.algorithm),
        "env": dict(setup.resolved.env),
    }


def progress(cell: Cell, setup: Setup) -> float:
    """The share of a cell's steps that is done."""
    if cell.state != "begun":
        return float(cell.state == "done")
    return checkpoint.listing(cell.folder / "checkpoints")[-1].updates / setup.total_updates


def rate(cell: Cell, setup: Setup) -> float | None:
    """Seconds that an env step of a cell took, if it has finished."""
    seconds = cell.facts().get("seconds")
    return seconds and seconds / (setup.config.steps * setup.config.seeds)


def length(setup: Setup, tried: Trial) -> float:
    """Seconds that a whole run will take, from a trial."""
    config = setup.config
    plays = 1 + math.ceil(setup.total_updates / setup.updates_between_evaluations)
    plays += 2 * math.ceil(config.final_episodes / config.eval_episodes)
    return tried.starting + setup.total_updates * tried.update + plays * tried.evaluation

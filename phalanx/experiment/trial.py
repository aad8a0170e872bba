"""A short trial of a cell: how long it takes to start, and how long an update and an evaluation take."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import device
from phalanx.experiment.cell import Cell
from phalanx.training import programs as training
from phalanx.training.devices import lay_out
from phalanx.training.keys import Purpose
from phalanx.training.setup import Setup


class Trial(NamedTuple):
    """What a short trial of a cell measured."""

    starting: float
    """seconds until training can begin"""
    update: float
    evaluation: float
    memory: int


def prepare(cell: Cell) -> None:
    """Compile a cell, for a process that then finds its programs in the cache, as its run will."""
    import jax

    with contextlib.closing(cell.setup()) as setup:
        if jax.config.values["jax_compilation_cache_dir"]:
            layout = lay_out(setup.loop, setup.config.devices)
            training.compile_programs(setup.loop, setup.evaluation, layout).complete()


def most_held() -> int:
    """Bytes that this process has held in memory at most; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        (line,) = (each for each in lines if each.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return 0


def try_out(cell: Cell, begin: float) -> Trial:
    """Run a cell for a moment, in a process that was asked for at `begin`, a time.monotonic()."""
    with contextlib.closing(cell.setup()) as setup:
        return _try_out(setup, begin)


def _try_out(setup: Setup, begin: float) -> Trial:
    import jax
    import jax.numpy as jnp

    def timed(program: Callable[..., Any], *given: Any) -> tuple[float, Any]:
        begin = time.monotonic()
        result = jax.block_until_ready(program(*given))
        return time.monotonic() - begin, result

    layout = lay_out(setup.loop, setup.config.devices)
    programs = training.compile_programs(setup.loop, setup.evaluation, layout).complete()
    starting = time.monotonic() - begin
    carry = programs.init(jnp.array(setup.seeds, jnp.int32))
    budget = jnp.float32(setup.config.steps)
    _, carry = timed(programs.advance, carry, jnp.int32(1), budget)
    update, carry = timed(programs.advance, carry, jnp.int32(2), budget)
    policy, roots = (
        jax.vmap(setup.algorithm.policy)(carry.learner),
        training.seed_keys(Purpose.CURVE, setup.seeds),
    )
    timed(programs.play, policy, roots)
    evaluation, _ = timed(programs.play, policy, roots)
    # The memory of a CPU is that of the whole process: Python, libraries and compiled programs.
    memory = most_held() if device.first().platform == "cpu" else 0
    return Trial(starting, update / 2, evaluation, memory or programs.bytes_needed)

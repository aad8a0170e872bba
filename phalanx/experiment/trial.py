"""A short trial of a cell: how long it compiles, how long an update and an evaluation take."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from phalanx.experiment.cell import Cell
from phalanx.training import run as runs
from phalanx.training.keys import Purpose


class Trial(NamedTuple):
    """What a short trial of a cell measured."""

    starting: float
    """seconds to compile"""
    update: float
    evaluation: float
    memory: int


def try_out(cell: Cell) -> Trial:
    """Compile a cell and run it for a moment."""
    import jax
    import jax.numpy as jnp

    def timed(program: Callable[..., Any], *given: Any) -> tuple[float, Any]:
        begin = time.monotonic()
        result = jax.block_until_ready(program(*given))
        return time.monotonic() - begin, result

    this = cell.setup()
    begin = time.monotonic()
    programs = runs.compile_programs(this)
    starting = time.monotonic() - begin
    carry = programs.init(jnp.array(this.seeds, jnp.int32))
    budget = jnp.float32(this.config.steps)
    _, carry = timed(programs.advance, carry, jnp.int32(1), budget)
    update, carry = timed(programs.advance, carry, jnp.int32(2), budget)
    policy, roots = jax.vmap(this.algorithm.policy)(carry.learner), runs.seed_keys(Purpose.CURVE, this.seeds)
    timed(programs.play, policy, roots)
    evaluation, _ = timed(programs.play, policy, roots)
    return Trial(starting, update / 2, evaluation, runs.bytes_needed(programs.advance, at_least=0))

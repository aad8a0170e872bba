"""A short trial of a cell: how long it compiles, how long an update and an evaluation take."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from phalanx.experiment.cell import Cell
from phalanx.training import programs as training
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

    setup = cell.setup()
    begin = time.monotonic()
    programs = training.compile_programs(setup.loop, setup.evaluation).complete()
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
    return Trial(starting, update / 2, evaluation, programs.bytes_needed)

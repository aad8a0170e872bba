"""From rollouts to gradient steps: chunks of consecutive steps, minibatches of chunks, epochs over them."""

from collections.abc import Callable
from functools import partial
from math import gcd

import jax

from phalanx.algorithms.shared.optimiser import Optimiser, TrainState
from phalanx.algorithms.shared.team import Loss
from phalanx.errors import PhalanxError
from phalanx.ops.parts import split
from phalanx.types import Array, Clock, PyTree

Data = Callable[[Array], tuple[PyTree, ...]]
"""From the numbers of chunks to the arguments of a loss"""


class Chunks:
    """How rollouts (T, B, ...) are cut into N = T/L x B chunks of L steps."""

    def __init__(self, length: int, minibatches: int = 1):
        self.length, self.minibatches = length, minibatches

    def check(self, batch_steps: int, envs: int) -> None:
        """Raise an error if rollouts cannot be split, and suggest a size that can."""
        length, parts = self.length, self.minibatches
        if batch_steps % (envs * length) or (batch_steps // length) % parts:
            unit = envs * length
            unit = unit * parts // gcd(unit // length, parts)
            fitting = max(unit, round(batch_steps / unit) * unit)
            minibatches = f" x {parts} minibatches" if parts > 1 else ""
            raise PhalanxError(
                f"batch_steps={batch_steps} cannot be cut into {envs} environments x chunks of {length}"
                f"{minibatches}: use batch_steps={fitting}, or other envs, chunk or minibatches"
            )

    def split(self, x: Array) -> Array:
        """(T, B, ...) -> (L, N, ...)."""
        time, batch, *rest = x.shape
        parts = x.reshape(time // self.length, self.length, batch, *rest)
        return parts.swapaxes(0, 1).reshape(self.length, -1, *rest)

    def starts(self, memory: Array) -> Array:
        """The memory before each step, (T, B, ...), to the memory before each chunk, (N, ...)."""
        kept = memory[:: self.length]
        return kept.reshape(kept.shape[0] * kept.shape[1], *kept.shape[2:])


def minibatches(key: Array, count: int, epochs: int, parts: int) -> Array:
    """Numbers of the chunks in each minibatch, (epochs, parts, count / parts): each epoch in a new order."""
    orders = jax.vmap(lambda key: jax.random.permutation(key, count))(jax.random.split(key, epochs))
    return orders.reshape(epochs, parts, count // parts)


def fit(optimiser: Optimiser, state: TrainState, loss: Loss, data: Data, order: Array, clock: Clock):
    """Train one network on minibatches: `loss(params, *data(numbers))` for each of them.

    Also returns the means over minibatches of what the loss logs, and of the gradient norms, (G,).
    """

    def minibatch(state: TrainState, numbers: Array):
        grads, metrics = jax.grad(loss, has_aux=True)(state.params, *data(numbers))
        state, norms = optimiser.apply_gradients(state, grads, clock)
        return state, (metrics, norms)

    state, logged = jax.lax.scan(partial(jax.lax.scan, minibatch), state, order)
    count = max(order.shape[0] * order.shape[1], 1)
    return state, *jax.tree.map(lambda x: x.sum((0, 1)) / count, logged)


def take(batch: PyTree, memories: PyTree, numbers: Array) -> tuple[PyTree, PyTree]:
    """The chunks with these `numbers` of a batch (L, N, ...), and their memories (N, ...)."""
    chunks, starts = (
        jax.tree.map(lambda x: x[:, numbers], batch),
        jax.tree.map(lambda x: x[numbers], memories),
    )
    return split(chunks, 1), split(starts, 0)

"""The loop of a gated recurrent unit (Cho et al. 2014), in the form that is fastest on the device."""

# JAX leaves parts of its own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from phalanx.networks import gru_kernel
from phalanx.ops.programs import scan
from phalanx.types import Array

Inputs = tuple[Array, Array, Array, Array, Array]
"""The arguments of `loop`, after its first."""
AT_A_TIME = 8  # steps of a loop on a GPU; see `scan`


def gates(from_x: Array, from_h: Array, h: Array) -> Array:
    """One step behind its products: from_x and from_h (B, 3H), h (B, H) -> (B, H)."""
    x_reset, x_update, x_new = jnp.split(from_x, 3, axis=-1)
    h_reset, h_update, h_new = jnp.split(from_h, 3, axis=-1)
    reset = jax.nn.sigmoid(x_reset + h_reset)
    update = jax.nn.sigmoid(x_update + h_update)
    new = jnp.tanh(x_new + reset * h_new)
    return (1 - update) * new + update * h


def recur(h: Array, recurrent: Array, bias: Array, products: int = 1) -> Array:
    """The part of the gates that comes from memories, (B, H) -> (B, 3H), by one product or three."""
    low = h.astype(recurrent.dtype)  # the memory itself is float32: small changes must add up
    parts = [low @ each for each in jnp.split(recurrent, products, axis=-1)]
    h_reset, h_update, h_new = (part for each in parts for part in jnp.split(each, 3 // products, axis=-1))
    return jnp.concatenate([h_reset, h_update, h_new + bias], axis=-1)


def advance(products: int, h: Array, from_x: Array, first: Array, recurrent: Array, bias: Array) -> Array:
    """One step: h (B, H), from_x (B, 3H), first (B, 1) -> (B, H)."""
    h = jnp.where(first, 0.0, h)
    h = gates(from_x, recur(h, recurrent, bias, products), h)
    # Without the barrier XLA computes it twice on a GPU: as it is, and in 16 bits for the next product.
    return h if recurrent.dtype == h.dtype else jax.lax.optimization_barrier(h)


def loop(products: int, from_x: Array, memory: Array, first: Array, recurrent: Array, bias: Array) -> Array:
    """from_x (T, B, 3H), memory (B, H), first (T, B, 1) -> the memory after each step, (T, B, H).

    The memory is cleared before each step that begins an episode.
    """

    def step(h: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        h = advance(products, h, *inputs, recurrent, bias)
        return h, h

    return scan(step, memory, (from_x, first), AT_A_TIME)[1]


def loop_back(inputs: tuple[Array, ...], memories: Array, gradient: Array) -> tuple[Array | None, ...]:
    """The gradient of `loop` in its arguments, from its result and the gradient of that, both (T, B, H).

    The loop backwards is linear, and computes for each step the gradient of its memory. All else is done
    for all steps at once: the products of the loop forwards a second time, instead of storing them, the
    derivatives of the gates, and the gradient of the weights, in one product.
    """
    from_x, memory, first, recurrent, bias = inputs
    before = jnp.where(first, 0.0, jnp.concatenate([memory[None], memories[:-1]]))
    rows = before.reshape(-1, before.shape[-1])
    from_h = recur(rows, recurrent, bias).reshape(from_x.shape)
    # Each entry of a memory depends on its own entries of the inputs: with ones these are the derivatives.
    by_x, by_h, straight = jax.vjp(gates, from_x, from_h, before)[1](jnp.ones_like(before))
    in_time = _where_it_fits(gru_kernel.through_time, through_time, first, recurrent)
    to_memory, total = in_time(gradient, by_h, straight, first, recurrent)
    to_h = _through(by_h, total).reshape(len(rows), -1)
    to_recurrent = rows.astype(recurrent.dtype).T @ to_h
    to_bias = to_h[:, -bias.size :].sum(0, dtype=jnp.float32).astype(bias.dtype)
    return _through(by_x, total), to_memory, None, to_recurrent, to_bias


def through_time(
    gradient: Array, by_h: Array, straight: Array, first: Array, recurrent: Array
) -> tuple[Array, Array]:
    """The gradient of the first memory, (B, H), and of those after each step, (T, B, H).

    From the gradient of each step's result (T, B, H), and the derivatives of a memory in the one before: in
    what that gives to the gates, (T, B, 3H), and directly, (T, B, H).
    """

    def step(coming: Array, at: tuple[Array, ...]) -> tuple[Array, Array]:
        gradient, by_h, straight, begins = at
        total = gradient + coming
        coming = total * straight + _through(by_h, total) @ recurrent.T
        return jnp.where(begins, 0.0, coming), total

    steps = gradient, by_h, straight, first
    return scan(step, jnp.zeros_like(gradient[0]), steps, AT_A_TIME, reverse=True)


def _through(derivatives: Array, gradient: Array) -> Array:
    """The gradient of three gates, (..., 3H), from that of a memory, (..., H)."""
    return (derivatives * jnp.tile(gradient, 3)).astype(derivatives.dtype)


def _fastest(from_x: Array, memory: Array, first: Array, recurrent: Array, bias: Array) -> Array:
    twin = partial(loop, 3 if jax.default_backend() == "cpu" else 1)
    return _where_it_fits(gru_kernel.loop, twin, first, recurrent)(from_x, memory, first, recurrent, bias)


def _where_it_fits(
    kernel: Callable[..., Any], twin: Callable[..., Any], first: Array, recurrent: Array
) -> Callable[..., Any]:
    """A kernel where it fits, else its twin for XLA, by which it is differentiated, if ever, once more."""
    if not gru_kernel.fits(first, recurrent):
        return twin
    chosen = jax.custom_jvp(lambda *inputs: kernel(*inputs))  # a default of `kernel` would be traced as well
    chosen.defjvp(partial(jax.jvp, twin))
    return chosen


@jax.custom_vjp
def memories(*inputs: Array) -> Array:
    """`loop` in the form for this device: one kernel where it fits (`gru_kernel.py`).

    On a CPU there are three products where no gradient is taken: in acting, and of target networks. Behind a
    single product XLA makes one slow loop of all that is left of a step: 3.6 against 1.3 ms for 26 steps of
    96 rows of 64. For a gradient, which keeps the gates, one product is faster.
    """
    return _fastest(*inputs)


def _forwards(*inputs: Array) -> tuple[Array, Any]:
    if jax.default_backend() == "cpu":  # which computes products and gates more slowly than it reads them
        return jax.vjp(partial(loop, 1), *inputs)
    result = _fastest(*inputs)
    return result, Partial(loop_back, inputs, result)


memories.defvjp(_forwards, lambda back, gradient: back(gradient))


def memories_of_both(learnt: Inputs, frozen: Inputs) -> tuple[Array, Array]:
    """`memories` of two networks of the same size, of which the second gets no gradient.

    Both have the same first memory, and begin episodes at the same steps.
    Where XLA launches kernels for each step of a GPU, a step of both is one product: of a few rows it takes
    no longer than that of one network.
    """
    _, _, first, recurrent, _ = learnt
    if jax.default_backend() == "cpu" or gru_kernel.fits(first, recurrent):
        return memories(*learnt), memories(*frozen)
    return _in_one_loop(learnt, frozen)


@jax.custom_vjp
def _in_one_loop(learnt: Inputs, frozen: Inputs) -> tuple[Array, Array]:
    pairs = zip(learnt, frozen, strict=True)
    from_x, (memory, _), (first, _), recurrent, bias = pairs
    recurrent, bias = jnp.stack(recurrent), jnp.stack(bias)
    both = jax.vmap(partial(advance, 1), (0, 0, None, 0, 0))

    def step(h: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        *from_x, begins = inputs
        h = both(h, jnp.stack(from_x), begins, recurrent, bias)
        return h, h

    _, memories = scan(step, jnp.stack([memory, memory]), (*from_x, first), AT_A_TIME)
    return memories[:, 0], memories[:, 1]


def _both_forwards(learnt: Inputs, frozen: Inputs) -> tuple[tuple[Array, Array], Any]:
    results = _in_one_loop(learnt, frozen)
    return results, Partial(loop_back, learnt, results[0])


_in_one_loop.defvjp(_both_forwards, lambda back, gradients: (back(gradients[0]), None))

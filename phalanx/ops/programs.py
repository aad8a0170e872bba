"""Loops and branches that depend on the device for which a program is compiled."""

# JAX and Flax leave parts of their own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from phalanx.types import Array, PyTree


def unroll(steps: int) -> int:
    """How many turns of a loop of `steps` to lay out one after the other.

    On a GPU all: each turn costs copies of what is carried. On a CPU it would only cost compile time.
    """
    return 1 if jax.default_backend() == "cpu" else steps


def at_size(sizes: Sequence[int], fn: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Let `fn(size, *args)` be called as `f(needed, *args)`, with the smallest of `sizes` that is not less.

    A size determines shapes, so there is one program for each size, and one of them runs. Under `vmap` it is
    the one for the largest `needed` of the batch; a plain `switch` would run them all. Sizes must increase.
    """

    def one_of(programs: Sequence[Callable[..., PyTree]], needed: Array, args: PyTree) -> PyTree:
        return jax.lax.switch(jnp.searchsorted(jnp.array(sizes[:-1]), needed), programs, *args)

    @custom_vmap
    def chosen(needed: Array, args: PyTree) -> PyTree:
        return one_of([partial(fn, size) for size in sizes], needed, args)

    @chosen.def_vmap
    def _(count: int, batched: list[PyTree], needed: Array, args: PyTree) -> tuple[PyTree, PyTree]:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched[1]))
        programs = [jax.vmap(partial(fn, size), axes, axis_size=count) for size in sizes]
        out = one_of(programs, jnp.max(needed), args)
        return out, jax.tree.map(lambda _: True, out)

    return lambda needed, *args: chosen(needed, args)

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


def scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    inputs: PyTree,
    at_most: int,
    reverse: bool = False,
) -> tuple[PyTree, PyTree]:
    """`jax.lax.scan`, on a GPU with `at_most` steps of a turn laid out one after the other.

    There is at least one step, and `step` keeps the types of what it carries.

    Unlike its option `unroll` this copies no inputs where their number is not a multiple of `at_most`.
    """
    inputs = jax.tree.map(jnp.asarray, inputs)
    length = len(jax.tree.leaves(inputs)[0])
    size = unroll(min(at_most, length))
    if size == 1:
        return jax.lax.scan(step, init, inputs, reverse=reverse)

    def turn(carried: tuple[PyTree, PyTree], begin: Array | int, size: int) -> tuple[PyTree, PyTree]:
        carry, outputs = carried
        found, places = [], [begin + i for i in range(size)]
        for place in reversed(places) if reverse else places:
            at_place = partial(jax.lax.dynamic_index_in_dim, index=place, keepdims=False)
            carry, output = step(carry, jax.tree.map(at_place, inputs))
            found.append(output)
        together = jax.tree.map(lambda *xs: jnp.stack(xs), *(reversed(found) if reverse else found))
        write = partial(jax.lax.dynamic_update_slice_in_dim, start_index=begin, axis=0)
        return carry, jax.tree.map(write, outputs, together)

    def nth(turns: Array, carried: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        begin = length - (turns + 1) * size if reverse else turns * size
        return turn(carried, begin, size)

    one = jax.eval_shape(step, init, jax.tree.map(lambda x: x[0], inputs))[1]
    room = jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype), one)
    carried = jax.lax.fori_loop(0, length // size, nth, (init, room))
    rest = length % size
    return turn(carried, 0 if reverse else length - rest, rest) if rest else carried


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

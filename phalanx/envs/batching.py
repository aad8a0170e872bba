"""Batches on the last axis: the layout in which small simulators run fastest.

With the batch last, every elementary operation on a few units is one long, contiguous vector operation; with
the batch first it is many short ones.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from phalanx.ops.joined import join
from phalanx.ops.parts import by_part
from phalanx.types import Array, PyTree

# On an H200 a loop of 57 units in 8,192 environments takes 135 us with four others at a time, 221 with all.
# Few units in so many environments were not timed.
MANY_PAIRS = 2**24
# With many environments a chain of additions, which XLA fuses with what follows, makes steps 1.1 to 1.25
# times as fast as a reduction (on an H200; 3m, and 8m, 2s3z and MMM2 in a prototype); with few it mostly
# takes longer to compile.
LARGE, FEW_COLUMNS = 2**16, 32


def batch_last(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let `fn`, written for arrays with one trailing batch axis (..., B), be called without it.

    The result takes and returns arrays without a batch axis; under `vmap`, however deep, all batch
    axes are joined into the one that `fn` sees.
    """

    @custom_vmap
    def joined(*args: PyTree) -> PyTree:
        return fn(*args)

    @joined.def_vmap
    def _(size: int, batched: list[PyTree], *args: PyTree) -> tuple[PyTree, PyTree]:
        inner = jax.tree.leaves(args)[0].shape[-1]

        def join(is_batched: bool, x: Array) -> Array:
            x = jnp.moveaxis(x, 0, -2) if is_batched else jnp.repeat(x[..., None, :], size, -2)
            return x.reshape(*x.shape[:-2], size * inner)

        def part(x: Array) -> Array:
            return jnp.moveaxis(x.reshape(*x.shape[:-1], size, inner), -2, 0)

        out = jax.tree.map(part, joined(*jax.tree.map(join, tuple(batched), args)))
        return out, jax.tree.map(lambda _: True, out)

    @custom_vmap
    def single(*args: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x[..., 0], joined(*jax.tree.map(lambda x: x[..., None], args)))

    @single.def_vmap
    def _(size: int, batched: list[PyTree], *args: PyTree) -> tuple[PyTree, PyTree]:
        def last(is_batched: bool, x: Array) -> Array:
            return jnp.moveaxis(x, 0, -1) if is_batched else jnp.repeat(x[..., None], size, -1)

        out = joined(*jax.tree.map(last, tuple(batched), args))
        out = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), out)
        return out, jax.tree.map(lambda _: True, out)

    return single


def where_any(needed: Array, make: Callable[[Array], PyTree], key: Array, otherwise: PyTree) -> PyTree:
    """`make(key)` where `needed`, else `otherwise`; nothing is made when no batch entry needs it.

    Under `vmap` a condition becomes a choice between two results that are both computed. Here all batch
    axes, however deep, are joined first, so that one question decides for the whole batch.
    """

    def in_one_part(needed: Array, key: Array, otherwise: PyTree) -> PyTree:
        def choose() -> PyTree:
            made = join(jax.vmap(make)(key))
            chosen = jax.vmap(lambda n, m, o: jax.tree.map(lambda a, b: jnp.where(n, a, b), m, o))(
                needed, made, join(otherwise)
            )
            return chosen.separate()

        # Elsewhere a branch would have the device wait for its host at every step.
        return jax.lax.platform_dependent(
            cpu=lambda: jax.lax.cond(needed.any(), choose, lambda: otherwise), default=choose
        )

    @custom_vmap
    def joined(needed: Array, key: Array, otherwise: PyTree) -> PyTree:
        return by_part(in_one_part, len(needed), (0, 0, 0))(needed, key, otherwise)

    @joined.def_vmap
    def _(size: int, batched: list[PyTree], *args: PyTree) -> tuple[PyTree, PyTree]:
        full = _all_batched(size, batched, args)
        inner = full[0].shape[1]
        out = joined(*jax.tree.map(lambda x: x.reshape(size * inner, *x.shape[2:]), full))
        out = jax.tree.map(lambda x: x.reshape(size, inner, *x.shape[1:]), out)
        return out, jax.tree.map(lambda _: True, out)

    @custom_vmap
    def single(needed: Array, key: Array, otherwise: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(needed, a, b), make(key), otherwise)

    @single.def_vmap
    def _(size: int, batched: list[PyTree], *args: PyTree) -> tuple[PyTree, PyTree]:
        out = joined(*_all_batched(size, batched, args))
        return out, jax.tree.map(lambda _: True, out)

    return single(needed, key, otherwise)


def _all_batched(size: int, batched: list[PyTree], args: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
    """Give every array the batch axis that some have."""

    def spread(is_batched: bool, x: Array) -> Array:
        return x if is_batched else jnp.broadcast_to(x, (size, *x.shape))

    return jax.tree.map(spread, tuple(batched), args)


COMBINE = {"sum": jnp.add, "min": jnp.minimum, "max": jnp.maximum}
REDUCE = {"sum": jnp.sum, "min": jnp.min, "max": jnp.max}
Pair = Callable[[PyTree], tuple[Array, ...]]


def fold(pair: Pair, kinds: tuple[str, ...], columns: PyTree) -> tuple[Array, ...]:
    """Reduce `pair(column)` over the leading axis of `columns`, each output by its kind: sum, min or max.

    This computes interactions of each unit with all others: `pair` takes one other unit's values (..., B) and
    returns (N, B). A CPU takes the others one after another, each a vector operation over all units and
    environments that stays in its cache; other devices take all pairs at once, or, when there are many
    environments, the others in one chain, or, when there are very many pairs, a few others at a time.
    """
    count = jax.tree.leaves(columns)[0].shape[0]
    size = math.prod(_shapes(pair, columns)[0].shape)
    at_a_time = 4 if count * size > MANY_PAIRS else count if size > LARGE and count <= FEW_COLUMNS else None
    return jax.lax.platform_dependent(
        columns,
        cpu=lambda columns: fold_in_turn(pair, kinds, columns),
        default=lambda columns: (
            fold_in_turn(pair, kinds, columns, at_a_time) if at_a_time else fold_at_once(pair, kinds, columns)
        ),
    )


def fold_in_turn(pair: Pair, kinds: tuple[str, ...], columns: PyTree, at_a_time: int = 1):
    """`fold`, one column (or a few) after another."""
    start = tuple(_identity(kind, part) for kind, part in zip(kinds, _shapes(pair, columns), strict=True))

    def add(total, column):
        parts = zip(kinds, total, pair(column), strict=True)
        return tuple(COMBINE[kind](one, other) for kind, one, other in parts), None

    return jax.lax.scan(add, start, columns, unroll=at_a_time)[0]


def fold_at_once(pair: Pair, kinds: tuple[str, ...], columns: PyTree):
    """`fold`, all columns together."""
    return tuple(
        REDUCE[kind](part, axis=0) for kind, part in zip(kinds, jax.vmap(pair)(columns), strict=True)
    )


def _shapes(pair: Pair, columns: PyTree) -> tuple[jax.ShapeDtypeStruct, ...]:
    return jax.eval_shape(pair, jax.tree.map(lambda x: x[0], columns))


def _identity(kind: str, like: jax.ShapeDtypeStruct) -> Array:
    """What a reduction of this kind begins with."""
    if kind == "sum":
        return jnp.zeros(like.shape, like.dtype)
    limits = jnp.finfo(like.dtype) if jnp.issubdtype(like.dtype, jnp.floating) else jnp.iinfo(like.dtype)
    return jnp.full(like.shape, limits.max if kind == "min" else limits.min, like.dtype)

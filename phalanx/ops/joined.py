"""Many small arrays as one: a kernel of a GPU takes longer to launch than to write a few of them.

A loop needs a kernel for each array that it carries or stores at each step, and one for all that are joined.
"""

# JAX leaves parts of its own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from phalanx.types import Array, PyTree

SMALL = 2**16  # bytes of an array that is joined with others; a larger one is better left alone


@partial(jax.tree_util.register_dataclass, data_fields=["words", "alone"], meta_fields=["structure", "small"])
@dataclass(frozen=True)
class Joined:
    """A tree of arrays (..., B, *shape); a loop may stack it along new first axes."""

    words: Array
    """the small ones, (..., B, W) int32"""
    alone: list[Array]
    """the others"""
    structure: Any
    small: tuple[tuple[Any, tuple[int, ...]] | None, ...]
    """the type and shape of each small one in its place, None for the others"""

    def separate(self) -> PyTree:
        """The tree."""
        counts = [math.prod(each[1]) for each in self.small if each]
        begins, alone = itertools.accumulate(counts, initial=0), iter(self.alone)
        leaves = [next(alone) if each is None else self._taken(next(begins), *each) for each in self.small]
        return jax.tree.unflatten(self.structure, leaves)

    def _taken(self, begin: int, kind: Any, shape: tuple[int, ...]) -> Array:
        part = self.words[..., begin : begin + math.prod(shape)]
        return from_bits(part.reshape(*part.shape[:-1], *shape), kind)


def join(tree: PyTree) -> Joined:
    """Join the small arrays of a tree of (B, *shape); on a CPU none. Arrays of other lengths stay alone."""
    leaves, structure = jax.tree.flatten(tree)
    leaves = [x if hasattr(x, "dtype") else jnp.asarray(x) for x in leaves]
    lengths = [len(x) if x.ndim else 0 for x in leaves]
    rows = max(lengths, key=lengths.count, default=0)
    small = [
        n == rows > 0 and has_bits(x.dtype) and _is_small(x) for n, x in zip(lengths, leaves, strict=True)
    ]
    chosen = [to_bits(x).reshape(rows, -1) for x, is_small in zip(leaves, small, strict=True) if is_small]
    return Joined(
        words=jnp.concatenate(chosen, axis=-1) if chosen else jnp.zeros((rows, 0), jnp.int32),
        alone=[x for x, is_small in zip(leaves, small, strict=True) if not is_small],
        structure=structure,
        small=tuple((x.dtype, x.shape[1:]) if s else None for x, s in zip(leaves, small, strict=True)),
    )


def _is_small(x: Array) -> bool:
    return jax.default_backend() != "cpu" and x.size * x.dtype.itemsize <= SMALL


def has_bits(kind: Any) -> bool:
    """Whether `to_bits` knows a type."""
    return kind in (jnp.float32, jnp.bool_) or (jnp.issubdtype(kind, jnp.integer) and kind.itemsize <= 4)


def to_bits(x: Array) -> Array:
    """Numbers as int32."""
    return jax.lax.bitcast_convert_type(x, jnp.int32) if x.dtype.itemsize == 4 else x.astype(jnp.int32)


def from_bits(x: Array, kind: Any) -> Array:
    """The inverse."""
    if kind.itemsize == 4:
        return jax.lax.bitcast_convert_type(x, kind)
    return x != 0 if kind == jnp.bool_ else x.astype(kind)

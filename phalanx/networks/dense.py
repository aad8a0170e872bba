"""Linear layers as plain functions, for the small networks inside mixers."""

# JAX and Flax leave parts of their own signatures untyped.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable
from itertools import pairwise

import jax
import jax.numpy as jnp

from phalanx.networks.initialise import orthogonal
from phalanx.ops.parts import parts
from phalanx.types import Array, PyTree


def init(key: Array, sizes: tuple[int, ...], head_gain: float = 1.0) -> PyTree:
    """Parameters of linear layers from each size to the next: orthogonal weights, zero biases.

    `head_gain` is the size of the last layer's weights.
    """
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [
        {"kernel": orthogonal(jax.random.normal(each, (a, b))), "bias": jnp.zeros(b)}
        for each, (a, b) in zip(keys, pairwise(sizes), strict=True)
    ]
    layers[-1]["kernel"] *= head_gain
    return layers


def apply(params: PyTree, x: Array, between: Callable[[Array], Array] = jax.nn.relu) -> Array:
    """(..., first size) -> (..., last size), with `between` after all layers but the last.

    Rows are one axis in all products: over several, XLA transposes what enters the products of gradients.
    """
    rows = x.shape[:-1]
    if parts() == 1:  # joined axes cannot be divided over devices
        x = x.reshape(-1, x.shape[-1])
    for i, layer in enumerate(params):
        x = (between(x) if i else x) @ layer["kernel"] + layer["bias"]
    return x.reshape(*rows, -1)

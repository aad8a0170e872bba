"""Random keys by purpose: no two purposes can share a root key, whatever their seeds.

A root key is the purpose and the seed, side by side in the two words of a threefry key. All random keys of a
run are derived from one of them, by `split` or by `fold_in`, never by both from the same key: in JAX
`split(key)[i]` and `fold_in(key, i)` are the same key.
"""

from enum import IntEnum

import jax
import jax.numpy as jnp

from phalanx.types import Array

IMPLEMENTATION = "threefry2x32"  # whatever the user set as JAX's default, so that numbers do not depend on it


class Purpose(IntEnum):
    """What a key is for."""

    TRAINING = 0
    """initial parameters, environments, exploration and minibatches of a trained seed"""
    CURVE = 1
    """evaluations while training: the same episodes for all seeds, so that curves differ by policy alone"""
    FINAL = 2
    """the final evaluation: each trained seed has episodes of its own"""
    EVALUATION = 3
    """`phalanx eval`: episodes of its own for each trained seed"""
    PLAYBACK = 4
    """`phalanx watch` and `phalanx record`"""


def root(purpose: Purpose, seed: Array | int) -> Array:
    """The root key of a purpose and a seed, () each."""
    words = jnp.stack([jnp.uint32(purpose), jnp.asarray(seed).astype(jnp.uint32)])
    return jax.random.wrap_key_data(words, impl=IMPLEMENTATION)

"""Random numbers for batches of environments: those of `jax.random`, drawn in one kernel.

On a CPU JAX draws in a loop of many small kernels, and a batch of short draws as rows that are too short for
vector operations. Here the hash is written out, and the batch is the last axis.
"""

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.batching import batch_last
from phalanx.types import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
ONE = np.uint32(0x3F800000)  # the bits of 1.0


def first(key: Array) -> Array:
    """`jax.random.split(key)[0]`."""
    return _half(key, 0)


def second(key: Array) -> Array:
    """`jax.random.split(key)[1]`."""
    return _half(key, 1)


def _half(key: Array, which: int) -> Array:
    if not _is_threefry(key):
        return jax.random.split(key)[which]
    words = jax.random.key_data(key)
    return jax.random.wrap_key_data(jnp.stack(_threefry(words[0], words[1], np.uint32(which))))


def uniform(key: Array, count: int) -> Array:
    """`jax.random.uniform(key, (count,))`."""
    if not _is_threefry(key):
        return jax.random.uniform(key, (count,))

    @batch_last
    def draw(words: Array) -> Array:
        high, low = _threefry(words[0], words[1], np.arange(count, dtype=np.uint32)[:, None])
        return jax.lax.bitcast_convert_type(((high ^ low) >> 9) | ONE, jnp.float32) - 1.0

    return draw(jax.random.key_data(key))


def _is_threefry(key: Array) -> bool:
    """Whether a key is of JAX's default kind, whose numbers do not depend on how many are drawn together."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return False
    independent = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    return independent and str(jax.random.key_impl(key)) == "threefry2x32"


def _threefry(key_1: Array, key_2: Array, count: np.ndarray | np.uint32) -> tuple[Array, Array]:
    """Threefry-2x32 (Salmon et al., 2011) of numbers below 2**32: two words for each."""
    keys = (key_1, key_2, key_1 ^ key_2 ^ PARITY)
    x, y = key_1, key_2 + count
    for i in range(5):
        for distance in ROTATIONS[i % 2]:
            x = x + y
            y = x ^ ((y << distance) | (y >> (32 - distance)))
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x, y

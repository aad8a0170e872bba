"""Initial weights."""

import jax
import jax.numpy as jnp

from phalanx.types import Array

ITERATIONS = 50


def orthogonal(gain: float):
    """An initialiser of random orthogonal matrices (Saxe et al. 2014) times `gain`.

    A Gaussian matrix is moved to its nearest orthogonal one by Newton-Schulz iterations, matrix
    products alone. The usual QR decomposition is a LAPACK call, which under `vmap` inside a compiled
    program was seen to wait for ever on a CPU of two cores: its parts queue for the very threads that
    wait for them.
    """

    def init(key: Array, shape: tuple[int, int], dtype=jnp.float32, out_sharding=None) -> Array:
        tall = (max(shape), min(shape))
        start = jax.random.normal(key, tall, dtype)

        def iterate(_, x):
            return 1.5 * x - 0.5 * x @ (x.T @ x)

        # Scaled so that no singular value exceeds 1, each iteration lifts all of them towards 1.
        x = jax.lax.fori_loop(0, ITERATIONS, iterate, start / jnp.linalg.norm(start))
        return gain * (x if shape == tall else x.T)

    return init

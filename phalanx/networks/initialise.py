"""Initial weights."""

# JAX and Flax leave parts of their own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import jax
import jax.numpy as jnp

from phalanx.types import Array

ITERATIONS = 50


def orthogonal(normals: Array) -> Array:
    """The orthogonal matrix nearest to a matrix of random normals (Saxe et al. 2014).

    Found by Newton-Schulz iterations, matrix products alone. The usual QR decomposition is a LAPACK
    call, which under `vmap` inside a compiled program was seen to wait for ever on a CPU of two
    cores: its parts queue for the very threads that wait for them.
    """
    rows, cols = normals.shape
    tall = normals if rows >= cols else normals.T

    def iterate(_: Array, x: Array) -> Array:
        return 1.5 * x - 0.5 * x @ (x.T @ x)

    # Scaled so that no singular value exceeds 1, each iteration lifts all of them towards 1.
    x = jax.lax.fori_loop(0, ITERATIONS, iterate, tall / jnp.linalg.norm(tall))
    return x if rows >= cols else x.T

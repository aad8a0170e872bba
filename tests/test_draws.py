"""Random numbers for batches of environments are those of JAX."""

import jax
import numpy as np
import pytest

from phalanx.envs import draws


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_numbers_are_those_of_jax(kind):
    keys = jax.random.split(jax.random.key(3, impl=kind), (2, 5))
    for which, half in enumerate((draws.first, draws.second)):
        halves = jax.jit(jax.vmap(jax.vmap(half)))(keys)
        expected = jax.vmap(jax.vmap(lambda key, which=which: jax.random.split(key)[which]))(keys)
        np.testing.assert_array_equal(jax.random.key_data(halves), jax.random.key_data(expected))
    numbers = jax.jit(jax.vmap(jax.vmap(lambda key: draws.uniform(key, 7))))(keys)
    expected = jax.vmap(jax.vmap(lambda key: jax.random.uniform(key, (7,))))(keys)
    np.testing.assert_array_equal(numbers, expected)


def test_one_key():
    key = jax.random.key(0)
    np.testing.assert_array_equal(draws.uniform(key, 3), jax.random.uniform(key, (3,)))
    raw = jax.random.key_data(key)  # an untyped key
    np.testing.assert_array_equal(draws.first(raw), jax.random.split(raw)[0])
    np.testing.assert_array_equal(draws.second(raw), jax.random.split(raw)[1])
    np.testing.assert_array_equal(draws.uniform(raw, 3), jax.random.uniform(raw, (3,)))


def test_earlier_numbers():
    """JAX's setting of how numbers depend on the size of a draw is respected."""
    key = jax.random.key(1)
    with jax.threefry_partitionable(False):
        np.testing.assert_array_equal(draws.uniform(key, 3), jax.random.uniform(key, (3,)))

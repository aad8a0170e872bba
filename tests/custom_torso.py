"""Torsos as a user of phalanx would write them, outside of the package."""

import jax.numpy as jnp
from flax import nnx

from phalanx.networks.torsos import Torso


class Residual(Torso):
    """A linear layer and a residual one, for vectors. It draws its own weights."""

    def __init__(self, shape, rngs):
        self.first = nnx.Linear(shape.inputs, shape.hidden, rngs=rngs)
        self.second = nnx.Linear(shape.hidden, shape.hidden, rngs=rngs)

    def __call__(self, x, memory, first):
        x = nnx.relu(self.first(x))
        return x + nnx.relu(self.second(x)), jnp.zeros((*x.shape[:2], 0))


class Pooled(Residual):
    """Sees a picture by its rows' means, and what stands beside it."""

    def __init__(self, shape, rngs):
        self.first = nnx.Linear(shape.picture[0] + shape.inputs, shape.hidden, rngs=rngs)
        self.second = nnx.Linear(shape.hidden, shape.hidden, rngs=rngs)

    def __call__(self, x, memory, first):
        rows = x.pixels.mean((-1, -2))
        return super().__call__(jnp.concatenate([rows, x.features], axis=-1), memory, first)


class Counter(Residual):
    """Remembers how long an episode has lasted."""

    memory_size = 1

    def __init__(self, shape, rngs):
        self.layer = nnx.Linear(shape.inputs + 1, shape.hidden, rngs=rngs)

    def __call__(self, x, memory, first):
        steps = []
        for begins in first:
            memory = jnp.where(begins, 0.0, memory) + 1
            steps.append(memory)
        memories = jnp.stack(steps)
        return nnx.relu(self.layer(jnp.concatenate([x, memories], axis=-1))), memories


class TooNarrow(Residual):
    """Its features are fewer than the head takes."""

    def __call__(self, x, memory, first):
        features, memories = super().__call__(x, memory, first)
        return features[..., :3], memories


class NoRngs(Torso):
    """Its signature is another."""

    def __init__(self, inputs):
        self.layer = nnx.Linear(inputs, 8, rngs=nnx.Rngs(0))


class Headed(Residual):
    """Takes a name that is taken."""

    def __init__(self, shape, rngs):
        super().__init__(shape, rngs)
        self.head = nnx.Linear(2, 2, rngs=rngs)


class Noisy(Residual):
    """Holds what is no parameter."""

    def __init__(self, shape, rngs):
        super().__init__(shape, rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)


class NotATorso:
    """Something else."""

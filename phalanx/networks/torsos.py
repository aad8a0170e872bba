"""Networks as modules over sequences: inputs (T, ..., F), one output a step, memory carried between.

Acting is a sequence of length 1, learning one of many steps: the same function, so that what was
computed when acting is what is differentiated when learning. The mlp's memory has no entries.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
from flax import nnx

from phalanx.networks.initialise import orthogonal
from phalanx.types import Array, PyTree

ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    # The gain keeps the size of activations through a layer.
    "relu": (jax.nn.relu, 2**0.5),
    "tanh": (jnp.tanh, 5 / 3),
}


class GRU(nnx.Module):
    """A gated recurrent unit (Cho et al. 2014) whose input products are hoisted out of the scan.

    The memory is cleared before each step that begins an episode.
    """

    def __init__(self, size: int, rngs: nnx.Rngs):
        self.size = size
        self.input = nnx.Linear(size, 3 * size, kernel_init=orthogonal(1.0), rngs=rngs)
        blocks = [orthogonal(1.0)(rngs.params(), (size, size), jnp.float32) for _ in range(3)]
        self.recurrent = nnx.Param(jnp.concatenate(blocks, axis=1))
        self.candidate_bias = nnx.Param(jnp.zeros(size))

    def __call__(self, x: Array, memory: Array, first: Array) -> Array:
        """x (T, ..., F), memory (..., H), first (T, ..., 1) -> the memory after each step, (T, ..., H)."""
        recurrent, bias = self.recurrent[...], self.candidate_bias[...]

        def step(h, inputs):
            from_x, begins = inputs
            h = jnp.where(begins, 0.0, h)
            x_reset, x_update, x_new = jnp.split(from_x, 3, axis=-1)
            h_reset, h_update, h_new = jnp.split(h @ recurrent, 3, axis=-1)
            reset = jax.nn.sigmoid(x_reset + h_reset)
            update = jax.nn.sigmoid(x_update + h_update)
            new = jnp.tanh(x_new + reset * (h_new + bias))
            h = (1 - update) * new + update * h
            return h, h

        return jax.lax.scan(step, memory, (self.input(x), first))[1]


class Net(nnx.Module):
    """[input norm] -> linear layers -> [gru] -> linear head."""

    def __init__(self, shape: "Network", rngs: nnx.Rngs):
        self.activation, gain = ACTIVATIONS[shape.activation]
        sizes = [shape.inputs] + [shape.hidden] * shape.layers
        self.norm = nnx.LayerNorm(shape.inputs, rngs=rngs) if shape.input_norm else None
        self.layers = nnx.List(
            nnx.Linear(a, b, kernel_init=orthogonal(gain), rngs=rngs)
            for a, b in zip(sizes[:-1], sizes[1:], strict=True)
        )
        self.gru = GRU(shape.hidden, rngs) if shape.kind == "gru" else None
        self.head = nnx.Linear(
            shape.hidden, shape.outputs, kernel_init=orthogonal(shape.head_gain), rngs=rngs
        )

    def __call__(self, x: Array, memory: Array, first: Array) -> tuple[Array, Array]:
        """As `Network.apply`."""
        if self.norm is not None:
            x = self.norm(x)
        for layer in self.layers:
            x = self.activation(layer(x))
        if self.gru is None:
            return self.head(x), jnp.zeros((*x.shape[:-1], 0))
        memories = self.gru(x, memory, first)
        return self.head(memories), memories


@dataclass(frozen=True)
class Network:
    """The shape of a network, and its two functions `init` and `apply`."""

    kind: str
    """mlp or gru"""
    inputs: int
    outputs: int
    hidden: int
    layers: int
    activation: str
    input_norm: bool
    head_gain: float

    @property
    def memory_size(self) -> int:
        return self.hidden if self.kind == "gru" else 0

    @cached_property
    def _graph(self):
        return nnx.graphdef(nnx.eval_shape(lambda: Net(self, nnx.Rngs(0))))

    def init(self, key: Array) -> PyTree:
        """Draw parameters, as plain nested dictionaries."""
        return nnx.to_pure_dict(nnx.state(Net(self, nnx.Rngs(key)), nnx.Param))

    def apply(self, params: PyTree, x: Array, memory: Array, first: Array) -> tuple[Array, Array]:
        """Run over a sequence.

        x (T, ..., F), memory (..., H), first (T, ..., 1) -> outputs (T, ..., outputs) and the memory
        after each step (T, ..., H).
        """
        return nnx.merge(self._graph, params)(x, memory, first)

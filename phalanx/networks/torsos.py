"""Networks as modules over sequences: inputs (T, ..., F), one output a step, memory carried between.

Acting is a sequence of length 1, learning one of many steps: the same function, so that what was
computed when acting is, but for rounding, what is differentiated when learning. The mlp's memory has no
entries.
"""

# JAX and Flax leave parts of their own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx

from phalanx.networks.initialise import orthogonal
from phalanx.ops.programs import unroll
from phalanx.types import Array, PyTree

zeros = nnx.initializers.zeros_init()
UNROLL = 8  # at most so many steps of a gru are compiled one after the other
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
        self.input = nnx.Linear(size, 3 * size, kernel_init=zeros, rngs=rngs)
        self.recurrent = nnx.Param(jnp.zeros((size, 3 * size)))
        self.candidate_bias = nnx.Param(jnp.zeros(size))

    def __call__(self, x: Array, memory: Array, first: Array) -> Array:
        """x (T * B, F), memory (B, H), first (T, B, 1) -> the memory after each step, (T, B, H)."""
        from_x = self.input(x).reshape(*first.shape[:-1], -1)
        return gru_memories(from_x, memory, first, self.recurrent[...], self.candidate_bias[...])


def gru_loop(
    products: int, from_x: Array, memory: Array, first: Array, recurrent: Array, bias: Array
) -> Array:
    """The loop of a gru: from_x (T, B, 3H) -> (T, B, H), with one product or three at each step."""
    weights = jnp.split(recurrent, products, axis=-1)

    def step(h: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        from_x, begins = inputs
        h = jnp.where(begins, 0.0, h)
        x_reset, x_update, x_new = jnp.split(from_x, 3, axis=-1)
        h_reset, h_update, h_new = (
            part for each in weights for part in jnp.split(h @ each, 3 // products, axis=-1)
        )
        reset = jax.nn.sigmoid(x_reset + h_reset)
        update = jax.nn.sigmoid(x_update + h_update)
        new = jnp.tanh(x_new + reset * (h_new + bias))
        h = (1 - update) * new + update * h
        return h, h

    return jax.lax.scan(step, memory, (from_x, first), unroll=unroll(min(UNROLL, len(first))))[1]


@jax.custom_vjp
def gru_memories(*args: Array) -> Array:
    """`gru_loop`, by three products where no gradient is taken: in acting, and of target networks.

    Behind a single product XLA makes one slow loop for a CPU of all that is left of a step: 3.6 against
    1.3 ms for 26 steps of 96 rows of 64. For a gradient, which keeps the gates, one product is faster.
    """
    return gru_loop(3 if jax.default_backend() == "cpu" else 1, *args)


gru_memories.defvjp(lambda *args: jax.vjp(partial(gru_loop, 1), *args), lambda back, gradient: back(gradient))


class Net(nnx.Module):
    """[input norm] -> linear layers -> [gru] -> linear head. `Network.init` draws the weights."""

    def __init__(self, shape: "Network"):
        rngs = nnx.Rngs(0)  # nothing is drawn here
        self.activation, _ = ACTIVATIONS[shape.activation]
        sizes = [shape.inputs] + [shape.hidden] * shape.layers
        self.norm = nnx.LayerNorm(shape.inputs, rngs=rngs) if shape.input_norm else None
        self.layers = nnx.List(nnx.Linear(a, b, kernel_init=zeros, rngs=rngs) for a, b in pairwise(sizes))
        self.gru = GRU(shape.hidden, rngs) if shape.kind == "gru" else None
        self.head = nnx.Linear(shape.hidden, shape.outputs, kernel_init=zeros, rngs=rngs)

    def __call__(self, x: Array, memory: Array, first: Array) -> tuple[Array, Array]:
        """As `Network.apply`.

        Steps and batch are one axis in all products but the gru's own: over several, XLA transposes what
        enters the products of gradients (a fifth of MAPPO's time on a CPU).
        """
        steps = x.shape[:-1]
        first = jnp.broadcast_to(first, (*steps, 1)).reshape(len(x), -1, 1)
        x = x.reshape(-1, x.shape[-1])
        if self.norm is not None:
            x = self.norm(x)
        for layer in self.layers:
            x = self.activation(layer(x))
        if self.gru is None:
            return self.head(x).reshape(*steps, -1), jnp.zeros((*steps, 0))
        memories = self.gru(x, memory.reshape(-1, memory.shape[-1]), first)
        outputs = self.head(memories.reshape(-1, memories.shape[-1]))
        return outputs.reshape(*steps, -1), memories.reshape(*steps, -1)


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
    def _graph(self) -> nnx.GraphDef[Net]:
        return nnx.graphdef(nnx.eval_shape(lambda: Net(self)))

    def init(self, key: Array) -> PyTree:
        """Draw parameters, as plain nested dictionaries: orthogonal weights, zero biases.

        All weights come from one draw, because a program compiles in proportion to its draws.
        """
        params = nnx.to_pure_dict(nnx.state(Net(self), nnx.Param))
        leaves, structure = jax.tree_util.tree_flatten_with_path(params)
        normals = jax.random.normal(key, (sum(leaf.size for _, leaf in leaves),))
        drawn, used = [], 0
        for path, leaf in leaves:
            if leaf.ndim == 2:
                leaf = self._gain(path[0].key) * orthogonal(
                    normals[used : used + leaf.size].reshape(leaf.shape)
                )
                used += leaf.size
            drawn.append(leaf)
        return jax.tree.unflatten(structure, drawn)

    def _gain(self, part: str) -> float:
        return {"layers": ACTIVATIONS[self.activation][1], "gru": 1.0, "head": self.head_gain}[part]

    def apply(self, params: PyTree, x: Array, memory: Array, first: Array) -> tuple[Array, Array]:
        """Run over a sequence.

        x (T, ..., F), memory (..., H), first (T, ..., 1) -> outputs (T, ..., outputs) and the memory
        after each step (T, ..., H).
        """
        return nnx.merge(self._graph, params)(x, memory, first)

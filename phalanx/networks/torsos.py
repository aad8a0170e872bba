"""Networks over sequences: inputs (T, ..., F), one output per step, and a memory between steps.

A network is a torso, chosen by name, and a linear head. `TORSOS` at the end of this file lists the names;
`module:Class` is a torso of your own, a subclass of `Torso`.

Acting is a sequence of length 1, learning one of many steps. Both use the same function, so that learning
differentiates what acting computed, up to rounding.
"""

# JAX and Flax leave parts of their own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from phalanx.errors import PhalanxError, suggest
from phalanx.imports import import_class
from phalanx.networks import gru
from phalanx.networks.initialise import orthogonal
from phalanx.types import Array, Picture, PyTree

zeros = nnx.initializers.zeros_init()
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
        return gru.memories(*self.inputs(x, memory, first))

    def inputs(self, x: Array, memory: Array, first: Array) -> gru.Inputs:
        """What the loop over steps needs."""
        from_x = self.input(x).reshape(*first.shape[:-1], -1)
        return from_x, memory, first, self.recurrent[...], self.candidate_bias[...]


class Torso(nnx.Module):
    """From inputs to features, with or without a memory. Subclass it for `--network my_module:MyTorso`.

    Its parameters are those of the flax.nnx layers that `__init__` creates. A torso with a memory clears it
    itself, where `first` is true; nothing else does. `first` comes from the environment's auto-reset
    (`envs/wrappers.py`, `envs/host/rows.py`), in replay from the start of each episode, and from `teams.py`
    for a team that was loaded.
    """

    memory_size: int = 0
    """entries of the memory of each agent"""

    def __init__(self, shape: "Network", rngs: nnx.Rngs):
        """`shape` has the sizes: inputs, picture, hidden, layers, activation. `rngs` draws parameters."""
        raise NotImplementedError

    def __call__(self, x: Any, memory: Array, first: Array) -> tuple[Array, Array]:
        """Run over a sequence of T steps of N rows.

        x is (T, N, F), or a `Picture` of pixels (T, N, *picture) float32 and features (T, N, F); memory is
        (N, H), and first (T, N, 1) bool says where to clear it. Returns features (T, N, hidden) and the
        memory after each step, (T, N, H).
        """
        raise NotImplementedError

    def features_of_both(self, frozen: Any, xs: Any, memory: Array, first: Array) -> tuple[Array, Array]:
        """Features of this torso and of a `frozen` one, which gets no gradient, for the inputs of each."""
        return self(xs[0], memory, first)[0], frozen(xs[1], memory, first)[0]

    def gains(self) -> dict[str, float]:
        """Attributes with matrices to draw orthogonal, with their gain; others stay as made."""
        return {}


class MLP(Torso):
    """Linear layers. A picture is flattened."""

    def __init__(self, shape: "Network", rngs: nnx.Rngs):
        self.activation, self.gain = ACTIVATIONS[shape.activation]
        pixels = prod(shape.picture) if shape.picture else 0
        self.layers = linear_layers(pixels + shape.inputs, shape, rngs)

    def __call__(self, x: Array | Picture, memory: Array, first: Array) -> tuple[Array, Array]:
        steps = first.shape[:2]
        return self.rows(x).reshape(*steps, -1), jnp.zeros((*steps, 0))

    def rows(self, x: Array | Picture) -> Array:
        """(T, N, F) -> (T * N, hidden).

        Steps and batch are one axis in all products but the gru's own: over several, XLA transposes what
        enters the products of gradients (a fifth of MAPPO's time on a CPU).
        """
        x = flattened(x)
        return self.dense(x.reshape(-1, x.shape[-1]))

    def dense(self, x: Array) -> Array:
        """The linear layers, each with its activation: (..., F) -> (..., hidden)."""
        for layer in self.layers:
            x = self.activation(layer(x))
        return x

    def gains(self) -> dict[str, float]:
        return {"layers": self.gain}


class Recurrent(MLP):
    """Linear layers and a gru, whose memory is the features."""

    def __init__(self, shape: "Network", rngs: nnx.Rngs):
        super().__init__(shape, rngs)
        self.gru = GRU(shape.hidden, rngs)
        self.memory_size = shape.hidden

    def __call__(self, x: Array | Picture, memory: Array, first: Array) -> tuple[Array, Array]:
        memories = self.gru(self.rows(x), memory, first)
        return memories, memories

    def features_of_both(self, frozen: Any, xs: Any, memory: Array, first: Array) -> tuple[Array, Array]:
        if type(self).__call__ is not Recurrent.__call__ or type(self.gru) is not GRU:  # of a user's own
            return super().features_of_both(frozen, xs, memory, first)
        each = zip((self, frozen), xs, strict=True)
        return gru.memories_of_both(*(net.gru.inputs(net.rows(x), memory, first) for net, x in each))

    def gains(self) -> dict[str, float]:
        return {**super().gains(), "gru": 1.0}


class CNN(MLP):
    """Convolutions of 3 x 3 pixels with stride 2 over a picture, then linear layers.

    What stands beside the picture joins after the convolutions.
    """

    def __init__(self, shape: "Network", rngs: nnx.Rngs):
        if shape.picture is None or len(shape.picture) not in (2, 3):
            raise PhalanxError(
                "network=cnn needs pictures, observations of obs_shape (height, width, channels), not "
                f"{'vectors' if shape.picture is None else shape.picture}: use mlp or gru"
            )
        self.activation, self.gain = ACTIVATIONS[shape.activation]
        height, width, *depth = shape.picture
        sizes = [*(depth or [1]), *shape.channels]
        self.convolutions = nnx.List(
            nnx.Linear(9 * a, b, kernel_init=zeros, rngs=rngs) for a, b in pairwise(sizes)
        )
        for _ in shape.channels:
            height, width = -(-height // 2), -(-width // 2)
        self.layers = linear_layers(height * width * sizes[-1] + shape.inputs, shape, rngs)

    def rows(self, x: Picture) -> Array:  # type: ignore[override]
        """A convolution is a product with patches: products stay fast where agents have their own weights."""
        pixels, features = x
        pixels = pixels.reshape(-1, *pixels.shape[2:4], pixels.shape[4] if pixels.ndim == 5 else 1)
        for layer in self.convolutions:
            pixels = self.activation(layer(patches(pixels)))
        flat = pixels.reshape(len(pixels), -1)
        return self.dense(jnp.concatenate([flat, features.reshape(len(flat), -1)], axis=-1))

    def gains(self) -> dict[str, float]:
        return {**super().gains(), "convolutions": self.gain}


def linear_layers(inputs: int, shape: "Network", rngs: nnx.Rngs) -> "nnx.List[nnx.Linear]":
    """`shape.layers` layers of width `shape.hidden`."""
    sizes = [inputs] + [shape.hidden] * shape.layers
    return nnx.List(nnx.Linear(a, b, kernel_init=zeros, rngs=rngs) for a, b in pairwise(sizes))


def patches(x: Array) -> Array:
    """Every second 3 x 3 patch of pictures with a border of zeros: (N, h, w, C) -> (N, h / 2, w / 2, 9 C)."""
    height, width = (-(-size // 2) for size in x.shape[1:3])
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    parts = [x[:, i : i + 2 * height - 1 : 2, j : j + 2 * width - 1 : 2] for i in range(3) for j in range(3)]
    return jnp.concatenate(parts, axis=-1)


def flattened(x: Array | Picture) -> Array:
    """A vector of all that is seen: (T, N, F)."""
    if not isinstance(x, Picture):
        return x
    return jnp.concatenate([x.pixels.reshape(*leading(x), -1), x.features], axis=-1)


def leading(x: Array | Picture) -> tuple[int, ...]:
    """The axes of inputs before those of a single one."""
    return (x.features if isinstance(x, Picture) else x).shape[:-1]


def scaled(pixels: Array) -> Array:
    """Pixels as float32; uint8 in [0, 1]."""
    values = pixels.astype(jnp.float32)
    return values / 255 if pixels.dtype == jnp.uint8 else values


class Ends(nnx.Module):
    """What every network has around its torso: [norm of the inputs] and a linear head."""

    def __init__(self, shape: "Network"):
        rngs = nnx.Rngs(0)  # nothing is drawn here
        self.norm = nnx.LayerNorm(shape.inputs, rngs=rngs) if shape.input_norm else None
        product = partial(jax.lax.dot_general, preferred_element_type=jnp.float32)
        self.head = nnx.Linear(shape.hidden, shape.outputs, kernel_init=zeros, dot_general=product, rngs=rngs)


ENDS = ("head", "norm")


@dataclass(frozen=True)
class Network:
    """The shape of a network, and its two functions `init` and `apply`."""

    kind: str
    """a name in `TORSOS`, or module:Class"""
    inputs: int
    """entries of the input if it is a vector; of a picture, those that stand beside it"""
    outputs: int
    hidden: int
    layers: int
    activation: str
    input_norm: bool
    head_gain: float
    picture: tuple[int, ...] | None = None
    """the shape of a picture; None: inputs are vectors"""
    channels: tuple[int, ...] = (16, 32)
    """of the convolutions of a cnn"""
    precision: str = "float32"
    """of products and of activations; parameters, memories and outputs are float32"""

    def __post_init__(self):
        if self.picture is not None and self.input_norm:
            raise PhalanxError(
                "feature_norm is for vectors, and these observations are pictures: leave it out"
            )
        if ":" in self.kind:
            require_sound(self)
        else:
            _ = self._shapes

    @property
    def memory_size(self) -> int:
        return self._shapes.memory_size

    def torso(self, rngs: nnx.Rngs) -> Torso:
        """The torso; built in ones leave the drawing of weights to `init`."""
        return torso_class(self.kind)(self, rngs)

    @cached_property
    def _shapes(self) -> Torso:
        return nnx.eval_shape(lambda: self.torso(nnx.Rngs(0)))

    @cached_property
    def _graphs(self):
        return nnx.graphdef(self._shapes), nnx.graphdef(nnx.eval_shape(lambda: Ends(self)))

    def init(self, key: Array) -> PyTree:
        """Draw parameters, as plain nested dictionaries: orthogonal weights, zero biases.

        All weights come from one draw, because a program compiles in proportion to its draws. A torso of
        your own draws its parameters itself, unless its `gains` say otherwise.
        """
        torso = self.torso(nnx.Rngs(jax.random.fold_in(key, 1)))
        gains = {**torso.gains(), "head": self.head_gain}
        params = {**parameters(torso), **parameters(Ends(self))}
        leaves, structure = jax.tree_util.tree_flatten_with_path(params)
        normals = jax.random.normal(key, (sum(leaf.size for _, leaf in leaves),))
        drawn, used = [], 0
        for path, leaf in leaves:
            gain = gains.get(path[0].key)
            if leaf.ndim == 2 and gain is not None:
                leaf = gain * orthogonal(normals[used : used + leaf.size].reshape(leaf.shape))
                used += leaf.size
            drawn.append(leaf)
        return jax.tree.unflatten(structure, drawn)

    def in_precision(self, tree: PyTree) -> PyTree:
        """Parameters, or inputs, as products take them."""
        return jax.tree.map(lambda each: each.astype(self.precision), tree)

    def apply(self, params: PyTree, x: Array | Picture, memory: Array, first: Array) -> tuple[Array, Array]:
        """Run over a sequence.

        x (T, ..., F), memory (..., H), first (T, ..., 1) -> outputs (T, ..., outputs) and the memory
        after each step (T, ..., H). Of a `Picture` the pixels may be in a row, (T, ..., P).
        """
        torso, ends, seen, begins = self._modules(params, x, first)
        features, memories = torso(seen, memory.reshape(begins.shape[1], memory.shape[-1]), begins)
        outputs = self._head(ends, features, leading(x))
        return outputs, memories.astype(memory.dtype).reshape(*leading(x), memory.shape[-1])

    def apply_both(
        self, params: tuple[PyTree, PyTree], x: Array | Picture, memory: Array, first: Array
    ) -> tuple[Array, Array]:
        """The outputs of two sets of parameters, as `apply`; the second gets no gradient."""
        torso, ends, seen, begins = self._modules(params[0], x, first)
        other, others_ends, others_seen, _ = self._modules(params[1], x, first)
        memory = memory.reshape(begins.shape[1], memory.shape[-1])
        features, others = torso.features_of_both(other, (seen, others_seen), memory, begins)
        others = self._head(others_ends, others, leading(x))
        return self._head(ends, features, leading(x)), jax.lax.stop_gradient(others)

    def _modules(self, params: PyTree, x: Array | Picture, first: Array) -> tuple[Torso, Ends, Any, Array]:
        """The torso, the ends, the input of the torso, (T, N, F), and `first`, (T, N, 1)."""
        steps, params = leading(x), self.in_precision(params)
        torso_graph, ends_graph = self._graphs
        torso = nnx.merge(torso_graph, {name: p for name, p in params.items() if name not in ENDS})
        ends = nnx.merge(ends_graph, {name: p for name, p in params.items() if name in ENDS})
        first = jnp.broadcast_to(first, (*steps, 1)).reshape(steps[0], -1, 1)
        rows = first.shape[:2]
        if isinstance(x, Picture):
            pixels = scaled(x.pixels).reshape(*rows, *(self.picture or ()))
            x = Picture(pixels, x.features.reshape(*rows, self.inputs))
        else:
            x = x.reshape(-1, x.shape[-1])
            x = (x if ends.norm is None else ends.norm(x)).reshape(*rows, -1)
        return torso, ends, self.in_precision(x), first

    def _head(self, ends: Ends, features: Array, steps: tuple[int, ...]) -> Array:
        """The outputs (T, ..., outputs) of features (T, N, hidden)."""
        rows = features.reshape(-1, features.shape[-1])
        return ends.head(rows.astype(self.precision)).reshape(*steps, -1)


def parameters(module: nnx.Module) -> PyTree:
    """The parameters of a module, as plain nested dictionaries."""
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


def require_sound(network: Network) -> None:
    """Raise a one-line error if the user's own torso does not implement `Torso`."""
    name, steps, rows = network.kind, 2, 3
    kind = torso_class(name)
    sizes = f"inputs={network.inputs}, picture={network.picture}, hidden={network.hidden}"
    try:
        torso = nnx.eval_shape(lambda: kind(network, nnx.Rngs(0)))
    except Exception as error:  # a user's code may raise anything
        raise PhalanxError(f"{name}(shape, rngs) cannot be built for {sizes}: {_first_line(error)}") from None
    others = [
        str(path[0]) for path, leaf in nnx.to_flat_state(nnx.state(torso)) if not isinstance(leaf, nnx.Param)
    ]
    if others:
        raise PhalanxError(f"{name} may hold only parameters (nnx.Param), and {others[0]} is none")
    taken = [each for each in parameters(torso) if each in ENDS]
    if taken:
        raise PhalanxError(f"{name} has an attribute {taken[0]!r}, a reserved name: choose another")
    x: Any = jnp.zeros((steps, rows, network.inputs))
    if network.picture is not None:
        x = Picture(jnp.zeros((steps, rows, *network.picture)), x)
    size, first = network.memory_size, jnp.zeros((steps, rows, 1), bool)
    try:
        got = nnx.eval_shape(lambda torso: torso(x, jnp.zeros((rows, size)), first), torso)
        shapes = tuple(tuple(each.shape) for each in got)
    except Exception as error:
        raise PhalanxError(f"{name} cannot be called with (x, memory, first): {_first_line(error)}") from None
    wanted = ((steps, rows, network.hidden), (steps, rows, size))
    if shapes != wanted:
        raise PhalanxError(
            f"{name} must return features (T, N, hidden) and memories (T, N, memory_size), which are "
            f"{wanted[0]} and {wanted[1]} for T={steps} and N={rows}, not {' and '.join(map(str, shapes))}"
        )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


TORSOS: dict[str, type[Torso]] = {"mlp": MLP, "gru": Recurrent, "cnn": CNN}
"""The names of `--network`. For another one, write a `Torso` and add it here.

A new size goes through `TeamConfig` and `shared_network` (`algorithms/shared/team.py`). Two critics choose
their kind by name and are an mlp if they do not know it: the one that sees a state beside pictures
(`actor_critic.py`, `only_vector`), and COMA's.
"""


def torso_class(name: str) -> type[Torso]:
    """The torso of a name, or of `module:Class`."""
    if ":" in name:
        return import_class(name, Torso, "network")
    if name not in TORSOS:
        raise PhalanxError(f"unknown network {name!r}.{suggest(name, TORSOS)} Your own: module:Class")
    return TORSOS[name]

"""Parameter sharing. No other file depends on which agents share parameters.

Parameters have a leading group axis (G, ...). Each agent belongs to one group and is computed with that
group's slice. Inputs and outputs of agents have the agent axis second to last, (..., A, F).
"""

# JAX and Flax leave parts of their own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.errors import PhalanxError
from phalanx.networks.torsos import Network, leading
from phalanx.ops import masks
from phalanx.ops.parts import by_part
from phalanx.types import Array, EnvSpec, Picture, PyTree


@dataclass(frozen=True)
class Groups:
    """A partition of the agents into G groups."""

    of_agent: tuple[int, ...]
    """The group of each agent; groups are numbered in order of their first agent."""
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.names)

    @cached_property
    def membership(self) -> np.ndarray:
        """(G, A) float32: 1 where the agent belongs to the group."""
        return (np.arange(self.count)[:, None] == np.array(self.of_agent)).astype(np.float32)

    @property
    def one_each(self) -> "Groups":
        """The groups themselves as agents: for what is computed once a group."""
        return Groups(tuple(range(self.count)), self.names)

    def members(self, group: int) -> tuple[int, ...]:
        return tuple(agent for agent, g in enumerate(self.of_agent) if g == group)

    def mean(self, values: Mapping[str, Array], mask: Array) -> dict[str, Array]:
        """The mean of each of `values` (..., A) over the agents of each group, where `mask`: (G,)."""
        return {name: masks.grouped_mean(x, mask, self.membership) for name, x in values.items()}

    def named(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Scalars to log from values (G,): `NAME`, or `NAME/GROUP` where there are several groups.

        Losses return (G,) and this comes last, because inside a scan every scalar costs an operation a step.
        """
        if self.count == 1:
            return {name: x[0] for name, x in values.items()}
        return {f"{name}/{group}": x[g] for name, x in values.items() for g, group in enumerate(self.names)}


def groups(share: str, spec: EnvSpec, option: str = "share") -> Groups:
    """Parse `all`, `team`, `type`, `agent`, or explicit groups of agent numbers such as `0,1;2`."""
    if share == "all":
        labels = ["all agents"] * spec.n_agents
    elif share == "team":
        return teams(spec)
    elif share == "type":
        labels = list(spec.agent_types)
    elif share == "agent":
        labels = list(spec.agents)
    else:
        labels = _explicit(share, spec, option)
    return partition(labels)


def teams(spec: EnvSpec) -> Groups:
    """The sides that agents are on: all on one, if the environment does not say otherwise."""
    return partition(spec.teams or ("all agents",) * spec.n_agents)


def partition(labels: Sequence[str]) -> Groups:
    """Agents with the same label, one label an agent, are a group."""
    names = tuple(dict.fromkeys(labels))
    return Groups(tuple(names.index(label) for label in labels), names)


def _explicit(share: str, spec: EnvSpec, option: str) -> list[str]:
    labels = [""] * spec.n_agents
    wrong = PhalanxError(
        f"{option} must be all, team, type, agent, or groups that name each of the agents 0 to "
        f"{spec.n_agents - 1} once, such as '0;1' or '0,1;2', not {share!r}"
    )
    try:
        parts = [[int(agent) for agent in part.split(",")] for part in share.split(";")]
    except ValueError:
        raise wrong from None
    if sorted(agent for part in parts for agent in part) != list(range(spec.n_agents)):
        raise wrong
    for part in parts:
        for agent in part:
            labels[agent] = "+".join(spec.agents[member] for member in sorted(part))
    return labels


def init(which: Groups, init_one: Callable[[Array], PyTree], key: Array) -> PyTree:
    """Parameters of all groups, (G, ...), each drawn with its own key."""
    return jax.vmap(init_one)(jax.random.split(key, which.count))


def apply(which: Groups, fn: Callable[..., PyTree], params: PyTree, *inputs: PyTree) -> PyTree:
    """Compute `fn(params of its group, inputs)` for every agent; inputs and outputs are (..., A, F).

    `fn` must work with any axes before the last one, after a leading time axis. With one group this is one
    matrix product over all agents, with one group per agent a batched product, otherwise one product per
    group.
    """
    if which.count == 1:
        return fn(jax.tree.map(lambda p: p[0], params), *inputs)
    if which.count == len(which.of_agent):
        return jax.vmap(fn, in_axes=(0, *[-2] * len(inputs)), out_axes=-2)(params, *inputs)
    parts = []
    for group in range(which.count):
        mine = np.array(which.members(group))
        own_params = jax.tree.map(lambda p, g=group: p[g], params)
        parts.append(fn(own_params, *jax.tree.map(lambda x, m=mine: jnp.take(x, m, axis=-2), inputs)))
    back = np.argsort(np.concatenate([which.members(group) for group in range(which.count)]))
    return jax.tree.map(lambda *xs: jnp.take(jnp.concatenate(xs, axis=-2), back, axis=-2), *parts)


def to_agents(which: Groups, x: Array) -> Array:
    """Hand each agent its group's entry: (..., G) -> (..., A)."""
    return jnp.take(x, np.array(which.of_agent), axis=-1)


@dataclass(frozen=True)
class SharedNetwork:
    """A network for each group of agents: all have the same shape, each its own parameters."""

    groups: Groups
    network: Network

    @property
    def memory_size(self) -> int:
        return self.network.memory_size

    @property
    def parameters_each(self) -> int:
        """Parameters of one group."""
        shapes = jax.eval_shape(self.network.init, jax.random.key(0))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    def init(self, key: Array) -> PyTree:
        """Draw parameters, (G, ...)."""
        return init(self.groups, self.network.init, key)

    def initial_memory(self, batch: int) -> Array:
        """The memory at the start of an episode, (B, A, H)."""
        return jnp.zeros((batch, len(self.groups.of_agent), self.memory_size))

    def apply(self, params: PyTree, x: Array | Picture, memory: Array, first: Array) -> tuple[Array, Array]:
        """Run over a sequence: (T, B, A, F), (B, A, H), (T, B) -> (T, B, A, outputs), (T, B, A, H).

        The torso clears the memory at each step that is the `first` of an episode (`torsos.Torso`).
        """
        return self._over_agents(self.network.apply, params, x, memory, first)

    def apply_both(
        self, params: PyTree, frozen: PyTree, x: Array | Picture, memory: Array, first: Array
    ) -> tuple[Array, Array]:
        """The outputs of two sets of parameters, (T, B, A, outputs) each; the second gets no gradient."""
        return self._over_agents(self.network.apply_both, (params, frozen), x, memory, first)

    def _over_agents(
        self, fn: Callable[..., PyTree], params: PyTree, x: Array | Picture, memory: Array, first: Array
    ) -> tuple[Array, Array]:
        def run(params: PyTree, x: Array | Picture, memory: Array, first: Array) -> tuple[Array, Array]:
            steps = leading(x)
            begins = jnp.broadcast_to(first[..., None, None], (*steps, 1))
            if isinstance(x, Picture):
                # Pixels in a row, so that agents are the second to last axis; the network unfolds them.
                x = x._replace(pixels=x.pixels.reshape(*steps, -1))
            return apply(self.groups, fn, params, x, memory, begins)

        return by_part(run, len(memory), (None, 1, 0, 1), 1)(params, x, memory, first)

    def apply_each(self, params: PyTree, x: Array | Picture, memories: Array) -> Array:
        """Outputs for inputs (T, B, A, F), each from the memory (T, B, A, H) at its own step.

        No step depends on another, so time joins the batch: a sequence of length 1.
        """

        def run(params: PyTree, x: Array | Picture, memories: Array) -> Array:
            time, batch = memories.shape[:2]
            never = jnp.zeros((1, time * batch), bool)
            flat = jax.tree.map(lambda x: x.reshape(1, time * batch, *x.shape[2:]), x)
            out, _ = self.apply(params, flat, memories.reshape(time * batch, *memories.shape[2:]), never)
            return out.reshape(time, batch, *out.shape[2:])

        return by_part(run, memories.shape[1], (None, 1, 1), 1)(params, x, memories)

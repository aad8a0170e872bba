"""What all learners with actors share: who acts with which network, and how rollouts become batches.

Everything that is learnt is learnt a group at a time: losses, advantage statistics, gradient clipping and
Adam are each group's own, so that with one group an agent the agents learn independently.

Rollouts are cut into chunks of `chunk` steps (1 without recurrence), each with the memory that was held
when it was played. Agents stay together in a chunk, which is what lets a critic with a common view be
computed once an environment.
"""

from dataclasses import dataclass
from math import gcd
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from phalanx.algorithms.base import Algorithm, Networks
from phalanx.algorithms.shared.rates import rates
from phalanx.config import option
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.networks.torsos import Network
from phalanx.ops import distributions
from phalanx.types import Array, PyTree

Reward = Literal["own", "mean", "sum"]


@dataclass(frozen=True)
class ActorsConfig:
    """What every learner with actors can be told."""

    network: Literal["mlp", "gru"] = option("mlp", "torso of actors and of critics of values; gru remembers")
    hidden: int = option(64, "width of every layer", at_least=1, at_most=65_536)
    layers: int = option(2, "linear layers before the head (before the gru)", at_least=1, at_most=64)
    activation: Literal["relu", "tanh"] = option("tanh", "what stands between layers")
    feature_norm: bool = option(
        False,
        "layer-normalise the inputs; it discards their common scale and offset, which in observations "
        "of very few entries is information",
    )
    agent_id: bool = option(True, "show each agent a one-hot of who it is")
    last_action: bool = option(False, "show each agent its last action")

    share: str = option("all", "who shares an actor: all, team, type, agent, or groups of agents as 0,1;2")
    reward: Reward = option(
        "own", "what each agent learns from: its own reward, or the mean or sum over its team"
    )

    batch_steps: int = option(2048, "env steps a rollout holds, over all environments", at_least=1)
    chunk: int = option(16, "steps that the gru is unrolled for when learning", at_least=1)

    gamma: float = option(0.99, "discount", at_least=0, at_most=1)
    lr: float = option(5e-4, "learning rate of the actor", above=0)
    lr_decay: bool = option(False, "let all learning rates fall to zero linearly over the budget")
    group_lr: str = option(
        "",
        "learning rates of single actors by group, START or START:END, as in marine=1e-3:1e-4,medivac=3e-4",
    )
    entropy: float = option(0.01, "weight of the entropy bonus", at_least=0)
    max_grad_norm: float = option(10.0, "clip each group's gradient to this norm", above=0)


class Half(NamedTuple):
    """Parameters and optimiser of all groups of one network, each (G, ...)."""

    params: PyTree
    optimiser: PyTree


class Actors(Algorithm):
    """A team that acts by networks, each shared by a group of agents."""

    Config = ActorsConfig
    config: ActorsConfig
    action_kinds = frozenset({"discrete"})

    def __init__(self, config: ActorsConfig, spec):
        super().__init__(config, spec)
        self.actor_groups = sharing.groups(config.share, spec)
        self.actor_rates = rates(config.lr, self.actor_groups, config.lr_decay, config.group_lr)
        self.teams = sharing.teams(spec)
        self.distribution = self._distribution()
        self.actor = self._network(spec.obs_size, self.distribution.outputs, head_gain=0.01)
        self.optimiser = optax.chain(
            optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5)
        )

    def _distribution(self) -> distributions.Distribution:
        """What outputs of the actor mean."""
        return distributions.Categorical(self.spec.n_actions)

    def _network(self, inputs: int, outputs: int, head_gain: float, kind: str | None = None) -> Network:
        c = self.config
        return Network(
            kind or c.network, inputs, outputs, c.hidden, c.layers, c.activation, c.feature_norm, head_gain
        )

    @staticmethod
    def inputs(config: ActorsConfig) -> dict[str, bool]:
        return {"agent_id": config.agent_id, "last_action": config.last_action}

    @property
    def steps_per_update(self) -> int:
        return self.config.batch_steps

    @property
    def chunk(self) -> int:
        return self.config.chunk if self.config.network == "gru" else 1

    @property
    def parts(self) -> int:
        """Into how many parts the chunks of a rollout must be cut."""
        return 1

    def check(self, envs: int) -> None:
        batch, parts = self.config.batch_steps, self.parts
        if batch % (envs * self.chunk) or (batch // self.chunk) % parts:
            unit = envs * self.chunk
            unit = unit * parts // gcd(unit // self.chunk, parts)
            fitting = max(unit, round(batch / unit) * unit)
            minibatches = f" x {parts} minibatches" if parts > 1 else ""
            raise PhalanxError(
                f"batch_steps={batch} cannot be cut into {envs} environments x chunks of {self.chunk}"
                f"{minibatches}: use batch_steps={fitting}, or other envs, chunk or minibatches"
            )

    # Acting

    def memory(self, batch: int) -> Array:
        return jnp.zeros((batch, self.spec.n_agents, self.actor.memory_size))

    def outputs(self, params: PyTree, obs: Array, memory: Array, first: Array) -> tuple[Array, Array]:
        """obs (T, B, A, O), memory (B, A, H), first (T, B) -> outputs (T, B, A, F), memories (T, B, A, H)."""
        begins = jnp.broadcast_to(first[..., None, None], (*obs.shape[:-1], 1))
        return sharing.apply(self.actor_groups, self.actor.apply, params, obs, memory, begins)

    def act(self, policy, observation, first, memory, key, greedy):
        out, memories = self.outputs(policy, observation.obs[None], memory, first[None])
        out, avail, dist = out[0], observation.avail, self.distribution
        drawn = dist.mode(out, avail) if greedy else dist.sample(key, out, avail)
        extras = {"drawn": drawn, "log_prob": dist.log_prob(out, avail, drawn)}
        return dist.action(drawn), memories[0], extras

    @property
    def prefers(self) -> str:  # type: ignore[override]
        return "probability" if self.spec.action_kind == "discrete" else ""

    def preferences(self, policy, observation, first, memory):
        out, _ = self.outputs(policy, observation.obs[None], memory, first[None])
        return jnp.exp(distributions.log_probs(out[0], observation.avail))

    # Learning

    def _half(self, groups: sharing.Groups, network: Network, key: Array) -> Half:
        params = sharing.init(groups, network.init, key)
        return Half(params, jax.vmap(self.optimiser.init)(params))

    def team_reward(self, reward: Array) -> Array:
        """(..., A) -> what each agent learns from, (..., A)."""
        if self.config.reward == "own":
            return reward
        members = self.teams.membership
        sums = (reward[..., None, :] * members).sum(-1)
        return sharing.to_agents(self.teams, sums / members.sum(-1) if self.config.reward == "mean" else sums)

    def descend(self, half: Half, grads: PyTree, lr: Array) -> tuple[Half, Array]:
        """Each group takes its own clipped Adam step at its own rate (G,); also its gradient's norm, (G,)."""

        def step(p, u):
            return p - lr.reshape(-1, *[1] * (p.ndim - 1)) * u

        updates, optimiser = jax.vmap(self.optimiser.update)(grads, half.optimiser)
        return Half(jax.tree.map(step, half.params, updates), optimiser), jax.vmap(optax.global_norm)(grads)

    def fit(self, half: Half, loss, lr: Array, passes: tuple[int, int], count: int, part, key: Array):
        """Train one network for some epochs of some minibatches of `count` chunks.

        `part` picks a minibatch by its chunks' numbers, and `loss(params, *part(numbers))` also gives scalars
        to log. Returns the network, the means of the scalars, and the mean gradient norms (G,).
        """
        epochs, minibatches = passes

        def minibatch(half, numbers):
            grads, metrics = jax.grad(loss, has_aux=True)(half.params, *part(numbers))
            half, norms = self.descend(half, grads, lr)
            return half, (metrics, norms)

        def epoch(half, key):
            order = jax.random.permutation(key, count)
            return jax.lax.scan(minibatch, half, order.reshape(minibatches, -1))

        half, logged = jax.lax.scan(epoch, half, jax.random.split(key, epochs))
        return half, *jax.tree.map(lambda x: x.sum((0, 1)) / max(epochs * minibatches, 1), logged)

    def by_group(self, name: str, groups: sharing.Groups, values: Array) -> dict[str, Array]:
        """What is logged of something that each group has, (..., G)."""
        if groups.count == 1:
            return {name: values[..., 0]}
        return {f"{name}/{group}": values[..., g] for g, group in enumerate(groups.names)}

    def next_outputs(self, params: PyTree, obs: Array, memories: Array) -> Array:
        """What actors put out for what truly came next, each from the memory at its own step: (T, B, A, F).

        No step waits for another, so time joins the batch: a sequence of length 1.
        """
        time, batch = memories.shape[:2]
        never = jnp.zeros((1, time * batch), bool)
        flat = obs.reshape(1, time * batch, *obs.shape[2:])
        out, _ = self.outputs(params, flat, memories.reshape(time * batch, *memories.shape[2:]), never)
        return out.reshape(time, batch, *out.shape[2:])

    def _chunks(self, x: Array) -> Array:
        """(T, B, ...) -> (L, N, ...), N = T/L x B."""
        time, batch, *rest = x.shape
        parts = x.reshape(time // self.chunk, self.chunk, batch, *rest)
        return parts.swapaxes(0, 1).reshape(self.chunk, -1, *rest)

    def _starts(self, memory: Array) -> Array:
        """The memory before each step, (T, B, ...) -> that before each chunk, (N, ...)."""
        kept = memory[:: self.chunk]
        return kept.reshape(kept.shape[0] * kept.shape[1], *kept.shape[2:])

    def _describe(self, role: str, groups: sharing.Groups, network: Network, sees: str) -> Networks:
        shapes = jax.eval_shape(network.init, jax.random.key(0))
        size = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        members = tuple(
            (name, tuple(self.spec.agents[agent] for agent in groups.members(g)))
            for g, name in enumerate(groups.names)
        )
        return Networks(f"{role} ({network.kind} {network.hidden})", members, size, sees)

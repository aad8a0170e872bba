"""What learners with actors share: policies to act by, and how rollouts become batches.

Losses and advantage statistics are each group's own. Rollouts are cut into chunks of `chunk` steps (1 without
recurrence), each with the memory that was held when it was played. Agents stay together in a chunk, which is
what lets a critic with a common view be computed once an environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

import jax
import jax.numpy as jnp

from phalanx.algorithms.shared.agents import Agents, AgentsConfig, Half
from phalanx.algorithms.shared.rates import Rates
from phalanx.config import option
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.ops import distributions, losses, masks
from phalanx.types import Array, Clock, PyTree


@dataclass(frozen=True)
class ActorsConfig(AgentsConfig):
    """What every learner with actors can be told."""

    chunk: int = option(16, "steps that the gru is unrolled for when learning", at_least=1)
    entropy: float = option(0.01, "weight of the entropy bonus", at_least=0)


class Actors(Agents):
    """A team that acts by policies. Subclasses make its critics, with `critic_groups` and `critic_rates`."""

    Config = ActorsConfig
    config: ActorsConfig
    critic_groups: sharing.Groups
    critic_rates: Rates

    def __init__(self, config: ActorsConfig, spec):
        super().__init__(config, spec)
        self.distribution = self._distribution()
        self.actor = self._network(spec.obs_size, self.distribution.outputs, head_gain=0.01)

    def _distribution(self) -> distributions.Distribution:
        """What outputs of the actor mean."""
        return distributions.Categorical(self.spec.n_actions)

    @property
    def chunk(self) -> int:
        return self.config.chunk if self.config.network == "gru" else 1

    @property
    def parts(self) -> int:
        """Into how many parts the chunks of a rollout must be cut."""
        return 1

    def check(self, envs: int) -> None:
        super().check(envs)
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

    def act(self, policy, observation, first, memory, key, greedy):
        out, memories = self.outputs(policy, observation.obs[None], memory, first[None])
        out, avail, dist = out[0], observation.avail, self.distribution
        drawn = dist.mode(out, avail) if greedy else dist.sample(key, out, avail)
        extras = {"drawn": drawn, "log_prob": dist.log_prob(out, avail, drawn)}
        return dist.action(drawn), memories[0], extras

    @property
    def prefers(self) -> str:
        return "probability" if self.spec.action_kind == "discrete" else ""

    def preferences(self, policy, observation, first, memory):
        out, _ = self.outputs(policy, observation.obs[None], memory, first[None])
        return jnp.exp(distributions.log_probs(out[0], observation.avail))

    # Learning

    def fit(self, half: Half, loss, lr: Array, passes: tuple[int, int], count: int, part, key: Array):
        """Train one network for some epochs of some minibatches of `count` chunks.

        `part` picks a minibatch by its chunks' numbers, and `loss(params, *part(numbers))` also gives scalars
        to log, (G,). Returns the network, the means of the scalars, and the mean gradient norms (G,).
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

    def value_metrics(self, values: Array, target: Array, alive: Array) -> dict[str, Array]:
        """What is logged of how well critics tell their targets, both (T, B, A), where values are learnt."""
        members, counted = self.critic_groups.membership, self.valued(alive)
        mean, var = masks.grouped_moments(target, counted, members)
        logged = {
            "explained_variance": losses.explained_variance(values, target, counted, members),
            "value_target": mean,
            "value_target_std": jnp.sqrt(var),
        }
        return self.by_group(self.critic_groups, logged)

    def network_metrics(
        self, actor: Mapping[str, Array], critic: Mapping[str, Array], clock: Clock
    ) -> dict[str, Array]:
        """What is logged of the groups of actors and of critics, from values (G,); also learning rates."""
        return {
            **self.by_group(self.actor_groups, {**actor, "actor_lr": self.actor_rates.at(clock)}),
            **self.by_group(self.critic_groups, {**critic, "critic_lr": self.critic_rates.at(clock)}),
        }

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

"""What learners with a critic of values share: what the critics see, learn from and are scaled by.

Critics have their own sharing. Their losses and the value normaliser are each group's own.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Networks
from phalanx.algorithms.shared.actors import Actors, ActorsConfig
from phalanx.algorithms.shared.agents import Half
from phalanx.algorithms.shared.rates import Rates
from phalanx.config import option
from phalanx.data.normalise import RunningNorm
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.ops import distributions, losses, masks
from phalanx.types import Array, Clock, Observation, PyTree, Transition

CriticView = Literal["obs", "state", "state+obs"]


@dataclass(frozen=True)
class ActorCriticConfig(ActorsConfig):
    """What learners with a critic of values can be told."""

    continuous: distributions.Shape = option(
        "tanh", "how continuous actions are drawn: normally and squashed into their range, or clipped to it"
    )
    critic_share: str = option("same", "who shares a critic: as share, or same")
    critic_view: CriticView = option(
        "obs", "what the critic sees: own observation, the global state, or both"
    )
    critic_lr: float = option(5e-4, "learning rate of the critic", above=0)
    critic_group_lr: str = option("", "learning rates of single critics by group, as in group_lr")
    standardise_advantages: bool = option(
        True, "give each group's advantages mean 0 and deviation 1 in every rollout"
    )
    value_loss: Literal["huber", "squared"] = option("huber", "the critic's loss")
    huber_delta: float = option(10.0, "where the Huber loss becomes linear", above=0)
    value_norm: Literal["none", "running", "popart"] = option(
        "running", "learn values on a running scale of their targets; popart also keeps outputs in place"
    )
    value_norm_decay: float = option(0.99, "memory of that scale, for each update", at_least=0, below=1)


class Learner(NamedTuple):
    """What is kept from one update to the next."""

    actor: Half
    critic: Half
    critic_memory: Array
    """(B, V, H), V being how many values are computed an environment"""
    value_norm: RunningNorm
    gradient_steps: Array


class Batch(NamedTuple):
    """A rollout as the losses see it: (L, N, ...), N chunks of L steps."""

    observation: Observation
    first: Array
    drawn: Array
    old_log_prob: Array
    advantage: Array
    old_value: Array
    target: Array


class Starts(NamedTuple):
    """The memories that each chunk begins with: (N, A, H), (N, V, H)."""

    actor: Array
    critic: Array


class ActorCritic(Actors):
    """A team of actors, and critics that say what a state is worth."""

    Config = ActorCriticConfig
    config: ActorCriticConfig
    action_kinds = frozenset({"discrete", "continuous"})

    def __init__(self, config: ActorCriticConfig, spec):
        super().__init__(config, spec)
        critic_share = config.share if config.critic_share == "same" else config.critic_share
        self.critic_groups = sharing.groups(critic_share, spec, "critic_share")
        self.critic_rates = self._rates(
            config.critic_lr, self.critic_groups, config.critic_group_lr, "critic_group_lr"
        )
        # A critic that sees only the common state says the same for all agents of its group.
        self.common_view = config.critic_view == "state" and not spec.agent_state
        self.value_groups = self.critic_groups.one_each if self.common_view else self.critic_groups
        self._require_one_value_a_group()
        view_size = {
            "obs": spec.obs_size,
            "state": spec.state_size,
            "state+obs": spec.state_size + spec.obs_size,
        }[config.critic_view]
        self.critic = self._network(view_size, 1, head_gain=1.0)

    @property
    def schedules(self) -> tuple[Rates, ...]:
        return self.actor_rates, self.critic_rates

    def _distribution(self) -> distributions.Distribution:
        return distributions.of(self.spec, self.config.continuous)

    def _require_one_value_a_group(self) -> None:
        """Refuse a critic that says the same of agents that learn from different rewards."""
        groups, spec = self.critic_groups, self.spec
        if not self.common_view or spec.common_reward:
            return
        if self.config.reward == "own" and groups.count < spec.n_agents:
            raise PhalanxError(
                f"a shared critic that sees only the state cannot tell apart the agents' own rewards of "
                f"{spec.name}: choose reward=mean, critic_view=state+obs or critic_share=agent"
            )
        if any(len({self.teams.of_agent[i] for i in groups.members(g)}) > 1 for g in range(groups.count)):
            raise PhalanxError(
                f"a critic that sees only the state cannot be shared by the teams of {spec.name}: "
                f"choose share=team, critic_share=team or critic_view=state+obs"
            )

    # Acting

    def init(self, key: Array, envs: int) -> Learner:
        actor_key, critic_key = jax.random.split(key)
        return Learner(
            actor=self._half(self.actor_groups, self.actor.init, actor_key),
            critic=self._half(self.critic_groups, self.critic.init, critic_key),
            critic_memory=jnp.zeros((envs, len(self.value_groups.of_agent), self.critic.memory_size)),
            value_norm=RunningNorm.start(self.critic_groups.count),
            gradient_steps=jnp.int32(0),
        )

    def init_policy(self, key: Array) -> PyTree:
        return sharing.init(self.actor_groups, self.actor.init, jax.random.split(key)[0])

    def policy(self, learner: Learner) -> PyTree:
        return learner.actor.params

    # Values

    def view(self, observation: Observation) -> Array:
        """What the critic sees: (..., V, F)."""
        if self.config.critic_view == "obs":
            return observation.obs
        state = observation.state if self.spec.agent_state else observation.state[..., None, :]
        if self.common_view:
            return jnp.broadcast_to(
                state, (*state.shape[:-2], len(self.value_groups.of_agent), state.shape[-1])
            )
        if self.config.critic_view == "state":
            return state
        state = jnp.broadcast_to(state, (*observation.obs.shape[:-1], state.shape[-1]))
        return jnp.concatenate([state, observation.obs], axis=-1)

    def values(self, params: PyTree, observation: Observation, memory: Array, first: Array):
        """(T, B, ...) -> values on the critic's own scale, (T, B, A), and memories, (T, B, V, H)."""
        seen = self.view(observation)
        begins = jnp.broadcast_to(first[..., None, None], (*seen.shape[:-1], 1))
        out, memories = sharing.apply(self.value_groups, self.critic.apply, params, seen, memory, begins)
        value = out[..., 0]
        return (sharing.to_agents(self.critic_groups, value) if self.common_view else value), memories

    def next_values(self, params: PyTree, observation: Observation, memories: Array) -> Array:
        """Values of what truly came next, each from the memory at its own step: (T, B, A).

        No step waits for another, so time joins the batch: a sequence of length 1.
        """
        time, batch = memories.shape[:2]
        flat = jax.tree.map(lambda x: x.reshape(1, time * batch, *x.shape[2:]), observation)
        memory = memories.reshape(time * batch, *memories.shape[2:])
        never = jnp.zeros((1, time * batch), bool)
        value, _ = self.values(params, flat, memory, never)
        return value.reshape(time, batch, -1)

    # Learning

    @abstractmethod
    def returns(
        self, rollout: Transition, reward: Array, values: Array, next_values: Array
    ) -> tuple[Array, Array]:
        """Advantages and value targets, from values before and after each step: all (T, B, A)."""

    @abstractmethod
    def actor_loss(self, params: PyTree, batch: Batch, memory: Array) -> tuple[Array, dict[str, Array]]:
        """What the actors descend, and values to log, (G,)."""

    def digest(self, learner: Any, rollout: Transition):
        """From a rollout make what the losses need; also move the value scale and the critic's memory on.

        `learner` is a `Learner`, or something with the same fields and others.
        """
        params, norm, groups = learner.critic.params, learner.value_norm, self.critic_groups
        scaled, memories = self.values(params, rollout.observation, learner.critic_memory, rollout.first)
        after = self.next_values(params, rollout.next_observation, memories)
        values = norm.denormalise(scaled, groups.of_agent)
        next_values = norm.denormalise(after, groups.of_agent)
        advantage, target = self.returns(rollout, self.team_reward(rollout.reward), values, next_values)
        alive = rollout.observation.alive
        if self.config.standardise_advantages:
            advantage = masks.standardise(advantage, alive, self.actor_groups.membership)
        critic, norm = self.rescale(learner.critic, norm, target, self.valued(alive))
        batch = Batch(
            observation=rollout.observation,
            first=rollout.first,
            drawn=rollout.extras["drawn"],
            old_log_prob=rollout.extras["log_prob"],
            advantage=advantage,
            # What the network said, on its own scale; PopArt has moved the network to the new scale.
            old_value=norm.normalise(values, groups.of_agent)
            if self.config.value_norm == "popart"
            else scaled,
            target=norm.normalise(target, groups.of_agent),
        )
        before = jnp.concatenate([learner.critic_memory[None], memories[:-1]])
        starts = Starts(self._starts(rollout.memory), self._starts(before))
        learner = learner._replace(critic=critic, value_norm=norm, critic_memory=memories[-1])
        metrics = {**self.value_metrics(values, target, alive), "dead": 1 - alive.mean()}
        return learner, jax.tree.map(self._chunks, batch), starts, metrics

    def rescale(
        self, critic: Half, norm: RunningNorm, target: Array, counted: Array
    ) -> tuple[Half, RunningNorm]:
        """Move the value scale towards the targets (T, B, A) that are `counted`."""
        if self.config.value_norm == "none":
            return critic, norm
        moments = masks.grouped_moments(target, counted, self.critic_groups.membership)
        new = norm.update(*moments, self.config.value_norm_decay)
        if self.config.value_norm == "running":
            return critic, new
        # PopArt (van Hasselt et al. 2016): change the head so that its values stay where they were.
        head = critic.params["head"]
        kernel = head["kernel"] * (norm.std / new.std)[:, None, None]
        bias = (norm.std[:, None] * head["bias"] + (norm.mean - new.mean)[:, None]) / new.std[:, None]
        return critic._replace(params={**critic.params, "head": {"kernel": kernel, "bias": bias}}), new

    def step(self, learner: Learner, batch: Batch, starts: Starts, clock: Clock):
        """One gradient step of both networks on a minibatch (L, N, ...); also what to log of each, (G,)."""
        actor_grads, actor_metrics = jax.grad(self.actor_loss, has_aux=True)(
            learner.actor.params, batch, starts.actor
        )
        critic_grads, critic_metrics = jax.grad(self.critic_loss, has_aux=True)(
            learner.critic.params, batch, starts.critic
        )
        actor, actor_norms = self.descend(learner.actor, actor_grads, self.actor_rates.at(clock))
        critic, critic_norms = self.descend(learner.critic, critic_grads, self.critic_rates.at(clock))
        learner = learner._replace(actor=actor, critic=critic, gradient_steps=learner.gradient_steps + 1)
        of_actors = {**actor_metrics, "actor_grad_norm": actor_norms}
        return learner, (of_actors, {**critic_metrics, "critic_grad_norm": critic_norms})

    def critic_loss(self, params: PyTree, batch: Batch, memory: Array) -> tuple[Array, dict[str, Array]]:
        """The value loss on the normalised scale; each group's mean, summed."""
        value, _ = self.values(params, batch.observation, memory, batch.first)
        loss = self.value_loss(value, batch)
        counted = self.valued(batch.observation.alive)
        means = masks.grouped_mean(loss, counted, self.critic_groups.membership)
        return means.sum(), {"value_loss": means}

    def value_loss(self, value: Array, batch: Batch) -> Array:
        """What each value (L, N, A) is off."""
        return self.error(value - batch.target)

    def error(self, difference: Array) -> Array:
        """The loss of a difference between a value and its target."""
        if self.config.value_loss == "huber":
            return losses.huber(difference, self.config.huber_delta)
        return losses.squared(difference)

    def networks(self) -> list[Networks]:
        sees = {
            "obs": "own observation",
            "state": "global state",
            "state+obs": "global state and own observation",
        }[self.config.critic_view]
        return [
            self._describe("actor", self.actor_groups, self.actor, "own observation"),
            self._describe("critic", self.critic_groups, self.critic, sees),
        ]

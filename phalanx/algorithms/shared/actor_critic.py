"""On-policy policy gradients: actors, state-value critics, and how rollouts become minibatches.

`ActorCritic` is the learner that PPO, A2C and MAPPO-distil have in common. It is made of a `PolicyActor`, a
`Critic` and `Chunks`; COMA uses the first and the last as well. An algorithm adds its
`advantages_and_targets`, its losses and its `update`.

Losses and advantage statistics are computed for each group of agents separately. Rollouts are split into
chunks of `chunk` steps (1 without recurrence), each with the hidden state that was stored when it was
collected. Agents stay together in a chunk, so that a critic of the common state is evaluated once for each
environment.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm, RoleParameters
from phalanx.algorithms.shared.critic import Critic, CriticConfig, TargetCritic, value_metrics
from phalanx.algorithms.shared.minibatches import Chunks
from phalanx.algorithms.shared.off_policy import moved
from phalanx.algorithms.shared.optimiser import TrainState
from phalanx.algorithms.shared.policy import PolicyActor
from phalanx.algorithms.shared.reward_scale import ROLE, RewardScale, Statistics
from phalanx.algorithms.shared.team import (
    Rewards,
    make_optimiser,
    shared_network,
    summary,
)
from phalanx.config import option
from phalanx.data.normalise import RunningNorm
from phalanx.networks import sharing
from phalanx.ops import distributions, losses, masks
from phalanx.ops.distributions import Distribution
from phalanx.types import Array, Clock, EnvSpec, Observation, PyTree, Transition


@dataclass(frozen=True)
class ActorCriticConfig(CriticConfig):
    """The options of every learner with a critic of state values."""

    continuous: distributions.Shape = option(
        "tanh", "distribution of continuous actions: a normal squashed into their range, or clipped to it"
    )
    standardise_advantages: bool = option(
        True, "give each group's advantages mean 0 and standard deviation 1 in every rollout"
    )


class Batch(NamedTuple):
    """A rollout as the losses see it: (L, N, ...), N chunks of L steps."""

    observation: Observation
    first: Array
    drawn: Array
    old_log_prob: Array
    advantage: Array
    old_value: Array
    target: Array


class Memories(NamedTuple):
    """The memories that each chunk begins with: (N, A, H), (N, V, H)."""

    actor: Array
    critic: Array


class ActorCriticLearner(NamedTuple):
    """What is kept from one update to the next."""

    actor: TrainState
    critic: TrainState
    critic_memory: Array
    """(B, V, H)"""
    value_norm: RunningNorm
    gradient_steps: Array
    own: PyTree = ()
    """what an algorithm adds"""
    target: TargetCritic | tuple[()] = ()
    """empty without a target critic"""
    reward_norm: Statistics = ()
    """empty without `reward_norm`"""
    replay: None = None


class ActorCritic(Algorithm):
    """Actors, and critics of state values, that learn from rollouts."""

    Config = ActorCriticConfig
    config: ActorCriticConfig
    actor: PolicyActor
    action_kinds = frozenset({"discrete", "continuous"})

    def __init__(self, config: ActorCriticConfig, spec: EnvSpec):
        super().__init__(config, spec)
        self.rewards = Rewards(config.reward, spec)
        self.reward_scale = RewardScale(config.reward_norm)
        self.actor_groups = sharing.groups(config.share, spec)
        self.actor = self.make_actor(distributions.of(spec, config.continuous))
        self.critic = Critic(config, spec, self.rewards)
        self.actor_optimiser = make_optimiser(config, self.actor_groups, config.lr, config.group_lr)
        self.critic_optimiser = make_optimiser(
            config, self.critic.groups, config.critic_lr, config.critic_group_lr, "critic_group_lr"
        )
        self.optimisers = (self.actor_optimiser, self.critic_optimiser)
        self.chunks = Chunks(config.chunk if self.actor.network.memory_size else 1, self.minibatch_count)

    def make_actor(self, distribution: Distribution) -> PolicyActor:
        """The actor's network for this distribution."""
        spec = self.spec
        outputs, picture = distribution.outputs, spec.obs_shape
        network = shared_network(
            self.config, self.actor_groups, spec.obs_size, outputs, head_gain=0.01, picture=picture
        )
        return PolicyActor(network, distribution)

    @property
    def minibatch_count(self) -> int:
        """The chunks of a rollout are a multiple of this."""
        return 1

    def check(self, envs: int) -> None:
        self.chunks.check(self.config.batch_steps, envs)

    def init(self, key: Array, envs: int) -> ActorCriticLearner:
        actor_key, critic_key = jax.random.split(key)
        critic = self.critic_optimiser.init(self.critic.network.init(critic_key))
        memory = self.critic.network.initial_memory(envs)
        return ActorCriticLearner(
            actor=self.actor_optimiser.init(self.actor.network.init(actor_key)),
            critic=critic,
            critic_memory=memory,
            value_norm=RunningNorm.start(self.critic.groups.count),
            gradient_steps=jnp.int32(0),
            target=TargetCritic(critic.params, memory, jnp.int32(0)) if self.config.target_every else (),
            reward_norm=self.reward_scale.start(),
        )

    def policy(self, learner: ActorCriticLearner) -> PyTree:
        return learner.actor.params

    @abstractmethod
    def advantages_and_targets(
        self, rollout: Transition, reward: Array, values: Array, next_values: Array
    ) -> tuple[Array, Array]:
        """Advantages and value targets, from the values before and after each step: all (T, B, A)."""

    def bootstrap(
        self, learner: ActorCriticLearner, rollout: Transition, memories: Array
    ) -> tuple[Array, TargetCritic | tuple[()]]:
        """Normalised values of the true next observations, (T, B, A), and the target critic that gave them.

        `memories` (T, B, V, H) are the critic's after each step. The target critic is updated before it is
        used, so that it changes after every `target_every` updates in all algorithms.
        """
        then, target = rollout.next_observation, learner.target
        if not isinstance(target, TargetCritic):
            return self.critic.next_values(learner.critic.params, then, memories), ()
        c = self.config
        params = moved(target.params, learner.critic.params, target.updates, c.target_every, c.target_rate)
        _, memories = self.critic.values(params, rollout.observation, target.memory, rollout.first)
        after = self.critic.next_values(params, then, memories)
        return after, TargetCritic(params, memories[-1], target.updates + 1)

    def prepare_batch(
        self, learner: ActorCriticLearner, rollout: Transition
    ) -> tuple[ActorCriticLearner, Batch, Memories, dict[str, Array]]:
        """Compute advantages and value targets of a rollout, and cut it into chunks.

        Also updates the value statistics and the critic's memory, and returns scalars to log.
        """
        critic, norm, groups = self.critic, learner.value_norm, self.critic.groups
        params, seen = learner.critic.params, rollout.observation
        scaled, memories = critic.values(params, seen, learner.critic_memory, rollout.first)
        after, target_critic = self.bootstrap(learner, rollout, memories)
        values = norm.denormalise(scaled, groups.of_agent)
        next_values = norm.denormalise(after, groups.of_agent)
        earned = self.rewards.of(rollout.reward)
        reward_norm = self.reward_scale.update(learner.reward_norm, earned)
        reward = self.reward_scale.apply(earned, reward_norm)
        advantage, target = self.advantages_and_targets(rollout, reward, values, next_values)
        if self.config.standardise_advantages:
            advantage = masks.standardise(advantage, seen.alive, self.actor_groups.membership)
        counted = self.rewards.valued(seen.alive)
        new_critic, norm = critic.rescale(learner.critic, norm, target, counted)
        if isinstance(target_critic, TargetCritic):
            params = critic.on_scale(target_critic.params, learner.value_norm, norm)
            target_critic = target_critic._replace(params=params)
        popart = self.config.value_norm == "popart"  # it has moved the network to the new scale
        batch = Batch(
            observation=seen,
            first=rollout.first,
            drawn=rollout.extras["drawn"],
            old_log_prob=rollout.extras["log_prob"],
            advantage=advantage,
            old_value=norm.normalise(values, groups.of_agent) if popart else scaled,
            target=norm.normalise(target, groups.of_agent),
        )
        before = jnp.concatenate([learner.critic_memory[None], memories[:-1]])
        starts = Memories(self.chunks.starts(rollout.memory), self.chunks.starts(before))
        learner = learner._replace(
            critic=new_critic,
            value_norm=norm,
            critic_memory=memories[-1],
            target=target_critic,
            reward_norm=reward_norm,
        )
        metrics = {**value_metrics(groups, values, target, counted), "dead": 1 - seen.alive.mean()}
        return learner, jax.tree.map(self.chunks.split, batch), starts, metrics

    def clipped_policy_loss(self, params: PyTree, batch: Batch, memory: Array, clip: float):
        """PPO's clipped surrogate and the entropy bonus, over living agents; each group's mean, summed."""
        seen, dist = batch.observation, self.actor.distribution
        out, _ = self.actor.outputs(params, seen.obs, memory, batch.first)
        log_prob = dist.log_prob(out, seen.avail, batch.drawn)
        # The dead have no ratio; 0 keeps theirs from becoming infinite.
        log_ratio = jnp.where(seen.alive, log_prob - batch.old_log_prob, 0.0)
        ratio = jnp.exp(log_ratio)
        surrogate = losses.clipped_surrogate(ratio, batch.advantage, clip)
        entropy = dist.entropy(out, seen.avail)
        loss = surrogate - self.config.entropy * entropy
        logged = {
            "policy_loss": surrogate,
            "entropy": entropy,
            "kl": ratio - 1 - log_ratio,
            "clip_fraction": jnp.abs(ratio - 1) > clip,
        }
        metrics = self.actor_groups.mean(logged, seen.alive)
        return masks.grouped_mean(loss, seen.alive, self.actor_groups.membership).sum(), metrics

    def value_loss(self, params: PyTree, batch: Batch, memory: Array, clip: float | None = None):
        """The loss of normalised values; each group's mean, summed.

        With `clip` it is PPO's: the larger loss of the value and of the value clipped around the old one.
        """
        value, _ = self.critic.values(params, batch.observation, memory, batch.first)
        error = self.critic.error
        loss = (
            error(value - batch.target)
            if clip is None
            else losses.clipped_value_loss(error, value, batch.old_value, batch.target, clip)
        )
        counted = self.rewards.valued(batch.observation.alive)
        means = masks.grouped_mean(loss, counted, self.critic.groups.membership)
        return means.sum(), {"value_loss": means}

    def metrics_by_group(
        self, actor: Mapping[str, Array], critic: Mapping[str, Array], clock: Clock
    ) -> dict[str, Array]:
        """Scalars to log for the groups of actors and of critics, from values (G,); also learning rates."""
        actor_lr, critic_lr = (each.rates.at(clock) for each in (self.actor_optimiser, self.critic_optimiser))
        return {
            **self.actor_groups.named({**actor, "actor_lr": actor_lr}),
            **self.critic.groups.named({**critic, "critic_lr": critic_lr}),
        }

    def networks(self, learner: ActorCriticLearner) -> dict[str, RoleParameters]:
        return {
            "actor": RoleParameters(self.actor_groups, learner.actor.params),
            "critic": RoleParameters(self.critic.groups, (learner.critic.params, learner.value_norm)),
            **self.reward_scale.networks(learner.reward_norm),
        }

    def with_networks(
        self, learner: ActorCriticLearner, parameters: Mapping[str, PyTree]
    ) -> ActorCriticLearner:
        critic, value_norm = parameters["critic"]
        target = learner.target
        return learner._replace(
            actor=learner.actor._replace(params=parameters["actor"]),
            critic=learner.critic._replace(params=critic),
            value_norm=value_norm,
            target=target._replace(params=critic) if isinstance(target, TargetCritic) else (),
            reward_norm=parameters.get(ROLE, ()),
        )

    def summary(self):
        sees = {
            "obs": "own observation",
            "state": "global state",
            "state+obs": "global state and own observation",
        }[self.config.critic_view]
        return [
            summary("actor", self.actor.network, self.actor_groups, self.spec, "own observation"),
            summary("critic", self.critic.network, self.critic.groups, self.spec, sees),
        ]

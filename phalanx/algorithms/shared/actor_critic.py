"""Policy gradients on rollouts: actors, critics of state values, and how rollouts become minibatches.

`ActorCritic` is the learner that PPO, A2C and MAPPO-distil have in common. It is made of a `PolicyActor`, a
`Critic` and `Chunks`, which COMA uses as well. An algorithm adds its `returns`, its losses and its `update`.

Losses and advantage statistics are computed for each group of agents on its own. Rollouts are cut into chunks
of `chunk` steps (1 without recurrence), each with the memory that was held when it was played. Agents stay
together in a chunk, so that a critic with a common view is computed once for each environment.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm, RoleParameters
from phalanx.algorithms.shared.minibatches import Chunks
from phalanx.algorithms.shared.optimiser import TrainState
from phalanx.algorithms.shared.team import (
    NetworkActor,
    Rewards,
    TeamConfig,
    joined,
    make_optimiser,
    shared_network,
    summary,
)
from phalanx.config import option
from phalanx.data.normalise import RunningNorm
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.networks.sharing import Groups, SharedNetwork
from phalanx.ops import distributions, losses, masks
from phalanx.ops.distributions import Distribution
from phalanx.types import Array, Clock, EnvSpec, Observation, PyTree, Transition

CriticView = Literal["obs", "state", "state+obs"]


@dataclass(frozen=True)
class PolicyConfig(TeamConfig):
    """The options of every learner with a stochastic policy."""

    chunk: int = option(16, "steps of backpropagation through time in a gru", at_least=1)
    entropy: float = option(0.01, "weight of the entropy bonus", at_least=0)


@dataclass(frozen=True)
class ActorCriticConfig(PolicyConfig):
    """The options of every learner with a critic of state values."""

    continuous: distributions.Shape = option(
        "tanh", "distribution of continuous actions: a normal squashed into their range, or clipped to it"
    )
    critic_share: str = option("same", "who shares a critic: as share, or same")
    critic_view: CriticView = option("obs", "input of the critic: own observation, global state, or both")
    critic_lr: float = option(5e-4, "learning rate of the critic", above=0)
    critic_group_lr: str = option("", "learning rates of single critics by group, as in group_lr")
    standardise_advantages: bool = option(
        True, "give each group's advantages mean 0 and standard deviation 1 in every rollout"
    )
    value_loss: Literal["huber", "squared"] = option("huber", "loss of the critic")
    huber_delta: float = option(10.0, "where the Huber loss becomes linear", above=0)
    value_norm: Literal["none", "running", "popart"] = option(
        "running", "normalise value targets by running statistics; popart also preserves the critic's outputs"
    )
    value_norm_decay: float = option(0.99, "decay of those statistics, for each update", at_least=0, below=1)


class PolicyActor(NetworkActor):
    """A stochastic policy for each agent."""

    def __init__(self, network: SharedNetwork, distribution: Distribution):
        super().__init__(network)
        self.distribution = distribution

    def act(
        self, policy: PyTree, observation: Observation, first: Array, memory: Array, key: Array, greedy: bool
    ):
        out, memory = self.one_step(policy, observation.obs, memory, first)
        avail, dist = observation.avail, self.distribution
        drawn = dist.mode(out, avail) if greedy else dist.sample(key, out, avail)
        extras = {"drawn": drawn, "log_prob": dist.log_prob(out, avail, drawn)}
        return dist.action(drawn), memory, extras

    @property
    def preference(self) -> str:
        return "probability" if isinstance(self.distribution, distributions.Categorical) else ""

    def preferences(self, policy: PyTree, observation: Observation, first: Array, memory: Array):
        out, _ = self.one_step(policy, observation.obs, memory, first)
        return jnp.exp(distributions.log_probs(out, observation.avail))


class Critic:
    """Estimates state values, with sharing of its own."""

    def __init__(self, config: ActorCriticConfig, spec: EnvSpec, rewards: Rewards):
        self.config, self.spec, self.rewards = config, spec, rewards
        share = config.share if config.critic_share == "same" else config.critic_share
        self.groups = sharing.groups(share, spec, "critic_share")
        # A critic that sees only the global state has the same value for all agents of its group.
        self.common_view = config.critic_view == "state" and not spec.agent_state
        self._require_one_value_a_group()
        inputs = {
            "obs": spec.obs_size,
            "state": spec.state_size,
            "state+obs": spec.state_size + spec.obs_size,
        }[config.critic_view]
        # Beside pictures the state is a vector, for which a cnn or a torso for pictures is not made.
        picture = None if config.critic_view == "state" else spec.obs_shape
        only_vector = spec.obs_shape is not None and picture is None and config.network != "gru"
        owners = self.groups.one_each if self.common_view else self.groups
        kind = "mlp" if only_vector else None
        self.network = shared_network(config, owners, inputs, 1, head_gain=1.0, kind=kind, picture=picture)

    def _require_one_value_a_group(self) -> None:
        """Refuse a critic with one value for agents that learn from different rewards."""
        groups, spec = self.groups, self.spec
        if not self.common_view or spec.common_reward:
            return
        if self.config.reward == "own" and groups.count < spec.n_agents:
            raise PhalanxError(
                f"a shared critic that sees only the state cannot tell apart the agents' own rewards of "
                f"{spec.name}: choose reward=mean, critic_view=state+obs or critic_share=agent"
            )
        team_of = self.rewards.teams.of_agent
        if any(len({team_of[i] for i in groups.members(g)}) > 1 for g in range(groups.count)):
            raise PhalanxError(
                f"a critic that sees only the state cannot be shared by the teams of {spec.name}: "
                f"choose share=team, critic_share=team or critic_view=state+obs"
            )

    def view(self, observation: Observation) -> Any:
        """The critic's input, (..., V, F) or a `Picture`: V is the number of values in an environment."""
        if self.config.critic_view == "obs":
            return observation.obs
        state = observation.state if self.spec.agent_state else observation.state[..., None, :]
        if self.common_view:
            return jnp.broadcast_to(state, (*state.shape[:-2], self.groups.count, state.shape[-1]))
        if self.config.critic_view == "state":
            return state
        state = jnp.broadcast_to(state, (*observation.alive.shape, state.shape[-1]))
        return joined([state], observation.obs, [])

    def values(self, params: PyTree, observation: Observation, memory: Array, first: Array):
        """(T, B, ...) -> normalised values, (T, B, A), and memories, (T, B, V, H)."""
        out, memories = self.network.apply(params, self.view(observation), memory, first)
        return self._to_agents(out[..., 0]), memories

    def next_values(self, params: PyTree, observation: Observation, memories: Array) -> Array:
        """Values of the true next observations, each from the memory at its own step: (T, B, A)."""
        out = self.network.apply_each(params, self.view(observation), memories)
        return self._to_agents(out[..., 0])

    def _to_agents(self, value: Array) -> Array:
        return sharing.to_agents(self.groups, value) if self.common_view else value

    def rescale(
        self, critic: TrainState, norm: RunningNorm, target: Array, counted: Array
    ) -> tuple[TrainState, RunningNorm]:
        """Update the value statistics with the targets (T, B, A) that are `counted`."""
        if self.config.value_norm == "none":
            return critic, norm
        moments = masks.grouped_moments(target, counted, self.groups.membership)
        new = norm.update(*moments, self.config.value_norm_decay)
        if self.config.value_norm == "running":
            return critic, new
        # PopArt (van Hasselt et al. 2016): change the head so that its values stay where they were.
        head = critic.params["head"]
        kernel = head["kernel"] * (norm.std / new.std)[:, None, None]
        bias = (norm.std[:, None] * head["bias"] + (norm.mean - new.mean)[:, None]) / new.std[:, None]
        return critic._replace(params={**critic.params, "head": {"kernel": kernel, "bias": bias}}), new

    def error(self, difference: Array) -> Array:
        """The loss of a difference between a value and its target."""
        if self.config.value_loss == "huber":
            return losses.huber(difference, self.config.huber_delta)
        return losses.squared(difference)


def value_metrics(groups: Groups, values: Array, target: Array, counted: Array) -> dict[str, Array]:
    """How well critics predict their targets, both (T, B, A), where `counted`."""
    mean, var = masks.grouped_moments(target, counted, groups.membership)
    return groups.named(
        {
            "explained_variance": losses.explained_variance(values, target, counted, groups.membership),
            "value_target": mean,
            "value_target_std": jnp.sqrt(var),
        }
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
        return ActorCriticLearner(
            actor=self.actor_optimiser.init(self.actor.network.init(actor_key)),
            critic=self.critic_optimiser.init(self.critic.network.init(critic_key)),
            critic_memory=self.critic.network.initial_memory(envs),
            value_norm=RunningNorm.start(self.critic.groups.count),
            gradient_steps=jnp.int32(0),
        )

    def policy(self, learner: ActorCriticLearner) -> PyTree:
        return learner.actor.params

    @abstractmethod
    def advantages_and_targets(
        self, rollout: Transition, reward: Array, values: Array, next_values: Array
    ) -> tuple[Array, Array]:
        """Advantages and value targets, from the values before and after each step: all (T, B, A)."""

    def prepare_batch(
        self, learner: ActorCriticLearner, rollout: Transition
    ) -> tuple[ActorCriticLearner, Batch, Memories, dict[str, Array]]:
        """Compute advantages and value targets of a rollout, and cut it into chunks.

        Also updates the value statistics and the critic's memory, and returns scalars to log.
        """
        critic, norm, groups = self.critic, learner.value_norm, self.critic.groups
        params, seen = learner.critic.params, rollout.observation
        scaled, memories = critic.values(params, seen, learner.critic_memory, rollout.first)
        after = critic.next_values(params, rollout.next_observation, memories)
        values = norm.denormalise(scaled, groups.of_agent)
        next_values = norm.denormalise(after, groups.of_agent)
        reward = self.rewards.of(rollout.reward)
        advantage, target = self.advantages_and_targets(rollout, reward, values, next_values)
        if self.config.standardise_advantages:
            advantage = masks.standardise(advantage, seen.alive, self.actor_groups.membership)
        counted = self.rewards.valued(seen.alive)
        new_critic, norm = critic.rescale(learner.critic, norm, target, counted)
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
        learner = learner._replace(critic=new_critic, value_norm=norm, critic_memory=memories[-1])
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
        """What is logged of the groups of actors and of critics, from values (G,); also learning rates."""
        actor_lr, critic_lr = (each.rates.at(clock) for each in (self.actor_optimiser, self.critic_optimiser))
        return {
            **self.actor_groups.named({**actor, "actor_lr": actor_lr}),
            **self.critic.groups.named({**critic, "critic_lr": critic_lr}),
        }

    def networks(self, learner: ActorCriticLearner) -> dict[str, RoleParameters]:
        return {
            "actor": RoleParameters(self.actor_groups, learner.actor.params),
            "critic": RoleParameters(self.critic.groups, (learner.critic.params, learner.value_norm)),
        }

    def with_networks(
        self, learner: ActorCriticLearner, parameters: Mapping[str, PyTree]
    ) -> ActorCriticLearner:
        critic, value_norm = parameters["critic"]
        return learner._replace(
            actor=learner.actor._replace(params=parameters["actor"]),
            critic=learner.critic._replace(params=critic),
            value_norm=value_norm,
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

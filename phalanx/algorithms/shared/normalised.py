"""Normalised observations and rewards: a wrapper around an algorithm, which then sees only normalised ones.

The statistics of observations are a part of the policy, so that evaluations, recordings and exported teams
normalise as training did; only `update` changes them. All statistics are a part of the learner, so that they
are saved with it.

Learning from a rollout uses the statistics with which it was collected, so that the policy that learns is the
one that acted. A replay buffer stores unnormalised steps, and samples are normalised with the newest
statistics.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.tree_util import Partial

from phalanx.algorithms.base import (
    Actor,
    Algorithm,
    AlgorithmConfig,
    Learner,
    NetworkSummary,
    RoleParameters,
)
from phalanx.algorithms.shared.curiosity import with_curiosity
from phalanx.algorithms.shared.team import Rewards, TeamConfig
from phalanx.algorithms.shared.wrapped import Wrapped
from phalanx.data.normalise import Moments, ReturnStatistics
from phalanx.data.replay import Episodes
from phalanx.errors import PhalanxError
from phalanx.networks.sharing import partition
from phalanx.types import Array, Clock, EnvSpec, Observation, PyTree, Transition

OBS, STATE, REWARD = "observation statistics", "state statistics", "reward statistics"


def build(cls: type[Algorithm], config: AlgorithmConfig, spec: EnvSpec) -> Algorithm:
    """An algorithm as its options say, curious and normalised or not. `spec` is as the networks see it."""
    algorithm = cls(config, spec)
    if not isinstance(config, TeamConfig):
        return algorithm
    # Normalised outside: curiosity sees what networks see, and its bonus is not scaled as rewards are.
    algorithm = with_curiosity(algorithm, config)
    return Normalised(algorithm, config) if config.normalise_obs or config.normalise_reward else algorithm


class InputStatistics(NamedTuple):
    """Of what networks see."""

    obs: Moments
    """(G, O): of the environment's own entries; agents with as many entries share them"""
    state: Moments
    """(1, X)"""


class InputNormaliser:
    """Normalises observations and states, entry by entry."""

    def __init__(self, spec: EnvSpec, added: Mapping[str, bool]):
        """`added` says what was appended to the environment's own entries: see `AlgorithmConfig.inputs`."""
        if spec.obs_shape is not None:
            raise PhalanxError(
                f"observations of {spec.name} are pictures, which networks see scaled already: leave out "
                f"normalise_obs"
            )
        ids, last_actions = added["agent_id"] * spec.n_agents, added["last_action"] * spec.n_actions
        self.size = spec.obs_size - ids - last_actions
        # Agents with as many entries share statistics: padding is then zero in all of them, and stays zero.
        sizes = [sum(name != "padding" for name in names[: self.size]) for names in spec.obs_features]
        self.groups = partition([f"agents with {size} entries" for size in sizes])
        self.states = partition(["all agents"] * (spec.n_agents if spec.agent_state else 1))
        self.agent_state, self.state_size = spec.agent_state, spec.state_size

    def start(self) -> InputStatistics:
        return InputStatistics(Moments.start(self.groups.count, self.size), Moments.start(1, self.state_size))

    def update(self, statistics: InputStatistics, seen: Observation) -> InputStatistics:
        """Take in the observations (..., A, O) of living agents, and the states."""
        alive = seen.alive[..., None]
        obs = statistics.obs.update(seen.obs[..., : self.size], alive, self.groups.membership)
        states = self._states(seen)
        counted = alive if self.agent_state else jnp.ones((*states.shape[:-1], 1), bool)
        return InputStatistics(obs, statistics.state.update(states, counted, self.states.membership))

    def apply(self, statistics: InputStatistics, seen: Observation) -> Observation:
        """Observations as networks see them. Padding and the rows of the dead stay zero."""
        own, added = seen.obs[..., : self.size], seen.obs[..., self.size :]
        normal = statistics.obs.normalise(own, self.groups.of_agent)
        own = jnp.where(seen.alive[..., None], normal, own)
        seen = seen._replace(obs=jnp.concatenate([own, added], axis=-1))
        if not seen.state.shape[-1]:  # not kept in this replay
            return seen
        state = statistics.state.normalise(self._states(seen), self.states.of_agent)
        return seen._replace(state=state.reshape(seen.state.shape))

    def _states(self, seen: Observation) -> Array:
        """(..., A, X), or (..., 1, X) where all agents have one."""
        return seen.state if self.agent_state else seen.state[..., None, :]


class RewardNormaliser:
    """Divides rewards by the standard deviation of the discounted return of the agent's team.

    That is the return up to each step, of the rewards that agents learn from. The mean is not subtracted,
    which would change the task where episodes differ in length.
    """

    def __init__(self, config: TeamConfig, spec: EnvSpec):
        other = getattr(config, "reward_norm", "none")
        if other != "none":
            raise PhalanxError(f"normalise_reward and reward_norm={other} both scale rewards: leave one out")
        self.gamma, self.n_agents = config.gamma, spec.n_agents
        self.rewards = Rewards(config.reward, spec)
        self.teams = self.rewards.teams

    def start(self, envs: int) -> ReturnStatistics:
        return ReturnStatistics.start(self.teams.count, envs, self.n_agents)

    def update(self, statistics: ReturnStatistics, rollout: Transition) -> ReturnStatistics:
        """Take in a rollout (T, B, ...)."""
        reward = self.rewards.of(rollout.reward)
        counted = self.rewards.valued(rollout.observation.alive)
        return statistics.update(rollout.first, reward, counted, self.gamma, self.teams.membership)

    def apply(self, statistics: ReturnStatistics, reward: Array) -> Array:
        """Rewards (..., A) as they are learnt from."""
        return statistics.scaled(reward, self.teams.of_agent)


class NormalisedPolicy(NamedTuple):
    """What acting needs."""

    policy: PyTree
    """of the algorithm inside"""
    inputs: InputStatistics | None


class NormalisedActor(Actor):
    """Acts as another actor does, on normalised observations."""

    def __init__(self, actor: Actor, inputs: InputNormaliser | None):
        self.actor, self.inputs = actor, inputs

    @property
    def acts_on(self) -> frozenset[str]:
        return self.actor.acts_on

    def initial_memory(self, batch: int) -> PyTree:
        return self.actor.initial_memory(batch)

    def ready(self, policy: NormalisedPolicy) -> NormalisedPolicy:
        return policy._replace(policy=self.actor.ready(policy.policy))

    def _see(self, policy: NormalisedPolicy, observation: Observation) -> Observation:
        if self.inputs is None or policy.inputs is None:
            return observation
        return self.inputs.apply(policy.inputs, observation)

    def act(
        self,
        policy: NormalisedPolicy,
        observation: Observation,
        first: Array,
        memory: PyTree,
        key: Array,
        greedy: bool,
    ) -> tuple[Array, PyTree, PyTree]:
        return self.actor.act(policy.policy, self._see(policy, observation), first, memory, key, greedy)

    @property
    def preference(self) -> str:
        return self.actor.preference

    def preferences(
        self, policy: NormalisedPolicy, observation: Observation, first: Array, memory: PyTree
    ) -> Array:
        return self.actor.preferences(policy.policy, self._see(policy, observation), first, memory)


class NormalisedLearner(NamedTuple):
    """A learner and the statistics; None where something is not normalised."""

    learner: Learner
    """of the algorithm inside, without its replay"""
    replay: PyTree
    inputs: InputStatistics | None
    rewards: ReturnStatistics | None

    @property
    def gradient_steps(self) -> Array:
        return self.learner.gradient_steps


class Normalised(Wrapped):
    """An algorithm that learns from normalised observations, normalised rewards, or both."""

    options = "normalise_obs and normalise_reward"

    def __init__(self, algorithm: Algorithm, config: TeamConfig):
        super().__init__(algorithm, config)
        self.inputs = InputNormaliser(self.spec, config.inputs) if config.normalise_obs else None
        self.scale = RewardNormaliser(config, self.spec) if config.normalise_reward else None
        self.actor = NormalisedActor(algorithm.actor, self.inputs)

    def init(self, key: Array, envs: int) -> NormalisedLearner:
        learner, replay = self.init_inside(key, envs)
        return NormalisedLearner(
            learner=learner,
            replay=replay,
            inputs=self.inputs.start() if self.inputs else None,
            rewards=self.scale.start(envs) if self.scale else None,
        )

    def policy(self, learner: NormalisedLearner) -> NormalisedPolicy:
        return NormalisedPolicy(super().policy(learner), learner.inputs)

    def update(self, learner: NormalisedLearner, rollout: Transition, key: Array, clock: Clock):
        inputs, rewards = learner.inputs, learner.rewards
        if self.inputs and inputs is not None:
            inputs = self.inputs.update(inputs, rollout.observation)
        if self.scale and rewards is not None:
            rewards = self.scale.update(rewards, rollout)
        newest = Partial(self._normalised, inputs, rewards)
        if self.replay is None:
            rollout = self._normalised(learner.inputs, rewards, rollout)
        learner, metrics = self.update_inside(learner, rollout, key, clock, newest)
        if self.scale and rewards is not None:
            metrics = {**metrics, **self.scale.teams.named({"reward_scale": rewards.moments.std[:, 0]})}
        return learner._replace(inputs=inputs, rewards=rewards), metrics

    def _normalised(
        self, inputs: InputStatistics | None, rewards: ReturnStatistics | None, steps: Transition | Episodes
    ) -> Any:
        """Steps as they are learnt from: a rollout (T, B, ...), or a sample of a replay buffer."""
        if self.inputs and inputs is not None:
            steps = steps._replace(observation=self.inputs.apply(inputs, steps.observation))
            if isinstance(steps, Transition):
                steps = steps._replace(next_observation=self.inputs.apply(inputs, steps.next_observation))
        if self.scale and rewards is not None:
            steps = steps._replace(reward=self.scale.apply(rewards, steps.reward))
        return steps

    # Networks work on the scale that they have learnt on: the statistics go with them.

    def networks(self, learner: NormalisedLearner) -> dict[str, RoleParameters]:
        found = dict(super().networks(learner))
        if found and self.inputs and learner.inputs:
            found[OBS] = RoleParameters(self.inputs.groups, learner.inputs.obs)
            found[STATE] = RoleParameters(self.inputs.states, learner.inputs.state)
        if found and self.scale and learner.rewards:
            found[REWARD] = RoleParameters(self.scale.teams, learner.rewards.moments)
        return found

    def with_networks(
        self, learner: NormalisedLearner, parameters: Mapping[str, PyTree]
    ) -> NormalisedLearner:
        own = {role: found for role, found in parameters.items() if role not in (OBS, STATE, REWARD)}
        learner = super().with_networks(learner, own)
        if learner.inputs:
            learner = learner._replace(inputs=InputStatistics(parameters[OBS], parameters[STATE]))
        if learner.rewards:
            learner = learner._replace(rewards=learner.rewards._replace(moments=parameters[REWARD]))
        return learner

    def summary(self) -> list[NetworkSummary]:
        shown = super().summary()
        return [each._replace(sees=f"{each.sees}, normalised") for each in shown] if self.inputs else shown

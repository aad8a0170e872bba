"""SAC: off-policy maximum entropy actor-critic, with a learnt temperature. `masac` has centralised critics.

Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", https://arxiv.org/abs/1812.05905; for
discrete actions Christodoulou 2019, https://arxiv.org/abs/1910.07207: critics value every action, and
expectations over the policy are exact. Each group of agents has its own temperature.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import numpy as np

from phalanx.algorithms.shared.critic import CriticView
from phalanx.algorithms.shared.noise import NoisyPolicy, explore, explore_discrete
from phalanx.algorithms.shared.off_policy_actor_critic import (
    OffPolicyActorCritic,
    OffPolicyActorCriticConfig,
    OffPolicyLearner,
    Weights,
)
from phalanx.algorithms.shared.optimiser import TrainState
from phalanx.algorithms.shared.policy import PolicyActor
from phalanx.algorithms.shared.team import make_optimiser, shared_network
from phalanx.config import option, with_default
from phalanx.networks import sharing
from phalanx.ops import distributions, masks
from phalanx.types import Array, Clock, EnvSpec, Observation, PyTree, Transition

NAMES = {
    "sac": "SAC: every agent maximises its reward plus the entropy of its policy, off-policy.",
    "masac": "MASAC: SAC for a team, with critics that see the state and all agents' actions.",
}


@dataclass(frozen=True)
class SACConfig(OffPolicyActorCriticConfig):
    """Every option of SAC and MASAC."""

    temperature: float = option(0.2, "initial weight of the entropy", above=0)
    learn_temperature: bool = option(True, "learn the temperature of each group, towards target_entropy")
    temperature_lr: float = option(1e-3, "learning rate of the temperature", above=0)
    target_entropy: float | None = option(
        None,
        "target of the entropy. Continuous actions: for each entry, scaled to [-1, 1] (default -1); "
        "discrete actions: relative to the entropy of random actions (default 0.3)",
        at_most=1,
    )
    twin_value: Literal["min", "mean"] = option(
        "min", "how the values of both critics are combined: the smaller one, or their mean"
    )


@dataclass(frozen=True)
class MASACConfig(SACConfig):
    """The critics see the global state, the agent's own observation and all actions."""

    critic_view: CriticView = with_default(SACConfig, "critic_view", "state+obs")


class SoftActor(PolicyActor):
    """A stochastic policy, after a warm-up of random actions."""

    def act(
        self,
        policy: NoisyPolicy,
        observation: Observation,
        first: Array,
        memory: Array,
        key: Array,
        greedy: bool,
    ):
        if greedy:
            action, memory, _ = super().act(policy.params, observation, first, memory, key, greedy)
            return action, memory, {}
        out, memory = self.one_step(policy.params, observation.obs, memory, first)
        avail, dist = observation.avail, self.distribution
        if isinstance(dist, distributions.Categorical):
            return explore_discrete(key, out, avail, policy.noise), memory, {}
        drawn = dist.sample(key, out, avail)
        # The same draw as a uniform one, while actions are random: atanh undoes the squashing.
        random = jnp.arctanh(0.999 * explore(key, jnp.zeros_like(drawn), policy.noise))
        return dist.action(jnp.where(jnp.isinf(policy.noise), random, drawn)), memory, {}

    def preferences(self, policy: NoisyPolicy, observation: Observation, first: Array, memory: Array):
        return super().preferences(policy.params, observation, first, memory)


class SAC(OffPolicyActorCritic):
    """Values include the entropy to come: Q(s, u) = r + gamma E[Q(s', u') - alpha log pi(u' | o')]."""

    Config = SACConfig
    config: SACConfig
    actor: SoftActor
    critics = 2

    def __init__(self, config: SACConfig, spec: EnvSpec):
        self.discrete = spec.action_kind == "discrete"
        self.critic_outputs = spec.n_actions if self.discrete else 1
        super().__init__(config, spec)
        self.temperature_optimiser = make_optimiser(config, self.actor_groups, config.temperature_lr)
        aim = config.target_entropy
        self.aim = (0.3 if self.discrete else -1.0) if aim is None else aim
        self.of_both = {"min": jnp.min, "mean": jnp.mean}[config.twin_value]

    def make_actor(self) -> SoftActor:
        spec, dist = self.spec, distributions.of(self.spec, "tanh")
        network = shared_network(
            self.config, self.actor_groups, spec.obs_size, dist.outputs, 0.01, picture=spec.obs_shape
        )
        return SoftActor(network, dist)

    # The temperature

    def init_own(self) -> TrainState:
        """The logarithm of each group's temperature, (G,)."""
        start = jnp.full(self.actor_groups.count, jnp.log(self.config.temperature))
        return self.temperature_optimiser.init(start)

    def temperature(self, learner: OffPolicyLearner) -> Array:
        """Of each agent, (A,)."""
        return sharing.to_agents(self.actor_groups, jnp.exp(learner.own.params))

    def target_entropy(self, avail: Array) -> Array:
        """The target entropy of an agent with these actions, (..., U) -> (...)."""
        entries = avail.sum(-1)
        return self.aim * (jnp.log(jnp.maximum(entries, 1)) if self.discrete else entries)

    def update_own(
        self, learner: OffPolicyLearner, logged: Mapping[str, Array], batch: Transition, clock: Clock
    ):
        """Raise the temperature where the entropy is below its target, and lower it where it is above."""
        seen = batch.observation
        lacking = self.target_entropy(seen.avail) - logged["entropy"]
        counted = self.counted(batch) & seen.alive
        grads = -masks.grouped_mean(lacking, counted, self.actor_groups.membership)
        own = learner.own
        if self.config.learn_temperature:
            own, _ = self.temperature_optimiser.apply_gradients(own, grads, clock)
        return own, {"temperature": jnp.exp(own.params)}

    # Policies: (log-probabilities of) draws, or of all actions if discrete

    def draw(self, out: Array, avail: Array, key: Array) -> tuple[Array, Array]:
        """Actions, encoded, (..., A, U), and their log-probabilities, (..., A), on the encoded scale."""
        dist = self.actor.distribution
        drawn = dist.sample(key, out, avail)
        if self.discrete:
            return self.code.encode(drawn, avail), dist.log_prob(out, avail, drawn)
        log_prob = dist.log_prob(out, avail, drawn) + avail.sum(-1) * np.log(self.code.half)
        return jnp.where(avail, jnp.tanh(drawn), 0.0), log_prob

    def mean_over(self, out: Array, avail: Array, q: Array, temperature: Array) -> tuple[Array, Array]:
        """The mean of Q - alpha log pi over all discrete actions, (..., A), and the entropy."""
        avail = distributions.or_first(avail)
        log_policy = distributions.log_probs(out, avail)
        each = jnp.where(avail, jnp.exp(log_policy) * (q - temperature[:, None] * log_policy), 0.0)
        return each.sum(-1), distributions.entropy(out, avail)

    # Losses

    def next_values(self, learner: OffPolicyLearner, batch: Transition, key: Array) -> Array:
        out, avail = self.next_outputs(learner.actor.params, batch), batch.next_observation.avail
        temperature = self.temperature(learner)
        actions, log_prob = self.draw(out, avail, key)
        q = self.of_both(self.next_critic_outputs(learner.target, batch, actions), axis=0)
        if self.discrete:
            return self.mean_over(out, avail, q, temperature)[0]
        return q[..., 0] - temperature * log_prob

    def taken_values(self, weights: Weights, batch: Transition) -> Array:
        if not self.discrete:
            return super().taken_values(weights, batch)
        taken = self.code.encode(batch.action, batch.observation.avail)
        q, _ = self.critic.values(weights.critic, batch.observation, taken, batch.first)
        return distributions.chosen(q, batch.action)

    def actor_loss(self, params: PyTree, learner: OffPolicyLearner, batch: Transition, key: Array):
        """alpha log pi - min Q of the agent's own action; the others' actions come from the replay."""
        seen, temperature = batch.observation, self.temperature(learner)
        out, _ = self.outputs(params, batch)
        taken = self.code.encode(batch.action, seen.avail)
        if self.discrete:
            q, _ = self.critic.values(learner.critic.params, seen, taken, batch.first)
            value, entropy = self.mean_over(out, seen.avail, self.of_both(q, axis=0), temperature)
        else:
            chosen, log_prob = self.draw(out, seen.avail, key)
            q = self.q_values(learner.weights, batch, self.critic.own_replaced(taken, chosen))
            value, entropy = self.of_both(q, axis=0) - temperature * log_prob, -log_prob
        return -value, {"policy_loss": -value, "entropy": entropy}


ALGORITHMS = {"sac": SAC, "masac": SAC}
CONFIGS = {"sac": SACConfig, "masac": MASACConfig}
PRESETS = {"masac": "maddpg"}  # whose presets it has, besides its own

"""Off-policy deterministic policy gradients: the learner that DDPG, TD3 and FACMAC have in common.

The actor follows the gradient of a critic with respect to its action. Discrete actions are sampled by the
straight-through Gumbel-softmax, as in MADDPG (Lowe et al. 2017, https://arxiv.org/abs/1706.02275).
"""

from dataclasses import dataclass

import jax.numpy as jnp

from phalanx.algorithms.shared.noise import NoisyPolicy, explore, explore_discrete
from phalanx.algorithms.shared.off_policy_actor_critic import (
    OffPolicyActorCritic,
    OffPolicyActorCriticConfig,
    OffPolicyLearner,
)
from phalanx.algorithms.shared.q_critic import ActionCode
from phalanx.algorithms.shared.team import NetworkActor, shared_network
from phalanx.config import option
from phalanx.networks.sharing import SharedNetwork
from phalanx.ops import distributions
from phalanx.ops.schedules import linear
from phalanx.types import Array, Clock, Observation, PyTree, Transition


@dataclass(frozen=True)
class DeterministicConfig(OffPolicyActorCriticConfig):
    """The options of every learner of deterministic policies."""

    noise: float = option(
        0.1,
        "initial exploration. Continuous actions: standard deviation of the noise, relative to half their "
        "range; discrete actions: probability of a random one",
        at_least=0,
        at_most=1,
    )
    noise_end: float = option(0.1, "final exploration", at_least=0, at_most=1)
    noise_steps: int = option(100_000, "env steps over which exploration changes", at_least=1)
    gumbel_temperature: float = option(1.0, "temperature of the Gumbel-softmax of discrete actions", above=0)
    output_penalty: float = option(
        1e-3, "weight of the squared outputs of the actor, which keeps them from saturating", at_least=0
    )


class NoisyActor(NetworkActor):
    """A deterministic policy with noise: tanh(out) if continuous, a sample of softmax(out) if discrete."""

    def __init__(self, network: SharedNetwork, code: ActionCode):
        super().__init__(network)
        self.code = code

    def act(
        self,
        policy: NoisyPolicy,
        observation: Observation,
        first: Array,
        memory: Array,
        key: Array,
        greedy: bool,
    ):
        out, memory = self.one_step(policy.params, observation.obs, memory, first)
        avail = observation.avail
        if self.code.discrete:
            if greedy:
                return distributions.mode(out, avail), memory, {}
            return explore_discrete(key, out, avail, policy.noise), memory, {}
        code = jnp.tanh(out)
        if not greedy:
            code = explore(key, code, policy.noise)
        return self.code.decode(jnp.where(avail, code, 0.0)), memory, {}

    @property
    def preference(self) -> str:
        return "probability" if self.code.discrete else ""

    def preferences(self, policy: NoisyPolicy, observation: Observation, first: Array, memory: Array):
        out, _ = self.one_step(policy.params, observation.obs, memory, first)
        return jnp.exp(distributions.log_probs(out, observation.avail))


class Deterministic(OffPolicyActorCritic):
    """Each actor follows its critic's gradient with respect to its own action; the others are replayed."""

    Config = DeterministicConfig
    config: DeterministicConfig

    def make_actor(self) -> NoisyActor:
        spec = self.spec
        network = shared_network(
            self.config, self.actor_groups, spec.obs_size, spec.n_actions, 0.01, picture=spec.obs_shape
        )
        return NoisyActor(network, self.code)

    def noise_at(self, clock: Clock) -> Array:
        c = self.config
        return linear(c.noise, c.noise_end, c.noise_steps, clock.env_steps)

    def relaxed(self, out: Array, avail: Array, key: Array) -> Array:
        """The policy's actions, encoded, (..., A, U), with a gradient."""
        if self.code.discrete:
            return distributions.straight_through(key, out, avail, self.config.gumbel_temperature)
        return jnp.where(avail, jnp.tanh(out), 0.0)

    def next_actions(self, learner: OffPolicyLearner, batch: Transition, key: Array) -> Array:
        """The next actions of the target actors, encoded."""
        out = self.next_outputs(learner.target.actor, batch)
        return self.relaxed(out, batch.next_observation.avail, key)

    def next_values(self, learner: OffPolicyLearner, batch: Transition, key: Array) -> Array:
        actions = self.next_actions(learner, batch, key)
        return self.next_q_values(learner.target, batch, actions).min(0)

    def joint(self, taken: Array, chosen: Array) -> Array:
        """All actions in the actor's loss: its own from the policy, the others' from the replay."""
        return self.critic.own_replaced(taken, chosen)

    def actor_loss(self, params: PyTree, learner: OffPolicyLearner, batch: Transition, key: Array):
        """-Q(s, ..., mu(o), ...) by the first critic, and the penalty of large outputs."""
        seen = batch.observation
        out, _ = self.outputs(params, batch)
        taken = self.code.encode(batch.action, seen.avail)
        actions = self.joint(taken, self.relaxed(out, seen.avail, key))
        q = self.q_values(learner.weights, batch, actions)[0]
        size = jnp.where(seen.avail, jnp.square(out), 0.0).sum(-1) / jnp.maximum(seen.avail.sum(-1), 1)
        logged = {"policy_loss": jnp.broadcast_to(-q, size.shape), "output_size": size}
        return -q + self.config.output_penalty * size, logged

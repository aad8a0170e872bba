"""MAPPO-distil: MAPPO with separate policy and value networks, and distillation of the second into the first.

The scheme of Aitchison and Sweetser 2022, "DNA: Proximal Policy Optimization with a Dual Network
Architecture", https://arxiv.org/abs/2206.10027, for a team. Each rollout has three phases. The policy phase
optimises the clipped surrogate, with a small lambda. The value phase trains the value network, with a large
lambda. The distillation phase trains a value head of the policy network to predict the value network's
output, while a KL term keeps the policy close to what it was.
"""

from dataclasses import dataclass
from math import lcm

import jax

from phalanx.algorithms.shared.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    ActorCriticLearner,
    Batch,
)
from phalanx.algorithms.shared.critic import CriticView
from phalanx.algorithms.shared.minibatches import fit, minibatches
from phalanx.algorithms.shared.optimiser import TrainState
from phalanx.algorithms.shared.policy import PolicyActor
from phalanx.algorithms.shared.team import Reward, make_optimiser, shared_network
from phalanx.config import option, with_default
from phalanx.ops import losses, masks, returns
from phalanx.ops.distributions import Distribution
from phalanx.types import Array, Clock, EnvSpec, PyTree, Transition


@dataclass(frozen=True)
class MAPPODistilConfig(ActorCriticConfig):
    """Every option of MAPPO-distil; each phase has its own epochs and minibatches."""

    critic_view: CriticView = with_default(ActorCriticConfig, "critic_view", "state")
    reward: Reward = with_default(ActorCriticConfig, "reward", "mean")
    epochs: int = option(2, "passes of the policy phase over each rollout", at_least=1)
    minibatches: int = option(4, "minibatches in each of them", at_least=1)
    gae_lambda: float = option(
        0.8, "lambda of generalised advantage estimation; 1 gives Monte Carlo returns", at_least=0, at_most=1
    )
    clip: float = option(0.2, "clipping range of the policy ratio", above=0)
    value_clip: bool = option(True, "clip new values to within `clip` of the old ones")
    value_lambda: float = option(0.95, "lambda of the value network's targets", at_least=0, at_most=1)
    value_epochs: int = option(1, "passes of the value phase over each rollout", at_least=1)
    value_minibatches: int = option(4, "minibatches in each of them", at_least=1)
    distil_epochs: int = option(2, "passes of the distillation phase over each rollout; 0: none", at_least=0)
    distil_minibatches: int = option(4, "minibatches in each of them", at_least=1)
    distil_lr: float = option(5e-4, "learning rate of the policy network in the distillation phase", above=0)
    distil_beta: float = option(
        1.0, "weight of the KL term that keeps the policy close to the one before distillation", at_least=0
    )


class DistilActor(PolicyActor):
    """A policy network with a value head: its last output."""

    def heads(self, params: PyTree, obs: Array, memory: Array, first: Array) -> tuple[Array, Array, Array]:
        """(T, B, A, O), ... -> outputs of the policy (T, B, A, F), values (T, B, A), and memories."""
        out, memories = self.network.apply(params, obs, memory, first)
        return out[..., :-1], out[..., -1], memories

    def outputs(self, params: PyTree, obs: Array, memory: Array, first: Array):
        out, _, memories = self.heads(params, obs, memory, first)
        return out, memories


class MAPPODistil(ActorCritic):
    """PPO with two networks, trained in three phases."""

    Config = MAPPODistilConfig
    config: MAPPODistilConfig
    actor: DistilActor

    def __init__(self, config: MAPPODistilConfig, spec: EnvSpec):
        super().__init__(config, spec)
        self.distil_optimiser = make_optimiser(config, self.actor_groups, config.distil_lr)
        self.optimisers = (*self.optimisers, self.distil_optimiser)

    def make_actor(self, distribution: Distribution) -> DistilActor:
        spec, outputs = self.spec, distribution.outputs + 1
        network = shared_network(
            self.config, self.actor_groups, spec.obs_size, outputs, head_gain=0.01, picture=spec.obs_shape
        )
        return DistilActor(network, distribution)

    @property
    def minibatch_count(self) -> int:
        return lcm(self.config.minibatches, self.config.value_minibatches, self.config.distil_minibatches)

    def init(self, key: Array, envs: int) -> ActorCriticLearner:
        # The distillation has an optimiser state of its own: neither phase moves on the other's momentum.
        learner = super().init(key, envs)
        return learner._replace(own=learner.actor.optimiser)

    def update(self, learner: ActorCriticLearner, rollout: Transition, key: Array, clock: Clock):
        c = self.config
        keys = jax.random.split(key, 3)
        learner, batch, memories, metrics = self.prepare_batch(learner, rollout)
        count = batch.first.shape[1]

        def chunks(data: PyTree, memory: Array):
            return lambda numbers: (jax.tree.map(lambda x: x[:, numbers], data), memory[numbers])

        order = minibatches(keys[0], count, c.epochs, c.minibatches)
        data = chunks(batch, memories.actor)
        actor, policy_metrics, actor_norm = fit(
            self.actor_optimiser, learner.actor, self.actor_loss, data, order, clock
        )
        order = minibatches(keys[1], count, c.value_epochs, c.value_minibatches)
        data = chunks(batch, memories.critic)
        critic, value_metrics, critic_norm = fit(
            self.critic_optimiser, learner.critic, self.critic_loss, data, order, clock
        )
        # The value network may have one value for the whole team; the policy network has one for each agent.
        seen = batch.observation
        target, _ = self.critic.values(critic.params, seen, memories.critic, batch.first)
        before, _ = self.actor.outputs(actor.params, seen.obs, memories.actor, batch.first)
        order = minibatches(keys[2], count, c.distil_epochs, c.distil_minibatches)
        data = chunks((batch, before, target), memories.actor)
        distilled, distil_metrics, distil_norm = fit(
            self.distil_optimiser,
            TrainState(actor.params, learner.own),
            self.distil_loss,
            data,
            order,
            clock,
        )
        steps = c.epochs * c.minibatches + c.value_epochs * c.value_minibatches
        learner = learner._replace(
            actor=TrainState(distilled.params, actor.optimiser),
            critic=critic,
            own=distilled.optimiser,
            gradient_steps=learner.gradient_steps + steps + c.distil_epochs * c.distil_minibatches,
        )
        of_actor = {
            **policy_metrics,
            **distil_metrics,
            "actor_grad_norm": actor_norm,
            "distil_grad_norm": distil_norm,
            "distil_lr": self.distil_optimiser.rates.at(clock),
        }
        of_critic = {**value_metrics, "critic_grad_norm": critic_norm}
        return learner, {**metrics, **self.metrics_by_group(of_actor, of_critic, clock)}

    def advantages_and_targets(self, rollout: Transition, reward: Array, values: Array, next_values: Array):
        """Advantages with the policy's lambda, targets with the value network's."""
        c = self.config
        ends, cuts = self.rewards.terminated(rollout), rollout.truncated[..., None]
        advantage, _ = returns.gae(reward, values, next_values, ends, cuts, c.gamma, c.gae_lambda)
        return advantage, returns.lambda_returns(reward, next_values, ends, cuts, c.gamma, c.value_lambda)

    def actor_loss(self, params: PyTree, batch: Batch, memory: Array):
        return self.clipped_policy_loss(params, batch, memory, self.config.clip)

    def critic_loss(self, params: PyTree, batch: Batch, memory: Array):
        return self.value_loss(params, batch, memory, self.config.clip if self.config.value_clip else None)

    def distil_loss(self, params: PyTree, data: PyTree, memory: Array) -> tuple[Array, dict[str, Array]]:
        """The value head's error and the KL from the policy before this phase; each group's mean, summed."""
        batch, before, target = data
        seen = batch.observation
        out, value, _ = self.actor.heads(params, seen.obs, memory, batch.first)
        error = losses.squared(value - target)
        kl = self.actor.distribution.kl(before, out, seen.avail)
        loss = error + self.config.distil_beta * kl
        metrics = self.actor_groups.mean({"distil_error": error, "distil_kl": kl}, seen.alive)
        return masks.grouped_mean(loss, seen.alive, self.actor_groups.membership).sum(), metrics


ALGORITHM = MAPPODistil

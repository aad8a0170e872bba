"""A2C: advantage actor-critic for teams, one gradient step for each rollout.

Mnih et al. 2016, "Asynchronous Methods for Deep Reinforcement Learning", https://arxiv.org/abs/1602.01783, in
its synchronous form; for teams as in Papoudakis et al. 2021, https://arxiv.org/abs/2006.07869. `ia2c` is
independent, `maa2c` has a centralised critic: they differ in what the critic sees and which reward it
predicts.
"""

from dataclasses import dataclass

import jax

from phalanx.algorithms.shared.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    ActorCriticLearner,
    Batch,
)
from phalanx.algorithms.shared.critic import CriticView
from phalanx.algorithms.shared.team import Reward
from phalanx.config import option, with_default
from phalanx.ops import masks, returns
from phalanx.types import Array, Clock, PyTree, Transition

NAMES = {
    "ia2c": "IA2C: every agent runs advantage actor-critic on its own observation and its own reward.",
    "maa2c": "MAA2C: advantage actor-critic for a team, with a critic that sees the global state.",
}


@dataclass(frozen=True)
class A2CConfig(ActorCriticConfig):
    """Every option of IA2C and MAA2C. There is one step on each rollout, so rollouts are short."""

    batch_steps: int = with_default(ActorCriticConfig, "batch_steps", 512)
    chunk: int = with_default(ActorCriticConfig, "chunk", 8)
    n_steps: int = option(5, "n of n-step returns", at_least=1)


@dataclass(frozen=True)
class MAA2CConfig(A2CConfig):
    """The critic sees the global state and predicts the team's reward."""

    critic_view: CriticView = with_default(A2CConfig, "critic_view", "state")
    reward: Reward = with_default(A2CConfig, "reward", "mean")


class A2C(ActorCritic):
    """The policy gradient with n-step advantages."""

    Config = A2CConfig
    config: A2CConfig

    def update(self, learner: ActorCriticLearner, rollout: Transition, key: Array, clock: Clock):
        learner, batch, memories, metrics = self.prepare_batch(learner, rollout)
        actor_grads, of_actor = jax.grad(self.actor_loss, has_aux=True)(
            learner.actor.params, batch, memories.actor
        )
        critic_grads, of_critic = jax.grad(self.value_loss, has_aux=True)(
            learner.critic.params, batch, memories.critic
        )
        actor, actor_norm = self.actor_optimiser.apply_gradients(learner.actor, actor_grads, clock)
        critic, critic_norm = self.critic_optimiser.apply_gradients(learner.critic, critic_grads, clock)
        learner = learner._replace(actor=actor, critic=critic, gradient_steps=learner.gradient_steps + 1)
        of_actor, of_critic = (
            {**of_actor, "actor_grad_norm": actor_norm},
            {**of_critic, "critic_grad_norm": critic_norm},
        )
        return learner, {**metrics, **self.metrics_by_group(of_actor, of_critic, clock)}

    def advantages_and_targets(self, rollout: Transition, reward: Array, values: Array, next_values: Array):
        c = self.config
        ends, cuts = self.rewards.terminated(rollout), rollout.truncated[..., None]
        target = returns.n_step_returns(reward, next_values, ends, cuts, c.gamma, c.n_steps)
        return target - values, target

    def actor_loss(self, params: PyTree, batch: Batch, memory: Array):
        """-A log pi(u | o) and the entropy bonus, over living agents; each group's mean, summed."""
        seen, dist = batch.observation, self.actor.distribution
        out, _ = self.actor.outputs(params, seen.obs, memory, batch.first)
        log_prob = dist.log_prob(out, seen.avail, batch.drawn)
        entropy = dist.entropy(out, seen.avail)
        loss = -batch.advantage * log_prob - self.config.entropy * entropy
        logged = {"policy_loss": -batch.advantage * log_prob, "entropy": entropy}
        metrics = self.actor_groups.mean(logged, seen.alive)
        return masks.grouped_mean(loss, seen.alive, self.actor_groups.membership).sum(), metrics


ALGORITHMS = {"ia2c": A2C, "maa2c": A2C}
CONFIGS = {"ia2c": A2CConfig, "maa2c": MAA2CConfig}

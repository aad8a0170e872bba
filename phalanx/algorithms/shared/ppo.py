"""Proximal policy optimisation for teams: the learner that IPPO and MAPPO are two settings of.

Schulman et al. 2017, "Proximal Policy Optimization Algorithms", https://arxiv.org/abs/1707.06347; for
teams as Yu et al. 2022, https://arxiv.org/abs/2103.01955, have it.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from phalanx.algorithms.shared.actor_critic import ActorCritic, ActorCriticConfig, Batch, Learner
from phalanx.config import option
from phalanx.ops import losses, masks, returns
from phalanx.types import Array, Clock, Transition


@dataclass(frozen=True)
class PPOConfig(ActorCriticConfig):
    """Every setting of IPPO and MAPPO."""

    epochs: int = option(4, "passes over each rollout", at_least=1)
    minibatches: int = option(4, "parts that each pass is cut into", at_least=1)
    gae_lambda: float = option(
        0.95, "how far advantages look ahead; 1 gives plain discounted returns", at_least=0, at_most=1
    )
    clip: float = option(0.2, "how far the policy ratio may move", above=0)
    value_clip: bool = option(True, "keep a new value within `clip` of the old one")


class PPO(ActorCritic):
    """The clipped surrogate over a team."""

    Config = PPOConfig
    config: PPOConfig

    @property
    def parts(self) -> int:
        return self.config.minibatches

    def update(self, learner: Learner, rollout: Transition, key: Array, clock: Clock):
        learner, batch, starts, metrics = self.digest(learner, rollout)

        def minibatch(learner, indices):
            part = jax.tree.map(lambda x: x[:, indices], batch)
            begin = jax.tree.map(lambda x: x[indices], starts)
            return self.step(learner, part, begin, clock)

        def epoch(learner, key):
            order = jax.random.permutation(key, batch.first.shape[1])
            return jax.lax.scan(minibatch, learner, order.reshape(self.config.minibatches, -1))

        learner, logged = jax.lax.scan(epoch, learner, jax.random.split(key, self.config.epochs))
        actor, critic = jax.tree.map(lambda x: x.mean((0, 1)), logged)
        return learner, {**metrics, **self.network_metrics(actor, critic, clock)}

    def returns(self, rollout, reward, values, next_values):
        return returns.gae(
            reward,
            values,
            next_values,
            self.ends(rollout),
            rollout.truncated[..., None],
            self.config.gamma,
            self.config.gae_lambda,
        )

    def actor_loss(self, params, batch, memory):
        """The clipped surrogate and the entropy bonus, over living agents; each group's mean, summed."""
        seen = batch.observation
        out, _ = self.outputs(params, seen.obs, memory, batch.first)
        log_prob = self.distribution.log_prob(out, seen.avail, batch.drawn)
        # The dead have no ratio; 0 keeps what they would have from becoming infinite.
        log_ratio = jnp.where(seen.alive, log_prob - batch.old_log_prob, 0.0)
        ratio = jnp.exp(log_ratio)
        surrogate = losses.clipped_surrogate(ratio, batch.advantage, self.config.clip)
        entropy = self.distribution.entropy(out, seen.avail)
        loss = surrogate - self.config.entropy * entropy
        logged = {
            "policy_loss": surrogate,
            "entropy": entropy,
            "kl": ratio - 1 - log_ratio,
            "clip_fraction": jnp.abs(ratio - 1) > self.config.clip,
        }
        metrics = self.group_means(self.actor_groups, logged, seen.alive)
        return masks.grouped_mean(loss, seen.alive, self.actor_groups.membership).sum(), metrics

    def value_loss(self, value: Array, batch: Batch) -> Array:
        if not self.config.value_clip:
            return super().value_loss(value, batch)
        return losses.clipped_value_loss(self.error, value, batch.old_value, batch.target, self.config.clip)

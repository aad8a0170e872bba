"""MAPPO-distil: MAPPO whose policy network learns from the value network, once both are trained apart.

The scheme of Aitchison and Sweetser 2022, "DNA: Proximal Policy Optimization with a Dual Network
Architecture", https://arxiv.org/abs/2206.10027, for a team. Three phases on each rollout: the policy (clipped
surrogate, with a short-sighted lambda), the value network (with a far-sighted one), and distillation, in
which a value head of the policy network is drawn to what the value network says, while a KL term holds the
policy where it is.
"""

from dataclasses import dataclass
from math import lcm

import jax
import jax.numpy as jnp

from phalanx.algorithms.shared.actor_critic import CriticView, Learner
from phalanx.algorithms.shared.actors import Half, Reward
from phalanx.algorithms.shared.ppo import PPO, PPOConfig
from phalanx.config import option, with_default
from phalanx.networks import sharing
from phalanx.ops import losses, masks, returns
from phalanx.types import Array, Clock, PyTree, Transition


@dataclass(frozen=True)
class MAPPODistilConfig(PPOConfig):
    """Of PPO's settings `epochs`, `minibatches` and `gae_lambda` are the policy's; others have their own."""

    critic_view: CriticView = with_default(PPOConfig, "critic_view", "state")
    reward: Reward = with_default(PPOConfig, "reward", "mean")
    epochs: int = with_default(PPOConfig, "epochs", 2)
    gae_lambda: float = with_default(PPOConfig, "gae_lambda", 0.8)
    value_lambda: float = option(
        0.95, "how far the value network's targets look ahead", at_least=0, at_most=1
    )
    value_epochs: int = option(1, "passes of the value phase over each rollout", at_least=1)
    value_minibatches: int = option(4, "parts that each of them is cut into", at_least=1)
    distil_epochs: int = option(2, "passes of the distillation over each rollout; 0: none", at_least=0)
    distil_minibatches: int = option(4, "parts that each of them is cut into", at_least=1)
    distil_lr: float = option(5e-4, "learning rate of the policy network while it distils", above=0)
    distil_beta: float = option(1.0, "weight of the KL term that holds the policy in place", at_least=0)


class MAPPODistil(PPO):
    """Two networks; the policy's has a value head beside its actions, one value an agent."""

    Config = MAPPODistilConfig
    config: MAPPODistilConfig

    def __init__(self, config: MAPPODistilConfig, spec):
        super().__init__(config, spec)
        self.actor = self._network(spec.obs_size, self.distribution.outputs + 1, head_gain=0.01)

    @property
    def parts(self) -> int:
        return lcm(self.config.minibatches, self.config.value_minibatches, self.config.distil_minibatches)

    def heads(self, params: PyTree, obs: Array, memory: Array, first: Array) -> tuple[Array, Array, Array]:
        """(T, B, A, O), ... -> what the policy is made of (T, B, A, F), values (T, B, A), and memories."""
        begins = jnp.broadcast_to(first[..., None, None], (*obs.shape[:-1], 1))
        out, memories = sharing.apply(self.actor_groups, self.actor.apply, params, obs, memory, begins)
        return out[..., :-1], out[..., -1], memories

    def outputs(self, params, obs, memory, first):
        out, _, memories = self.heads(params, obs, memory, first)
        return out, memories

    def returns(self, rollout: Transition, reward: Array, values: Array, next_values: Array):
        """Advantages with the policy's lambda, targets with the value network's."""
        advantage, _ = super().returns(rollout, reward, values, next_values)
        ends, cuts = rollout.terminated[..., None], rollout.truncated[..., None]
        c = self.config
        return advantage, returns.lambda_returns(reward, next_values, ends, cuts, c.gamma, c.value_lambda)

    def update(self, learner: Learner, rollout: Transition, key: Array, clock: Clock):
        c, rate = self.config, self.rate(clock)
        policy_key, value_key, distil_key = jax.random.split(key, 3)
        learner, batch, starts, metrics = self.digest(learner, rollout)
        actor, policy_metrics = self.phase(
            learner.actor,
            self.actor_loss,
            rate * c.lr,
            (c.epochs, c.minibatches),
            batch,
            starts.actor,
            policy_key,
        )
        critic, value_metrics = self.phase(
            learner.critic,
            self.critic_loss,
            rate * c.critic_lr,
            (c.value_epochs, c.value_minibatches),
            batch,
            starts.critic,
            value_key,
        )
        # The value network may say one thing for a whole team; the policy's value heads are one an agent.
        seen = batch.observation
        target, _ = self.values(critic.params, seen, starts.critic, batch.first)
        before, _ = self.outputs(actor.params, seen.obs, starts.actor, batch.first)
        actor, distil_metrics = self.phase(
            actor,
            self.distil_loss,
            rate * c.distil_lr,
            (c.distil_epochs, c.distil_minibatches),
            (batch, before, target),
            starts.actor,
            distil_key,
        )
        steps = c.epochs * c.minibatches + c.value_epochs * c.value_minibatches
        steps += c.distil_epochs * c.distil_minibatches
        learner = learner._replace(actor=actor, critic=critic, gradient_steps=learner.gradient_steps + steps)
        norms = {
            "actor_grad_norm": policy_metrics.pop("grad_norm"),
            "critic_grad_norm": value_metrics.pop("grad_norm"),
            "distil_grad_norm": distil_metrics.pop("grad_norm"),
        }
        return learner, {**metrics, **policy_metrics, **value_metrics, **distil_metrics, **norms}

    def phase(self, half: Half, loss, lr, passes: tuple[int, int], data: PyTree, starts: Array, key: Array):
        """Train one network for some epochs of some minibatches on `data` (L, N, ...)."""
        epochs, minibatches = passes

        def minibatch(half, indices):
            part = jax.tree.map(lambda x: x[:, indices], data)
            grads, metrics = jax.grad(loss, has_aux=True)(half.params, part, starts[indices])
            half, norm = self.descend(half, grads, lr)
            return half, {**metrics, "grad_norm": norm}

        def epoch(half, key):
            order = jax.random.permutation(key, starts.shape[0])
            return jax.lax.scan(minibatch, half, order.reshape(minibatches, -1))

        half, logged = jax.lax.scan(epoch, half, jax.random.split(key, epochs))
        return half, jax.tree.map(lambda x: x.sum() / max(x.size, 1), logged)

    def distil_loss(self, params: PyTree, data: PyTree, memory: Array) -> tuple[Array, dict[str, Array]]:
        """The value head's error and the KL from the policy before; each group's mean, summed."""
        batch, before, target = data
        seen = batch.observation
        out, value, _ = self.heads(params, seen.obs, memory, batch.first)
        error = losses.squared(value - target)
        moved = self.distribution.kl(before, out, seen.avail)
        loss = error + self.config.distil_beta * moved
        metrics = {
            "distil_error": masks.masked_mean(error, seen.alive),
            "distil_kl": masks.masked_mean(moved, seen.alive),
        }
        return masks.grouped_mean(loss, seen.alive, self.actor_groups.membership).sum(), metrics


ALGORITHM = MAPPODistil

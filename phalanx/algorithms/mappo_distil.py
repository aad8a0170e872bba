"""MAPPO-distil: MAPPO whose policy network learns from the value network, once both are trained apart.

The scheme of Aitchison and Sweetser 2022, "DNA: Proximal Policy Optimization with a Dual Network
Architecture", https://arxiv.org/abs/2206.10027, for a team. Three phases on each rollout: the policy (clipped
surrogate, with a short-sighted lambda), the value network (with a far-sighted one), and distillation, in
which a value head of the policy network is drawn to what the value network says, while a KL term holds the
policy where it is.
"""

from dataclasses import dataclass
from math import lcm
from typing import NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.shared.actor_critic import CriticView
from phalanx.algorithms.shared.agents import Half, Reward
from phalanx.algorithms.shared.ppo import PPO, PPOConfig
from phalanx.algorithms.shared.rates import Rates
from phalanx.config import option, with_default
from phalanx.data.normalise import RunningNorm
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


class DistilLearner(NamedTuple):
    """What is kept from one update to the next: as `Learner`, and the optimiser of the distillation."""

    actor: Half
    critic: Half
    distiller: PyTree
    """apart from the actor's own, so that neither phase moves on the other's momentum"""
    critic_memory: Array
    value_norm: RunningNorm
    gradient_steps: Array


class MAPPODistil(PPO):
    """Two networks; the policy's has a value head beside its actions, one value an agent."""

    Config = MAPPODistilConfig
    config: MAPPODistilConfig

    def __init__(self, config: MAPPODistilConfig, spec):
        super().__init__(config, spec)
        self.actor = self._network(spec.obs_size, self.distribution.outputs + 1, head_gain=0.01)
        self.distil_rates = self._rates(config.distil_lr, self.actor_groups)

    @property
    def schedules(self) -> tuple[Rates, ...]:
        return *super().schedules, self.distil_rates

    def init(self, key: Array, envs: int) -> DistilLearner:
        learner = super().init(key, envs)
        return DistilLearner(distiller=learner.actor.optimiser, **learner._asdict())

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
        ends, cuts = self.ends(rollout), rollout.truncated[..., None]
        c = self.config
        return advantage, returns.lambda_returns(reward, next_values, ends, cuts, c.gamma, c.value_lambda)

    def update(self, learner: DistilLearner, rollout: Transition, key: Array, clock: Clock):
        c = self.config
        keys = jax.random.split(key, 3)
        learner, batch, starts, metrics = self.digest(learner, rollout)
        count = batch.first.shape[1]

        def chosen(data, memory):
            return lambda numbers: (jax.tree.map(lambda x: x[:, numbers], data), memory[numbers])

        actor, policy_metrics, actor_norms = self.fit(
            learner.actor,
            self.actor_loss,
            self.actor_rates.at(clock),
            (c.epochs, c.minibatches),
            count,
            chosen(batch, starts.actor),
            keys[0],
        )
        critic, value_metrics, critic_norms = self.fit(
            learner.critic,
            self.critic_loss,
            self.critic_rates.at(clock),
            (c.value_epochs, c.value_minibatches),
            count,
            chosen(batch, starts.critic),
            keys[1],
        )
        # The value network may say one thing for a whole team; the policy's value heads are one an agent.
        seen = batch.observation
        target, _ = self.values(critic.params, seen, starts.critic, batch.first)
        before, _ = self.outputs(actor.params, seen.obs, starts.actor, batch.first)
        distilled, distil_metrics, distil_norms = self.fit(
            Half(actor.params, learner.distiller),
            self.distil_loss,
            self.distil_rates.at(clock),
            (c.distil_epochs, c.distil_minibatches),
            count,
            chosen((batch, before, target), starts.actor),
            keys[2],
        )
        steps = c.epochs * c.minibatches + c.value_epochs * c.value_minibatches
        steps += c.distil_epochs * c.distil_minibatches
        learner = learner._replace(
            actor=Half(distilled.params, actor.optimiser),
            critic=critic,
            distiller=distilled.optimiser,
            gradient_steps=learner.gradient_steps + steps,
        )
        of_actors = {
            **policy_metrics,
            **distil_metrics,
            "actor_grad_norm": actor_norms,
            "distil_grad_norm": distil_norms,
            "distil_lr": self.distil_rates.at(clock),
        }
        of_critics = {**value_metrics, "critic_grad_norm": critic_norms}
        return learner, {**metrics, **self.network_metrics(of_actors, of_critics, clock)}

    def distil_loss(self, params: PyTree, data: PyTree, memory: Array) -> tuple[Array, dict[str, Array]]:
        """The value head's error and the KL from the policy before; each group's mean, summed."""
        batch, before, target = data
        seen = batch.observation
        out, value, _ = self.heads(params, seen.obs, memory, batch.first)
        error = losses.squared(value - target)
        moved = self.distribution.kl(before, out, seen.avail)
        loss = error + self.config.distil_beta * moved
        logged = {"distil_error": error, "distil_kl": moved}
        metrics = self.group_means(self.actor_groups, logged, seen.alive)
        return masks.grouped_mean(loss, seen.alive, self.actor_groups.membership).sum(), metrics


ALGORITHM = MAPPODistil

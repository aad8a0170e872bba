"""PPO: proximal policy optimisation. `ippo` is PPO for independent agents, `mappo` has a centralised critic.

Schulman et al. 2017, "Proximal Policy Optimization Algorithms", https://arxiv.org/abs/1707.06347.
IPPO: de Witt et al. 2020, "Is Independent Learning All You Need in the StarCraft Multi-Agent Challenge?",
https://arxiv.org/abs/2011.09533. MAPPO: Yu et al. 2022, "The Surprising Effectiveness of PPO in Cooperative
Multi-Agent Games", https://arxiv.org/abs/2103.01955. They differ in two defaults: what the critic sees and
which reward it predicts.
"""

from dataclasses import dataclass
from functools import partial

import jax

from phalanx.algorithms.shared.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    ActorCriticLearner,
    Batch,
)
from phalanx.algorithms.shared.critic import CriticView
from phalanx.algorithms.shared.minibatches import minibatches, take
from phalanx.algorithms.shared.team import Reward
from phalanx.config import option, with_default
from phalanx.ops import returns
from phalanx.ops.parts import whole
from phalanx.types import Array, Clock, PyTree, Transition

NAMES = {
    "ppo": "PPO: proximal policy optimisation for one agent; with several agents it is IPPO.",
    "ippo": "IPPO: every agent runs PPO on its own observation and its own reward.",
    "mappo": "MAPPO: PPO for a team, with a critic that sees the global state while training.",
}


@dataclass(frozen=True)
class PPOConfig(ActorCriticConfig):
    """Every option of PPO and IPPO."""

    epochs: int = option(4, "passes over each rollout", at_least=1)
    minibatches: int = option(4, "minibatches in each pass", at_least=1)
    gae_lambda: float = option(
        0.95, "lambda of generalised advantage estimation; 1 gives Monte Carlo returns", at_least=0, at_most=1
    )
    clip: float = option(0.2, "clipping range of the policy ratio", above=0)
    value_clip: bool = option(True, "clip new values to within `clip` of the old ones")


@dataclass(frozen=True)
class MAPPOConfig(PPOConfig):
    """The critic sees the global state and predicts the team's reward; actors see their own observation."""

    critic_view: CriticView = with_default(PPOConfig, "critic_view", "state")
    reward: Reward = with_default(PPOConfig, "reward", "mean")


class PPO(ActorCritic):
    """The clipped surrogate objective for a team. An update:

    1. values and advantages of the rollout (`prepare_batch`, which calls `advantages_and_targets`);
    2. `epochs` passes over it in `minibatches`, each with a gradient step for actor and critic;
    3. the actor maximises min(r A, clip(r) A) + entropy bonus (`clipped_policy_loss`);
    4. the critic regresses on the targets, clipped around old values (`value_loss`).
    """

    Config = PPOConfig
    config: PPOConfig

    @property
    def minibatch_count(self) -> int:
        return self.config.minibatches

    def update(self, learner: ActorCriticLearner, rollout: Transition, key: Array, clock: Clock):
        learner, batch, memories, metrics = self.prepare_batch(learner, rollout)
        batch, memories = whole((batch, memories))  # minibatches are drawn from all environments

        def minibatch(learner: ActorCriticLearner, numbers: Array):
            part, memory = take(batch, memories, numbers)
            actor_grads, actor_metrics = jax.grad(self.actor_loss, has_aux=True)(
                learner.actor.params, part, memory.actor
            )
            critic_grads, critic_metrics = jax.grad(self.critic_loss, has_aux=True)(
                learner.critic.params, part, memory.critic
            )
            actor, actor_norm = self.actor_optimiser.apply_gradients(learner.actor, actor_grads, clock)
            critic, critic_norm = self.critic_optimiser.apply_gradients(learner.critic, critic_grads, clock)
            learner = learner._replace(actor=actor, critic=critic, gradient_steps=learner.gradient_steps + 1)
            of_actor = {**actor_metrics, "actor_grad_norm": actor_norm}
            return learner, (of_actor, {**critic_metrics, "critic_grad_norm": critic_norm})

        order = minibatches(key, batch.first.shape[1], self.config.epochs, self.config.minibatches)
        learner, logged = jax.lax.scan(partial(jax.lax.scan, minibatch), learner, order)
        actor, critic = jax.tree.map(lambda x: x.mean((0, 1)), logged)
        return learner, {**metrics, **self.metrics_by_group(actor, critic, clock)}

    def advantages_and_targets(self, rollout: Transition, reward: Array, values: Array, next_values: Array):
        """Generalised advantage estimation (Schulman et al. 2016)."""
        c = self.config
        ends, cuts = self.rewards.terminated(rollout), rollout.truncated[..., None]
        return returns.gae(reward, values, next_values, ends, cuts, c.gamma, c.gae_lambda)

    def actor_loss(self, params: PyTree, batch: Batch, memory: Array):
        return self.clipped_policy_loss(params, batch, memory, self.config.clip)

    def critic_loss(self, params: PyTree, batch: Batch, memory: Array):
        return self.value_loss(params, batch, memory, self.config.clip if self.config.value_clip else None)


ALGORITHMS = {"ppo": PPO, "ippo": PPO, "mappo": PPO}
CONFIGS = {"ppo": PPOConfig, "ippo": PPOConfig, "mappo": MAPPOConfig}
PRESETS = {"ppo": "ippo", "ippo": "ppo"}  # whose presets it has, besides its own: for teams, for one agent

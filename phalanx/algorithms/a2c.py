"""A2C: advantage actor-critic, one gradient step a rollout, for a team.

Mnih et al. 2016, "Asynchronous Methods for Deep Reinforcement Learning", https://arxiv.org/abs/1602.01783, in
its synchronous form; for teams as Papoudakis et al. 2021, https://arxiv.org/abs/2006.07869, have it. `ia2c`
is independent, `maa2c` has a centralised critic: only the critic's view and the reward it values differ.
"""

from dataclasses import dataclass

from phalanx.algorithms.shared.actor_critic import ActorCritic, ActorCriticConfig, CriticView
from phalanx.algorithms.shared.agents import Reward
from phalanx.config import option, with_default
from phalanx.ops import masks, returns

NAMES = {
    "ia2c": "IA2C: every agent runs advantage actor-critic on its own observation and its own reward.",
    "maa2c": "MAA2C: advantage actor-critic for a team, with a critic that sees the global state.",
}


@dataclass(frozen=True)
class A2CConfig(ActorCriticConfig):
    """One step on each rollout, so rollouts are short."""

    batch_steps: int = with_default(ActorCriticConfig, "batch_steps", 512)
    chunk: int = with_default(ActorCriticConfig, "chunk", 8)
    n_steps: int = option(5, "rewards that are summed before the critic is asked", at_least=1)


@dataclass(frozen=True)
class MAA2CConfig(A2CConfig):
    """The critic sees the state and values the team's reward."""

    critic_view: CriticView = with_default(A2CConfig, "critic_view", "state")
    reward: Reward = with_default(A2CConfig, "reward", "mean")


class IA2C(ActorCritic):
    """The policy gradient with n-step advantages."""

    Config = A2CConfig
    config: A2CConfig

    def update(self, learner, rollout, key, clock):
        learner, batch, starts, metrics = self.digest(learner, rollout)
        learner, (actor, critic) = self.step(learner, batch, starts, clock)
        return learner, {**metrics, **self.network_metrics(actor, critic, clock)}

    def returns(self, rollout, reward, values, next_values):
        ends, cuts = self.ends(rollout), rollout.truncated[..., None]
        target = returns.n_step_returns(
            reward, next_values, ends, cuts, self.config.gamma, self.config.n_steps
        )
        return target - values, target

    def actor_loss(self, params, batch, memory):
        """-A log pi(u | o) and the entropy bonus, over living agents; each group's mean, summed."""
        seen = batch.observation
        out, _ = self.outputs(params, seen.obs, memory, batch.first)
        log_prob = self.distribution.log_prob(out, seen.avail, batch.drawn)
        entropy = self.distribution.entropy(out, seen.avail)
        loss = -batch.advantage * log_prob - self.config.entropy * entropy
        logged = {"policy_loss": -batch.advantage * log_prob, "entropy": entropy}
        metrics = self.group_means(self.actor_groups, logged, seen.alive)
        return masks.grouped_mean(loss, seen.alive, self.actor_groups.membership).sum(), metrics


class MAA2C(IA2C):
    """The same with a centralised critic."""

    Config = MAA2CConfig


ALGORITHMS = {"ia2c": IA2C, "maa2c": MAA2C}

"""COMA: an actor-critic for a team that asks what would have come of each agent's other actions.

Foerster et al. 2018, "Counterfactual Multi-Agent Policy Gradients", https://arxiv.org/abs/1705.08926
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.algorithms.shared.actors import Actors, ActorsConfig
from phalanx.algorithms.shared.agents import Half, Reward
from phalanx.algorithms.shared.rates import Rates
from phalanx.config import option, with_default
from phalanx.networks import sharing
from phalanx.ops import distributions, losses, masks, returns
from phalanx.ops.schedules import linear
from phalanx.types import Array, Clock, Observation, PyTree, Transition


@dataclass(frozen=True)
class COMAConfig(ActorsConfig):
    """Every setting of COMA."""

    last_action: bool = with_default(ActorsConfig, "last_action", True)
    reward: Reward = with_default(ActorsConfig, "reward", "mean")
    entropy: float = with_default(ActorsConfig, "entropy", 0.0)
    critic_share: str = option("all", "who shares a critic: as share")
    critic_lr: float = option(5e-4, "learning rate of the critic", above=0)
    critic_group_lr: str = option("", "learning rates of single critics by group, as in group_lr")
    critic_epochs: int = option(4, "passes of the critic over each rollout", at_least=1)
    critic_minibatches: int = option(4, "parts that each pass is cut into", at_least=1)
    td_lambda: float = option(0.8, "how far the critic's targets look ahead", at_least=0, at_most=1)
    target_every: int = option(10, "updates after which the target critic is copied", at_least=1)
    target_rate: float = option(1.0, "how far the target critic then moves: 1 copies it", above=0, at_most=1)
    epsilon: float = option(0.5, "floor of the policy at first: this share is uniform", at_least=0, at_most=1)
    epsilon_end: float = option(0.02, "floor of the policy at last", at_least=0, at_most=1)
    epsilon_steps: int = option(100_000, "env steps over which the floor falls", at_least=1)


class COMALearner(NamedTuple):
    """What COMA keeps from one update to the next."""

    actor: Half
    critic: Half
    target: PyTree
    """the critic's parameters as they were at the last copy"""
    epsilon: Array
    updates: Array
    gradient_steps: Array


class Acting(NamedTuple):
    """What acting needs: the actors' parameters and the floor of their policies."""

    params: PyTree
    epsilon: Array


class COMA(Actors):
    """The counterfactual advantage, with a critic of all actions of one agent, the others' being fixed."""

    Config = COMAConfig
    config: COMAConfig

    def __init__(self, config: COMAConfig, spec):
        super().__init__(config, spec)
        self.critic_groups = sharing.groups(config.critic_share, spec, "critic_share")
        self.critic_rates = self._rates(
            config.critic_lr, self.critic_groups, config.critic_group_lr, "critic_group_lr"
        )
        # Where observations hold the agent's last action: by name, wherever it stands.
        column = {name: i for i, name in enumerate(spec.obs_features[0])}
        names = [f"last action {u}" for u in range(spec.n_actions)] if config.last_action else []
        self.last_actions = np.array([column[name] for name in names], int)
        joint = spec.n_agents * spec.n_actions
        seen = spec.state_size + spec.obs_size + joint * (1 + config.last_action)
        self.critic = self._network(seen, spec.n_actions, head_gain=1.0, kind="mlp")

    @property
    def schedules(self) -> tuple[Rates, ...]:
        return self.actor_rates, self.critic_rates

    @property
    def parts(self) -> int:
        return self.config.critic_minibatches

    def init(self, key: Array, envs: int) -> COMALearner:
        actor_key, critic_key = jax.random.split(key)
        critic = self._half(self.critic_groups, self.critic.init, critic_key)
        return COMALearner(
            actor=self._half(self.actor_groups, self.actor.init, actor_key),
            critic=critic,
            target=critic.params,
            epsilon=jnp.float32(self.config.epsilon),
            updates=jnp.int32(0),
            gradient_steps=jnp.int32(0),
        )

    # Acting

    def init_policy(self, key: Array) -> Acting:
        params = sharing.init(self.actor_groups, self.actor.init, jax.random.split(key)[0])
        return Acting(params, jnp.float32(self.config.epsilon))

    def policy(self, learner: COMALearner) -> Acting:
        return Acting(learner.actor.params, learner.epsilon)

    def act(self, policy, observation, first, memory, key, greedy):
        logits, memories = self.outputs(policy.params, observation.obs[None], memory, first[None])
        avail = observation.avail
        if greedy:
            return distributions.mode(logits[0], avail), memories[0], {}
        log_policy = floored(logits[0], avail, policy.epsilon)
        return distributions.sample(key, log_policy, avail), memories[0], {}

    def preferences(self, policy, observation, first, memory):
        return super().preferences(policy.params, observation, first, memory)

    # The critic

    def view(self, observation: Observation, action: Array) -> Array:
        """What the critic sees of each agent: state, own observation, the others' actions, all last actions.

        (..., X), (..., A, O), (..., A) -> (..., A, F). The agent's own action is blanked out; its
        observation holds its id and its last action.
        """
        spec, obs = self.spec, observation.obs
        n, leading = spec.n_agents, obs.shape[:-2]
        state = observation.state if spec.agent_state else observation.state[..., None, :]
        taken = jax.nn.one_hot(action, spec.n_actions)
        others = taken[..., None, :, :] * (1 - np.eye(n))[..., None]
        parts = [
            jnp.broadcast_to(state, (*leading, n, state.shape[-1])),
            obs,
            others.reshape(*leading, n, -1),
        ]
        if self.config.last_action:
            last = obs[..., self.last_actions].reshape(*leading, 1, -1)
            parts.append(jnp.broadcast_to(last, (*leading, n, last.shape[-1])))
        return jnp.concatenate(parts, axis=-1)

    def q_values(self, params: PyTree, observation: Observation, action: Array) -> Array:
        """Q of every action of each agent while the others do what they did: (T, B, ...) -> (T, B, A, U)."""
        seen = self.view(observation, action)
        memory, never = jnp.zeros((*seen.shape[1:-1], 0)), jnp.zeros((*seen.shape[:-1], 1), bool)
        return sharing.apply(self.critic_groups, self.critic.apply, params, seen, memory, never)[0]

    def targets(self, learner: COMALearner, rollout: Transition, key: Array) -> Array:
        """TD(lambda) targets from the target critic, (T, B, A).

        After a step comes what the team did next; where an episode was cut and at the end of the rollout
        nobody knows that, and the actions are drawn from the policy at what was truly seen.
        """
        params, seen, then = learner.actor.params, rollout.observation, rollout.next_observation
        _, memories = self.outputs(params, seen.obs, rollout.memory[0], rollout.first)
        logits = self.next_outputs(params, then.obs, memories)
        would_do = distributions.sample(key, floored(logits, then.avail, learner.epsilon), then.avail)
        after = distributions.chosen(self.q_values(learner.target, then, would_do), would_do)
        taken = distributions.chosen(self.q_values(learner.target, seen, rollout.action), rollout.action)
        ends, cuts = self.ends(rollout), rollout.truncated[..., None]
        onward = jnp.concatenate([taken[1:], after[-1:]])
        next_q = jnp.where(ends | cuts, after, onward)
        reward = self.team_reward(rollout.reward)
        return returns.lambda_returns(reward, next_q, ends, cuts, self.config.gamma, self.config.td_lambda)

    def critic_loss(self, params: PyTree, observation: Observation, action: Array, target: Array):
        """How far Q of what was done is from its target; each group's mean, summed."""
        error = distributions.chosen(self.q_values(params, observation, action), action) - target
        counted = self.valued(observation.alive)
        means = masks.grouped_mean(losses.squared(error), counted, self.critic_groups.membership)
        return means.sum(), {"value_loss": means}

    # Learning

    def update(self, learner: COMALearner, rollout: Transition, key: Array, clock: Clock):
        c = self.config
        target_key, order_key = jax.random.split(key)
        target = self.targets(learner, rollout, target_key)
        # The critic has no memory: steps need not stay in order.
        count = target.shape[0] * target.shape[1]
        flat = jax.tree.map(
            lambda x: x.reshape(1, count, *x.shape[2:]), (rollout.observation, rollout.action, target)
        )
        critic, critic_metrics, critic_norms = self.fit(
            learner.critic,
            self.critic_loss,
            self.critic_rates.at(clock),
            (c.critic_epochs, c.critic_minibatches),
            count,
            lambda numbers: jax.tree.map(lambda x: x[:, numbers], flat),
            order_key,
        )
        q = self.q_values(critic.params, rollout.observation, rollout.action)
        grads, actor_metrics = jax.grad(self.actor_loss, has_aux=True)(
            learner.actor.params, rollout, q, learner.epsilon
        )
        actor, actor_norms = self.descend(learner.actor, grads, self.actor_rates.at(clock))
        updates = learner.updates + 1
        copies = (updates % c.target_every == 0) * c.target_rate
        old, new = learner.target, critic.params
        learner = COMALearner(
            actor=actor,
            critic=critic,
            target=jax.tree.map(lambda o, n: (1 - copies) * o + copies * n, old, new),
            epsilon=self.floor(clock),
            updates=updates,
            gradient_steps=learner.gradient_steps + c.critic_epochs * c.critic_minibatches + 1,
        )
        of_actors = {**actor_metrics, "actor_grad_norm": actor_norms}
        of_critics = {**critic_metrics, "critic_grad_norm": critic_norms}
        metrics = {
            **self.network_metrics(of_actors, of_critics, clock),
            **self.value_metrics(distributions.chosen(q, rollout.action), target, rollout.observation.alive),
            "epsilon": learner.epsilon,
            "dead": 1 - rollout.observation.alive.mean(),
        }
        return learner, metrics

    def floor(self, clock: Clock) -> Array:
        """The share of the policy that is uniform in the rollout after this one."""
        c = self.config
        return linear(c.epsilon, c.epsilon_end, c.epsilon_steps, clock.env_steps + c.batch_steps)

    def actor_loss(self, params: PyTree, rollout: Transition, q: Array, epsilon: Array):
        """-A log pi(u | o), over living agents; each group's mean, summed. q is (T, B, A, U)."""
        seen = rollout.observation
        chunks = jax.tree.map(self._chunks, (seen, rollout.first, rollout.action, q))
        seen, first, action, q = chunks
        logits, _ = self.outputs(params, seen.obs, self._starts(rollout.memory), first)
        log_policy = floored(logits, seen.avail, epsilon)
        advantage = counterfactual_advantage(q, log_policy, seen.avail, action)
        log_prob = distributions.chosen(log_policy, action)
        entropy = distributions.entropy(log_policy, seen.avail)
        gain = jax.lax.stop_gradient(advantage) * jnp.where(seen.alive, log_prob, 0.0)
        loss = -gain - self.config.entropy * entropy
        logged = {"policy_loss": -gain, "entropy": entropy, "advantage_size": jnp.abs(advantage)}
        metrics = self.group_means(self.actor_groups, logged, seen.alive)
        return masks.grouped_mean(loss, seen.alive, self.actor_groups.membership).sum(), metrics

    def networks(self):
        sees = "global state, own observation, the others' actions"
        return [
            self._describe("actor", self.actor_groups, self.actor, "own observation"),
            self._describe("critic", self.critic_groups, self.critic, sees),
        ]


def floored(logits: Array, avail: Array, epsilon: Array | float) -> Array:
    """Log-probabilities of a policy of which the share `epsilon` is uniform: (..., U)."""
    policy = jax.nn.softmax(distributions.mask_logits(logits, avail))
    return distributions.explored(policy, avail, epsilon)


def counterfactual_advantage(q: Array, log_policy: Array, avail: Array, action: Array) -> Array:
    """Q of what was done, less the mean Q of all that might have been: (..., U), (...) -> (...)."""
    baseline = jnp.where(avail, jnp.exp(log_policy) * q, 0.0).sum(-1)
    return distributions.chosen(q, action) - baseline


ALGORITHM = COMA

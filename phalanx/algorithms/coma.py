"""COMA: an actor-critic for a team with a counterfactual baseline for each agent.

Foerster et al. 2018, "Counterfactual Multi-Agent Policy Gradients", https://arxiv.org/abs/1705.08926
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.algorithms.base import Algorithm, RoleParameters, without_replay
from phalanx.algorithms.shared.critic import value_metrics
from phalanx.algorithms.shared.exploration import Exploration, ExplorationConfig
from phalanx.algorithms.shared.minibatches import Chunks, fit, minibatches
from phalanx.algorithms.shared.off_policy import as_rollout, moved, require_places, when
from phalanx.algorithms.shared.optimiser import TrainState
from phalanx.algorithms.shared.policy import PolicyActor, PolicyConfig
from phalanx.algorithms.shared.reward_scale import ROLE, RewardScale, Statistics
from phalanx.algorithms.shared.team import (
    ExploringPolicy,
    Reward,
    Rewards,
    joined,
    make_optimiser,
    shared_network,
    summary,
)
from phalanx.config import option, options_of, with_default
from phalanx.data.replay import EpisodeBuffer, EpisodeReplay
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.ops import distributions, losses, masks, returns
from phalanx.types import Array, Clock, EnvSpec, Observation, Picture, PyTree, Transition


@dataclass(frozen=True)
class COMAConfig(ExplorationConfig, PolicyConfig):
    """Every option of COMA."""

    last_action: bool = with_default(PolicyConfig, "last_action", True)
    reward: Reward = with_default(PolicyConfig, "reward", "mean")
    entropy: float = with_default(PolicyConfig, "entropy", 0.0)
    critic_share: str = option("all", "which agents share a critic: as share")
    critic_lr: float = option(5e-4, "learning rate of the critic", above=0)
    critic_group_lr: str = option("", "learning rates of single critics by group, as in group_lr")
    buffer: int = option(
        0,
        "episodes in a replay buffer, over all environments; learn from it instead of from rollouts. 0: "
        "no buffer",
        at_least=0,
    )
    episodes: int = option(
        16,
        "episodes sampled from the buffer for each update; learning starts when it has as many, at least "
        "one of each environment",
        at_least=1,
    )
    critic_epochs: int = option(4, "passes of the critic over each rollout, or sampled batch", at_least=1)
    critic_minibatches: int = option(4, "minibatches in each pass", at_least=1)
    td_lambda: float = option(0.8, "lambda of the critic's TD(lambda) targets", at_least=0, at_most=1)
    target_every: int = option(10, "updates between updates of the target critic", at_least=1)
    target_rate: float = option(
        1.0, "step size of an update of the target critic; 1 copies the critic", above=0, at_most=1
    )
    epsilon: float = with_default(ExplorationConfig, "epsilon", 0.5)
    epsilon_end: float = with_default(ExplorationConfig, "epsilon_end", 0.02)
    epsilon_steps: int = with_default(ExplorationConfig, "epsilon_steps", 100_000)


class COMALearner(NamedTuple):
    """What COMA keeps from one update to the next."""

    actor: TrainState
    critic: TrainState
    target: PyTree
    """parameters of the target critic"""
    epsilon: Array
    updates: Array
    gradient_steps: Array
    reward_norm: Statistics = ()
    """empty without `reward_norm`"""
    replay: EpisodeBuffer | None = None


class COMAActor(PolicyActor):
    """A softmax policy, mixed with a uniform one with weight epsilon."""

    def act(
        self,
        policy: ExploringPolicy,
        observation: Observation,
        first: Array,
        memory: Array,
        key: Array,
        greedy: bool,
    ):
        logits, memory = self.one_step(policy.params, observation.obs, memory, first)
        avail = observation.avail
        if greedy:
            return distributions.mode(logits, avail), memory, {}
        log_policy = floored(logits, avail, policy.epsilon)
        return distributions.sample(key, log_policy, avail), memory, {}

    def preferences(self, policy: ExploringPolicy, observation: Observation, first: Array, memory: Array):
        return super().preferences(policy.params, observation, first, memory)


class COMA(Algorithm):
    """The counterfactual advantage: the critic values all actions of one agent, the others' stay fixed."""

    Config = COMAConfig
    config: COMAConfig
    action_kinds = frozenset({"discrete"})
    actor: COMAActor

    def __init__(self, config: COMAConfig, spec: EnvSpec):
        super().__init__(config, spec)
        self.rewards = Rewards(config.reward, spec)
        self.reward_scale = RewardScale(config.reward_norm)
        self.exploration = Exploration(config)
        self.actor_groups = sharing.groups(config.share, spec)
        self.critic_groups = sharing.groups(config.critic_share, spec, "critic_share")
        network = shared_network(
            config,
            self.actor_groups,
            spec.obs_size,
            spec.n_actions,
            head_gain=0.01,
            picture=spec.obs_shape,
        )
        self.actor = COMAActor(network, distributions.Categorical(spec.n_actions))
        # The columns of observations that hold the agent's last action, by name.
        column = {name: i for i, name in enumerate(spec.obs_features[0])}
        names = [f"last action {u}" for u in range(spec.n_actions)] if config.last_action else []
        self.last_actions = np.array([column[name] for name in names], int)
        joint = spec.n_agents * spec.n_actions
        seen = spec.state_size + spec.obs_size + joint * (1 + config.last_action)
        self.critic = shared_network(
            config,
            self.critic_groups,
            seen,
            spec.n_actions,
            head_gain=1.0,
            kind="cnn" if config.network == "cnn" else "mlp",  # it needs no memory: it sees the state
            picture=spec.obs_shape,
        )
        self.actor_optimiser = make_optimiser(config, self.actor_groups, config.lr, config.group_lr)
        self.critic_optimiser = make_optimiser(
            config, self.critic_groups, config.critic_lr, config.critic_group_lr, "critic_group_lr"
        )
        self.optimisers = (self.actor_optimiser, self.critic_optimiser)
        # Episodes of a replay are learnt from whole: nobody stored the memories in their midst.
        length = spec.time_limit if config.buffer else config.chunk
        self.chunks = Chunks(length if network.memory_size else 1, config.critic_minibatches)
        self.replay = EpisodeReplay(spec, config.buffer) if config.buffer else None

    def check(self, envs: int) -> None:
        c = self.config
        if not c.buffer:
            if c.episodes != options_of(COMAConfig)["episodes"].default:
                raise PhalanxError(f"episodes={c.episodes} needs a replay buffer: add buffer=2000")
            return self.chunks.check(c.batch_steps, envs)
        require_places(self.replay, c.batch_steps, c.episodes, envs)
        steps, parts = c.episodes * self.spec.time_limit, c.critic_minibatches
        if steps % parts:
            raise PhalanxError(
                f"the {steps} steps of {c.episodes} episodes cannot be cut into {parts} minibatches: use "
                f"critic_minibatches={gcd(steps, parts)}"
            )

    def init(self, key: Array, envs: int) -> COMALearner:
        actor_key, critic_key = jax.random.split(key)
        critic = self.critic_optimiser.init(self.critic.init(critic_key))
        return COMALearner(
            actor=self.actor_optimiser.init(self.actor.network.init(actor_key)),
            critic=critic,
            target=critic.params,
            epsilon=jnp.float32(self.config.epsilon),
            updates=jnp.int32(0),
            gradient_steps=jnp.int32(0),
            reward_norm=self.reward_scale.start(),
            replay=self.replay.init(envs) if self.replay else None,
        )

    def policy(self, learner: COMALearner) -> ExploringPolicy:
        return ExploringPolicy(learner.actor.params, learner.epsilon)

    # The critic

    def view(self, observation: Observation, action: Array) -> Any:
        """What the critic sees of each agent: state, own observation, the others' actions, all last actions.

        (..., X), (..., A, O), (..., A) -> (..., A, F). The agent's own action is blanked out; its
        observation holds its id and its last action.
        """
        spec, obs = self.spec, observation.obs
        n, leading = spec.n_agents, observation.alive.shape[:-1]
        state = observation.state if spec.agent_state else observation.state[..., None, :]
        taken = jax.nn.one_hot(action, spec.n_actions)
        others = taken[..., None, :, :] * (1 - np.eye(n))[..., None]
        after = [others.reshape(*leading, n, -1)]
        if self.config.last_action:
            entries = obs.features if isinstance(obs, Picture) else obs
            last = entries[..., self.last_actions].reshape(*leading, 1, -1)
            after.append(jnp.broadcast_to(last, (*leading, n, last.shape[-1])))
        return joined([jnp.broadcast_to(state, (*leading, n, state.shape[-1]))], obs, after)

    def q_values(self, params: PyTree, observation: Observation, action: Array) -> Array:
        """Q of every action of each agent while the others do what they did: (T, B, ...) -> (T, B, A, U)."""
        seen = self.view(observation, action)
        never = jnp.zeros(observation.alive.shape[:2], bool)
        return self.critic.apply(params, seen, self.critic.initial_memory(never.shape[1]), never)[0]

    def targets(self, learner: COMALearner, rollout: Transition, key: Array) -> Array:
        """TD(lambda) targets from the target critic, (T, B, A).

        The next actions are those that the team took. At truncation and at the end of the rollout they are
        unknown, and are sampled from the policy at the true next observation.
        """
        params, seen, then = learner.actor.params, rollout.observation, rollout.next_observation
        _, memories = self.actor.outputs(params, seen.obs, rollout.memory[0], rollout.first)
        logits = self.actor.network.apply_each(params, then.obs, memories)
        would_do = distributions.sample(key, floored(logits, then.avail, learner.epsilon), then.avail)
        after = distributions.chosen(self.q_values(learner.target, then, would_do), would_do)
        taken = distributions.chosen(self.q_values(learner.target, seen, rollout.action), rollout.action)
        ends, cuts = self.rewards.terminated(rollout), rollout.truncated[..., None]
        onward = jnp.concatenate([taken[1:], after[-1:]])
        next_q = jnp.where(ends | cuts, after, onward)
        reward = self.reward_scale.apply(self.rewards.of(rollout.reward), learner.reward_norm)
        return returns.lambda_returns(reward, next_q, ends, cuts, self.config.gamma, self.config.td_lambda)

    def critic_loss(
        self,
        params: PyTree,
        observation: Observation,
        action: Array,
        target: Array,
        valid: Array | None = None,
    ):
        """The error of Q of the actions taken; each group's mean, summed."""
        error = distributions.chosen(self.q_values(params, observation, action), action) - target
        counted = among(valid, self.rewards.valued(observation.alive))
        means = masks.grouped_mean(losses.squared(error), counted, self.critic_groups.membership)
        return means.sum(), {"value_loss": means}

    # Learning

    def update(self, learner: COMALearner, rollout: Transition, key: Array, clock: Clock):
        reward_norm = self.reward_scale.update(learner.reward_norm, self.rewards.of(rollout.reward))
        learner = learner._replace(reward_norm=reward_norm)
        if self.replay is None:
            learner, metrics = self.learn(learner, rollout, None, key, clock)
        else:
            learner, metrics = self.learn_from_replay(learner, rollout, key, clock)
        learner = learner._replace(epsilon=self.exploration.after(clock, self.config.batch_steps))
        actor_lr, critic_lr = (each.rates.at(clock) for each in self.optimisers)
        return learner, {
            **metrics,
            **self.actor_groups.named({"actor_lr": actor_lr}),
            **self.critic_groups.named({"critic_lr": critic_lr}),
            "epsilon": learner.epsilon,
            "dead": 1 - rollout.observation.alive.mean(),
        }

    def learn_from_replay(self, learner: COMALearner, rollout: Transition, key: Array, clock: Clock):
        """Add a rollout to the replay buffer, and learn from sampled episodes once there are enough."""
        count, (draw_key, key) = self.config.episodes, jax.random.split(key)
        kept = self.replay.add(learner.replay, rollout)
        drawn = self.replay.take(kept, self.replay.draw(kept, draw_key, count))
        # The replay stays out of `when`, which would copy it.
        before = without_replay(learner)
        steps = as_rollout(drawn, self.actor.initial_memory(count))
        after, metrics = self.learn(before, steps, drawn.valid, key, clock)
        enough = self.replay.can_sample(kept, count)
        metrics = jax.tree.map(lambda x: jnp.where(enough, x, 0.0), metrics)
        metrics["replay_size"] = kept.count.astype(jnp.float32)
        return when(enough, after, before)._replace(replay=kept), metrics

    def learn(
        self, learner: COMALearner, rollout: Transition, valid: Array | None, key: Array, clock: Clock
    ) -> tuple[COMALearner, dict[str, Array]]:
        """Learn from a rollout (T, B, ...); only its steps that are `valid` (T, B) count, None: all."""
        c = self.config
        target_key, order_key = jax.random.split(key)
        target = self.targets(learner, rollout, target_key)
        # The critic has no memory: steps need not stay in order.
        count = target.shape[0] * target.shape[1]
        flat = jax.tree.map(
            lambda x: x.reshape(1, count, *x.shape[2:]), (rollout.observation, rollout.action, target, valid)
        )
        order = minibatches(order_key, count, c.critic_epochs, c.critic_minibatches)
        critic, of_critic, critic_norm = fit(
            self.critic_optimiser,
            learner.critic,
            self.critic_loss,
            lambda numbers: jax.tree.map(lambda x: x[:, numbers], flat),
            order,
            clock,
        )
        q = self.q_values(critic.params, rollout.observation, rollout.action)
        grads, of_actor = jax.grad(self.actor_loss, has_aux=True)(
            learner.actor.params, rollout, q, learner.epsilon, valid
        )
        actor, actor_norm = self.actor_optimiser.apply_gradients(learner.actor, grads, clock)
        updates = learner.updates + 1
        learner = learner._replace(
            actor=actor,
            critic=critic,
            target=moved(learner.target, critic.params, updates, c.target_every, c.target_rate),
            updates=updates,
            gradient_steps=learner.gradient_steps + c.critic_epochs * c.critic_minibatches + 1,
        )
        taken = distributions.chosen(q, rollout.action)
        counted = among(valid, self.rewards.valued(rollout.observation.alive))
        return learner, {
            **self.actor_groups.named({**of_actor, "actor_grad_norm": actor_norm}),
            **self.critic_groups.named({**of_critic, "critic_grad_norm": critic_norm}),
            **value_metrics(self.critic_groups, taken, target, counted),
        }

    def actor_loss(
        self, params: PyTree, rollout: Transition, q: Array, epsilon: Array, valid: Array | None = None
    ):
        """-A log pi(u | o), over living agents; each group's mean, summed. q is (T, B, A, U)."""
        chunks = (rollout.observation, rollout.first, rollout.action, q, valid)
        seen, first, action, q, valid = jax.tree.map(self.chunks.split, chunks)
        logits, _ = self.actor.outputs(params, seen.obs, self.chunks.starts(rollout.memory), first)
        log_policy = floored(logits, seen.avail, epsilon)
        advantage = counterfactual_advantage(q, log_policy, seen.avail, action)
        log_prob = distributions.chosen(log_policy, action)
        entropy = distributions.entropy(log_policy, seen.avail)
        acting = among(valid, seen.alive)
        gain = jax.lax.stop_gradient(advantage) * jnp.where(acting, log_prob, 0.0)
        loss = -gain - self.config.entropy * entropy
        logged = {"policy_loss": -gain, "entropy": entropy, "advantage_size": jnp.abs(advantage)}
        metrics = self.actor_groups.mean(logged, acting)
        return masks.grouped_mean(loss, acting, self.actor_groups.membership).sum(), metrics

    def networks(self, learner: COMALearner) -> dict[str, RoleParameters]:
        return {
            "actor": RoleParameters(self.actor_groups, learner.actor.params),
            "critic": RoleParameters(self.critic_groups, learner.critic.params),
            **self.reward_scale.networks(learner.reward_norm),
        }

    def with_networks(self, learner: COMALearner, parameters: Mapping[str, PyTree]) -> COMALearner:
        actor, critic = parameters["actor"], parameters["critic"]
        return learner._replace(
            actor=learner.actor._replace(params=actor),
            critic=learner.critic._replace(params=critic),
            target=critic,
            reward_norm=parameters.get(ROLE, ()),
        )

    def summary(self):
        sees = "global state, own observation, the others' actions"
        return [
            summary("actor", self.actor.network, self.actor_groups, self.spec, "own observation"),
            summary("critic", self.critic, self.critic_groups, self.spec, sees),
        ]


def among(valid: Array | None, counted: Array) -> Array:
    """`counted` (..., A), restricted to valid steps (...); None: all steps are valid."""
    return counted if valid is None else counted & valid[..., None]


def floored(logits: Array, avail: Array, epsilon: Array | float) -> Array:
    """Log-probabilities of a policy mixed with a uniform one with weight `epsilon`: (..., U)."""
    policy = jax.nn.softmax(distributions.mask_logits(logits, avail))
    return distributions.explored(policy, avail, epsilon)


def counterfactual_advantage(q: Array, log_policy: Array, avail: Array, action: Array) -> Array:
    """Q of the action taken minus the mean of Q under the policy: (..., U), (...) -> (...)."""
    baseline = jnp.where(avail, jnp.exp(log_policy) * q, 0.0).sum(-1)
    return distributions.chosen(q, action) - baseline


ALGORITHM = COMA

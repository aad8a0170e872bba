"""Recurrent double Q-learning for a team on a replay of whole episodes, with a slot for a mixer.

The learner that IQL, VDN, QMIX and QPLEX are settings of: an algorithm is its `mix`, which makes of the
values of what each agent did the value of what the team did. As PyMARL has it (Samvelyan et al. 2019,
https://arxiv.org/abs/1902.04043), with the additions of Hu et al. 2021, https://arxiv.org/abs/2102.03479.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from phalanx.algorithms.base import Networks
from phalanx.algorithms.shared.agents import Agents, AgentsConfig, Half
from phalanx.algorithms.shared.rates import Rates
from phalanx.config import option, with_default
from phalanx.data import replay
from phalanx.data.normalise import RunningNorm
from phalanx.data.replay import Episodes, Replay
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.ops import distributions, losses, returns
from phalanx.ops.programs import at_size
from phalanx.ops.schedules import linear
from phalanx.types import Array, Clock, PyTree, Transition

Target = Literal["td", "n_step", "td_lambda", "q_lambda"]
PARTS = (0.5, 0.625, 0.75, 1.0)  # of the episodes drawn: columns that a gradient is compiled for
LONG = 32  # steps of a time limit from which on episodes are packed
REWARD_MEMORY = 0.999  # of the running scale of rewards, for each rollout


@dataclass(frozen=True)
class ValueConfig(AgentsConfig):
    """What every learner of action values can be told."""

    network: Literal["mlp", "gru"] = with_default(AgentsConfig, "network", "gru")
    layers: int = with_default(AgentsConfig, "layers", 1)
    activation: Literal["relu", "tanh"] = with_default(AgentsConfig, "activation", "relu")
    last_action: bool = with_default(AgentsConfig, "last_action", True)
    batch_steps: int = with_default(AgentsConfig, "batch_steps", 512)

    buffer: int = option(5000, "whole episodes that are kept, over all environments", at_least=1)
    episodes: int = option(
        32, "episodes in each gradient step; so many are played before the first", at_least=1
    )
    gradient_steps: int = option(4, "gradient steps after every batch_steps env steps", at_least=1)
    optimiser: Literal["adam", "rmsprop"] = option("adam", "what becomes of a gradient")
    value_loss: Literal["squared", "huber"] = option("squared", "loss of a value's error")
    huber_delta: float = option(10.0, "where the Huber loss becomes linear", above=0)
    reward_norm: Literal["none", "scale", "standardise"] = option(
        "none",
        "scale divides rewards by their running deviation; standardise also subtracts their running mean, "
        "which changes the task where episodes differ in length",
    )

    target: Target = option(
        "td",
        "what a value is drawn to: one reward and the greedy value after it, n_steps rewards, or "
        "lambda-returns over what was done (td_lambda) or greedy values (q_lambda, Peng's)",
    )
    n_steps: int = option(5, "rewards that n_step sums up", at_least=1)
    td_lambda: float = option(0.6, "how far lambda-returns look ahead", at_least=0, at_most=1)
    double_q: bool = option(True, "let the learning network choose what the target network values")
    target_every: int = option(200, "gradient steps after which the target network is copied", at_least=1)
    target_rate: float = option(1.0, "how far the target network then moves: 1 copies it", above=0, at_most=1)

    epsilon: float = option(1.0, "share of random actions at first", at_least=0, at_most=1)
    epsilon_end: float = option(0.05, "share of random actions at last", at_least=0, at_most=1)
    epsilon_steps: int = option(50_000, "env steps over which that share falls", at_least=1)


class Weights(NamedTuple):
    """Parameters of the agents' networks, (G, ...), and of the mixer, (1, ...)."""

    actor: PyTree
    mixer: PyTree


class ValueLearner(NamedTuple):
    """What is kept from one update to the next."""

    actor: Half
    mixer: Half
    target: Weights
    replay: Replay
    reward_norm: RunningNorm
    epsilon: Array
    gradient_steps: Array


class Acting(NamedTuple):
    """What acting needs."""

    params: PyTree
    epsilon: Array


class Value(Agents):
    """Double Q-learning; subclasses say how the agents' values are mixed."""

    Config = ValueConfig
    config: ValueConfig
    needs_state = False
    """whether `mix` looks at the state; if not, none is kept"""

    def __init__(self, config: ValueConfig, spec):
        super().__init__(config, spec)
        self.actor = self._network(spec.obs_size, spec.n_actions, head_gain=1.0)
        self.loss_groups = self._loss_groups()
        self.mixer_rates = self._rates(config.lr, sharing.partition(["mixer"]))

    def _scale(self) -> optax.GradientTransformation:
        adam = self.config.optimiser == "adam"
        return (
            optax.scale_by_adam(eps=1e-5)
            if adam
            else optax.scale_by_rms(decay=0.99, eps=1e-5, eps_in_sqrt=False)
        )

    @property
    def schedules(self) -> tuple[Rates, ...]:
        return self.actor_rates, self.mixer_rates

    def _places(self, envs: int) -> int:
        """Places in each environment's ring: one of them is always being written."""
        return ceil(self.config.buffer / envs) + 1

    def check(self, envs: int) -> None:
        super().check(envs)
        steps = self.config.batch_steps // envs
        if self._places(envs) <= steps:
            raise PhalanxError(
                f"a buffer of {self.config.buffer} episodes is too small for rollouts of {steps} steps in "
                f"{envs} environments: use buffer={steps * envs}, or a smaller batch_steps"
            )
        if self.config.episodes > self.config.buffer:
            raise PhalanxError(
                f"episodes={self.config.episodes} is more than a buffer of {self.config.buffer} can hold"
            )

    # What an algorithm adds

    @abstractmethod
    def mix(self, params: PyTree, chosen: Array, best: Array, action: Array, state: Array) -> Array:
        """Values of what agents did, `chosen` (..., A), as values that are learnt, (..., K).

        K is 1 for a value of the whole team, or A. `best` (..., A) is what each agent's best action is worth,
        `action` (..., A) what was done, `state` (..., X) if it `needs_state`, else (..., 0).
        """

    def init_mixer(self, key: Array) -> PyTree:
        """Parameters of the mixer, if it has any."""
        return {}

    # Acting

    def init(self, key: Array, envs: int) -> ValueLearner:
        actor_key, mixer_key = jax.random.split(key)
        actor = self._half(self.actor_groups, self.actor.init, actor_key)
        mixer = self._half(sharing.partition(["mixer"]), self.init_mixer, mixer_key)
        return ValueLearner(
            actor=actor,
            mixer=mixer,
            target=Weights(actor.params, mixer.params),
            replay=replay.empty(self.spec, envs, self._places(envs), self.needs_state),
            reward_norm=RunningNorm.start(1),
            epsilon=jnp.float32(self.config.epsilon),
            gradient_steps=jnp.int32(0),
        )

    def init_policy(self, key: Array) -> Acting:
        params = sharing.init(self.actor_groups, self.actor.init, jax.random.split(key)[0])
        return Acting(params, jnp.float32(self.config.epsilon))

    def policy(self, learner: ValueLearner) -> Acting:
        return Acting(learner.actor.params, learner.epsilon)

    def act(self, policy, observation, first, memory, key, greedy):
        q, memories = self.outputs(policy.params, observation.obs[None], memory, first[None])
        best = distributions.mode(q[0], observation.avail)
        if greedy:
            return best, memories[0], {}
        # Drawn once, from the mixture of both: on a CPU a draw costs more than a small network.
        greedily = jax.nn.one_hot(best, q.shape[-1])
        log_policy = distributions.explored(greedily, observation.avail, policy.epsilon)
        return distributions.sample(key, log_policy, observation.avail), memories[0], {}

    @property
    def prefers(self) -> str:
        return "Q-value"

    def preferences(self, policy, observation, first, memory):
        return self.outputs(policy.params, observation.obs[None], memory, first[None])[0][0]

    # Learning

    def update(self, learner: ValueLearner, rollout: Transition, key: Array, clock: Clock):
        c = self.config
        kept = replay.add(learner.replay, rollout if self.needs_state else replay.without_state(rollout))
        norm = self.rescale(learner.reward_norm, self.team_reward(rollout.reward))
        # One of each environment's at least: what is over first is short.
        enough = (kept.count >= c.episodes) & (kept.length > 0).any(1).all()
        before = (learner.actor, learner.mixer, learner.target, learner.gradient_steps)

        def of_the_first(columns, weights, target, batch):
            return jax.grad(self.loss, has_aux=True)(weights, target, replay.narrowed(batch, columns))

        gradient = at_size(self._sizes(), of_the_first)

        def step(carried, key):
            actor, mixer, target, steps = carried
            batch = replay.sample(kept, key, c.episodes)
            batch = replay.packed(batch) if len(self._sizes()) > 1 else batch
            batch = batch._replace(reward=self.scaled(batch.reward, norm))
            grads, metrics = gradient(
                batch.valid.any(0).sum(), Weights(actor.params, mixer.params), target, batch
            )
            actor, actor_norms = self.descend(actor, grads.actor, self.actor_rates.at(clock))
            mixer, mixer_norm = self.descend(mixer, grads.mixer, self.mixer_rates.at(clock))
            steps = steps + 1
            moves = (steps % c.target_every == 0) * c.target_rate
            new = Weights(actor.params, mixer.params)
            target = jax.tree.map(lambda o, n: (1 - moves) * o + moves * n, target, new)
            return (actor, mixer, target, steps), (metrics, actor_norms, mixer_norm[0])

        after, logged = jax.lax.scan(step, before, jax.random.split(key, c.gradient_steps))
        # Before there are episodes enough nothing is learnt. The replay is never chosen between: it is large.
        actor, mixer, target, steps = jax.tree.map(lambda o, n: jnp.where(enough, n, o), before, after)
        learner = ValueLearner(
            actor=actor,
            mixer=mixer,
            target=target,
            replay=kept,
            reward_norm=norm,
            epsilon=linear(c.epsilon, c.epsilon_end, c.epsilon_steps, clock.env_steps + c.batch_steps),
            gradient_steps=steps,
        )
        errors, norms, mixer_norm = jax.tree.map(lambda x: jnp.where(enough, x.mean(0), 0.0), logged)
        of_agents = {"actor_grad_norm": norms, "actor_lr": self.actor_rates.at(clock)}
        metrics = {
            **self.by_group(self.loss_groups, errors),
            **self.by_group(self.actor_groups, of_agents),
            "mixer_grad_norm": mixer_norm,
            "mixer_lr": self.mixer_rates.at(clock)[0],
            "epsilon": learner.epsilon,
            "replay_episodes": kept.count.astype(jnp.float32),
            "dead": 1 - rollout.observation.alive.mean(),
        }
        return learner, metrics

    def _sizes(self) -> list[int]:
        """Numbers of columns that a gradient is compiled for: little more than the episodes drawn fill.

        Short ones are not worth packing, and on a GPU, where every size compiles for long, none are packed.
        """
        drawn = self.config.episodes
        if self.spec.time_limit < LONG or jax.default_backend() != "cpu":
            return [drawn]
        return sorted({ceil(drawn * part) for part in PARTS})

    def rescale(self, norm: RunningNorm, reward: Array) -> RunningNorm:
        """Move the running scale of rewards towards those of a rollout (T, B, A)."""
        if self.config.reward_norm == "none":
            return norm
        return norm.update(reward.mean()[None], reward.var()[None], REWARD_MEMORY)

    def scaled(self, reward: Array, norm: RunningNorm) -> Array:
        """Rewards (..., A) as they are learnt from."""
        reward = self.team_reward(reward)
        if self.config.reward_norm == "none":
            return reward
        mean = norm.mean[0] if self.config.reward_norm == "standardise" else 0.0
        return (reward - mean) / norm.std[0]

    def loss(self, weights: Weights, target: Weights, batch: Episodes) -> tuple[Array, dict[str, Array]]:
        """How far values of what was done are from their targets, over the steps that were taken.

        The mean of each of `loss_groups`, summed; also values to log, (G,).
        """
        q = self.q_values(weights.actor, batch)
        taken = distributions.chosen(q[:-1], batch.action)
        value = self.mix(
            weights.mixer, taken, best_of(q, batch)[:-1], batch.action, batch.observation.state[:-1]
        )
        aim = jax.lax.stop_gradient(self.targets(q, target, batch))
        error = value - aim
        size = (
            losses.squared(error)
            if self.config.value_loss == "squared"
            else losses.huber(error, self.config.huber_delta)
        )
        logged = {"value_loss": size, "td_error": jnp.abs(error), "q_taken": value, "value_target": aim}
        metrics = self.group_means(self.loss_groups, logged, self.counted(batch))
        return metrics["value_loss"].sum(), metrics

    def counted(self, batch: Episodes) -> Array:
        """Which values are learnt, (L, N, K): of steps that were taken."""
        return batch.valid[..., None] & self.valued(batch.observation.alive[:-1])

    def _loss_groups(self) -> sharing.Groups:
        """Whose values (..., K) have one mean loss: each group's agents, so that groups learn as if alone."""
        return self.actor_groups

    def q_values(self, params: PyTree, batch: Episodes) -> Array:
        """Values of all actions at every row: (L + 1, N, A, U). Every episode begins with an empty memory."""
        obs = batch.observation.obs
        return self.outputs(params, obs, self.memory(obs.shape[1]), batch.first)[0]

    def targets(self, q: Array, target: Weights, batch: Episodes) -> Array:
        """What values of steps are drawn to, (L, N, K), from `q` of the learning network at all rows."""
        c, seen = self.config, batch.observation
        after = self.q_values(target.actor, batch)
        greedy = distributions.mode(q if c.double_q else after, seen.avail)
        best = best_of(after, batch)

        def mixed(action, rows):
            value = distributions.chosen(after[rows], action)
            return self.mix(target.mixer, value, best[rows], action, seen.state[rows])

        bootstrap = mixed(greedy[1:], slice(1, None))
        reward = self.mixed_reward(batch.reward)
        ends, cuts = self.ends(batch), (batch.last & ~batch.terminated)[..., None]
        if c.target == "td":
            return returns.one_step_targets(reward, bootstrap, ends, c.gamma)
        if c.target == "n_step":
            return returns.n_step_returns(reward, bootstrap, ends, cuts, c.gamma, c.n_steps)
        if c.target == "td_lambda":
            # What was done next is known, but after the last step.
            done = mixed(batch.action[1:], slice(1, -1))
            going_on = ~batch.last[:-1, :, None]
            bootstrap = bootstrap.at[:-1].set(jnp.where(going_on, done, bootstrap[:-1]))
        return returns.lambda_returns(reward, bootstrap, ends, cuts, c.gamma, c.td_lambda)

    def mixed_reward(self, reward: Array) -> Array:
        """What the values that are learnt are of: (..., A) -> (..., K)."""
        return reward

    def networks(self) -> list[Networks]:
        mixer = jax.eval_shape(self.init_mixer, jax.random.key(0))
        size = sum(leaf.size for leaf in jax.tree.leaves(mixer))
        shown = [self._describe("values", self.actor_groups, self.actor, "own observation")]
        if size:
            shown.append(
                Networks("mixer", (("team", self.spec.agents),), size, "global state and all values")
            )
        return shown


def best_of(q: Array, batch: Episodes) -> Array:
    """What each agent's best action is worth, (L + 1, N, A); not to be learnt through."""
    chosen = distributions.mode(q, batch.observation.avail)
    return jax.lax.stop_gradient(distributions.chosen(q, chosen))


class Mixed(Value):
    """A learner of one value for the whole team, which needs one reward for all."""

    needs_state = True

    def __init__(self, config: ValueConfig, spec):
        super().__init__(config, spec)
        name = type(self).__name__
        if not spec.common_reward and config.reward == "own":
            raise PhalanxError(
                f"{name} learns one value for the team, and agents of {spec.name} have rewards of their own: "
                f"choose reward=mean or reward=sum"
            )
        if self.teams.count > 1:
            raise PhalanxError(f"{name} is for one team, and {spec.name} has {self.teams.count}: try iql")
        if spec.agent_state and self.needs_state:
            raise PhalanxError(f"{name} needs one state for all, and {spec.name} has one for each agent")

    def mixed_reward(self, reward: Array) -> Array:
        return reward[..., :1]

    def counted(self, batch: Episodes) -> Array:
        return batch.valid[..., None]

    def _loss_groups(self) -> sharing.Groups:
        return sharing.partition(["team"])

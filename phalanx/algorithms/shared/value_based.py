"""Double Q-learning with a replay buffer and a mixer.

The learner that IQL, DDQN, VDN, QMIX and QPLEX have in common. An algorithm defines `mix`, which combines the
values of the agents' actions into a value of the joint action. The replay buffer holds whole episodes, or
single steps (`--replay steps`), which need networks without memory. As in PyMARL (Samvelyan et al. 2019,
https://arxiv.org/abs/1902.04043), with the additions of Hu et al. 2021, https://arxiv.org/abs/2102.03479.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from phalanx.algorithms.base import Algorithm, NetworkSummary, RoleParameters
from phalanx.algorithms.shared.epsilon_greedy import EpsilonGreedy
from phalanx.algorithms.shared.exploration import Exploration, ExplorationConfig
from phalanx.algorithms.shared.off_policy import OffPolicyConfig, moved, require_places, when
from phalanx.algorithms.shared.optimiser import TrainState
from phalanx.algorithms.shared.reward_scale import RewardScale, Statistics
from phalanx.algorithms.shared.team import (
    ExploringPolicy,
    Rewards,
    make_optimiser,
    require_one_team,
    shared_network,
    summary,
)
from phalanx.config import option, with_default
from phalanx.data import replay
from phalanx.data.normalise import RunningNorm
from phalanx.data.replay import EpisodeBuffer, EpisodeReplay, Episodes
from phalanx.data.step_replay import StepReplay, Steps, as_episodes
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.ops import distributions, losses, returns
from phalanx.ops.parts import parts
from phalanx.ops.programs import at_size
from phalanx.types import Array, Clock, EnvSpec, PyTree, Transition

Target = Literal["td", "n_step", "td_lambda", "q_lambda"]
COLUMN_SHARES = (0.5, 0.625, 0.75, 1.0)  # of the episodes sampled: columns that a gradient is compiled for
LONG_COLUMN_SHARES = (0.25, 0.375, 0.5, 1.0)  # of very long episodes, most of which end early
LONG_EPISODE = 32  # time limit from which on episodes are packed
VERY_LONG_EPISODE = 100  # and into fewer columns
LARGE_BATCH = 50_000  # observations of agents in a batch from which on episodes are packed on a GPU


@dataclass(frozen=True)
class ValueBasedConfig(ExplorationConfig, OffPolicyConfig):
    """The options of every learner of action values."""

    network: str = with_default(OffPolicyConfig, "network", "gru")
    layers: int = with_default(OffPolicyConfig, "layers", 1)
    activation: Literal["relu", "tanh"] = with_default(OffPolicyConfig, "activation", "relu")
    last_action: bool = with_default(OffPolicyConfig, "last_action", True)

    replay: Literal["episodes", "steps"] = option(
        "episodes", "what is stored and sampled: whole episodes, or single steps"
    )
    buffer: int = option(
        5000, "capacity of the replay buffer in episodes (or steps), over all environments", at_least=1
    )
    episodes: int = option(
        32,
        "batch size of a gradient step in episodes (or steps); learning starts when the buffer has as "
        "many, at least one episode of each environment",
        at_least=1,
    )
    dueling: bool = option(False, "the network outputs a state value and advantages of actions")
    value_loss: Literal["squared", "huber"] = option("squared", "loss of a TD error")
    huber_delta: float = option(10.0, "where the Huber loss becomes linear", above=0)

    target: Target = option(
        "td",
        "value target: one-step TD, n-step TD, or lambda-returns that bootstrap from the actions taken "
        "(td_lambda) or from greedy actions (q_lambda, Peng's)",
    )
    n_steps: int = option(5, "n of n-step targets", at_least=1)
    td_lambda: float = option(0.6, "lambda of lambda-returns", at_least=0, at_most=1)
    double_q: bool = option(
        True, "the online network selects the next action, the target network gives its value"
    )


class Weights(NamedTuple):
    """Parameters of the agents' networks, (G, ...), and of the mixer, (1, ...)."""

    actor: PyTree
    mixer: PyTree


class ValueLearner(NamedTuple):
    """What is kept from one update to the next."""

    actor: TrainState
    mixer: TrainState
    target: Weights
    replay: EpisodeBuffer | Steps
    reward_norm: Statistics
    epsilon: Array
    gradient_steps: Array


class ValueBased(Algorithm):
    """Double Q-learning; an algorithm defines how the agents' values are mixed."""

    Config = ValueBasedConfig
    config: ValueBasedConfig
    action_kinds = frozenset({"discrete"})
    actor: EpsilonGreedy
    team_value = False
    """whether `mix` gives one value for the team, of one reward, rather than one for each agent"""
    needs_state = False
    """whether `mix` reads the global state; if not, it is not stored"""

    def __init__(self, config: ValueBasedConfig, spec: EnvSpec):
        super().__init__(config, spec)
        self.rewards = Rewards(config.reward, spec)
        if self.team_value:
            require_one_team(type(self).__name__, self.rewards, spec, self.needs_state, instead="iql")
        self.reward_scale = RewardScale(config.reward_norm)
        self.exploration = Exploration(config)
        self.actor_groups = sharing.groups(config.share, spec)
        self.mixer_groups = sharing.partition(["mixer"])
        # The mean loss of each group of agents, so that groups learn as if alone; or of the team.
        self.loss_groups = sharing.partition(["team"]) if self.team_value else self.actor_groups
        self.actor = EpsilonGreedy(
            shared_network(
                config,
                self.actor_groups,
                spec.obs_size,
                spec.n_actions + config.dueling,
                head_gain=1.0,
                picture=spec.obs_shape,
            ),
            config.dueling,
        )
        scale = config.gradient_scale
        self.actor_optimiser = make_optimiser(
            config, self.actor_groups, config.lr, config.group_lr, scale=scale
        )
        self.mixer_optimiser = make_optimiser(config, self.mixer_groups, config.lr, scale=scale)
        self.optimisers = (self.actor_optimiser, self.mixer_optimiser)
        self.by_steps = config.replay == "steps"
        self.replay = self._make_replay()

    def _make_replay(self) -> EpisodeReplay | StepReplay:
        c = self.config
        if not self.by_steps:
            if c.priority:
                raise PhalanxError(
                    "prioritised replay needs a replay of steps: add replay=steps, or leave out priority"
                )
            return EpisodeReplay(self.spec, c.buffer, with_state=self.needs_state)
        if self.actor.network.memory_size:
            raise PhalanxError(
                f"replay=steps needs a network without memory: use network=mlp, not {c.network}"
            )
        if c.target not in ("td", "n_step"):
            raise PhalanxError(
                f"target={c.target} needs whole episodes: use replay=episodes, or target=n_step"
            )
        length = c.n_steps if c.target == "n_step" else 1
        return StepReplay(self.spec, c.buffer, length, self.needs_state, c.priority, c.priority_correction)

    def check(self, envs: int) -> None:
        c = self.config
        if isinstance(self.replay, StepReplay):
            self.replay.require_room(envs, c.batch_steps // envs)
        else:
            require_places(self.replay, c.batch_steps, c.episodes, envs)

    # What an algorithm adds

    @abstractmethod
    def mix(self, params: PyTree, chosen: Array, best: Array, action: Array, state: Array) -> Array:
        """Combine the values of the agents' actions, `chosen` (..., A), to the values to learn, (..., K).

        K is 1 for a `team_value`, else A. `best` (..., A) is the value of each agent's best action, `action`
        (..., A) the joint action, `state` (..., X) if it `needs_state`, else (..., 0).
        """

    def init_mixer(self, key: Array) -> PyTree:
        """Parameters of the mixer, if it has any."""
        return {}

    # Learning

    def init(self, key: Array, envs: int) -> ValueLearner:
        actor_key, mixer_key = jax.random.split(key)
        actor = self.actor_optimiser.init(self.actor.network.init(actor_key))
        mixer = self.mixer_optimiser.init(sharing.init(self.mixer_groups, self.init_mixer, mixer_key))
        return ValueLearner(
            actor=actor,
            mixer=mixer,
            target=Weights(actor.params, mixer.params),
            replay=self.replay.init(envs),
            reward_norm=RunningNorm.start(1),
            epsilon=jnp.float32(self.config.epsilon),
            gradient_steps=jnp.int32(0),
        )

    def policy(self, learner: ValueLearner) -> ExploringPolicy:
        return ExploringPolicy(learner.actor.params, learner.epsilon)

    def update(self, learner: ValueLearner, rollout: Transition, key: Array, clock: Clock):
        c = self.config
        kept = self.replay.add(learner.replay, rollout)
        norm = self.reward_scale.update(learner.reward_norm, self.rewards.of(rollout.reward))
        priority = kept.priority if self.by_steps else None
        before = (learner.actor, learner.mixer, learner.target, learner.gradient_steps, priority)
        gradient, take = at_size(self._columns(), self._gradient), self.replay.taking()
        keys = jax.random.split(key, c.gradient_steps)
        # At once, unless each gradient step changes the priorities of the next.
        draws = jax.vmap(partial(self._draw, kept, None))(keys) if priority is None else keys

        def step(carried: tuple[TrainState, TrainState, Weights, Array, Array | None], draw: Any):
            actor, mixer, target, steps, priority = carried
            drawn, columns = draw if priority is None else self._draw(kept, priority, draw)
            weights = Weights(actor.params, mixer.params)
            grads, (metrics, error) = gradient(columns, weights, target, take, kept, drawn, norm)
            actor, actor_norm = self.actor_optimiser.apply_gradients(actor, grads.actor, clock)
            mixer, mixer_norm = self.mixer_optimiser.apply_gradients(mixer, grads.mixer, clock)
            steps = steps + 1
            new = Weights(actor.params, mixer.params)
            target = moved(target, new, steps, c.target_every, c.target_rate)
            if priority is not None:
                priority = self.replay.prioritised(priority, drawn, error)
            return (actor, mixer, target, steps, priority), (metrics, actor_norm, mixer_norm[0])

        after, logged = jax.lax.scan(step, before, draws)
        # The replay stays out of `when`, which would copy it.
        enough = self.replay.can_sample(kept, c.episodes) & (clock.env_steps + c.batch_steps >= c.warm_up)
        actor, mixer, target, steps, priority = when(enough, after, before)
        learner = ValueLearner(
            actor=actor,
            mixer=mixer,
            target=target,
            replay=kept._replace(priority=priority) if self.by_steps else kept,
            reward_norm=norm,
            epsilon=self.exploration.after(clock, c.batch_steps),
            gradient_steps=steps,
        )
        of_loss, actor_norm, mixer_norm = jax.tree.map(lambda x: jnp.where(enough, x.mean(0), 0.0), logged)
        actor_lr, mixer_lr = (each.rates.at(clock) for each in self.optimisers)
        metrics = {
            **self.loss_groups.named(of_loss),
            **self.actor_groups.named({"actor_grad_norm": actor_norm, "actor_lr": actor_lr}),
            "mixer_grad_norm": mixer_norm,
            "mixer_lr": mixer_lr[0],
            "epsilon": learner.epsilon,
            "replay_size": kept.count.astype(jnp.float32),
            "dead": 1 - rollout.observation.alive.mean(),
        }
        return learner, metrics

    def _draw(self, kept: Any, priority: Array | None, key: Array) -> tuple[Any, Array]:
        """Draw what a gradient step learns from; also how many columns it has."""
        count = self.config.episodes
        if self.by_steps:
            kept = kept._replace(priority=priority)
        drawn = self.replay.draw(kept, key, count)
        if len(self._columns()) == 1:
            return drawn, jnp.int32(count)
        packing = replay.packed(kept, drawn)
        return packing, packing.columns

    def _columns(self) -> list[int]:
        """Numbers of columns that a gradient is compiled for, when episodes are packed into few.

        Short episodes are not worth packing. On a GPU each number takes long to compile, which only large
        batches are worth. On several devices, which divide the columns between them, none are packed.
        """
        episodes, limit = self.config.episodes, self.spec.time_limit
        size = limit * episodes * self.spec.n_agents
        pays = limit >= LONG_EPISODE if jax.default_backend() == "cpu" else size >= LARGE_BATCH
        if self.by_steps or not pays or parts() > 1:
            return [episodes]
        shares = COLUMN_SHARES if limit < VERY_LONG_EPISODE else LONG_COLUMN_SHARES
        return sorted({ceil(episodes * share) for share in shares})

    def _gradient(
        self,
        columns: int,
        weights: Weights,
        target: Weights,
        take: Partial,
        kept: Any,
        drawn: Any,
        norm: Statistics,
    ):
        """The gradient of the loss of the first `columns` columns, and what else it returns."""
        importance = drawn.weight if self.config.priority else None
        batch = take(kept, drawn.first(columns) if isinstance(drawn, replay.Packing) else drawn)
        if self.by_steps:
            batch = as_episodes(batch)
        batch = batch._replace(reward=self.reward_scale.apply(self.rewards.of(batch.reward), norm))
        return jax.grad(self.loss, has_aux=True)(weights, target, batch, importance)

    def loss(
        self, weights: Weights, target: Weights, batch: Episodes, importance: Array | None = None
    ) -> tuple[Array, tuple[dict[str, Array], Array | None]]:
        """The loss of TD errors over valid steps: the mean of each of `loss_groups`, summed.

        Also values to log, (G,), and with `importance` weights (N,) the size of each first error, (N,).
        """
        c = self.config
        q, after = self.q_values(weights.actor, target.actor, batch)
        taken = distributions.chosen(q[:-1], batch.action)
        value = self.mix(
            weights.mixer, taken, best_of(q, batch)[:-1], batch.action, batch.observation.state[:-1]
        )
        targets = jax.lax.stop_gradient(self.targets(q, after, target.mixer, batch))
        error = value - targets
        loss = losses.squared(error) if c.value_loss == "squared" else losses.huber(error, c.huber_delta)
        logged = {"value_loss": loss, "td_error": jnp.abs(error), "q_taken": value, "value_target": targets}
        if importance is not None:
            logged["value_loss"] = importance[:, None] * loss
        metrics = self.loss_groups.mean(logged, self.counted(batch))
        sizes = None if importance is None else jnp.abs(error[0]).mean(-1)
        return metrics["value_loss"].sum(), (metrics, sizes)

    def counted(self, batch: Episodes) -> Array:
        """Which values are learnt, (L, N, K): of valid steps, and of agents that have not ended."""
        valid = batch.valid[..., None]
        return valid if self.team_value else valid & self.rewards.valued(batch.observation.alive[:-1])

    def q_values(self, params: PyTree, frozen: PyTree, batch: Episodes) -> tuple[Array, Array]:
        """Values of all actions at every row, (L + 1, N, A, U); the second network gets no gradient."""
        memory = self.actor.initial_memory(batch.first.shape[1])
        return self.actor.outputs_of_both(params, frozen, batch.observation.obs, memory, batch.first)

    def targets(self, q: Array, after: Array, mixer: PyTree, batch: Episodes) -> Array:
        """Targets of the values of all steps, (L, N, K).

        From the agents' values at all rows, (L + 1, N, A, U), of the learning network, `q`, and of the target
        network, `after`, and from the parameters of the target mixer.
        """
        c, seen = self.config, batch.observation
        greedy = distributions.mode(q if c.double_q else after, seen.avail)
        best = best_of(after, batch)

        def mixed(action: Array, rows: slice):
            value = distributions.chosen(after[rows], action)
            return self.mix(mixer, value, best[rows], action, seen.state[rows])

        bootstrap = mixed(greedy[1:], slice(1, None))
        reward = batch.reward[..., :1] if self.team_value else batch.reward
        ends, cuts = self.rewards.terminated(batch), (batch.last & ~batch.terminated)[..., None]
        if c.target == "td":
            return returns.one_step_targets(reward, bootstrap, ends, c.gamma)
        if c.target == "n_step":
            return returns.n_step_returns(reward, bootstrap, ends, cuts, c.gamma, c.n_steps)
        if c.target == "td_lambda":
            # The next action is known, except after the last step.
            taken = mixed(batch.action[1:], slice(1, -1))
            going_on = ~batch.last[:-1, :, None]
            bootstrap = bootstrap.at[:-1].set(jnp.where(going_on, taken, bootstrap[:-1]))
        return returns.lambda_returns(reward, bootstrap, ends, cuts, c.gamma, c.td_lambda)

    # What others may ask

    def networks(self, learner: ValueLearner) -> dict[str, RoleParameters]:
        return {
            "actor": RoleParameters(self.actor_groups, learner.actor.params),
            # Values are on the scale of the rewards that they were learnt from.
            "mixer": RoleParameters(self.mixer_groups, (learner.mixer.params, learner.reward_norm)),
        }

    def with_networks(self, learner: ValueLearner, parameters: Mapping[str, PyTree]) -> ValueLearner:
        actor, (mixer, reward_norm) = parameters["actor"], parameters["mixer"]
        return learner._replace(
            actor=learner.actor._replace(params=actor),
            mixer=learner.mixer._replace(params=mixer),
            target=Weights(actor, mixer),
            reward_norm=reward_norm,
        )

    def summary(self) -> list[NetworkSummary]:
        mixer = jax.eval_shape(self.init_mixer, jax.random.key(0))
        size = sum(leaf.size for leaf in jax.tree.leaves(mixer))
        shown = [summary("values", self.actor.network, self.actor_groups, self.spec, "own observation")]
        if size:
            team = (("team", self.spec.agents),)
            shown.append(NetworkSummary("mixer", team, size, "global state and all values"))
        return shown


def best_of(q: Array, batch: Episodes) -> Array:
    """The value of each agent's best action, (L + 1, N, A), without a gradient."""
    chosen = distributions.mode(q, batch.observation.avail)
    return jax.lax.stop_gradient(distributions.chosen(q, chosen))

"""Off-policy actor-critics with a replay of steps, for discrete and continuous actions, one agent or a team.

`OffPolicyActorCritic` is the learner that DDPG, TD3, SAC, their multi-agent forms and FACMAC have in common.
After every rollout it takes `gradient_steps` gradient steps. Each samples a batch and updates the critics,
and every `actor_every` steps also the actors and the target networks. An algorithm adds its bootstrap values
(`next_values`) and its `actor_loss`.

Without recurrence a batch has single transitions, or sequences of `n_steps`. With a gru it has sequences of
`chunk` steps, which start from a zero hidden state; the first `burn_in` steps only compute it.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm, NetworkSummary, RoleParameters, without_replay
from phalanx.algorithms.shared.critic import CriticView
from phalanx.algorithms.shared.noise import NoisyPolicy
from phalanx.algorithms.shared.off_policy import OffPolicyConfig, moved, when
from phalanx.algorithms.shared.optimiser import TrainState
from phalanx.algorithms.shared.q_critic import SEES, ActionCode, QCritic
from phalanx.algorithms.shared.reward_scale import ROLE, RewardScale, Statistics
from phalanx.algorithms.shared.team import NetworkActor, Rewards, make_optimiser, require_one_team, summary
from phalanx.config import option, with_default
from phalanx.data.step_replay import StepReplay, Steps
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.ops import losses, masks, returns
from phalanx.types import Array, Clock, EnvSpec, PyTree, Transition


@dataclass(frozen=True)
class OffPolicyActorCriticConfig(OffPolicyConfig):
    """The options of every actor-critic on replay."""

    batch_steps: int = with_default(OffPolicyConfig, "batch_steps", 64)
    gradient_steps: int = with_default(OffPolicyConfig, "gradient_steps", 16)
    activation: Literal["relu", "tanh"] = with_default(OffPolicyConfig, "activation", "relu")
    target_every: int = with_default(OffPolicyConfig, "target_every", 1)
    target_rate: float = with_default(OffPolicyConfig, "target_rate", 0.005)
    warm_up: int = option(1000, "env steps with random actions, before learning begins", at_least=0)

    chunk: int = option(16, "length of the sequences that a gru learns from", at_least=1)
    burn_in: int = option(
        4, "steps at the start of a sequence that only compute the hidden state of a gru", at_least=0
    )
    buffer: int = option(
        100_000, "capacity of the replay buffer in env steps, over all environments", at_least=1
    )
    batch_size: int = option(256, "transitions (sequences with a gru) in each gradient step", at_least=1)
    n_steps: int = option(1, "n of n-step targets", at_least=1, at_most=100)
    critic_share: str = option("same", "which agents share a critic: as share, or same (as share is set)")
    critic_view: CriticView = option(
        "obs",
        "what the critic sees: own observation and action; the global state and all actions; or both",
    )
    critic_lr: float = option(1e-3, "learning rate of the critic (and of a mixer)", above=0)
    critic_group_lr: str = option("", "learning rates of single critics by group, as in group_lr")
    actor_every: int = option(
        1,
        "gradient steps of the critic between updates of the actor and the target networks",
        at_least=1,
        at_most=8,
    )


class Weights(NamedTuple):
    """Parameters of actors (G, ...), of critics (G, E, ...) and of a mixer (1, ...), if there is one."""

    actor: PyTree
    critic: PyTree
    mixer: PyTree


class OffPolicyLearner(NamedTuple):
    """What is kept from one update to the next."""

    actor: TrainState
    critic: TrainState
    mixer: TrainState
    target: Weights
    own: PyTree
    """what an algorithm adds"""
    replay: Steps | None
    reward_norm: Statistics
    noise: Array
    """() of the next rollout, as in `NoisyPolicy`"""
    gradient_steps: Array

    @property
    def weights(self) -> Weights:
        return Weights(self.actor.params, self.critic.params, self.mixer.params)


class OffPolicyActorCritic(Algorithm):
    """Actors, and critics of joint actions, that learn off-policy from single steps."""

    Config = OffPolicyActorCriticConfig
    config: OffPolicyActorCriticConfig
    action_kinds = frozenset({"discrete", "continuous"})
    actor: NetworkActor
    critics = 1
    """E: how many critics stand side by side"""
    critic_outputs = 1
    """see `QCritic`"""
    team_value = False
    """whether `mix` gives one value for the team, of one reward, rather than one for each agent"""

    def __init__(self, config: OffPolicyActorCriticConfig, spec: EnvSpec):
        super().__init__(config, spec)
        c = config
        self.rewards = Rewards(c.reward, spec)
        if self.team_value:
            require_one_team(type(self).__name__, self.rewards, spec, needs_state=True, instead="maddpg")
        self.reward_scale = RewardScale(c.reward_norm)
        self.code = ActionCode(spec)
        self.actor_groups = sharing.groups(c.share, spec)
        self.actor = self.make_actor()
        self.critic = QCritic(
            c, spec, self.rewards, c.critic_view, c.critic_share, self.critics, self.critic_outputs
        )
        self.loss_groups = sharing.partition(["team"]) if self.team_value else self.critic.groups
        self.mixer_groups = sharing.partition(["mixer"])
        self.recurrent = bool(self.actor.network.memory_size)
        length = max(c.chunk if self.recurrent else 1, c.n_steps)
        if self.recurrent and c.burn_in >= length:
            raise PhalanxError(f"burn_in={c.burn_in} leaves nothing of sequences of chunk={c.chunk} steps")
        self.replay = StepReplay(spec, c.buffer, length, self.needs_state, c.priority, c.priority_correction)
        scale = c.gradient_scale
        self.actor_optimiser = make_optimiser(c, self.actor_groups, c.lr, c.group_lr, scale=scale)
        self.critic_optimiser = make_optimiser(
            c, self.critic.groups, c.critic_lr, c.critic_group_lr, "critic_group_lr", scale
        )
        self.mixer_optimiser = make_optimiser(c, self.mixer_groups, c.critic_lr, scale=scale)
        self.optimisers = (self.actor_optimiser, self.critic_optimiser, self.mixer_optimiser)

    @property
    def needs_state(self) -> bool:
        """Whether a critic or a mixer sees the global state; if not, it is not stored."""
        return self.critic.central or self.team_value

    def check(self, envs: int) -> None:
        c = self.config
        self.replay.require_room(envs, c.batch_steps // envs)
        if c.gradient_steps % c.actor_every:
            raise PhalanxError(
                f"gradient_steps={c.gradient_steps} must be a multiple of actor_every={c.actor_every}"
            )

    # What an algorithm adds

    @abstractmethod
    def make_actor(self) -> NetworkActor:
        """The actor with its network, which acts by a `NoisyPolicy`."""

    @abstractmethod
    def next_values(self, learner: OffPolicyLearner, batch: Transition, key: Array) -> Array:
        """The bootstrap value after each step of a batch, (L, N, K)."""

    @abstractmethod
    def actor_loss(
        self, params: PyTree, learner: OffPolicyLearner, batch: Transition, key: Array
    ) -> tuple[Array, dict[str, Array]]:
        """The loss of each agent's policy at each step, (L, N, A), and what to log of it."""

    def noise_at(self, clock: Clock) -> Array:
        """How much the next rollout explores."""
        return jnp.float32(0)

    def init_mixer(self, key: Array) -> PyTree:
        """Parameters of a mixer, if there is one."""
        return {}

    def mix(self, params: PyTree, values: Array, state: Array) -> Array:
        """Combine the agents' values, (..., A), to the values to learn, (..., K)."""
        return values

    def init_own(self) -> PyTree:
        """What the algorithm keeps besides."""
        return ()

    def update_own(
        self, learner: OffPolicyLearner, logged: Mapping[str, Array], batch: Transition, clock: Clock
    ) -> tuple[PyTree, dict[str, Array]]:
        """`own` after a step of the actor, whose loss `logged` this, (L, N, A); also values to log, (G,)."""
        return learner.own, {}

    # Parts of losses

    def outputs(self, params: PyTree, batch: Transition) -> tuple[Array, Array]:
        """Outputs of the actor at each step, (L, N, A, F), and its memories."""
        memory = self.actor.initial_memory(batch.first.shape[1])
        return self.actor.outputs(params, batch.observation.obs, memory, batch.first)

    def next_outputs(self, params: PyTree, batch: Transition) -> Array:
        """Outputs of the actor at the true next observation of each step."""
        _, memories = self.outputs(params, batch)
        return self.actor.network.apply_each(params, batch.next_observation.obs, memories)

    def q_values(self, weights: Weights, batch: Transition, actions: Array) -> Array:
        """Q of encoded actions by every critic, (E, L, N, K)."""
        values, _ = self.critic.values(weights.critic, batch.observation, actions, batch.first)
        return self.mix(weights.mixer, values[..., 0], batch.observation.state)

    def next_q_values(self, weights: Weights, batch: Transition, actions: Array) -> Array:
        """Q of encoded actions after each step, (E, L, N, K)."""
        values = self.next_critic_outputs(weights, batch, actions)
        return self.mix(weights.mixer, values[..., 0], batch.next_observation.state)

    def next_critic_outputs(self, weights: Weights, batch: Transition, actions: Array) -> Array:
        """Outputs of the critics after each step, (E, L, N, A, outputs)."""
        taken = self.code.encode(batch.action, batch.observation.avail)
        _, memories = self.critic.values(weights.critic, batch.observation, taken, batch.first)
        return self.critic.next_values(weights.critic, batch.next_observation, actions, memories)

    def taken_values(self, weights: Weights, batch: Transition) -> Array:
        """Q of the actions taken, (E, L, N, K)."""
        taken = self.code.encode(batch.action, batch.observation.avail)
        return self.q_values(weights, batch, taken)

    def learnt_rows(self, batch: Transition) -> Transition:
        """The steps whose values are learnt: without a memory only the first of each sequence."""
        return batch if self.recurrent else jax.tree.map(lambda x: x[:1], batch)

    def counted(self, batch: Transition) -> Array:
        """(L, N, 1) bool: all steps except burn-in steps and steps in which an environment failed."""
        assert batch.broken is not None
        row = jnp.arange(batch.broken.shape[0])[:, None]
        after = row >= (self.config.burn_in if self.recurrent else 0)
        return (after & ~batch.broken)[..., None]

    def targets(self, learner: OffPolicyLearner, batch: Transition, key: Array) -> Array:
        """n-step targets of the values of all steps, (L, N, K)."""
        c = self.config
        after = self.next_values(learner, batch, key)
        reward = batch.reward[..., :1] if self.team_value else batch.reward
        ends = batch.terminated[..., None] if self.team_value else self.rewards.terminated(batch)
        cuts = batch.truncated[..., None]
        return returns.n_step_returns(reward, after, ends, cuts, c.gamma, c.n_steps)

    def critic_loss(
        self, params: tuple[PyTree, PyTree], target: Array, batch: Transition, weight: Array
    ) -> tuple[Array, tuple[dict[str, Array], Array]]:
        """The squared TD error; each group's mean, summed over groups and critics.

        `params` are of critic and mixer, `target` is (L, N, K), `weight` (N,). Also values to log, (G,), and
        the mean size of each sequence's error, (N,).
        """
        value = self.taken_values(Weights(None, *params), batch)
        error = value - target
        counted = self.counted(batch)
        if not self.team_value:
            counted = counted & self.rewards.valued(batch.observation.alive)
        loss = (weight[:, None] * losses.squared(error)).sum(0)
        size = jnp.abs(error).mean(0)
        logged = {"value_loss": loss, "td_error": size, "q_taken": value.mean(0), "value_target": target}
        metrics = self.loss_groups.mean(logged, counted)
        each = jnp.where(counted, size, 0.0).sum((0, 2)) / jnp.maximum(counted.sum((0, 2)), 1)
        return metrics["value_loss"].sum(), (metrics, each)

    # Learning

    def init(self, key: Array, envs: int) -> OffPolicyLearner:
        actor_key, critic_key, mixer_key = jax.random.split(key, 3)
        actor = self.actor_optimiser.init(self.actor.network.init(actor_key))
        critic = self.critic_optimiser.init(self.critic.init(critic_key))
        mixer = self.mixer_optimiser.init(sharing.init(self.mixer_groups, self.init_mixer, mixer_key))
        return OffPolicyLearner(
            actor=actor,
            critic=critic,
            mixer=mixer,
            target=Weights(actor.params, critic.params, mixer.params),
            own=self.init_own(),
            replay=self.replay.init(envs),
            reward_norm=self.reward_scale.start(),
            noise=self.exploration(Clock(jnp.float32(-self.config.batch_steps), jnp.float32(1))),
            gradient_steps=jnp.int32(0),
        )

    def policy(self, learner: OffPolicyLearner) -> NoisyPolicy:
        return NoisyPolicy(learner.actor.params, learner.noise)

    def exploration(self, clock: Clock) -> Array:
        """The noise of the rollout after this one: infinite while it is part of the warm-up."""
        c = self.config
        then = Clock(clock.env_steps + c.batch_steps, clock.budget)
        return jnp.where(then.env_steps < c.warm_up, jnp.inf, self.noise_at(then))

    def update(self, learner: OffPolicyLearner, rollout: Transition, key: Array, clock: Clock):
        c = self.config
        kept = self.replay.add(learner.replay, rollout)
        norm = self.reward_scale.update(learner.reward_norm, self.rewards.of(rollout.reward))
        # The replay stays out of what the steps carry, and out of `when`: that would copy it.
        before = without_replay(learner)._replace(reward_norm=norm, noise=self.exploration(clock))

        def step(carried: tuple[OffPolicyLearner, Array | None], keys: Array):
            learner, priority = carried
            of_critic, batch = [], rollout
            for key in keys[1:]:
                draw_key, target_key = jax.random.split(key)
                drawn = self.replay.draw(kept._replace(priority=priority), draw_key, c.batch_size)
                batch = self.replay.take(kept, drawn)
                batch = batch._replace(reward=self.reward_scale.apply(self.rewards.of(batch.reward), norm))
                learner, logged, error = self.critic_step(learner, batch, drawn.weight, target_key, clock)
                priority = self.replay.prioritised(priority, drawn, error)
                of_critic.append(logged)
            learner, of_actor = self.actor_step(learner, self.learnt_rows(batch), keys[0], clock)
            return (learner, priority), (jax.tree.map(lambda *xs: sum(xs) / len(xs), *of_critic), of_actor)

        keys = jax.random.split(key, (c.gradient_steps // c.actor_every, 1 + c.actor_every))
        after, logged = jax.lax.scan(step, (before, kept.priority), keys)
        enough = self.replay.can_sample(kept, c.batch_size) & (clock.env_steps + c.batch_steps >= c.warm_up)
        learner, priority = when(enough, after, (before, kept.priority))
        of_critic, of_actor = jax.tree.map(lambda x: jnp.where(enough, x.mean(0), 0.0), logged)
        metrics = {
            **self.loss_groups.named(of_critic.pop("loss")),
            **self.critic.groups.named(of_critic),
            **self.actor_groups.named(of_actor),
            "noise": jnp.where(jnp.isinf(learner.noise), 1.0, learner.noise),
            "replay_size": kept.count.astype(jnp.float32),
            "dead": 1 - rollout.observation.alive.mean(),
        }
        return learner._replace(replay=kept._replace(priority=priority)), metrics

    def critic_step(
        self, learner: OffPolicyLearner, batch: Transition, weight: Array, key: Array, clock: Clock
    ) -> tuple[OffPolicyLearner, dict[str, Any], Array]:
        """Move critics (and mixer) towards their targets. Also what to log, and TD errors, (N,)."""
        learnt = self.learnt_rows(batch)
        target = jax.lax.stop_gradient(self.targets(learner, batch, key)[: learnt.first.shape[0]])
        params = (learner.critic.params, learner.mixer.params)
        grads, (logged, error) = jax.grad(self.critic_loss, has_aux=True)(params, target, learnt, weight)
        critic, norm = self.critic_optimiser.apply_gradients(learner.critic, grads[0], clock)
        mixer, _ = self.mixer_optimiser.apply_gradients(learner.mixer, grads[1], clock)
        lr = self.critic_optimiser.rates.at(clock)
        learner = learner._replace(critic=critic, mixer=mixer, gradient_steps=learner.gradient_steps + 1)
        return learner, {"loss": logged, "critic_grad_norm": norm, "critic_lr": lr}, error

    def actor_step(self, learner: OffPolicyLearner, batch: Transition, key: Array, clock: Clock):
        """Move actors by their loss, over living agents; then the target networks."""
        c, counted = self.config, self.counted(batch) & batch.observation.alive

        def loss(params: PyTree) -> tuple[Array, dict[str, Array]]:
            each, logged = self.actor_loss(params, learner, batch, key)
            return masks.grouped_mean(each, counted, self.actor_groups.membership).sum(), logged

        grads, logged = jax.grad(loss, has_aux=True)(learner.actor.params)
        actor, norm = self.actor_optimiser.apply_gradients(learner.actor, grads, clock)
        learner = learner._replace(actor=actor)
        own, of_own = self.update_own(learner, logged, batch, clock)
        target = moved(learner.target, learner.weights, learner.gradient_steps, c.target_every, c.target_rate)
        metrics = self.actor_groups.mean(logged, counted)
        lr = self.actor_optimiser.rates.at(clock)
        metrics = {**metrics, **of_own, "actor_grad_norm": norm, "actor_lr": lr}
        return learner._replace(own=own, target=target), metrics

    # What others may ask

    def networks(self, learner: OffPolicyLearner) -> dict[str, RoleParameters]:
        return {
            "actor": RoleParameters(self.actor_groups, learner.actor.params),
            "critic": RoleParameters(self.critic.groups, learner.critic.params),
            "mixer": RoleParameters(self.mixer_groups, learner.mixer.params),
            **self.reward_scale.networks(learner.reward_norm),
        }

    def with_networks(self, learner: OffPolicyLearner, parameters: Mapping[str, PyTree]) -> OffPolicyLearner:
        learner = learner._replace(
            actor=learner.actor._replace(params=parameters["actor"]),
            critic=learner.critic._replace(params=parameters["critic"]),
            mixer=learner.mixer._replace(params=parameters["mixer"]),
            reward_norm=parameters.get(ROLE, ()),
        )
        return learner._replace(target=learner.weights)

    def summary(self) -> list[NetworkSummary]:
        spec, name = self.spec, "critic" if self.critics == 1 else f"{self.critics} critics"
        shown = [
            summary("actor", self.actor.network, self.actor_groups, spec, "own observation"),
            summary(name, self.critic.network, self.critic.groups, spec, SEES[self.config.critic_view]),
        ]
        mixer = jax.tree.leaves(jax.eval_shape(self.init_mixer, jax.random.key(0)))
        if mixer:
            team = (("team", spec.agents),)
            size = sum(leaf.size for leaf in mixer)
            shown.append(NetworkSummary("mixer", team, size, "global state and all values"))
        return shown

"""Toy tasks. Each tests one property: a learner that gets it wrong cannot solve the task."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.config import option
from phalanx.envs.base import Env, joint_features, numbered
from phalanx.types import Array, EnvSpec, TimeStep

NAMES = {
    "identity": "choose the target that is shown: the simplest task",
    "memory": "repeat the bit shown some steps ago",
    "two_step": "the two-step matrix game of QMIX",
    "forever": "reward 1 in every step, until the time limit truncates the episode",
    "delayed": "answer a cue; the reward comes many steps later",
    "roles": "two agents with different observations and actions",
    "death": "an agent should die early, because its team earns more then",
    "leave": "agents leave one by one, each with the reward that it was offered",
    "pictures": "name the pattern that is somewhere in an image",
}

PAIR = numbered("agent", 2)
# The patterns of `Pictures`, 3 x 3 each: a row, a column and the two diagonals.
PATTERNS = [[int(bit) for bit in rows] for rows in ("000111000", "010010010", "100010001", "001010100")]


def _pair_spec(name: str, features: tuple[str, ...], n_actions: int, time_limit: int, **more: Any) -> EnvSpec:
    """The spec of two like agents that see `features`; the state is both observations."""
    obs_features = (features, features)
    return EnvSpec(
        **{
            "name": f"debug/{name}",
            "agents": PAIR,
            "agent_types": ("twin", "twin"),
            "obs_features": obs_features,
            "state_features": joint_features(PAIR, obs_features),
            "action_counts": (n_actions, n_actions),
            "time_limit": time_limit,
            **more,
        }
    )


@dataclass(frozen=True)
class Identity(Env):
    """Each agent sees a target and gets 1 for choosing it. The simplest task."""

    actions: int = option(3, "number of actions", at_least=2)
    time_limit: int = option(8, "steps after which an episode is truncated", at_least=1)

    @cached_property
    def spec(self) -> EnvSpec:
        return _pair_spec(
            "identity", numbered("target", self.actions), self.actions, self.time_limit, common_reward=False
        )

    def reset(self, key: Array) -> tuple[Array, TimeStep]:
        return self._show(key, reward=0.0)

    def step(self, key: Array, state: Array, actions: Array) -> tuple[Array, TimeStep]:
        return self._show(key, reward=actions == state)

    def _show(self, key: Array, reward: Array | float) -> tuple[Array, TimeStep]:
        target = jax.random.randint(key, (2,), 0, self.actions)
        return target, self.timestep(jax.nn.one_hot(target, self.actions), reward=reward)


@dataclass(frozen=True)
class Memory(Env):
    """Every step shows a random bit; the reward is 1 for repeating the bit of `delay` steps ago."""

    delay: int = option(2, "number of steps since the bit was shown", at_least=1)
    time_limit: int = option(12, "steps after which an episode is truncated", at_least=1)

    @cached_property
    def spec(self) -> EnvSpec:
        return _pair_spec("memory", numbered("bit", 2), 2, self.time_limit, common_reward=False)

    def reset(self, key: Array) -> tuple[Array, TimeStep]:
        nothing_yet = jnp.full((self.delay, 2), -1)
        return self._show(key, nothing_yet, reward=0.0)

    def step(self, key: Array, state: Array, actions: Array) -> tuple[Array, TimeStep]:
        return self._show(key, state[1:], reward=actions == state[0])

    def _show(self, key: Array, shown: Array, reward: Array | float) -> tuple[Array, TimeStep]:
        """`shown` (delay, A) are the bits still to be asked for, oldest first; the newest is seen."""
        bits = jax.random.randint(key, (2,), 0, 2)
        return jnp.vstack([shown, bits]), self.timestep(jax.nn.one_hot(bits, 2), reward=reward)


@dataclass(frozen=True)
class TwoStep(Env):
    """The two-step game of QMIX (Rashid et al. 2018): the safe game gives 7, the risky one up to 8."""

    @cached_property
    def spec(self) -> EnvSpec:
        stages = ("choosing", "safe game", "risky game")
        return _pair_spec("two_step", stages, 2, time_limit=2, state_features=stages)

    def reset(self, key: Array) -> tuple[Array, TimeStep]:
        stage = jnp.int32(0)
        return stage, self._show(stage, reward=0.0, terminated=False)

    def step(self, key: Array, state: Array, actions: Array) -> tuple[Array, TimeStep]:
        payoff = jnp.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])
        choosing = state == 0
        paid = payoff[jnp.maximum(state - 1, 0), actions[0], actions[1]]
        stage = jnp.where(choosing, 1 + actions[0], state)
        return stage, self._show(stage, reward=jnp.where(choosing, 0.0, paid), terminated=~choosing)

    def _show(self, stage: Array, reward: Array | float, terminated: Array | bool) -> TimeStep:
        seen = jax.nn.one_hot(stage, 3)
        return self.timestep(jnp.stack([seen, seen]), state=seen, reward=reward, terminated=terminated)


@dataclass(frozen=True)
class Forever(Env):
    """Reward 1 in every step. If the time limit truncates (not with `ends`), all values are 1/(1-gamma)."""

    ends: bool = option(False, "terminate at the time limit instead of truncating")
    time_limit: int = option(10, "length of an episode", at_least=1)

    @cached_property
    def spec(self) -> EnvSpec:
        return _pair_spec("forever", ("one", "clock"), 2, self.time_limit)

    def reset(self, key: Array) -> tuple[Array, TimeStep]:
        return jnp.int32(0), self._show(jnp.int32(0), reward=0.0)

    def step(self, key: Array, state: Array, actions: Array) -> tuple[Array, TimeStep]:
        return state + 1, self._show(state + 1, reward=1.0)

    def _show(self, steps: Array, reward: float) -> TimeStep:
        seen = jnp.stack([jnp.float32(1), steps / self.time_limit])
        return self.timestep(
            jnp.stack([seen, seen]),
            reward=reward,
            terminated=(steps >= self.time_limit) if self.ends else False,
        )


class Cued(NamedTuple):
    """State of `Delayed`: the cue of each agent, whether both answered it, steps so far."""

    cue: Array
    right: Array
    steps: Array


@dataclass(frozen=True)
class Delayed(Env):
    """A cue is shown once; the reward for answering it at once comes only `delay` steps later."""

    delay: int = option(6, "steps between the answer and its reward", at_least=1)

    @cached_property
    def spec(self) -> EnvSpec:
        return _pair_spec("delayed", ("cue_0", "cue_1", "clock"), 2, time_limit=self.delay + 1, has_win=True)

    def reset(self, key: Array) -> tuple[Cued, TimeStep]:
        state = Cued(jax.random.randint(key, (2,), 0, 2), jnp.bool_(False), jnp.int32(0))
        return state, self._show(state)

    def step(self, key: Array, state: Cued, actions: Array) -> tuple[Cued, TimeStep]:
        answered = jnp.where(state.steps == 0, (actions == state.cue).all(), state.right)
        state = Cued(state.cue, answered, state.steps + 1)
        return state, self._show(state)

    def _show(self, state: Cued) -> TimeStep:
        cue = jnp.where(state.steps == 0, jax.nn.one_hot(state.cue, 2), 0.0)
        clock = jnp.full((2, 1), state.steps / (self.delay + 1))
        over = state.steps > self.delay
        return self.timestep(
            jnp.hstack([cue, clock]), reward=over & state.right, terminated=over, won=over & state.right
        )


class Scored(NamedTuple):
    """State of `Roles`: the target of each agent, and whether all were hit so far."""

    target: Array
    flawless: Array


@dataclass(frozen=True)
class Roles(Env):
    """A scout (2 entries, 2 actions) and a worker (5 entries, 4 actions), each with its own target.

    An action that exists only as the scout's padding would give 3. A learner that lets agents choose padded
    actions learns the wrong policy, and `won` shows it.
    """

    time_limit: int = option(8, "steps after which an episode is truncated", at_least=1)

    @cached_property
    def spec(self) -> EnvSpec:
        agents = ("scout", "worker")
        obs_features = (numbered("target", 2), (*numbered("target", 4), "one"))
        return EnvSpec(
            name="debug/roles",
            agents=agents,
            agent_types=agents,
            obs_features=obs_features,
            state_features=joint_features(agents, obs_features),
            action_counts=(2, 4),
            time_limit=self.time_limit,
            common_reward=False,
            has_win=True,
        )

    def reset(self, key: Array) -> tuple[Scored, TimeStep]:
        return self._show(key, jnp.bool_(True), reward=0.0)

    def step(self, key: Array, state: Scored, actions: Array) -> tuple[Scored, TimeStep]:
        right = actions == state.target
        padding = actions >= jnp.array(self.spec.action_counts)
        reward = jnp.where(padding, 3.0, right)
        return self._show(key, state.flawless & right.all(), reward)

    def _show(self, key: Array, flawless: Array, reward: Array | float) -> tuple[Scored, TimeStep]:
        target = jax.random.randint(key, (2,), 0, np.array(self.spec.action_counts))
        worker_sees_one = jnp.array([[0.0], [1.0]])
        obs = jnp.hstack([jax.nn.one_hot(target, 4), worker_sees_one])
        return Scored(target, flawless), self.timestep(obs, reward=reward, won=flawless)


class Gate(NamedTuple):
    """State of `Death`."""

    target: Array
    opened: Array
    flawless: Array
    steps: Array


@dataclass(frozen=True)
class Death(Env):
    """One agent can open a gate in the first step and then dies; only then can its mate earn rewards.

    The opener opens the gate by hitting the first target. From then on both get 1 for each target that the
    mate hits. If a learner ends an agent's return at its death, opening the gate looks worthless to it. The
    row of a dead agent is filled with large random numbers, and it has no available action.
    """

    time_limit: int = option(8, "steps after which an episode is truncated", at_least=2)
    garbage: float = option(300.0, "magnitude of the numbers in a dead agent's row", at_least=0)

    @cached_property
    def spec(self) -> EnvSpec:
        agents = ("opener", "worker")
        features = (*numbered("target", 3), "open")
        return EnvSpec(
            name="debug/death",
            agents=agents,
            agent_types=agents,
            obs_features=(features, features),
            state_features=(*numbered("target", 3), "open"),
            action_counts=(3, 3),
            time_limit=self.time_limit,
            has_win=True,
        )

    def reset(self, key: Array) -> tuple[Gate, TimeStep]:
        state = Gate(jnp.int32(0), jnp.bool_(False), jnp.bool_(True), jnp.int32(0))
        return self._show(key, state, reward=0.0)

    def step(self, key: Array, state: Gate, actions: Array) -> tuple[Gate, TimeStep]:
        right = actions[1] == state.target
        opened = state.opened | ((state.steps == 0) & (actions[0] == state.target))
        flawless = state.flawless & opened & (right | (state.steps == 0))
        paid = state.opened & right
        return self._show(key, Gate(state.target, opened, flawless, state.steps + 1), reward=paid)

    def _show(self, key: Array, state: Gate, reward: Array | float) -> tuple[Gate, TimeStep]:
        target_key, garbage_key = jax.random.split(key)
        state = state._replace(target=jax.random.randint(target_key, (), 0, 3))
        seen = jnp.append(jax.nn.one_hot(state.target, 3), state.opened)
        garbage = self.garbage * jax.random.uniform(garbage_key, (4,), minval=-1.0)
        opener_lives = ~state.opened
        alive = jnp.array([True, True]).at[0].set(opener_lives)
        return state, self.timestep(
            jnp.stack([jnp.where(opener_lives, seen, garbage), seen]),
            state=seen,
            reward=reward,
            alive=alive,
            avail=jnp.broadcast_to(alive[:, None], (2, 3)),
            won=state.flawless,
        )


class Offers(NamedTuple):
    """State of `Leave`."""

    good: Array
    """(A,) bool: what each agent is offered"""
    left: Array
    """(A,) bool"""
    steps: Array


@dataclass(frozen=True)
class Leave(Env):
    """Each agent is offered 1 or 0.1 in every step, and may take it once: it then leaves.

    The best policy waits for 1. An agent that has left earns nothing more, while the other continues. After
    the last step the task is over.
    """

    time_limit: int = option(8, "maximum length of an episode", at_least=2)

    @cached_property
    def spec(self) -> EnvSpec:
        features = ("good", "clock")
        return _pair_spec("leave", features, 2, self.time_limit, common_reward=False, agents_end=True)

    def reset(self, key: Array) -> tuple[Offers, TimeStep]:
        return self._show(key, jnp.zeros(2, bool), jnp.int32(0), reward=jnp.zeros(2))

    def step(self, key: Array, state: Offers, actions: Array) -> tuple[Offers, TimeStep]:
        takes = (actions == 1) & ~state.left
        reward = jnp.where(takes, jnp.where(state.good, 1.0, 0.1), 0.0)
        return self._show(key, state.left | takes, state.steps + 1, reward)

    def _show(self, key: Array, left: Array, steps: Array, reward: Array) -> tuple[Offers, TimeStep]:
        good = jax.random.bernoulli(key, 0.5, (2,))
        over = left.all() | (steps >= self.time_limit)
        clock = jnp.full(2, steps / self.time_limit)
        return Offers(good, left, steps), self.timestep(
            jnp.stack([good, clock], axis=-1) * ~left[:, None],
            reward=reward,
            terminated=over,
            alive=~left,
            agent_terminated=left | over,
        )


@dataclass(frozen=True)
class Pictures(Env):
    """Each agent sees a picture with one of four patterns in it, and gets 1 for naming the pattern.

    The pattern is anywhere in the picture, white or black on grey: no linear function of the pixels tells it.
    """

    size: int = option(12, "height and width of the pictures, in pixels", at_least=3)
    time_limit: int = option(8, "steps after which an episode is truncated", at_least=1)

    @cached_property
    def spec(self) -> EnvSpec:
        names, count = numbered("pattern", len(PATTERNS)), len(PATTERNS)
        picture = {"obs_features": (), "obs_shape": (self.size, self.size, 1), "obs_dtype": "uint8"}
        return _pair_spec("pictures", names, count, self.time_limit, common_reward=False, **picture)

    def reset(self, key: Array) -> tuple[Array, TimeStep]:
        return self._show(key, reward=0.0)

    def step(self, key: Array, state: Array, actions: Array) -> tuple[Array, TimeStep]:
        return self._show(key, reward=actions == state)

    def _show(self, key: Array, reward: Array | float) -> tuple[Array, TimeStep]:
        """The state (A,) is the pattern that each agent sees."""
        which_key, where_key, shade_key = jax.random.split(key, 3)
        which = jax.random.randint(which_key, (2,), 0, len(PATTERNS))
        corner = jax.random.randint(where_key, (2, 2), 0, self.size - 2)
        shade = jnp.where(jax.random.bernoulli(shade_key, 0.5, (2, 1, 1, 1)), 127, -127)
        patterns = (128 + shade * jnp.array(PATTERNS)[which].reshape(2, 3, 3, 1)).astype(jnp.uint8)
        blank = jnp.full((2, self.size, self.size, 1), 128, jnp.uint8)
        origin = jnp.pad(corner, ((0, 0), (0, 1)))
        pictures = jax.vmap(jax.lax.dynamic_update_slice)(blank, patterns, origin)
        shown = jax.nn.one_hot(which, len(PATTERNS)).reshape(-1)
        return which, self.timestep(pictures, state=shown, reward=reward)


TOYS: dict[str, type[Env]] = {
    "identity": Identity,
    "memory": Memory,
    "two_step": TwoStep,
    "forever": Forever,
    "delayed": Delayed,
    "roles": Roles,
    "death": Death,
    "leave": Leave,
    "pictures": Pictures,
}


def entry(variant: str) -> tuple[type[Env], dict[str, Any]]:
    """The class behind `debug/VARIANT` and the fields that the name fixes (none)."""
    return TOYS[variant], {}

"""Wrappers that every environment gets: time limit, statistics, network inputs, auto-reset.

`prepare` stacks them in the right order. The time limit and the statistics are inside, so that they see true
episodes; auto-reset is outside, so that everything inside sees an episode from its first to its last step.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phalanx.envs import draws
from phalanx.envs.base import Env, no_action, own_actions
from phalanx.envs.batching import where_any
from phalanx.types import Array, EnvSpec, Observation, Picture, PyTree, TimeStep


class Wrapper(Env):
    """An environment around another one; passes on what it does not change."""

    def __init__(self, env: Env):
        self.env = env

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def frame(self, state: PyTree) -> dict[str, Any] | None:
        return self.env.frame(state.inner)


class WithState(Wrapper):
    """Put the state into `info`, for drawing. It wraps the bare environment."""

    def reset(self, key: Array) -> tuple[PyTree, TimeStep]:
        return self._with_state(*self.env.reset(key))

    def step(self, key: Array, state: PyTree, actions: Array) -> tuple[PyTree, TimeStep]:
        return self._with_state(*self.env.step(key, state, actions))

    def frame(self, state: PyTree) -> dict[str, Any] | None:
        return self.env.frame(state)

    def _with_state(self, state: PyTree, step: TimeStep) -> tuple[PyTree, TimeStep]:
        return state, step._replace(info={**step.info, "state": state})


class Counted(NamedTuple):
    """What `TimeLimit` keeps."""

    inner: PyTree
    steps: Array


class TimeLimit(Wrapper):
    """Truncate an episode (never `terminated`) after `spec.time_limit` steps."""

    def reset(self, key: Array) -> tuple[Counted, TimeStep]:
        state, step = self.env.reset(key)
        return Counted(state, jnp.int32(0)), step

    def step(self, key: Array, state: Counted, actions: Array) -> tuple[Counted, TimeStep]:
        inner, step = self.env.step(key, state.inner, actions)
        steps = state.steps + 1
        cut = step.truncated | (steps >= self.spec.time_limit)
        # An end at the limit is an end: nothing is left to bootstrap from.
        return Counted(inner, steps), step._replace(truncated=cut & ~step.terminated)


class Statistics(NamedTuple):
    """What `EpisodeStatistics` keeps: the return of each agent so far, and the length."""

    inner: PyTree
    returns: Array
    length: Array


class EpisodeStatistics(Wrapper):
    """Put each agent's undiscounted return and the length so far into `info`."""

    def reset(self, key: Array) -> tuple[Statistics, TimeStep]:
        state, step = self.env.reset(key)
        stats = Statistics(state, jnp.zeros(self.spec.n_agents), jnp.int32(0))
        return stats, self._report(stats, step)

    def step(self, key: Array, state: Statistics, actions: Array) -> tuple[Statistics, TimeStep]:
        inner, step = self.env.step(key, state.inner, actions)
        stats = Statistics(inner, state.returns + step.reward, state.length + 1)
        return stats, self._report(stats, step)

    def _report(self, stats: Statistics, step: TimeStep) -> TimeStep:
        return step._replace(info={**step.info, "return": stats.returns, "length": stats.length})


def policy_input(
    obs: Array, alive: Array, last_action: Array, spec: EnvSpec, with_id: bool, with_last_action: bool
) -> Array | Picture:
    """The input of a network: (..., A, O) observations, then the one-hot agent id, then the last action.

    The last action is one-hot if discrete, and unchanged if continuous; before the first step (`no_action`)
    it is zero. A dead agent's entries are zero except its id, whatever the environment returns. If
    observations are pictures, (..., A, *obs_shape), id and last action are a separate vector.
    """
    rows, n_agents = alive.shape, spec.n_agents
    living = alive[..., None]
    parts = []
    if with_id:
        parts.append(jnp.broadcast_to(jnp.eye(n_agents), (*rows, n_agents)))
    if with_last_action:
        continuous = spec.action_kind == "continuous"
        done = last_action * own_actions(spec) if continuous else jax.nn.one_hot(last_action, spec.n_actions)
        parts.append(jnp.where(living, done, 0.0))
    if spec.obs_shape is None:
        return jnp.concatenate([jnp.where(living, obs, 0.0), *parts], axis=-1)
    living = alive.reshape(*rows, *[1] * len(spec.obs_shape))
    pixels = jnp.where(living, obs, jnp.zeros((), spec.obs_dtype))
    return Picture(pixels, jnp.concatenate([jnp.zeros((*rows, 0)), *parts], axis=-1))


def as_given(observation: Observation, spec: EnvSpec) -> Observation:
    """An observation without what `policy_input` added to it; `spec` is that of the bare environment."""
    obs = observation.obs
    own = obs.pixels if isinstance(obs, Picture) else obs if spec.obs_shape else obs[..., : spec.obs_size]
    return observation._replace(obs=own)


def policy_spec(spec: EnvSpec, agent_id: bool, last_action: bool) -> EnvSpec:
    """The spec of an environment as a network sees it: see `policy_input`."""
    ids = tuple(f"is {name}" for name in spec.agents) if agent_id else ()
    last = tuple(f"last action {u}" for u in range(spec.n_actions)) if last_action else ()
    features = spec.obs_features or ((),) * spec.n_agents  # nothing stands beside a picture yet
    padded = (names + ("padding",) * (spec.obs_size - len(names)) + ids + last for names in features)
    return replace(spec, obs_features=tuple(padded))


class Remembered(NamedTuple):
    """What `PolicyInput` keeps: the last actions, `no_action` before the first."""

    inner: PyTree
    last_action: Array


class PolicyInput(Wrapper):
    """Replace `obs` by what the networks see: see `policy_input`."""

    def __init__(self, env: Env, agent_id: bool, last_action: bool):
        super().__init__(env)
        self.agent_id, self.last_action = agent_id, last_action

    @property
    def spec(self) -> EnvSpec:
        return policy_spec(self.env.spec, self.agent_id, self.last_action)

    def reset(self, key: Array) -> tuple[Remembered, TimeStep]:
        state, step = self.env.reset(key)
        none_yet = no_action(self.env.spec)
        return Remembered(state, none_yet), self._see(step, none_yet)

    def step(self, key: Array, state: Remembered, actions: Array) -> tuple[Remembered, TimeStep]:
        inner, step = self.env.step(key, state.inner, actions)
        return Remembered(inner, actions), self._see(step, actions)

    def _see(self, step: TimeStep, last_action: Array) -> TimeStep:
        seen = step.observation
        obs = policy_input(seen.obs, seen.alive, last_action, self.env.spec, self.agent_id, self.last_action)
        return step._replace(observation=seen._replace(obs=obs))


class Running(NamedTuple):
    """An environment between two steps: its state, and the observation to act on."""

    state: PyTree
    observation: Observation
    first: Array
    """() bool: `observation` begins an episode."""


class AutoReset:
    """Start a new episode when one ends, and keep the true final observation separately.

    `step` returns the unchanged time step (its observation is the last of the old episode). The observation
    to act on next, which is the first of the new episode if one began, is in `Running`.
    """

    def __init__(self, env: Env):
        self.env = env
        self.spec = env.spec

    def reset(self, key: Array) -> Running:
        state, step = self.env.reset(key)
        return Running(state, step.observation, jnp.bool_(True))

    def step(self, key: Array, running: Running, actions: Array) -> tuple[Running, TimeStep]:
        state, step = self.env.step(draws.first(key), running.state, actions)
        over = step.terminated | step.truncated
        ongoing = Running(state, step.observation, jnp.bool_(False))
        # Split again where it is needed: many environments draw nothing in a step.
        return where_any(over, lambda key: self.reset(draws.second(key)), key, ongoing), step


def bare_state(state: PyTree) -> PyTree:
    """The state of the bare environment within that of the wrappers that `prepare` stacks."""
    return bare_state(state.inner) if hasattr(state, "inner") else state


def with_bare_state(state: PyTree, bare: PyTree) -> PyTree:
    """The state of the wrappers with another one of the bare environment."""
    if not hasattr(state, "inner"):
        return bare
    return state._replace(inner=with_bare_state(state.inner, bare))


def prepare(env: Env, agent_id: bool = False, last_action: bool = False) -> AutoReset:
    """Stack the wrappers around a bare environment, ready to be batched and collected from."""
    return AutoReset(PolicyInput(EpisodeStatistics(TimeLimit(env)), agent_id, last_action))

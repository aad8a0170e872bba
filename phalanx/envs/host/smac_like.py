"""Environments with SMAC's interface: get_obs, get_state, get_avail_actions, get_env_info, reset, step."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
from phalanx.envs.host.randomness import OwnRandomness
from phalanx.envs.host.seeds import seed32
from phalanx.errors import PhalanxError
from phalanx.spec import EnvSpec

NO_OP = 0


class SmacLike(HostEnv):
    """A team with one common reward, behind SMAC's interface.

    `step` may return SMAC's (reward, terminated, info), gym's (obs, reward, done, info) or gymnasium's
    (obs, reward, terminated, truncated, info). What `reset` returns is not used.

    - `info["battle_won"]` says that an episode was won.
    - An end with `info["episode_limit"]` is a time limit, thus `truncated`.
    - An agent is alive if `get_unit_by_id(i).health` is above 0. In environments without this method an agent
      is dead if action 0 (SMAC's no-op) is its only available action.
    - Seeds: `reset(seed=...)` if the environment's `reset` has this parameter, else `seed(...)` if it has
      such a method. Otherwise the global generators of `random` and numpy are seeded, and an episode depends
      on its seed alone only if the environment draws from nothing else.
    """

    def __init__(
        self,
        env: Any,
        name: str = "",
        info: dict | None = None,
        time_limit: int | None = None,
        agent_types: tuple[str, ...] = (),
        action_names: tuple[str, ...] = (),
    ):
        self.env = env
        seeded = takes_seed(env.reset, "seed") or (hasattr(env, "seed") and takes_seed(env.seed))
        self._random = None if seeded else OwnRandomness(python=True)
        self._spec = describe(
            name or type(env).__name__,
            env.get_env_info() if info is None else info,
            time_limit,
            agent_types,
            action_names,
        )

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    def copy(self) -> HostEnv:
        return copy.deepcopy(self)

    def reset(self, seed: int) -> HostStep:
        seed = seed32(seed)
        if self._random is not None:
            self._random.seed(seed)
        with self._random or nullcontext():
            self._begin(seed)
            return self._now(0.0, False, False, False)

    def step(self, actions: np.ndarray) -> HostStep:
        with self._random or nullcontext():
            reward, terminated, truncated, info = read_step(self.env.step([int(each) for each in actions]))
            if np.ndim(reward):
                raise PhalanxError(
                    f"{self._spec.name} returned rewards of shape {np.shape(reward)}: "
                    "an environment with SMAC's interface has one common reward"
                )
            cut = bool(truncated) or (bool(terminated) and self._was_cut(info))
            return self._now(reward, bool(terminated) and not cut, cut, bool(info.get("battle_won", False)))

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    def _begin(self, seed: int) -> None:
        """Begin an episode with a seed of 31 bits, in the way the environment takes one."""
        if takes_seed(self.env.reset, "seed"):
            self.env.reset(seed=seed)
            return
        if self._random is None:
            self.env.seed(seed)
        self.env.reset()

    def _was_cut(self, info: dict) -> bool:
        """Whether an episode that the environment terminated was truncated by its time limit."""
        return bool(info.get("episode_limit", False))

    def _now(self, reward: float, terminated: bool, truncated: bool, won: bool) -> HostStep:
        avail = np.asarray(self.env.get_avail_actions(), bool)
        observation = HostObservation(
            obs=np.asarray(self.env.get_obs(), np.float32),
            state=np.asarray(self.env.get_state(), np.float32),
            avail=avail,
            alive=self._alive(avail),
        )
        rewards = np.full(self._spec.n_agents, reward, np.float32)
        return HostStep(observation, rewards, terminated, truncated, won)

    def _alive(self, avail: np.ndarray) -> np.ndarray:
        """Which agents live, (A,) bool, from the environment's units or from `avail` (A, U)."""
        if hasattr(self.env, "get_unit_by_id"):
            return np.array([self.env.get_unit_by_id(agent).health > 0 for agent in range(len(avail))])
        return ~(avail[:, NO_OP] & (avail.sum(axis=1) == 1))


def takes_seed(function: Callable, name: str = "") -> bool:
    """Whether a function has the parameter `name`, or any at all: SMAC's own `seed()` has none."""
    parameters = inspect.signature(function).parameters
    return name in parameters if name else bool(parameters)


def read_step(returned: tuple) -> tuple[Any, Any, Any, dict]:
    """Return (reward, terminated, truncated, info) of what `step` returned."""
    if len(returned) == 3:  # SMAC
        reward, terminated, info = returned
        return reward, terminated, False, info
    if len(returned) == 4:  # gym
        _, reward, terminated, info = returned
        return reward, terminated, False, info
    if len(returned) == 5:  # gymnasium
        return returned[1:]
    raise PhalanxError(f"step returned {len(returned)} values, not 3 (SMAC), 4 (gym) or 5 (gymnasium)")


def describe(
    name: str,
    info: dict,
    time_limit: int | None,
    agent_types: tuple[str, ...],
    action_names: tuple[str, ...],
) -> EnvSpec:
    """The spec of an environment, from what `get_env_info` returns."""
    missing = [key for key in ("n_agents", "n_actions", "obs_shape", "state_shape") if key not in info]
    if missing:
        raise PhalanxError(f"get_env_info of {name} lacks {', '.join(missing)}")
    time_limit = time_limit or info.get("episode_limit")
    if not time_limit:
        raise PhalanxError(f"{name} has no time limit of its own: set one with --env.time_limit N")
    agents = info["n_agents"]
    if agent_types and len(agent_types) != agents:
        raise PhalanxError(f"{name} has {agents} agents but {len(agent_types)} agent types")
    return EnvSpec(
        name=name,
        agents=tuple(f"agent_{agent}" for agent in range(agents)),
        agent_types=agent_types or ("unit",) * agents,
        obs_features=(_numbered("obs", info["obs_shape"]),) * agents,
        state_features=_numbered("state", info["state_shape"]),
        action_counts=(info["n_actions"],) * agents,
        time_limit=int(time_limit),
        has_win=True,
        action_names=(action_names,) * agents if action_names else (),
    )


def _numbered(name: str, size: Any) -> tuple[str, ...]:
    """Feature names by number; `size` is a number or the shape of a vector."""
    return tuple(f"{name}_{entry}" for entry in range(int(np.prod(size))))

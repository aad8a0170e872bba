"""Gymnasium's environments by their id, with one agent. Needs gymnasium."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx.envs.host.actions import RANGE, Actions
from phalanx.envs.host.base import HostObservation, HostStep
from phalanx.envs.host.observations import Observations
from phalanx.envs.host.packages import limited, made_to_draw, needed, picture, with_limit
from phalanx.envs.host.seeds import seed32
from phalanx.envs.host.snapshots import Snapshots
from phalanx.envs.host.spaces import MASK
from phalanx.envs.host.variant import Variant
from phalanx.errors import PhalanxError
from phalanx.spec import EnvSpec

NAMES = {
    "CartPole-v1": "balance a pole on a cart; 500 is the best return",
    "Acrobot-v1": "swing a double pendulum up",
    "MountainCar-v0": "drive an underpowered car up a hill",
    "Pendulum-v1": "swing a pendulum up, continuous actions",
    "LunarLander-v3": "land on a pad; solved at 200 (pip install 'gymnasium[box2d]')",
    "LunarLanderContinuous-v3": "the same with continuous engines (pip install 'gymnasium[box2d]')",
    "BipedalWalker-v3": "walk on two legs; solved at 300 (pip install 'gymnasium[box2d]')",
    "CarRacing-v3": "drive from pictures, continuous actions (pip install 'gymnasium[box2d]')",
}
PACKAGE = "gymnasium"
ALIVE = np.ones(1, bool)
ALIVE.flags.writeable = False


class GymEnv(Snapshots):
    """An environment with gymnasium's interface, or that of gym before it, as a team of one agent.

    - The time limit is that of the environment (`spec.max_episode_steps`), unless a shorter one is given.
    - `info["action_mask"]`, or an entry `action_mask` of the observation, masks actions.
    - The state is the observation.
    """

    def __init__(self, env: Any, name: str, time_limit: int | None = None, shrink: int = 1):
        self.env = env
        self._observations = Observations(name, ("agent",), (env.observation_space,), shrink)
        self._actions = Actions(name, ("agent",), (env.action_space,))
        own = getattr(getattr(env, "spec", None), "max_episode_steps", None)
        self._seeded_apart = is_seeded_apart(env, name)
        self._spec = EnvSpec(
            name=name,
            agents=("agent",),
            agent_types=("agent",),
            obs_features=self._observations.features,
            state_features=self._observations.state_features,
            action_counts=self._actions.counts,
            time_limit=limited(name, own, time_limit),
            action_kind=self._actions.kind,
            action_range=RANGE,
            obs_shape=self._observations.shape,
            obs_dtype=self._observations.dtype,
        )

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    def reset(self, seed: int) -> HostStep:
        obs, info = begin(self.env, seed32(seed), self._seeded_apart)
        return self._now(obs, info, 0.0, False, False)

    def step(self, actions: np.ndarray) -> HostStep:
        obs, reward, terminated, truncated, info = advance(self.env, self._actions.decode(0, actions[0]))
        return self._now(obs, info, reward, terminated, truncated)

    def _now(self, obs: Any, info: Any, reward: Any, terminated: Any, truncated: Any) -> HostStep:
        array, masks = self._observations.read([obs])
        mask = info.get(MASK) if masks[0] is None else masks[0]
        self.seen = HostObservation(
            obs=array,
            state=self._observations.joint(array),
            avail=self._actions.avail([mask]),
            alive=ALIVE,
        )
        reward = np.asarray(reward, np.float32).reshape(1)
        return HostStep(self.seen, reward, bool(terminated), bool(truncated))

    def render(self) -> Any:
        return picture(self.env)

    def close(self) -> None:
        self.env.close()


def is_seeded_apart(env: Any, name: str) -> bool:
    """Whether seeds go to `seed()`, as in gym before 0.26, rather than to `reset(seed=...)`."""
    parameters = inspect.signature(env.unwrapped.reset).parameters
    if "seed" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return False
    if callable(getattr(env, "seed", None)):
        return True
    raise PhalanxError(f"{name}: reset() takes no seed; write reset(self, *, seed=None, options=None)")


def begin(env: Any, seed: int, seeded_apart: bool) -> tuple[Any, Any]:
    """Reset an environment: its observation and info."""
    if not seeded_apart:
        return env.reset(seed=seed)
    env.seed(seed)
    return env.reset(), {}


def advance(env: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Step an environment: observation, reward, terminated, truncated and info."""
    result = env.step(action)
    if len(result) == 5:
        return result
    obs, reward, done, info = result  # gym before 0.26
    done, truncated = bool(np.all(done)), bool(info.get("TimeLimit.truncated", False))
    return obs, reward, done and not truncated, truncated, info


@dataclass(eq=False)
class Adapter(Variant, GymEnv):
    """`gymnasium.make(variant)`."""

    def __post_init__(self):
        name = f"gym/{self.variant}"
        make = needed("gymnasium", name).make
        options = with_limit(name, self.extra, "max_episode_steps", self.time_limit)
        options = {"disable_env_checker": True, **options}  # workers check every step
        env = made_to_draw(name, lambda **options: make(self.variant, **options), options)
        GymEnv.__init__(self, env, name, self.time_limit, self.shrink)

    def copy(self) -> Adapter:
        return dataclasses.replace(self)

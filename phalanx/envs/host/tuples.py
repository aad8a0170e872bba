"""Teams with gymnasium's interface: observations, actions and rewards are tuples with an entry an agent."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from phalanx.config import option
from phalanx.envs.host.actions import Actions
from phalanx.envs.host.base import HostObservation, HostStep
from phalanx.envs.host.gym import advance, begin, is_seeded_apart
from phalanx.envs.host.observations import Observations
from phalanx.envs.host.packages import limited, made, needed, picture, with_limit
from phalanx.envs.host.seeds import seed32
from phalanx.envs.host.snapshots import Snapshots
from phalanx.envs.host.spaces import kind_of
from phalanx.errors import PhalanxError
from phalanx.spec import EnvSpec


class TupleEnv(Snapshots):
    """An environment whose spaces are tuples of the agents' spaces.

    Each agent has its own rewards. The state is all observations in a row.
    """

    def __init__(self, env: Any, name: str, time_limit: int | None = None, shrink: int = 1):
        self.env = env
        spaces = {}
        for what in ("observation_space", "action_space"):
            space = getattr(env, what)
            if kind_of(space) != "Tuple":
                raise PhalanxError(f"{name} has a {what} that is not a Tuple with a space for each agent")
            spaces[what] = list(space.spaces)
        agents = [f"agent_{i}" for i in range(len(spaces["action_space"]))]
        self._observations = Observations(name, agents, spaces["observation_space"], shrink)
        self._actions = Actions(name, agents, spaces["action_space"])
        self._seeded_apart = is_seeded_apart(env, name)
        self._spec = EnvSpec(
            name=name,
            agents=tuple(agents),
            agent_types=("agent",) * len(agents),
            obs_features=self._observations.features,
            state_features=self._observations.state_features,
            action_counts=self._actions.counts,
            time_limit=limited(name, self.own_limit(), time_limit),
            common_reward=len(agents) == 1,
            action_kind=self._actions.kind,
            obs_shape=self._observations.shape,
            obs_dtype=self._observations.dtype,
        )

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    def own_limit(self) -> int | None:
        """The steps after which the environment itself ends an episode."""
        return getattr(getattr(self.env, "spec", None), "max_episode_steps", None)

    def was_cut(self) -> bool:
        """Whether an episode that the environment calls terminated was in fact truncated by a time limit."""
        return False

    def reset(self, seed: int) -> HostStep:
        observations, _ = begin(self.env, seed32(seed), self._seeded_apart)
        return self._now(observations, np.zeros(len(self._spec.agents)), False, False)

    def step(self, actions: np.ndarray) -> HostStep:
        chosen = tuple(self._actions.decode(i, action) for i, action in enumerate(actions))
        observations, rewards, terminated, truncated, _ = advance(self.env, chosen)
        terminated, truncated = bool(np.all(terminated)), bool(np.all(truncated))
        if terminated and self.was_cut():
            terminated, truncated = False, True
        return self._now(observations, rewards, terminated, truncated)

    def _now(self, observations: Any, rewards: Any, terminated: bool, truncated: bool) -> HostStep:
        obs, masks = self._observations.read(observations)
        self.seen = HostObservation(
            obs=obs,
            state=self._observations.joint(obs),
            avail=self._actions.avail(masks),
            alive=np.ones(len(obs), bool),
        )
        return HostStep(self.seen, np.asarray(rewards, np.float32), terminated, truncated)

    def render(self) -> Any:
        return picture(self.env)

    def close(self) -> None:
        self.env.close()


@dataclass(eq=False)
class Registered(TupleEnv):
    """`gymnasium.make(variant)` after importing a package that registers it and counts its own time limit."""

    family: ClassVar[str]
    package: ClassVar[str]
    limit_option: ClassVar[str]
    """what the constructor calls its time limit"""

    variant: str
    time_limit: int | None = option(
        None, "steps after which an episode is truncated (default: the environment's own limit)", at_least=1
    )
    extra: dict = field(default_factory=dict)

    def __post_init__(self):
        name = f"{self.family}/{self.variant}"
        needed(self.package, name)
        env = make_registered(name, self.variant, self.limit_option, self.time_limit, self.extra)
        self._limit = env.spec.kwargs.get(self.limit_option)
        TupleEnv.__init__(self, env, name)

    def copy(self) -> Registered:
        return dataclasses.replace(self)

    def own_limit(self) -> int | None:
        return self._limit


def make_registered(
    name: str, variant: str, limit: str, time_limit: int | None, extra: dict[str, Any]
) -> Any:
    """Make the gymnasium environment `variant`, whose constructor takes its time limit as `limit`.

    The time limit replaces the one it was registered with. It must not go through `gymnasium.make`, which
    keeps the name `max_episode_steps` for a limit of its own.
    """
    gymnasium = needed("gymnasium", name)
    spec = copy.deepcopy(made(name, lambda: gymnasium.spec(variant), {}))
    spec.kwargs.update(with_limit(name, extra, limit, time_limit))
    return made(name, lambda: gymnasium.make(spec, disable_env_checker=True), {})

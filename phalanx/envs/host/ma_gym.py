"""ma-gym: small grid worlds for several agents, of gym 0.20. See docs/smac.md for a Python of their own."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phalanx.config import option
from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
from phalanx.envs.host.randomness import OwnRandomness
from phalanx.envs.host.seeds import seed32
from phalanx.errors import PhalanxError
from phalanx.spec import EnvSpec

NAMES = {
    "Switch2-v0": "two agents change sides through a one-cell corridor",
    "Switch4-v0": "the same with four agents",
    "PredatorPrey5x5-v0": "two predators must catch a prey together",
    "PredatorPrey7x7-v0": "four predators, two preys",
    "Combat-v0": "five agents against five scripted ones",
    "TrafficJunction4-v0": "up to four cars cross a junction",
    "Lumberjacks-v0": "two agents cut down trees of different strength",
    "Checkers-v0": "one agent is rewarded for apples, the other should leave them",
}
PACKAGE = "the package ma-gym, in a Python of its own: see docs/smac.md"


@dataclass
class Adapter(HostEnv):
    """An environment of ma-gym, with its own rewards for every agent. Further options are its constructor's.

    An agent ends when the environment calls it done, and is not alive from then on. Agents that are done only
    with the time limit are truncated. The state is all observations one after the other.
    """

    variant: str
    time_limit: int | None = option(
        None, "steps of an episode, the environment's max_steps; default: its own", at_least=1
    )
    extra: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = f"ma_gym/{self.variant}"
        try:
            import gym  # pyright: ignore[reportMissingImports]
            import ma_gym  # noqa: F401  # pyright: ignore[reportMissingImports]  (registers its environments)
        except ImportError as error:
            raise PhalanxError(f"{name} needs {PACKAGE} ({error})") from None
        self._env = self._made(gym, name)
        spaces = [self._env.action_space[agent] for agent in range(self._env.n_agents)]
        if not all(hasattr(space, "n") for space in spaces):
            raise PhalanxError(f"{name} has continuous actions: only discrete ones of ma-gym can be used")
        self._counts = tuple(int(space.n) for space in spaces)
        shapes = [space.shape for space in self._env.observation_space]
        self._sizes = [int(np.prod(shape)) for shape in shapes]
        self._spec = self._describe(name)
        self._random = OwnRandomness(python=True)
        self._draws_globally = self.variant.startswith("TrafficJunction")

    def _made(self, gym: Any, name: str) -> Any:
        """Make the environment, and set `_make` and `_limit`."""
        if self.time_limit and "max_steps" in self.extra:
            raise PhalanxError(f"{name}: --env.max_steps and --env.time_limit mean the same, leave one out")
        self._make = functools.partial(gym.make, self.variant, **self.extra)
        try:
            env = self._make()
            takes = inspect.signature(type(env.unwrapped).__init__).parameters
            if "max_steps" in takes and self.time_limit:
                self._make = functools.partial(self._make, max_steps=self.time_limit)
                env = self._make()
        except (gym.error.Error, TypeError, AssertionError) as error:
            raise PhalanxError(f"{name}: {error}") from None
        own = self.extra.get("max_steps", takes["max_steps"].default) if "max_steps" in takes else None
        limit = self.time_limit or own
        if limit is None:
            raise PhalanxError(f"{name} has no time limit of its own: set one with --env.time_limit N")
        self._limit = int(limit)
        return env

    def _describe(self, name: str) -> EnvSpec:
        agents = len(self._counts)
        names = [tuple(f"obs_{entry}" for entry in range(size)) for size in self._sizes]
        meanings = getattr(self._env.unwrapped, "get_action_meanings", lambda: ())()
        return EnvSpec(
            name=name,
            agents=tuple(f"agent_{agent}" for agent in range(agents)),
            agent_types=("agent",) * agents,
            obs_features=tuple(names),
            state_features=tuple(f"agent_{i}_{entry}" for i in range(agents) for entry in names[i]),
            action_counts=self._counts,
            time_limit=self._limit,
            common_reward=False,
            agents_end=True,
            action_names=tuple(tuple(str(meaning).lower() for meaning in each) for each in meanings),
        )

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    def copy(self) -> Adapter:
        return dataclasses.replace(self)

    def reset(self, seed: int) -> HostStep:
        self._steps, self._ended = 0, np.zeros(len(self._counts), bool)
        if self.variant.startswith("Lumberjacks"):
            # It shuffles the grid by comparison with that of the episode before, and not at all in the first.
            self._env.close()
            self._env = self._make()
            self._env.reset()
        self._env.seed(seed32(seed))
        self._random.seed(seed32(seed))
        with self._random:
            seen = self._env.reset()
        return self._now(seen, np.zeros(len(self._counts)), False)

    def step(self, actions: np.ndarray) -> HostStep:
        with self._random if self._draws_globally else nullcontext():
            seen, rewards, dones, _ = self._env.step([int(action) for action in actions])
        self._steps += 1
        limit = self._steps >= self._limit
        if not limit:  # with the time limit, the environment calls all agents done
            self._ended = np.array(dones, bool)
        return self._now(seen, rewards, limit)

    def _now(self, seen: list, rewards: Any, limit: bool) -> HostStep:
        obs = np.zeros((len(seen), max(self._sizes)), np.float32)
        flat = [np.ravel(np.asarray(each, np.float32)) for each in seen]
        for agent, each in enumerate(flat):
            obs[agent, : len(each)] = each
        avail = np.arange(max(self._counts)) < np.array(self._counts)[:, None]
        terminated = bool(self._ended.all())
        return HostStep(
            observation=HostObservation(obs, np.concatenate(flat), avail, ~self._ended),
            reward=np.asarray(rewards, np.float32),
            terminated=terminated,
            truncated=limit and not terminated,
            agent_terminated=self._ended.copy(),
        )

    def render(self) -> Any:
        return np.asarray(self._env.render(mode="rgb_array"))

    def close(self) -> None:
        self._env.close()

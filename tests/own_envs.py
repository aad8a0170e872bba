"""Environments as users write them, to be recognised by what they are."""

import random

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
from phalanx.spec import EnvSpec


class Walk(gymnasium.Env):
    """A random walk that draws from numpy's and Python's global generators."""

    def __init__(self, size: int = 5, time_limit: int = 8):
        self.observation_space, self.action_space = spaces.Box(-99, 99, (2,)), spaces.Discrete(2)
        self.size = size

    def reset(self, *, seed=None, options=None):
        return np.array([np.random.rand(), random.random()], np.float32), {}

    def step(self, action):
        return np.array([np.random.rand(), random.random()], np.float32), 0.0, False, False, {}


class Camera(gymnasium.Env):
    """Sees grey."""

    observation_space, action_space = spaces.Box(0, 255, (6, 6), np.uint8), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.full((6, 6), 40, np.uint8), {}


class Pair(gymnasium.Env):
    """Two agents in tuples."""

    def __init__(self):
        self.observation_space = spaces.Tuple([spaces.Box(-9, 9, (2,)), spaces.Box(-9, 9, (3,))])
        self.action_space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])

    def _seen(self):
        return (self.np_random.random(2), self.np_random.random(3))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 4
        return self._seen(), {}

    def step(self, actions):
        self.left -= 1
        return self._seen(), [float(action) for action in actions], self.left == 0, False, {}


class Duo(ParallelEnv):
    metadata = {"name": "duo"}  # noqa: RUF012
    possible_agents = ["a_0", "a_1"]  # noqa: RUF012
    max_cycles = 3

    def observation_space(self, agent):
        return spaces.Box(0, 9, (1,))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return {agent: np.zeros(1) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.t += 1
        no = dict.fromkeys(self.agents, False)
        return {agent: np.zeros(1) for agent in self.agents}, dict.fromkeys(self.agents, 1.0), no, no, {}


class Throws(ParallelEnv):
    """Rock, paper, scissors, some rounds of it; each sees what both threw last."""

    metadata = {"name": "throws", "render_modes": ["rgb_array"]}  # noqa: RUF012
    possible_agents = ["left_0", "right_0"]  # noqa: RUF012

    def __init__(self, max_cycles: int = 5, render_mode: str | None = None):
        self.max_cycles, self.render_mode = max_cycles, render_mode

    def observation_space(self, agent):
        return spaces.Box(0, 1, (6,))

    def action_space(self, agent):
        return spaces.Discrete(3)

    def _seen(self, throws):
        thrown = np.zeros((2, 3), np.float32)
        for k, throw in enumerate(throws):
            thrown[k, throw] = 1
        return {"left_0": thrown.ravel(), "right_0": thrown[::-1].ravel()}

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return self._seen(()), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.t += 1
        left, right = (int(actions[agent]) for agent in self.possible_agents)
        won = float([0, 1, -1][(left - right) % 3])
        over = dict.fromkeys(self.agents, self.t == self.max_cycles)
        if self.t == self.max_cycles:
            self.agents = []
        rewards = dict(zip(self.possible_agents, (won, -won), strict=True))
        return self._seen((left, right)), rewards, over, dict.fromkeys(over, False), {}

    def render(self):
        return np.full((4, 4, 3), self.t, np.uint8)


class Solo(AECEnv):
    metadata = {"name": "solo"}  # noqa: RUF012
    possible_agents = ["only"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Discrete(3)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return 1

    def reset(self, seed=None, options=None):
        self.agents, self.agent_selection = ["only"], "only"
        self.rewards, self.infos = {"only": 0.0}, {"only": {}}
        self.terminations, self.truncations = {"only": False}, {"only": False}

    def step(self, action):
        self.rewards = {"only": float(action)}


class Hosted(HostEnv):
    """A host environment of phalanx itself."""

    spec = EnvSpec("hosted", ("agent",), ("agent",), (("x",),), ("x",), (2,), 4)

    def copy(self):
        return Hosted()

    def _now(self):
        seen = HostObservation(
            np.ones((1, 1), np.float32), np.ones(1), np.ones((1, 2), bool), np.ones(1, bool)
        )
        return HostStep(seen, np.zeros(1, np.float32), False, False)

    def reset(self, seed):
        return self._now()

    def step(self, actions):
        return self._now()


class Battle:
    """What SMAC's classes have."""

    get_obs = get_state = get_avail_actions = get_env_info = reset = step = lambda self, *_: None


def make_pair(broken: bool = False):
    if broken:
        raise ValueError("two\nlines")
    return Pair()


ready = Pair()
number = 7


def make_number():
    return number

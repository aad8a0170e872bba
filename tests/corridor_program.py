"""`switch/2` once more, as a Python program in numpy that workers step. It imports no JAX."""

import numpy as np

from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
from phalanx.spec import EnvSpec

MAZE = ["..###..", ".......", "..###.."]
STARTS, HOMES = [(0, 1), (0, 5)], [(0, 6), (0, 0)]
MOVES = [(1, 0), (0, -1), (-1, 0), (0, 1), (0, 0)]
SEEN = [[0.0, 0.5, 1.0], [0.0, 0.17, 0.33, 0.5, 0.67, 0.83, 1.0]]


class Corridor(HostEnv):
    """Two agents that must let each other pass."""

    def __init__(self, limit: int = 50):
        self.limit = limit

    @property
    def spec(self) -> EnvSpec:
        agents = ("agent_0", "agent_1")
        return EnvSpec(
            name="corridor",
            agents=agents,
            agent_types=("walker",) * 2,
            obs_features=(("row", "column"),) * 2,
            state_features=(*(f"{a}:{what}" for a in agents for what in ("row", "column", "home")), "clock"),
            action_counts=(5, 5),
            time_limit=self.limit,
            common_reward=False,
            has_win=True,
        )

    def copy(self):
        return Corridor(self.limit)

    def reset(self, seed):
        self.places, self.steps = list(STARTS), 0
        return self.show(np.zeros(2))

    def step(self, actions):
        was_home = [place == home for place, home in zip(self.places, HOMES, strict=True)]
        for i, action in enumerate(actions):
            row, column = np.add(self.places[i], MOVES[action])
            inside = 0 <= row < 3 and 0 <= column < 7
            if inside and MAZE[row][column] == "." and (row, column) not in self.places and not was_home[i]:
                self.places[i] = (row, column)
        self.steps += 1
        is_home = [place == home for place, home in zip(self.places, HOMES, strict=True)]
        earned = [0.0 if was else 5.0 if now else -0.1 for was, now in zip(was_home, is_home, strict=True)]
        return self.show(np.array(earned))

    def show(self, reward):
        home = np.array([place == home for place, home in zip(self.places, HOMES, strict=True)])
        obs = np.array([[SEEN[0][row], SEEN[1][column]] for row, column in self.places], np.float32)
        state = np.append(np.column_stack([obs, home]), np.float32(self.steps) / np.float32(self.limit))
        seen = HostObservation(obs, state.astype(np.float32), np.ones((2, 5), bool), ~home)
        return HostStep(seen, reward, bool(home.all()), False, bool(home.all()))

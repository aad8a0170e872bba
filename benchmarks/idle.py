"""An environment that computes nothing. Workers import it, so that it is apart from the benchmark."""

import time
from typing import Any

import gymnasium
import numpy as np

EPISODE = 200  # steps


class Idle(gymnasium.Env):
    """An environment that computes nothing, or takes its time."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0, busy: bool = False):
        self.seconds, self.busy = seconds, busy
        self.seen = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.played = 0
        return self.seen, {}

    def step(self, action: int):
        self.played += 1
        if self.busy:
            end = time.perf_counter() + self.seconds
            while time.perf_counter() < end:
                pass
        elif self.seconds:
            time.sleep(self.seconds)
        return self.seen, 1.0, self.played >= EPISODE, False, {}

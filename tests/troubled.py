"""A host environment that fails as it is told to, for tests of pools and workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, replace

import numpy as np

from phalanx.config import option
from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
from phalanx.spec import EnvSpec

SPEC = EnvSpec(
    name="troubled",
    agents=("a", "b"),
    agent_types=("agent", "agent"),
    obs_features=(("x", "y"), ("x", "y")),
    state_features=("x",),
    action_counts=(3, 3),
    time_limit=12,
)


@dataclass
class Troubled(HostEnv):
    """Rewards actions and a random walk; `fault` happens with probability `often` in each step."""

    fault: str = option("", "kill, raise, leave, hang, shape, nan, mask or print")
    often: float = option(0.0, "probability of it in each step")
    seconds: float = option(0.0, "how long a step takes")
    drawn: str = option("", "its pictures: given, raise or text")
    state: str = option("", "its state: given, raise, leave, kill, unpicklable, large, refused or deadly")

    @property
    def spec(self):
        return SPEC

    def copy(self):
        return replace(self)

    def see(self):
        obs = np.stack([self.x, -self.x]).repeat(2).reshape(2, 2).astype(np.float32)
        return HostObservation(obs, np.float32([self.x]), np.ones((2, 3), bool), np.ones(2, bool))

    def reset(self, seed):
        self.rng, self.x, self.steps = np.random.default_rng(seed), 0.0, 0
        # Troubles are drawn apart, so that those who have none play the same episodes.
        self.troubles = np.random.default_rng(seed + 1)
        return HostStep(self.see(), np.zeros(2, np.float32), False, False)

    def render(self):
        """Its number of steps and the sign of its place, in grey, over 400 x 500 pixels."""
        if self.drawn == "raise":
            raise RuntimeError("no\nscreen")
        if self.drawn == "text":
            return "@"
        picture = np.full((400, 500, 3), self.steps, np.uint8)
        picture[:, :250] = 200 if self.x > 0 else 100
        return picture if self.drawn else None

    def get_state(self):
        if self.state == "raise":
            raise ValueError("no state now")
        if self.state == "leave":
            sys.exit(3)
        if self.state == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.state == "unpicklable":
            return lambda: None
        filler = os.urandom(40 * 2**20) if self.state == "large" else b""
        return (self.rng, self.x, self.troubles, filler) if self.state else None

    def set_state(self, state):
        if self.state == "refused":
            raise KeyError("of another version")
        if self.state == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        self.rng, self.x, self.troubles, _ = state
        return self.see()

    def step(self, actions):
        time.sleep(self.seconds)
        self.x += self.rng.normal()
        self.steps += 1
        seen, reward = self.see(), np.full(2, actions.sum() + self.x, np.float32)
        if self.troubles.random() < self.often:
            if self.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.fault == "raise":
                raise ValueError("a unit is missing")
            elif self.fault == "leave":
                sys.exit(3)
            elif self.fault == "hang":
                time.sleep(3600)
            elif self.fault == "shape":
                seen = seen._replace(obs=np.zeros((3, 2), np.float32))
            elif self.fault == "nan":
                reward = np.full(2, np.nan, np.float32)
            elif self.fault == "mask":
                seen = seen._replace(avail=np.zeros((2, 3), bool))
            elif self.fault == "print":
                print("x" * 10_000_000)
        return HostStep(seen, reward, abs(self.x) > 4, False)

"""A compiled environment that poses as a Python program, to hold the hosted path against the compiled one.

It draws nothing in a step that the compiled environment does not draw from the key of its reset, so both play
the same episodes if the rules of a step are deterministic.
"""

import jax
import numpy as np

from phalanx.envs.base import Env
from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
from phalanx.types import EnvSpec, TimeStep


class Posing(HostEnv):
    """Steps a compiled environment from Python. A seed is the two words of a threefry key."""

    def __init__(self, env: Env):
        self.env = env
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def copy(self) -> "Posing":
        other = Posing.__new__(Posing)
        other.env, other._reset, other._step = self.env, self._reset, self._step
        return other

    def reset(self, seed: int) -> HostStep:
        words = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
        self._key = jax.random.wrap_key_data(words, impl="threefry2x32")
        self._state, step = self._reset(self._key)
        return _to_host(step)

    def step(self, actions: np.ndarray) -> HostStep:
        self._key, key = jax.random.split(self._key)
        self._state, step = self._step(key, self._state, actions)
        return _to_host(step)


def _to_host(step: TimeStep) -> HostStep:
    step = jax.device_get(step)
    return HostStep(
        observation=HostObservation(*step.observation),
        reward=step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        won=step.info.get("won", False),
        agent_terminated=step.agent_terminated,
    )

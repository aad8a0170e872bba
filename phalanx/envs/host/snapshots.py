"""Saving and restoring environments of other packages by pickling, if that is exact."""

from __future__ import annotations

import copy
import pickle
import time
from typing import Any

import numpy as np

from phalanx.envs.host.base import HostEnv, HostObservation, HostStep

BEFORE, AFTER = 10, 40  # steps of a trial before and after the state is taken
SECONDS = 30.0  # that a trial may take: slower environments are not worth the wait
_TRIED: dict[str, bool] = {}


class Snapshots(HostEnv):
    """An environment around an object `env`, whose state is all in the attributes named by `HELD`.

    Pickling an object need not keep its state: many environments are pickled by the arguments of their
    constructor (gymnasium's `EzPickle`), and others draw from numpy's global generator. So before the first
    state is saved, a test for each environment checks that a restored copy continues exactly like the
    original.
    """

    HELD = ("env", "seen")
    env: Any
    seen: HostObservation

    def copy(self) -> HostEnv:
        other = copy.copy(self)
        other.env = copy.deepcopy(self.env)
        return other

    def get_state(self) -> Any:
        name = self.spec.name
        if name not in _TRIED:
            _TRIED[name] = plays_on(self)
        return self._dump() if _TRIED[name] else None

    def set_state(self, state: Any) -> HostObservation:
        for name, value in pickle.loads(state).items():
            setattr(self, name, value)
        return self.seen

    def _dump(self) -> bytes:
        return pickle.dumps({name: getattr(self, name) for name in self.HELD})


def plays_on(env: Snapshots) -> bool:
    """Whether a restored copy of an environment like this one continues as the original does."""
    inner = getattr(env.env, "unwrapped", env.env)
    if getattr(getattr(type(inner), "__getstate__", None), "__qualname__", "") == "EzPickle.__getstate__":
        return False  # and no need to make copies, of which closing one may close pygame for all
    original: Any = None
    restored: Any = None
    try:
        end = time.monotonic() + SECONDS
        original, restored = env.copy(), env.copy()
        rng = np.random.default_rng(0)
        last = _play(original, original.reset(1), BEFORE, rng, end)[-1]
        state, actions = original._dump(), rng.integers(2**32)
        played = _play(original, last, AFTER, np.random.default_rng(actions), end)
        restored.reset(2)
        seen = restored.set_state(state)
        again = _play(restored, last._replace(observation=seen), AFTER, np.random.default_rng(actions), end)
        return all(same(one, two) for one, two in zip(played, again))
    except Exception:  # what cannot be copied or pickled says so in many ways
        return False
    finally:
        for each in (original, restored):
            if each is not None:
                each.close()


def _play(env: HostEnv, step: HostStep, count: int, rng: np.random.Generator, end: float) -> list[HostStep]:
    """Play `count` steps with random actions until `end`; a new episode begins where one ends."""
    steps = []
    for _ in range(count):
        if time.monotonic() > end:
            raise TimeoutError
        if step.terminated or step.truncated:
            step = env.reset(int(rng.integers(2**32)))
        step = env.step(random_actions(env, step, rng))
        steps.append(step)
    return steps


def random_actions(env: HostEnv, step: HostStep, rng: np.random.Generator) -> np.ndarray:
    """Available actions, (A,) int32, or continuous (A, U) float32."""
    avail = np.asarray(step.observation.avail)
    noise = rng.random(avail.shape)
    if env.spec.action_kind == "continuous":
        low, high = env.spec.action_range
        return (low + noise * (high - low)).astype(np.float32)
    return np.where(avail, noise, -1.0).argmax(-1).astype(np.int32)


def same(one: Any, two: Any) -> bool:
    """Whether two nested tuples of arrays are equal to the bit."""
    if isinstance(one, tuple):
        return all(same(a, b) for a, b in zip(one, two))
    return np.array_equal(one, two)

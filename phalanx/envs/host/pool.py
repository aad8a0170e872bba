"""Pools step many host environments: here, one after the other in this process.

A pool counts the time limit, sums up returns, and begins a new episode where one ends, so that authors of
environments write none of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from phalanx.envs.host.base import HostEnv, HostObservation, HostStep


class PoolStep(NamedTuple):
    """What one step of N environments says, (N, ...)."""

    step: HostStep
    """as it was; the observation is the true last one where an episode ended"""
    returns: Any
    """(N, A) float32: sums of rewards in the episode so far"""
    length: Any
    """(N,) int32: steps of the episode so far"""
    observation: Any
    """what to act on next: the first observation of a new episode where one ended"""
    first: Any
    """(N,) bool: `observation` begins an episode"""


class Episode:
    """One environment and its running episode."""

    def __init__(self, env: HostEnv):
        self.env, self.limit = env, env.spec.time_limit

    def begin(self, seed: int) -> HostObservation:
        self.length, self.returns = 0, np.float32(0)
        return self.env.reset(seed).observation

    def step(self, action: np.ndarray, next_seed: int) -> PoolStep:
        """Play a step, and begin an episode with `next_seed` if it was the last."""
        step = self.env.step(action)
        self.length += 1
        self.returns = np.float32(self.returns) + np.asarray(step.reward, np.float32)
        terminated = bool(step.terminated)
        truncated = not terminated and (bool(step.truncated) or self.length >= self.limit)
        step = step._replace(terminated=terminated, truncated=truncated, won=bool(step.won))
        returns, length, over = self.returns, np.int32(self.length), terminated or truncated
        observation = self.begin(next_seed) if over else step.observation
        return PoolStep(step, returns, length, observation, np.bool_(over))


class LocalPool:
    """N environments in this process, stepped one after the other."""

    def __init__(self, env: HostEnv, count: int):
        self.episodes = [Episode(env.copy()) for _ in range(count)]

    def begin(self, seeds: np.ndarray) -> HostObservation:
        """Begin an episode in every environment, from `seeds` (N,) uint64: the first observations."""
        pairs = zip(self.episodes, seeds, strict=True)
        return stacked([episode.begin(int(seed)) for episode, seed in pairs])

    def step(self, actions: np.ndarray, next_seeds: np.ndarray) -> PoolStep:
        """Play one step in every environment with `actions` (N, ...).

        Where an episode ends the next one begins from its seed in `next_seeds`, (N,) uint64.
        """
        each = zip(self.episodes, actions, next_seeds, strict=True)
        return stacked([episode.step(action, int(seed)) for episode, action, seed in each])

    def close(self) -> None:
        for episode in self.episodes:
            episode.env.close()


def stacked(items: list[Any]) -> Any:
    """Stack nested tuples of arrays along a new first axis. None stays None."""
    if items[0] is None:
        return None
    if isinstance(items[0], tuple):
        return type(items[0])(*(stacked(list(part)) for part in zip(*items, strict=True)))
    return np.stack(items)

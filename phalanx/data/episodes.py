"""Whole episodes, step by step, as numpy arrays: what is watched, recorded and drawn."""

from typing import NamedTuple

import numpy as np

from phalanx.types import Observation, PyTree


class Film(NamedTuple):
    """Pictures of an episode that its environment rendered."""

    step: np.ndarray
    """(F,): after how many steps each was taken; the first before the first step"""
    picture: np.ndarray
    """(F, h, w, 3) uint8"""


class Episode(NamedTuple):
    """One episode of T steps, as numpy arrays."""

    observation: Observation
    """(T + 1, ...): what was seen before each step, and after the last"""
    action: np.ndarray
    """(T, A) int32, or (T, A, U) float32"""
    reward: np.ndarray
    """(T, A)"""
    terminated: bool
    truncated: bool
    won: bool | None
    """None where episodes cannot be won"""
    preferences: np.ndarray | None
    """(T, A, U): see `Algorithm.preferences`"""
    states: PyTree
    """(T + 1, ...), or None when they were not asked for"""
    film: Film | None = None
    """of an environment that draws itself, if asked for"""

    @property
    def length(self) -> int:
        return len(self.reward)

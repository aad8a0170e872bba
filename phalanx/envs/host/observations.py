"""Observations of agents with gymnasium spaces as one array: padded vectors, or pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.envs.host.spaces import feature_names, flatten, kind_of, split_mask, without_mask
from phalanx.errors import PhalanxError

LARGEST_STATE = 2**16  # entries of a state that is made of pictures


class Observations:
    """Turns what A agents observe into one array, (A, O) float32 or pictures (A, height, width, channels).

    Boxes with two or three axes are pictures. If all agents see pictures, these are kept: uint8 stays uint8,
    other dtypes become float32, smaller pictures are padded with zeros at the bottom and right. `shrink`
    averages blocks of that many pixels a side. Everything else is flattened.
    """

    def __init__(self, name: str, agents: Sequence[str], spaces: Sequence[Any], shrink: int = 1):
        self.name, self.agents, self.shrink = name, tuple(agents), shrink
        self.spaces = [without_mask(space) for space in spaces]
        self._masked = [own is not space for own, space in zip(self.spaces, spaces)]
        self._shapes = [space.shape if kind_of(space) == "Box" else None for space in self.spaces]
        self.pictures = all(_is_picture(space) for space in self.spaces)
        self.dtype, self.shape = "float32", None
        if self.pictures:
            blanks = [as_picture(np.zeros(space.shape, space.dtype), shrink) for space in self.spaces]
            self.dtype = "uint8" if all(blank.dtype == np.uint8 for blank in blanks) else "float32"
            self.shape = tuple(int(size) for size in np.max([blank.shape for blank in blanks], axis=0))
            if 0 in self.shape:
                raise PhalanxError(f"{name} has pictures smaller than --env.shrink {shrink}")
            self.features = ()
        else:
            self.features = tuple(feature_names(name, space) for space in self.spaces)
            if shrink != 1:
                raise PhalanxError(f"{name} has no pictures: leave out --env.shrink")
        # One agent with a vector, as most of gymnasium's environments have it: nothing to pad.
        self._alone = len(self.spaces) == 1 and not self.pictures and not self._masked[0]
        self.size = max((len(names) for names in self.features), default=0)

    @property
    def array(self) -> tuple[int, ...]:
        """The shape of one agent's observation."""
        return (self.size,) if self.shape is None else self.shape

    @property
    def state_features(self) -> tuple[str, ...]:
        """Names of the entries of `joint`."""
        if self.shape is None:
            entries = [[*names, *["padding"] * (self.size - len(names))] for names in self.features]
            return tuple(f"{agent}:{entry}" for agent, row in zip(self.agents, entries) for entry in row)
        size = int(np.prod(self.shape))
        check_state_size(self.name, size * len(self.agents))
        return tuple(f"{agent}:pixel_{i}" for agent in self.agents for i in range(size))

    def read(self, values: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
        """The array of all agents' observations, zeros where one is None, and each agent's mask or None."""
        masks: list[Any] = [None] * len(self.agents)
        if self._alone:
            return self._one(0, values[0]).astype(np.float32)[None], masks
        array = np.zeros((len(self.agents), *self.array), self.dtype)
        for i, value in enumerate(values):
            if value is not None:
                if self._masked[i]:
                    value, masks[i] = split_mask(value)
                own = self._one(i, value)
                if own.ndim == 1:
                    array[i, : len(own)] = own
                else:
                    array[(i, *(slice(size) for size in own.shape))] = own
        return array, masks

    def _one(self, i: int, value: Any) -> np.ndarray:
        shape = self._shapes[i]
        if shape is None:
            return flatten(self.spaces[i], value)
        value = np.asarray(value)
        if value.shape != shape:
            raise PhalanxError(
                f"{self.name} gave {self.agents[i]} an observation of shape {value.shape}, "
                f"and its space says {shape}"
            )
        if not self.pictures:
            return value.reshape(-1)
        if self.spaces[i].dtype == np.uint8 and value.dtype != np.uint8:
            raise PhalanxError(
                f"{self.name} gave {self.agents[i]} a picture of {value.dtype}, and its space says uint8"
            )
        return as_picture(value, self.shrink)

    def joint(self, array: np.ndarray) -> np.ndarray:
        """The state of an environment that has none of its own: all observations in a row, uint8 scaled."""
        return scaled(array)


def _is_picture(space: Any) -> bool:
    return kind_of(space) == "Box" and len(space.shape) in (2, 3)


def as_picture(array: np.ndarray, shrink: int) -> np.ndarray:
    """(height, width, channels), uint8 or float32, from two axes, or from three with channels first or last.

    The first axis is taken for the channels if it is shorter than the others.
    """
    if array.ndim == 2:
        array = array[..., None]
    elif array.shape[0] < min(array.shape[1:]):
        array = np.moveaxis(array, 0, -1)
    if array.dtype != np.uint8:
        array = array.astype(np.float32)
    if shrink == 1:
        return array
    height, width = (size // shrink for size in array.shape[:2])
    total = np.zeros((height, width, array.shape[2]), np.uint32 if array.dtype == np.uint8 else np.float32)
    for y in range(shrink):
        for x in range(shrink):
            total += array[y : height * shrink : shrink, x : width * shrink : shrink]
    means = total / np.float32(shrink**2)
    return np.rint(means).astype(np.uint8) if array.dtype == np.uint8 else means.astype(np.float32)


def scaled(array: np.ndarray) -> np.ndarray:
    """A vector of float32; uint8 is scaled to [0, 1]."""
    flat = array.reshape(-1)
    floats = flat.astype(np.float32, copy=False)
    return floats / 255 if flat.dtype == np.uint8 else floats


def check_state_size(name: str, size: int) -> None:
    """Refuse a state of pictures that no critic or mixer could take."""
    if size > LARGEST_STATE:
        raise PhalanxError(
            f"the pictures of {name} make a state of {size} entries, more than {LARGEST_STATE}: "
            "--env.shrink N averages blocks of N x N pixels"
        )

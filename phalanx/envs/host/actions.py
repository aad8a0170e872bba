"""Actions of agents with gymnasium spaces: one index, or one vector, for every agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from phalanx.envs.host.spaces import kind_of, starts
from phalanx.errors import PhalanxError

MOST_CHOICES = 4096
RANGE = (-1.0, 1.0)


class Actions:
    """Turns actions (A,) or continuous (A, U) into what each agent's space contains.

    - Discrete: index 0 is the space's lowest value.
    - MultiDiscrete and MultiBinary: every combination is one index, the last entry varies fastest.
    - Box: [-1, 1] is rescaled to each entry's own bounds; what is beyond is clipped.

    With `wait` every discrete agent has one more action, its last, which stands for doing nothing.
    """

    def __init__(self, name: str, agents: Sequence[str], spaces: Sequence[Any], wait: bool = False):
        self.name, self.agents = name, tuple(agents)
        self.spaces = list(spaces)
        boxes = [kind_of(space) == "Box" for space in spaces]
        if any(boxes) and not all(boxes):
            raise PhalanxError(f"{name} has agents with discrete and agents with continuous actions")
        self.kind: Literal["discrete", "continuous"] = "continuous" if all(boxes) else "discrete"
        self.wait = wait and self.kind == "discrete"
        read = _continuous if self.kind == "continuous" else _discrete
        found = [read(name, space) for space in self.spaces]
        self.counts = tuple(count + self.wait for count, _ in found)
        self._decoders = [decode for _, decode in found]
        self.own = np.arange(max(self.counts)) < np.array(self.counts)[:, None]
        """(A, U) bool: actions that are not padding"""
        self.own.flags.writeable = False  # it is handed out

    def decode(self, i: int, action: Any) -> Any:
        """The action of agent `i` as its environment takes it."""
        return self._decoders[i](action)

    def avail(self, masks: Sequence[Any], waits: Sequence[bool] = ()) -> np.ndarray:
        """(A, U) bool from each agent's mask or None.

        Who waits may only do nothing, the action with the highest index.
        """
        if not self.wait and all(mask is None for mask in masks):
            return self.own
        avail = self.own.copy()
        for i, mask in enumerate(masks):
            if mask is not None:
                avail[i, : self.counts[i] - self.wait] = self._mask(i, mask)
            if self.wait:
                avail[i] &= not waits[i]
                avail[i, self.counts[i] - 1] = waits[i]
        return avail

    def _mask(self, i: int, mask: Any) -> np.ndarray:
        count = self.counts[i] - self.wait
        if isinstance(mask, (tuple, list)) and kind_of(self.spaces[i]) in ("MultiDiscrete", "MultiBinary"):
            joint = np.ones(1, bool)  # one mask an entry, as the spaces themselves take them
            for part in mask:
                joint = np.logical_and.outer(joint, np.asarray(part, bool)).reshape(-1)
            mask = joint
        mask = np.asarray(mask)
        if mask.shape != (count,):
            raise PhalanxError(
                f"{self.name} gave {self.agents[i]} an action mask of shape {mask.shape} for {count} actions"
            )
        return mask.astype(bool)


def _discrete(name: str, space: Any) -> tuple[int, Callable[[Any], Any]]:
    kind = kind_of(space)
    if kind == "Discrete":
        lowest = int(starts(space))
        return int(space.n), lambda action: int(action) + lowest
    if kind not in ("MultiDiscrete", "MultiBinary"):
        raise PhalanxError(
            f"{name} has actions of a space {type(space).__name__}: phalanx can use Discrete, Box, "
            "MultiDiscrete and MultiBinary"
        )
    counts = np.ravel(space.nvec) if kind == "MultiDiscrete" else np.full(int(np.prod(space.shape)), 2)
    product = int(np.prod(counts, dtype=object))
    if product > MOST_CHOICES:
        raise PhalanxError(
            f"{name} has {product} combinations of actions ({space}), and at most {MOST_CHOICES} can be "
            "mapped to one discrete action"
        )
    lowest = starts(space)

    def decode(action: Any) -> np.ndarray:
        entries = np.array(np.unravel_index(int(action), counts), space.dtype)
        return entries.reshape(space.shape) + np.asarray(lowest, space.dtype)

    return product, decode


def _continuous(name: str, space: Any) -> tuple[int, Callable[[Any], Any]]:
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise PhalanxError(f"{name} has actions without bounds ({space}): wrap it so that its Box is bounded")
    if not np.issubdtype(space.dtype, np.floating):
        raise PhalanxError(f"{name} has actions in a Box of {space.dtype}: a MultiDiscrete would work")
    low, high = (np.ravel(bound).astype(np.float64) for bound in (space.low, space.high))
    size = len(low)

    def decode(action: Any) -> np.ndarray:
        share = (np.clip(np.asarray(action[:size], np.float64), *RANGE) - RANGE[0]) / (RANGE[1] - RANGE[0])
        return (low + share * (high - low)).astype(space.dtype).reshape(space.shape)

    return size, decode

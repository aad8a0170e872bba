"""The global random numbers of Python and numpy, for environments that draw from them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


class GlobalRandom:
    """A stream of its own for one environment: inside of `with`, the global generators follow it.

    So episodes depend on their seed alone, whatever else draws from the global generators of the process.
    """

    def __init__(self) -> None:
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Begin the stream again, from a seed of 32 bits."""
        self._own = (random.Random(seed).getstate(), np.random.RandomState(seed).get_state())

    def __enter__(self) -> None:
        self._others = _get()
        _set(self._own)

    def __exit__(self, *_: object) -> None:
        self._own = _get()
        _set(self._others)


def _get() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _set(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])

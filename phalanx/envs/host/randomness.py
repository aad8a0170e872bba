"""Global random generators for environments that draw from them."""

from __future__ import annotations

import os
import random
import sys
from typing import Any

import numpy as np

from phalanx.envs.host.seeds import seed32

PACKAGES = "site-packages"


class OwnRandomness:
    """Within a `with` block, numpy's and Python's global generators have a separate state.

    So the episodes of an environment that uses `np.random` or `random` do not depend on other environments in
    its process. Swapping Python's generator is slow; it is done only with `python`.
    """

    def __init__(self, python: bool):
        self.python = python
        self.seed(0)

    def seed(self, seed: int) -> None:
        self._numpy = np.random.MT19937(seed32(seed))
        self._state = random.Random(seed).getstate()

    def get_state(self) -> Any:
        """The state of both generators."""
        return self._numpy.state, self._state

    def set_state(self, state: Any) -> None:
        self._numpy.state, self._state = state

    def __enter__(self) -> None:
        self._outer = np.random.get_bit_generator()  # pyright: ignore[reportAttributeAccessIssue]
        np.random.set_bit_generator(self._numpy)  # pyright: ignore[reportAttributeAccessIssue]
        if self.python:
            self._outer_state = random.getstate()
            random.setstate(self._state)

    def __exit__(self, *_: Any) -> None:
        np.random.set_bit_generator(self._outer)  # pyright: ignore[reportAttributeAccessIssue]
        if self.python:
            self._state = random.getstate()
            random.setstate(self._outer_state)


def uses_python_random(module: str) -> bool:
    """Whether a module, or one in the same folder or package, has imported `random` or a part of it."""
    package = sys.modules.get(module.partition(".")[0])
    # A folder without an `__init__.py` is a package without a file.
    file = getattr(package, "__file__", None) or getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return True
    folder = os.path.dirname(os.path.abspath(file)) + os.sep
    for each in list(sys.modules.values()):
        path = getattr(each, "__file__", None) or ""
        near = path.startswith(folder) and (PACKAGES in folder or PACKAGES not in path)
        if near and any(_is_random(value) for value in list(vars(each).values())):
            return True
    return False


def _is_random(value: Any) -> bool:
    shared = random.random.__self__  # the generator behind the functions of the module
    return value is random or getattr(value, "__self__", None) is shared

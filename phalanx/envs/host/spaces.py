"""Spaces of gymnasium and of the older gym, told apart by name so that neither package need be imported."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from phalanx.errors import PhalanxError

KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
MASK = "action_mask"


def kind_of(space: Any) -> str | None:
    """Which of `KINDS` a space is; None for any other, such as Text, Graph or Sequence."""
    found = _class_of(space)
    return None if found is None else found.__name__


def _class_of(space: Any) -> type | None:
    for cls in type(space).__mro__:
        if cls.__module__.partition(".")[0] in ("gymnasium", "gym") and cls.__name__ in KINDS:
            return cls
    return None


def starts(space: Any) -> Any:
    """The lowest value of a Discrete or MultiDiscrete; 0 where the package knows no other."""
    return getattr(space, "start", 0)


def without_mask(space: Any) -> Any:
    """The space of an observation without its entry `action_mask`; what is alone then stands for itself."""
    if kind_of(space) != "Dict" or MASK not in space.spaces:
        return space
    rest = {key: part for key, part in space.spaces.items() if key != MASK}
    return next(iter(rest.values())) if len(rest) == 1 else type(space)(rest)


def split_mask(value: Any) -> tuple[Any, Any]:
    """An observation with an `action_mask` as what `without_mask` describes, and its mask."""
    rest = {key: part for key, part in value.items() if key != MASK}
    return (next(iter(rest.values())) if len(rest) == 1 else rest), value[MASK]


def feature_names(name: str, space: Any, prefix: str = "obs") -> tuple[str, ...]:
    """A name for each entry of a flattened observation; refuses spaces that cannot be flattened."""
    kind = kind_of(space)
    if kind in ("Box", "MultiBinary"):
        size = int(np.prod(space.shape))
        return tuple(f"{prefix}_{i}" for i in range(size))
    if kind == "Discrete":
        return tuple(f"{prefix}={starts(space) + i}" for i in range(int(space.n)))
    if kind == "MultiDiscrete":
        counts = np.ravel(space.nvec)
        lowest = np.broadcast_to(np.ravel(starts(space)), counts.shape)
        return tuple(f"{prefix}_{i}={lowest[i] + k}" for i in range(len(counts)) for k in range(counts[i]))
    if kind in ("Dict", "Tuple"):
        parts = space.spaces.items() if kind == "Dict" else enumerate(space.spaces)
        return tuple(
            entry
            for key, part in parts
            for entry in feature_names(name, part, f"{key}" if prefix == "obs" else f"{prefix}.{key}")
        )
    raise PhalanxError(
        f"{name} observes a space {type(space).__name__}: phalanx can use {', '.join(KINDS)} and "
        "combinations of them"
    )


def flatten(space: Any, value: Any) -> np.ndarray:
    """An observation as a vector, as the package of its space flattens it: Discrete is one-hot."""
    cls = _class_of(space)
    assert cls is not None
    package = cls.__module__.partition(".")[0]
    return np.asarray(importlib.import_module(f"{package}.spaces.utils").flatten(space, value))

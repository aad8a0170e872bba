"""Operations that only move the rows of arrays: done to object arrays of rows, with a batch of one entry.

See `rows`, which evaluates functions on rows.
"""

# JAX leaves parts of its own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

BATCH = 7919  # stands for the batch axis while a function is traced: no other axis may have this length


class Unsupported(Exception):
    """Something that has no form in rows; the message says what a function has, as in "it has ..."."""


def cells(shape: Sequence[int], items: Sequence[Any]) -> np.ndarray:
    """An object array; numpy would take rows apart."""
    out = np.empty(math.prod(shape), object)
    for i, item in enumerate(items):
        out[i] = item
    return out.reshape(tuple(shape))


def batch_axis(aval: Any) -> int:
    """Which axis is the batch."""
    if aval.shape.count(BATCH) != 1:
        raise Unsupported("an array without the batch as an axis")
    return aval.shape.index(BATCH)


def with_one(sizes: Sequence[int]) -> list[int]:
    """Sizes with a batch of one."""
    return [1 if size == BATCH else size for size in sizes]


def keeps_batch(eqn: Any) -> bool:
    """Whether the batch is an axis of its own before and after an operation that moves rows."""
    name, params, out = eqn.primitive.name, eqn.params, eqn.outvars[0].aval
    if name == "concatenate":
        return params["dimension"] != batch_axis(out)
    source = eqn.invars[0].aval
    if BATCH not in source.shape:
        return True  # a constant that is spread over the batch
    axis = batch_axis(source)
    if name == "slice":
        return out.shape[axis] == BATCH  # a part of it would have another length
    if name == "pad":
        return params["padding_config"][axis] == (0, 0, 0)
    if name == "reshape":
        return math.prod(source.shape[:axis]) == math.prod(out.shape[: batch_axis(out)])
    return True


def _broadcast(params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    shape = with_one(params["shape"])
    spread = [1] * len(shape)
    for size, axis in zip(x.shape, params["broadcast_dimensions"], strict=True):
        spread[axis] = size
    return np.broadcast_to(x.reshape(spread), shape)


def _slice(params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    steps = params["strides"] or [1] * x.ndim
    edges = zip(params["start_indices"], with_one(params["limit_indices"]), steps, strict=True)
    return x[tuple(slice(*edge) for edge in edges)]


def _pad(params: dict[str, Any], x: np.ndarray, value: np.ndarray) -> np.ndarray:
    config = params["padding_config"]
    if any(inner or low < 0 or high < 0 for low, high, inner in config):
        raise Unsupported("padding between entries, or less than none")
    shape = [low + size + high for size, (low, high, _) in zip(x.shape, config, strict=True)]
    out = cells(shape, [value[()]] * math.prod(shape))
    out[tuple(slice(low, low + size) for size, (low, _, _) in zip(x.shape, config, strict=True))] = x
    return out


MOVES: dict[str, Callable[..., np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda params, *xs: np.concatenate(xs, params["dimension"]),
    "pad": _pad,
    "reshape": lambda params, x: x.reshape(with_one(params["new_sizes"])),
    "slice": _slice,
    "squeeze": lambda params, x: np.squeeze(x, params["dimensions"]),
    "stack": lambda params, *xs: np.stack(xs, params["axis"]),
    "transpose": lambda params, x: x.transpose(params["permutation"]),
}

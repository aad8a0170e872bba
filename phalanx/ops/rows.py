"""A traced function on single rows: its operations on arrays (..., B) become operations on rows (B,).

    add (N, B), (N, B)    ->    N additions of two rows
    transpose, reshape    ->    nothing: only the names of rows move

A GPU kernel can hold rows in registers, but cannot take arrays of several axes apart. The function is traced
by JAX, and its jaxpr is evaluated with `Rows` in the place of arrays.
"""

# JAX leaves parts of its own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from phalanx.types import PyTree

BATCH = 7919  # stands for the batch axis while a function is traced: no other axis may have this length
ELEMENTWISE = {
    "abs", "add", "and", "bitcast_convert_type", "clamp", "convert_element_type", "copy", "cos", "div", "eq",
    "exp", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "lt", "max", "min", "mul", "ne",
    "neg", "not", "or", "pow", "rem", "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sin", "sqrt", "square", "sub", "tanh", "xor",
}  # fmt: skip
FOLDS = {
    "reduce_sum": jnp.add,
    "reduce_max": jnp.maximum,
    "reduce_min": jnp.minimum,
    "reduce_or": jnp.logical_or,
    "reduce_and": jnp.logical_and,
}


class Unsupported(Exception):
    """An operation that has no form in rows."""


class Rows(NamedTuple):
    """An array with a batch axis: an object array of its rows, without that axis; each (B,) or a constant."""

    cells: np.ndarray
    dtype: Any


def cells(shape: Sequence[int], items: Sequence[Any]) -> np.ndarray:
    """An object array; numpy would take rows apart."""
    out = np.empty(math.prod(shape), object)
    for i, item in enumerate(items):
        out[i] = item
    return out.reshape(tuple(shape))


def trace(fn: Callable[..., PyTree], args: PyTree) -> tuple[Any, PyTree]:
    """The jaxpr of `fn` for a batch of `BATCH`, and the shapes of its results."""
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((*x.shape[:-1], BATCH), x.dtype), args)
    return jax.make_jaxpr(fn, return_shape=True)(*like)


def count(jaxpr: Any) -> int:
    """How many operations on rows a jaxpr has; loops that stay loops are counted once."""
    total = 0
    for eqn in jaxpr.eqns:
        inner = list(core_jaxprs(eqn))
        if inner:
            turns = eqn.params["length"] if eqn.primitive.name == "scan" and not _stays(eqn) else 1
            total += turns * count(inner[0])
        elif eqn.primitive.name in ELEMENTWISE or eqn.primitive.name in FOLDS:
            source = eqn.invars[0] if eqn.primitive.name in FOLDS else eqn.outvars[0]
            total += math.prod(size for size in source.aval.shape if size != BATCH)
    return total


def core_jaxprs(eqn: Any) -> list[Any]:
    """The jaxprs that an equation calls; of a choice by platform the first."""
    found = [value for value in eqn.params.values() if hasattr(value, "jaxpr")]
    found += [value for value in eqn.params.get("branches", ())][:1]
    return [closed.jaxpr for closed in found]


def evaluate(closed: Any, given: Sequence[Any], width: int) -> list[Any]:
    """The results of a jaxpr for `Rows` of `width` entries and plain constants."""
    jaxpr, known = closed.jaxpr, {}

    def read(atom: Any) -> Any:
        return np.asarray(atom.val) if isinstance(atom, core.Literal) else known[atom]

    known.update(zip(jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
    known.update(zip(jaxpr.invars, given, strict=True))
    for eqn in jaxpr.eqns:
        results = _equation(eqn, [read(atom) for atom in eqn.invars], width)
        known.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def row(value: Any, dtype: Any, width: int) -> Any:
    """A row as an array: a constant is repeated."""
    return jnp.full((width,), value, dtype) if _constant(value) else value


def _equation(eqn: Any, given: list[Any], width: int) -> list[Any]:
    name, params = eqn.primitive.name, eqn.params
    if name in ("jit", "pjit", "closed_call"):
        return evaluate(params["jaxpr"], given, width)
    if name in ("custom_jvp_call", "custom_vjp_call"):
        return evaluate(params["call_jaxpr"], given, width)
    if name == "platform_index":
        return [np.int32(0)]  # the form for a CPU is the one that takes units one after another
    if name == "cond" and _plain(given[0]):
        return evaluate(params["branches"][int(given[0])], given[1:], width)
    if name == "scan":
        return _scan(eqn, given, width)
    if name == "unstack":
        return _unstack(eqn, given[0])
    if all(map(_plain, given)) and BATCH not in eqn.outvars[0].aval.shape:
        return _of_constants(eqn, given)
    if name in ELEMENTWISE:
        return [_elementwise(eqn, given, width)]
    if name in MOVES:
        return [_move(eqn, given)]
    if name in FOLDS:
        return [_fold(eqn, given[0], width)]
    if name == "gather":
        values, index = given
        return [_look_up(eqn, values, index, width) if _plain(values) else _take(eqn, values, index)]
    raise Unsupported(name)


def _of_constants(eqn: Any, given: list[Any]) -> list[np.ndarray]:
    """An operation on constants alone, done now."""
    name, out = eqn.primitive.name, eqn.outvars[0].aval
    if name in NUMPY:
        return [NUMPY[name](*given).astype(out.dtype)]
    if name in MOVES and name != "pad":
        return [MOVES[name](eqn.params, *map(np.asarray, given))]
    if name == "convert_element_type":
        return [np.asarray(given[0]).astype(out.dtype)]
    with jax.ensure_compile_time_eval():
        made = eqn.primitive.bind(*map(jnp.asarray, given), **eqn.params)
    return [np.asarray(x) for x in (made if eqn.primitive.multiple_results else [made])]


def _elementwise(eqn: Any, given: list[Any], width: int) -> Rows:
    out = eqn.outvars[0].aval
    shape = _without_batch(out)
    columns = []
    for value in given:
        if _plain(value):  # one entry along the batch axis, or no axes
            value = np.asarray(value)
            value = value.squeeze(_axis(out)) if value.ndim else value
            value = Rows(cells(value.shape, list(value.reshape(-1))), value.dtype)
        columns.append(np.broadcast_to(value.cells, shape).reshape(-1))
    dtypes = [atom.aval.dtype for atom in eqn.invars]
    done: dict[tuple[int, ...], Any] = {}  # what was computed from the same rows is the same
    items = []
    for rows in zip(*columns, strict=True):
        which = tuple(map(id, rows))
        if which not in done:
            done[which] = _operate(eqn, rows, dtypes, width)
        items.append(done[which])
    return Rows(cells(shape, items), out.dtype)


def _operate(eqn: Any, rows: Sequence[Any], dtypes: Sequence[Any], width: int) -> Any:
    if eqn.primitive.name == "select_n" and _constant(rows[0]):
        return rows[1 + int(rows[0])]
    if all(map(_constant, rows)):
        return _of_constants(eqn, list(rows))[0][()]
    return eqn.primitive.bind(
        *(row(value, dtype, width) for value, dtype in zip(rows, dtypes, strict=True)), **eqn.params
    )


def _move(eqn: Any, given: list[Any]) -> Rows:
    """An operation that only moves rows: done to their names, with a batch axis of one."""
    out = eqn.outvars[0].aval
    arrays = []
    for atom, value in zip(eqn.invars, given, strict=True):
        if isinstance(value, Rows):
            arrays.append(np.expand_dims(value.cells, _axis(atom.aval)))
        else:
            arrays.append(cells(np.shape(value), list(np.asarray(value).reshape(-1))))
    return Rows(np.squeeze(MOVES[eqn.primitive.name](eqn.params, *arrays), _axis(out)), out.dtype)


def _unstack(eqn: Any, value: Any) -> list[Any]:
    axis = eqn.params["axis"]
    if _plain(value):
        return [np.take(value, i, axis) for i in range(value.shape[axis])]
    if axis == _axis(eqn.invars[0].aval):
        raise Unsupported("the batch taken apart")
    axis -= axis > _axis(eqn.invars[0].aval)
    parts = np.split(value.cells, value.cells.shape[axis], axis)
    return [Rows(part.reshape(np.delete(part.shape, axis)), value.dtype) for part in parts]


def _fold(eqn: Any, value: Rows, width: int) -> Rows:
    batch, axes = _axis(eqn.invars[0].aval), eqn.params["axes"]
    if batch in axes:
        raise Unsupported("a reduction over the batch")
    folded = [axis - (axis > batch) for axis in axes]
    kept = [axis for axis in range(value.cells.ndim) if axis not in folded]
    ordered = value.cells.transpose(*kept, *folded)
    shape = ordered.shape[: len(kept)]
    combine = FOLDS[eqn.primitive.name]
    items = [
        functools.reduce(combine, [row(each, value.dtype, width) for each in column])
        for column in ordered.reshape(math.prod(shape), -1)
    ]
    return Rows(cells(shape, items), value.dtype)


def _take(eqn: Any, value: Rows, index: Any) -> Rows:
    """Rows at constant places: their numbers go through the operation."""
    if not _plain(index):
        raise Unsupported("rows at places that differ between entries")
    places = np.arange(value.cells.size, dtype=np.int32).reshape(value.cells.shape)
    params = {**eqn.params, "slice_sizes": tuple(_of_one(eqn.params["slice_sizes"]))}
    with jax.ensure_compile_time_eval():
        numbers = jnp.asarray(np.expand_dims(places, _axis(eqn.invars[0].aval)))
        moved = np.asarray(eqn.primitive.bind(numbers, jnp.asarray(index), **params))
    out, rows = eqn.outvars[0].aval, value.cells.reshape(-1)
    moved = np.squeeze(moved, _axis(out))
    return Rows(cells(moved.shape, [rows[i] for i in moved.reshape(-1)]), out.dtype)


def _look_up(eqn: Any, constants: np.ndarray, index: Rows, width: int) -> Rows:
    """Single entries of a few constants: a chain of selections."""
    numbers = eqn.params["dimension_numbers"]
    if constants.size > 64 or numbers.offset_dims or numbers.start_index_map != tuple(range(constants.ndim)):
        raise Unsupported("look-ups in large constants")
    items = []
    for place in index.cells.reshape(-1, constants.ndim):
        rows = [row(value, index.dtype, width) for value in place]
        flat = functools.reduce(
            lambda at, step: at * step[1] + step[0], zip(rows[1:], constants.shape[1:], strict=True), rows[0]
        )
        chosen = row(constants.reshape(-1)[0], constants.dtype, width)
        for k, entry in enumerate(constants.reshape(-1)[1:], 1):
            chosen = jnp.where(flat >= k, entry, chosen)
        items.append(chosen)
    return Rows(cells(_without_batch(eqn.outvars[0].aval), items), eqn.outvars[0].aval.dtype)


def _scan(eqn: Any, given: list[Any], width: int) -> list[Any]:
    closed = eqn.params["jaxpr"]
    if eqn.params["reverse"] or len(closed.jaxpr.outvars) != _carried(eqn):
        raise Unsupported("a loop backwards, or one with outputs of each turn")
    turns = sum(a.aval.shape != b.aval.shape for a, b in zip(eqn.invars, closed.jaxpr.invars, strict=True))
    begin, end = len(given) - turns - _carried(eqn), len(given) - turns
    consts, carry, columns = given[:begin], given[begin:end], given[end:]
    if _stays(eqn) and not any(map(_plain, carry)):
        return _loop(eqn, consts, carry, width)
    for i in range(eqn.params["length"]):
        here = [x[i] if _plain(x) else x._replace(cells=_entry(x.cells, i)) for x in columns]
        carry = evaluate(closed, [*consts, *carry, *here], width)
    return carry


def _loop(eqn: Any, consts: list[Any], carry: list[Any], width: int) -> list[Any]:
    """A loop stays one: its body is written once."""

    def flat(values: list[Any]) -> list[Any]:
        return [row(each, value.dtype, width) for value in values for each in value.cells.reshape(-1)]

    def shaped(rows: Sequence[Any]) -> list[Rows]:
        left = iter(rows)
        return [
            value._replace(cells=cells(value.cells.shape, [next(left) for _ in range(value.cells.size)]))
            for value in carry
        ]

    def body(_: Any, rows: Sequence[Any]) -> list[Any]:
        return flat(evaluate(eqn.params["jaxpr"], [*consts, *shaped(rows)], width))

    return shaped(jax.lax.fori_loop(0, eqn.params["length"], body, flat(carry)))


def _stays(eqn: Any) -> bool:
    """Whether a loop has nothing to read in each turn."""
    pairs = zip(eqn.invars, eqn.params["jaxpr"].jaxpr.invars, strict=True)
    return all(outer.aval.shape == inner.aval.shape for outer, inner in pairs)


def _carried(eqn: Any) -> int:
    pairs = zip(eqn.outvars, eqn.params["jaxpr"].jaxpr.outvars, strict=True)
    return sum(outer.aval.shape == inner.aval.shape for outer, inner in pairs)


def _entry(array: np.ndarray, i: int) -> np.ndarray:
    return array[i : i + 1].reshape(
        array.shape[1:]
    )  # `array[i]` would be the row itself if there is one axis


def _axis(aval: Any) -> int:
    return aval.shape.index(BATCH)


def _without_batch(aval: Any) -> tuple[int, ...]:
    return tuple(size for size in aval.shape if size != BATCH)


def _plain(value: Any) -> bool:
    return not isinstance(value, Rows)


def _constant(value: Any) -> bool:
    return isinstance(value, np.generic)


def _of_one(sizes: Sequence[int]) -> list[int]:
    """Sizes with a batch of one."""
    return [1 if size == BATCH else size for size in sizes]


def _broadcast(params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    shape = _of_one(params["shape"])
    spread = [1] * len(shape)
    for size, axis in zip(x.shape, params["broadcast_dimensions"], strict=True):
        spread[axis] = size
    return np.broadcast_to(x.reshape(spread), shape)


def _slice(params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    steps = params["strides"] or [1] * x.ndim
    edges = zip(params["start_indices"], _of_one(params["limit_indices"]), steps, strict=True)
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
    "reshape": lambda params, x: x.reshape(_of_one(params["new_sizes"])),
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "slice": _slice,
    "squeeze": lambda params, x: np.squeeze(x, params["dimensions"]),
    "stack": lambda params, *xs: np.stack(xs, params["axis"]),
    "transpose": lambda params, x: x.transpose(params["permutation"]),
}
NUMPY: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in ("abs", "add", "floor", "sqrt")},
    **{"and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert, "neg": np.negative},
    **{"sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum},
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal},
    **{"gt": np.greater, "ge": np.greater_equal},
}

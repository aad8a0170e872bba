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

from phalanx.ops.moves import BATCH, MOVES, Unsupported, batch_axis, cells, keeps_batch, with_one
from phalanx.types import PyTree

ELEMENTWISE = {
    "abs", "add", "and", "bitcast_convert_type", "clamp", "convert_element_type", "copy", "cos", "div", "eq",
    "exp", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "lt", "max", "min", "mul", "ne",
    "neg", "not", "or", "pow", "rem", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sin", "sqrt", "square", "sub", "tanh", "xor",
}  # fmt: skip
CALLS = {
    **dict.fromkeys(("jit", "pjit", "closed_call"), "jaxpr"),
    **dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
}
FOLDS = {
    "reduce_sum": jnp.add,
    "reduce_max": jnp.maximum,
    "reduce_min": jnp.minimum,
    "reduce_or": jnp.logical_or,
    "reduce_and": jnp.logical_and,
}


class Rows(NamedTuple):
    """An array with a batch axis: an object array of its rows, without that axis; each (B,) or a constant."""

    cells: np.ndarray
    dtype: Any


def trace(fn: Callable[..., PyTree], args: PyTree) -> tuple[Any, PyTree]:
    """The jaxpr of `fn` for a batch of `BATCH`, and the shapes of its results: the last axis is the batch.

    The size of its batch, which is another one in a kernel, must not matter to `fn`.
    """
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((*x.shape[:-1], BATCH), x.dtype), args)
    closed, results = jax.make_jaxpr(fn, return_shape=True)(*like)
    for x in jax.tree.leaves((like, results)):
        if x.shape.count(BATCH) != 1 or x.shape[-1] != BATCH:
            raise Unsupported("an argument or a result whose last axis is not the batch")
    return closed, results


def count(jaxpr: Any) -> int:
    """How many operations on rows a jaxpr has; loops that stay loops are counted once."""
    total = 0
    for eqn in jaxpr.eqns:
        inner = _inner(eqn)
        if inner:
            turns = eqn.params["length"] if eqn.primitive.name == "scan" and not _stays(eqn) else 1
            total += turns * count(inner[0])
        elif eqn.primitive.name in ELEMENTWISE or eqn.primitive.name in FOLDS:
            source = eqn.invars[0] if eqn.primitive.name in FOLDS else eqn.outvars[0]
            total += math.prod(size for size in source.aval.shape if size != BATCH)
    return total


def _inner(eqn: Any) -> list[Any]:
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
    if any(_plain(value) and BATCH in np.shape(value) for value in given):
        raise Unsupported("constants along the batch")
    if name in CALLS:
        return evaluate(params[CALLS[name]], given, width)
    if name == "platform_index":
        return [_cpu_first(params["platforms"])]
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
    raise Unsupported(f"the operation {name}")


def _cpu_first(platforms: Sequence[Sequence[str] | None]) -> np.int32:
    """Which form of a choice by platform: that for a CPU, which takes units one after another."""
    if "cpu" not in (platforms[0] or ()):
        raise Unsupported("a choice by platform that does not begin with the CPU")
    return np.int32(0)


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
        value = _constant_rows(value, out) if _plain(value) else value
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


def _constant_rows(value: Any, like: Any) -> Rows:
    """A constant with one entry along the batch axis of `like`, or without axes, as rows."""
    value = np.asarray(value)
    value = value.squeeze(batch_axis(like)) if value.ndim else value
    return Rows(cells(value.shape, list(value.reshape(-1))), value.dtype)


def _operate(eqn: Any, rows: Sequence[Any], dtypes: Sequence[Any], width: int) -> Any:
    if eqn.primitive.name == "select_n" and len(rows) > 3:
        raise Unsupported("a choice between more than two")
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
    if not keeps_batch(eqn):
        raise Unsupported("a batch that is cut, joined or mixed with other axes")
    arrays = []
    for atom, value in zip(eqn.invars, given, strict=True):
        if isinstance(value, Rows):
            arrays.append(np.expand_dims(value.cells, batch_axis(atom.aval)))
        else:
            arrays.append(cells(np.shape(value), list(np.asarray(value).reshape(-1))))
    return Rows(np.squeeze(MOVES[eqn.primitive.name](eqn.params, *arrays), batch_axis(out)), out.dtype)


def _unstack(eqn: Any, value: Any) -> list[Any]:
    axis = eqn.params["axis"]
    if _plain(value):
        return [np.take(value, i, axis) for i in range(value.shape[axis])]
    if axis == batch_axis(eqn.invars[0].aval):
        raise Unsupported("the batch taken apart")
    axis -= axis > batch_axis(eqn.invars[0].aval)
    parts = np.split(value.cells, value.cells.shape[axis], axis)
    return [Rows(part.reshape(np.delete(part.shape, axis)), value.dtype) for part in parts]


def _fold(eqn: Any, value: Rows, width: int) -> Rows:
    batch, axes = batch_axis(eqn.invars[0].aval), eqn.params["axes"]
    if batch in axes:
        raise Unsupported("a reduction over the batch")
    name = eqn.primitive.name
    if not value.cells.size or (name in ("reduce_or", "reduce_and")) != (value.dtype == bool):
        raise Unsupported(f"the operation {name} of nothing, or of {value.dtype}")
    folded = [axis - (axis > batch) for axis in axes]
    kept = [axis for axis in range(value.cells.ndim) if axis not in folded]
    ordered = value.cells.transpose(*kept, *folded)
    shape = ordered.shape[: len(kept)]
    combine = FOLDS[name]
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
    params = {
        **eqn.params,
        "slice_sizes": tuple(with_one(eqn.params["slice_sizes"])),
        "fill_value": -1,  # whatever the operation gives for places that are not there
    }
    with jax.ensure_compile_time_eval():
        numbers = jnp.asarray(np.expand_dims(places, batch_axis(eqn.invars[0].aval)))
        moved = np.asarray(eqn.primitive.bind(numbers, jnp.asarray(index), **params))
    if (moved < 0).any():
        raise Unsupported("rows at places that are not there")
    out, rows = eqn.outvars[0].aval, value.cells.reshape(-1)
    moved = np.squeeze(moved, batch_axis(out))
    return Rows(cells(moved.shape, [rows[i] for i in moved.reshape(-1)]), out.dtype)


def _look_up(eqn: Any, constants: np.ndarray, index: Rows, width: int) -> Rows:
    """Single entries of a few constants, by a chain of selections; outside of them it is the nearest."""
    if eqn.params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP:
        raise Unsupported("look-ups that fill what is outside")
    numbers = eqn.params["dimension_numbers"]
    if constants.size > 64 or numbers.offset_dims or numbers.start_index_map != tuple(range(constants.ndim)):
        raise Unsupported("look-ups in large constants")
    items = []
    for place in index.cells.reshape(-1, constants.ndim):
        at, *others = (row(value, index.dtype, width) for value in place)
        if others:
            at = jnp.clip(at, 0, len(constants) - 1)
        for other, size in zip(others, constants.shape[1:], strict=True):
            at = at * size + jnp.clip(other, 0, size - 1)
        chosen = row(constants.reshape(-1)[0], constants.dtype, width)
        for k, entry in enumerate(constants.reshape(-1)[1:], 1):
            chosen = jnp.where(at >= k, entry, chosen)
        items.append(chosen)
    return Rows(cells(_without_batch(eqn.outvars[0].aval), items), eqn.outvars[0].aval.dtype)


def _scan(eqn: Any, given: list[Any], width: int) -> list[Any]:
    closed = eqn.params["jaxpr"]
    if eqn.params["reverse"] or len(closed.jaxpr.outvars) != _carried(eqn):
        raise Unsupported("a loop backwards, or one with outputs of each turn")
    turns = sum(a.aval.shape != b.aval.shape for a, b in zip(eqn.invars, closed.jaxpr.invars, strict=True))
    begin, end = len(given) - turns - _carried(eqn), len(given) - turns
    consts, carry, columns = given[:begin], given[begin:end], given[end:]
    if _stays(eqn):
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
            for value in begun
        ]

    def body(_: Any, rows: Sequence[Any]) -> list[Any]:
        return flat(evaluate(eqn.params["jaxpr"], [*consts, *shaped(rows)], width))

    begun = [
        _constant_rows(value, var.aval) if _plain(value) else value
        for value, var in zip(carry, eqn.outvars, strict=True)
    ]
    return shaped(jax.lax.fori_loop(0, eqn.params["length"], body, flat(begun)))


def _stays(eqn: Any) -> bool:
    """Whether a loop has nothing to read in each turn, and carries rows alone.

    Found by shapes: jax 0.11 no longer says how many of its arguments are constants.
    """
    inner = eqn.params["jaxpr"].jaxpr
    pairs = zip(eqn.invars, inner.invars, strict=True)
    carries = all(BATCH in var.aval.shape for var in inner.outvars)
    return carries and all(outer.aval.shape == here.aval.shape for outer, here in pairs)


def _carried(eqn: Any) -> int:
    """How many values a loop carries; it has other results if there are more of these."""
    pairs = zip(eqn.outvars, eqn.params["jaxpr"].jaxpr.outvars, strict=True)
    return sum(outer.aval.shape == inner.aval.shape for outer, inner in pairs)


def _entry(array: np.ndarray, i: int) -> np.ndarray:
    return array[i : i + 1].reshape(
        array.shape[1:]
    )  # `array[i]` would be the row itself if there is one axis


def _without_batch(aval: Any) -> tuple[int, ...]:
    return tuple(size for size in aval.shape if size != BATCH)


def _plain(value: Any) -> bool:
    return not isinstance(value, Rows)


def _constant(value: Any) -> bool:
    return isinstance(value, np.generic)


NUMPY: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in ("abs", "add", "floor", "sqrt")},
    **{"and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert, "neg": np.negative},
    **{"sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum},
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal},
    **{"gt": np.greater, "ge": np.greater_equal},
}

"""The loops of a gated recurrent unit as one GPU kernel each, which keeps the weights and memories on chip.

XLA launches several kernels for every step of a loop, and each of them reads the weights again. Here a block
of rows goes through all steps in one launch. The kernels are compiled by Triton, through Pallas; `gru.py` has
the same functions for XLA.
"""

# JAX leaves parts of its own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from phalanx.ops import kernels
from phalanx.types import Array

MANY_ROWS = 16384  # of one seed and group: training is faster by these kernels with 768, and not with 24,576
FULL_CORE = 2**17  # with more bytes of weights a core has room for one block only
BUSY = 4096  # with more rows most cores have several blocks
ROUNDED = (None, "default", "fastest", "bfloat16", "tensorfloat32")  # precisions of products on tensor cores
ANY = (0.0, float("inf"))
# Of memories, with the compute capabilities of GPUs whose cores hold the weights.
SIZES = {16: ANY, 32: ANY, 64: ANY, 128: (9.0, 11.0)}


def fits(first: Array, recurrent: Array) -> bool:
    """Whether these kernels can run a loop of `first` (T, B, 1) here, faster than XLA's."""
    (steps, rows, _), size = first.shape, len(recurrent)
    exact = jax.config.values["jax_default_matmul_precision"] not in ROUNDED
    if steps == 1 or rows > MANY_ROWS or size not in SIZES or exact or not kernels.supported():
        return False
    at_least, below = SIZES[size]
    return at_least <= kernels.capability() < below


def loop(
    from_x: Array, memory: Array, first: Array, recurrent: Array, bias: Array, interpret: bool = False
) -> Array:
    """`gru.loop`: from_x (T, B, 3H), memory (B, H), first (T, B, 1) -> (T, B, H)."""
    size = memory.shape[-1]

    def kernel(from_x: Any, memory: Any, first: Any, recurrent: Any, bias: Any, out: Any) -> None:
        weights = _columns(recurrent, size)

        def step(t: Array, h: Array) -> Array:
            h = jnp.where(first[t][:, None] != 0, 0.0, h)
            low = h.astype(weights[0].dtype)
            h_reset, h_update, h_new = (_product(low, each) for each in weights)
            x_reset, x_update, x_new = (each.astype(jnp.float32) for each in _gates(from_x, t, size))
            reset, update = jax.nn.sigmoid(x_reset + h_reset), jax.nn.sigmoid(x_update + h_update)
            new = jnp.tanh(x_new + reset * (h_new + bias[...].astype(jnp.float32)[None]))
            h = (1 - update) * new + update * h
            out[t] = h
            return h

        jax.lax.fori_loop(0, out.shape[0], step, memory[0])

    out = jax.ShapeDtypeStruct((*from_x.shape[:2], size), jnp.float32)
    by_row = [from_x, memory[None], first[..., 0].astype(jnp.int32)]
    return _in_blocks(kernel, by_row, [recurrent, bias], [out], interpret)[0]


def through_time(
    gradient: Array, by_h: Array, straight: Array, first: Array, recurrent: Array, interpret: bool = False
) -> tuple[Array, Array]:
    """`gru.through_time`: all but `recurrent` (H, 3H) are (T, B, ...)."""
    size, steps = recurrent.shape[0], len(gradient)

    def kernel(
        gradient: Any, by_h: Any, straight: Any, first: Any, recurrent: Any, to_memory: Any, total: Any
    ) -> None:
        weights = [each.T for each in _columns(recurrent, size)]

        def step(turn: Array, coming: Array) -> Array:
            t = steps - 1 - turn
            here = gradient[t] + coming
            total[t] = here
            coming = here * straight[t]
            for derivatives, each in zip(_gates(by_h, t, size), weights, strict=True):
                coming += _product((derivatives * here).astype(each.dtype), each)
            return jnp.where(first[t][:, None] != 0, 0.0, coming)

        to_memory[0] = jax.lax.fori_loop(0, steps, step, jnp.zeros(to_memory.shape[1:], jnp.float32))

    by_row = [gradient, by_h, straight, first[..., 0].astype(jnp.int32)]
    total = jax.ShapeDtypeStruct(gradient.shape, jnp.float32)
    out = [jax.ShapeDtypeStruct((1, *gradient.shape[1:]), jnp.float32), total]
    to_memory, total = _in_blocks(kernel, by_row, [recurrent], out, interpret)
    return to_memory[0], total


def _columns(matrix: Any, size: int) -> list[Array]:
    """The three parts of (H, 3H)."""
    return [matrix[:, k * size : (k + 1) * size] for k in range(3)]


def _gates(ref: Any, t: Array, size: int) -> list[Array]:
    """The three parts of step t of (T, M, 3H)."""
    return [ref[t, :, k * size : (k + 1) * size] for k in range(3)]


def _product(a: Array, b: Array) -> Array:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _in_blocks(
    kernel: Any, by_row: list[Array], whole: list[Array], out: list[Any], interpret: bool
) -> list[Array]:
    """Run a kernel for blocks of rows, the second axis of its arguments `by_row` and of its results."""
    from jax.experimental import pallas as pl

    rows = by_row[0].shape[1]

    def run(of_all: int, *args: Array) -> list[Array]:
        in_block, warps = _block(of_all, whole[0])
        blocks = -(-rows // in_block)

        def resized(x: Any, rows: int) -> tuple[int, ...]:
            return (x.shape[0], rows, *x.shape[2:])

        def padded(x: Array) -> Array:
            return jnp.pad(x, [(0, (blocks * in_block - rows) * (axis == 1)) for axis in range(x.ndim)])

        def block(x: Any) -> Any:
            return pl.BlockSpec(resized(x, in_block), lambda i: (0, i, *[0] * (len(x.shape) - 2)))

        def all_of(x: Array) -> Any:
            return pl.BlockSpec(x.shape, lambda _: (0,) * x.ndim)

        some, others = args[: len(by_row)], args[len(by_row) :]
        made = pl.pallas_call(
            kernel,
            grid=(blocks,),
            in_specs=[*map(block, some), *map(all_of, others)],
            out_specs=[*map(block, out)],
            out_shape=[jax.ShapeDtypeStruct(resized(x, blocks * in_block), x.dtype) for x in out],
            interpret=interpret,
            **({} if interpret else {"compiler_params": kernels.compiler_params(warps)}),
        )(*map(padded, some), *others)
        return [x[:, :rows] for x in made]

    @custom_vmap
    def alone(*args: Array) -> list[Array]:
        return run(rows, *args)

    @alone.def_vmap
    def _(count: int, batched: Sequence[bool], *args: Array) -> tuple[list[Array], list[bool]]:
        axes = [0 if each else None for each in batched]
        return jax.vmap(partial(run, count * rows), axes, axis_size=count)(*args), [True] * len(out)

    return alone(*by_row, *whole)


def _block(rows: int, recurrent: Array) -> tuple[int, int]:
    """How many rows a block has, at least the 16 that Triton multiplies, and how many warps compute it.

    `rows` are those of all seeds, or of all groups of parameters, whichever axis is the innermost.

    Where the weights fill a core, it computes one block at a time. If there are several for a core, larger
    ones read the weights less often: on an H200 8 steps of 8 x 1,536 rows of 128 in 32 bits take 168 us
    forwards and 240 backwards with 32 rows, and 236 and 321 with 16 (XLA 235 and 273). MAPPO with 128
    environments and one seed, which has fewer rows, is slower with 32.
    """
    fill = recurrent.size * recurrent.dtype.itemsize > FULL_CORE
    return (32, 8) if fill and rows > BUSY else (16, 4)

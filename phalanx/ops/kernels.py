"""A function of many small arrays as one GPU kernel: each thread computes one entry of the batch.

XLA makes some sixty kernels of a simulator's step. For a few environments they take longer to launch than to
run, for many they move every intermediate array through memory. In one kernel, intermediate rows stay in
registers. The kernel is compiled by Triton, through Pallas.
"""

# JAX leaves parts of its own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import importlib.util
import itertools
import math
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from phalanx.errors import PhalanxError
from phalanx.ops import rows as on_rows
from phalanx.ops.joined import from_bits, has_bits, to_bits
from phalanx.ops.rows import Rows, Unsupported, cells
from phalanx.types import Array, PyTree

WIDTH = 32  # entries of a block: the threads of one warp
MOST = 7000  # operations on rows: `3m` has 4,100, compiled in 5 s. Time grows with the square of their number
TRITON = "jax.experimental.pallas.triton"
TARGETS = (
    "__gpu$xla.gpu.triton",
    "triton_kernel_call_ffi",
)  # what programs of several versions call a kernel
LOWEST = (0, 8)  # version of jax whose Pallas can lower such a kernel
LOWEST_GPU = 8.0  # compute capability that Triton needs: Ampere
ODD = 1  # columns more than entries: at odd places Triton gives each thread one entry, as the kernel needs


def on_gpu(fn: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`fn`, of arrays (..., B), as one kernel in a program for one GPU; elsewhere as it is.

    Where `fn` cannot be a kernel it is `Unsupported` on every machine.
    """
    kernel = in_one_kernel(fn)
    known_to_fit: list[bool] = []

    def call(*args: PyTree) -> PyTree:
        if _on_one_gpu():
            _require_support()
            return kernel(*args)
        if not known_to_fit:
            jax.eval_shape(kernel, *args)
            known_to_fit.append(True)
        return fn(*args)

    return call


def _require_support() -> None:
    """Raise an error where Triton cannot compile a kernel for this GPU."""
    if missing := _missing():
        raise PhalanxError(f"--env.kernel needs {missing}: leave it out")


def supported() -> bool:
    """Whether a kernel can be part of a program here, and the user has not set PHALANX_KERNELS=off."""
    return os.environ.get("PHALANX_KERNELS") != "off" and _on_one_gpu() and _missing() is None


def _missing() -> str | None:
    """What a kernel needs on a GPU and does not have here."""
    if jax.__version_info__ < LOWEST:
        return f"jax 0.8 or newer, and this is {jax.__version__}"
    if not _has_triton():
        return f"{TRITON}, and jax {jax.__version__} has none"
    if capability() < LOWEST_GPU:
        needed = f"an NVIDIA GPU of compute capability {LOWEST_GPU} (Ampere) or newer"
        return f"{needed}, and this is {jax.devices()[0].device_kind}"
    return None


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec(TRITON) is not None


def _on_one_gpu() -> bool:
    alone = jax.sharding.get_abstract_mesh().empty  # the compiler cannot divide a kernel between devices
    chosen = jax.config.values["jax_default_device"]  # perhaps the CPU beside a GPU, or its name
    return alone and (getattr(chosen, "platform", chosen) or jax.default_backend()) in ("gpu", "cuda")


def capability() -> float:
    """The compute capability of the first GPU; 0 of what is not NVIDIA's."""
    found = str(getattr(jax.devices()[0], "compute_capability", ""))  # "9.0"; of AMD's GPUs letters too
    return float(found) if found.replace(".", "").isdigit() else 0.0


def in_one_kernel(fn: Callable[..., PyTree], interpret: bool = False) -> Callable[..., PyTree]:
    """`fn`, of arrays (..., B), as one kernel."""
    from jax.experimental import pallas as pl

    def call(*args: PyTree) -> PyTree:
        given = jax.tree.leaves(args)
        batch = given[0].shape[-1]
        closed, shapes = on_rows.trace(fn, args)
        results = jax.tree.leaves(shapes)
        if (operations := on_rows.count(closed.jaxpr)) > MOST:
            raise Unsupported(f"{operations:,} operations (at most {MOST:,})")
        blocks = -(-batch // WIDTH)
        sizes = [_power(sum(math.prod(x.shape[:-1]) for x in arrays)) for arrays in (given, results)]

        def kernel(into: Any, out: Any) -> None:
            out[...] = _packed(on_rows.evaluate(closed, _unpacked(given, into), WIDTH), sizes[1])

        specs = [pl.BlockSpec((size, WIDTH), lambda i: (0, i)) for size in sizes]
        made = pl.pallas_call(
            kernel,
            grid=(blocks,),
            in_specs=specs[:1],
            out_specs=specs[1],
            out_shape=jax.ShapeDtypeStruct((sizes[1], blocks * WIDTH + ODD), jnp.int32),
            interpret=interpret,
            **({} if interpret else {"compiler_params": compiler_params()}),
        )(_pack(given, blocks * WIDTH + ODD, sizes[0]))
        return jax.tree.unflatten(jax.tree.structure(shapes), _unpack(made, results, batch))

    return call


def compiler_params(warps: int = 1) -> Any:
    """For Triton: how many warps share a block, each of 32 threads."""
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=warps, num_stages=1)


def _power(count: int) -> int:
    """The least power of two that is not less: the sizes that Triton knows."""
    return 1 << max(count - 1, 0).bit_length()


def _to_bits(x: Array) -> Array:
    """As int32: Triton takes long for several arrays, so all arguments are one, and all results."""
    if not has_bits(x.dtype):
        raise Unsupported(str(x.dtype))
    return to_bits(x)


def _pack(arrays: list[Array], columns: int, size: int) -> Array:
    """Arrays as one, (size, columns), with zeros behind the last row and column.

    Columns are added to each array and rows last, so that XLA makes one kernel of it.
    """
    wider = columns - arrays[0].shape[-1]
    rows = [jnp.pad(_to_bits(x).reshape(-1, x.shape[-1]), ((0, 0), (0, wider))) for x in arrays]
    return jnp.concatenate([*rows, jnp.zeros((size - sum(map(len, rows)), columns), jnp.int32)])


def _unpack(made: Array, like: list[Any], batch: int) -> list[Array]:
    """The inverse, for arrays like these."""
    counts = [math.prod(x.shape[:-1]) for x in like]
    ends = list(itertools.accumulate(counts))
    return [
        from_bits(made[end - count : end, :batch], x.dtype).reshape(*x.shape[:-1], batch)
        for x, count, end in zip(like, counts, ends, strict=True)
    ]


def _unpacked(like: list[Array], ref: Any) -> list[Rows]:
    """Within the kernel: the rows of its arguments."""
    parts = iter(jax.lax.split(ref[...], [1] * ref.shape[0], axis=0) if ref.shape[0] > 1 else [ref[...]])
    return [
        Rows(
            cells(
                x.shape[:-1],
                [from_bits(next(parts).reshape(WIDTH), x.dtype) for _ in range(math.prod(x.shape[:-1]))],
            ),
            x.dtype,
        )
        for x in like
    ]


def _packed(values: list[Rows], size: int) -> Array:
    """Within the kernel: rows as one block (R, W)."""
    rows = [
        _to_bits(on_rows.row(each, value.dtype, WIDTH))
        for value in values
        for each in value.cells.reshape(-1)
    ]
    rows += [jnp.zeros(WIDTH, jnp.int32)] * (size - len(rows))
    # Triton joins two along a new last axis: the rows of the first join are farthest apart.
    while len(rows) > 1:
        half = len(rows) // 2
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [jnp.concatenate([a[..., None], b[..., None]], -1) for a, b in pairs]
    return rows[0].reshape(WIDTH, size).T

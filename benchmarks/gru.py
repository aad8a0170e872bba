"""How long the loops of a gru take on a GPU, as one kernel and by XLA.

    python benchmarks/gru.py [--repeats 3]

Forwards (`loop`) and backwards (`through_time`), in 32 and in 16 bits, for the rows, steps and memories that
docs/speed.md names. A hundred loops follow one another in one call; each reads what the last one wrote.
"""

import argparse
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from rollout import load, take_turns
from training import Timed

from phalanx import device
from phalanx.networks import gru, gru_kernel
from phalanx.types import Array

TIMES = 100
# Seeds, rows, steps and entries of a memory.
SIZES = ((1, 96, 26, 64), (1, 5760, 25, 64), (1, 1536, 8, 128), (8, 1536, 8, 128), (1, 49152, 8, 128))


BY_XLA = SimpleNamespace(loop=partial(gru.loop, 1), through_time=gru.through_time)


def repeated(step: Callable[..., Array], args: tuple[Array, ...]) -> Timed:
    """Calls of `step`, which computes its first argument anew, one after the other."""

    def many(first: Array, *others: Array) -> Array:
        return jax.lax.fori_loop(0, TIMES, lambda _, x: step(x, *others), first)

    program = jax.jit(many)
    return Timed(TIMES, lambda: program(*args))


def loops(form: Any, size: tuple[int, ...], dtype: Any) -> tuple[Timed, Timed]:
    """The loops forwards and backwards, by the functions of a module or the like."""
    seeds, rows, steps, entries = size
    keys = jax.random.split(jax.random.key(0), 6)
    shapes = ((rows, entries), (steps, rows, 3 * entries), (entries, 3 * entries), (entries,))
    memory, from_x, recurrent, bias = (
        0.3 * jax.random.normal(key, (seeds, *shape)) for key, shape in zip(keys[:4], shapes, strict=True)
    )
    gradient = jax.random.normal(keys[4], (seeds, steps, rows, entries))
    first = jax.random.bernoulli(keys[5], 0.1, (steps, rows, 1))
    from_x, recurrent, bias = (each.astype(dtype) for each in (from_x, recurrent, bias))

    def forwards(memory: Array, from_x: Array, recurrent: Array, bias: Array) -> Array:
        return form.loop(from_x, memory, first, recurrent, bias)[-1]

    def backwards(gradient: Array, by_h: Array, straight: Array, recurrent: Array) -> Array:
        return 0.1 * form.through_time(gradient, by_h, straight, first, recurrent)[1]

    return (
        repeated(jax.vmap(forwards), (memory, from_x, recurrent, bias)),
        repeated(jax.vmap(backwards), (gradient, from_x, jnp.tanh(gradient), recurrent)),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    device.configure()
    if jax.default_backend() != "gpu":
        parser.error("needs a GPU")
    print(f"{device.describe()}, jax {jax.__version__}, {load()}; best of {args.repeats}")
    print(f"\n{'us for a loop, forwards and backwards':<48} {'XLA':>15} {'one kernel':>15}")
    for size in SIZES:
        for dtype in (jnp.float32, jnp.bfloat16):
            timed = [loops(form, size, dtype) for form in (BY_XLA, gru_kernel)]
            take_turns([each for both in timed for each in both], args.repeats)
            seeds, rows, steps, entries = size
            name = f"{seeds} x {rows:,} rows, {steps} steps, {entries} entries, {jnp.dtype(dtype)}"
            shown = (f"{1e6 / ahead.rate:.0f}, {1e6 / back.rate:.0f}" for ahead, back in timed)
            print(f"  {name:<46} " + " ".join(f"{each:>15}" for each in shown), flush=True)
    print(f"\n{load()} at the end")


if __name__ == "__main__":
    main()

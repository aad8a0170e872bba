"""Workarounds for bugs in libraries that give wrong numbers.

On a CPU jaxlib 0.10.2 computes some sums with a library (YNNPACK) that gives wrong results: sums over the
last axis of an array with a leading axis of length 1, times a constant. There is no error; a learner just
learns from the wrong reward. jaxlib 0.10.1 and 0.11.2 do not have the bug. A flag restricts that library to
matrix products; it must be set before JAX starts.
"""

import os
from importlib.metadata import PackageNotFoundError, version

FLAG = "--xla_cpu_experimental_ynn_fusion_type"
VALUE = "LIBRARY_FUSION_TYPE_DOT"


def avoid() -> None:
    """Set the flag where jaxlib needs it and knows it, unless the user did; JAX is not imported for this."""
    try:
        needed = version("jaxlib") == "0.10.2"
    except PackageNotFoundError:  # JAX's own absence will be said by whoever imports it
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if needed and FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {FLAG}={VALUE}".strip()


def sums_are_right() -> bool:
    """Compute a sum that the fault gets wrong."""
    import jax
    import numpy as np

    constant = np.array([[1, 1, 1, 0], [0, 0, 0, 1]], np.float32)
    numbers = np.arange(1 * 50 * 64 * 4, dtype=np.float32).reshape(1, 50, 64, 4) % 7
    found = jax.jit(lambda x: (x[..., None, :] * constant).sum(-1))(numbers)
    return bool(np.allclose(found, (numbers[..., None, :] * constant).sum(-1)))

"""Several processes ("hosts") that train one run together, on one machine or many.

All of them run the same program on the same numbers; each has its own devices. Only the first one writes
files. Clocks and signals differ between them, so decisions that depend on these are synchronised.
"""

# JAX leaves parts of its own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false

import atexit
import os
import re
import sys
from typing import Any

import jax
import numpy as np

from phalanx.errors import PhalanxError
from phalanx.types import PyTree, is_key

START_TIMEOUT = 300  # seconds until all have come
HEARTBEAT_TIMEOUT = 60  # seconds of silence after which one counts as lost
LEAVE_TIMEOUT = 30  # seconds that they wait for each other at the end


def join(where: str) -> None:
    """Become one of several hosts: `auto` under SLURM or Open MPI, or `ADDRESS:PORT,COUNT,NUMBER`."""
    given: dict[str, Any] = {}
    if where != "auto":
        found = re.fullmatch(r"([^,\s]+:\d+),(\d+),(\d+)", where)
        if found is None or not 0 <= int(found[3]) < int(found[2]):
            raise PhalanxError(
                f"hosts must be auto or ADDRESS:PORT,COUNT,NUMBER, such as 10.0.0.5:1234,2,0 on the first of "
                f"two, not {where!r}"
            )
        given = {
            "coordinator_address": found[1],
            "num_processes": int(found[2]),
            "process_id": int(found[3]),
        }
    try:
        jax.distributed.initialize(
            **given,
            initialization_timeout=START_TIMEOUT,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
            shutdown_timeout_seconds=LEAVE_TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = ": give ADDRESS:PORT,COUNT,NUMBER" if where == "auto" else ""
        raise PhalanxError(f"the hosts did not find each other: {reason}{hint}") from None


def count() -> int:
    """How many hosts train together."""
    return jax.process_count()


def first() -> bool:
    """Whether this is the one that writes."""
    return jax.process_index() == 0


def tells_a_loss(error: Exception) -> bool:
    """Whether an error of JAX comes of another host that is gone."""
    return count() > 1 and (isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error))


def lost(error: Exception, folder: str) -> PhalanxError:
    """What to say when another host is gone. This process ends without waiting for it, as JAX would."""
    atexit.register(_leave)
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return PhalanxError(
        "another host of this run was lost: continue from its last checkpoint with `phalanx resume "
        f"{folder}` "
        f"({reason[:120]})"
    )


def fetch(tree: PyTree) -> PyTree:
    """Arrays as numpy arrays, wherever they lie. All hosts must ask for them."""
    if count() == 1:
        return jax.device_get(tree)
    from jax.experimental.multihost_utils import process_allgather

    return jax.tree.map(lambda x: process_allgather(x, tiled=True) if _divided(x) else np.asarray(x), tree)


def spread(x: Any, sharding: Any) -> jax.Array:
    """An array that all hosts have, laid over their devices."""
    if is_key(x):
        data = spread(jax.random.key_data(x), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    host = np.asarray(x)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def any_of(flag: bool) -> bool:
    """Whether any of the hosts says yes."""
    return bool(_gathered(flag).any())


def least(number: int) -> int:
    """The least of the hosts' numbers."""
    return int(_gathered(number).min())


def _leave() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)


def _gathered(value: int) -> np.ndarray:
    if count() == 1:
        return np.array([value])
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(np.int32(value)))


def _divided(x: Any) -> bool:
    return isinstance(x, jax.Array) and not x.is_fully_addressable

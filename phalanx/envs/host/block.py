"""The arrays through which a pool and its workers communicate: a contiguous block per field, a row for each
environment. Workers on this machine map the same memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from phalanx.spec import EnvSpec

ALIGNMENT = 64  # bytes of a cache line
OBSERVATION = ("obs", "state", "avail", "alive")
TOLD = ("action", "next_seed", "active")
"""what a worker is told"""
STEPPED = (
    "reward",
    "terminated",
    "truncated",
    "won",
    "agent_terminated",
    "returns",
    "length",
    "first",
    "broken",
)
"""what it says of a step, beside observations"""


class Block:
    """Fields of N environments, (N, ...), each an attribute.

    To the worker: `action`, `next_seed`, and `active`, which rows step. From the worker: `obs`, `state`,
    `avail` and `alive`, the observation to act on next; `last_obs` and so on, the true last ones where an
    episode ended; `reward`, `terminated`, `truncated`, `won`, `agent_terminated` of the step; `returns` and
    `length` of the episode so far; `first`, where a new episode began; `broken`, where a fault of the
    environment ended the last one. `progress` counts steps, so that a pool can tell slow workers from those
    that hang.
    """

    action: Any
    next_seed: Any
    active: Any
    obs: Any
    state: Any
    avail: Any
    alive: Any
    reward: Any
    terminated: Any
    truncated: Any
    won: Any
    agent_terminated: Any
    returns: Any
    length: Any
    first: Any
    broken: Any
    progress: Any

    def __init__(self, spec: EnvSpec, count: int, memory: Any = None):
        """`memory` is a buffer of at least `size(spec, count)` bytes; without one, it has its own."""
        memory = bytearray(self.size(spec, count)) if memory is None else memory
        start = 0
        for name, (shape, dtype) in _fields(spec, count).items():
            array = np.frombuffer(memory, dtype, int(np.prod(shape)), start).reshape(shape)
            setattr(self, name, array)
            start += _aligned(array.nbytes)

    @staticmethod
    def size(spec: EnvSpec, count: int) -> int:
        """Bytes of the whole block."""
        return sum(
            _aligned(int(np.prod(shape)) * np.dtype(dtype).itemsize)
            for shape, dtype in _fields(spec, count).values()
        )

    # Where memory is not shared, a worker has a block of its own, and rows are copied.

    def told(self, rows: range) -> dict[str, np.ndarray]:
        """What some rows say to a worker."""
        return {name: getattr(self, name)[rows.start : rows.stop] for name in TOLD}

    def found(self, rows: range) -> dict[str, np.ndarray]:
        """What some rows say to the pool. Last observations only where an episode ended."""
        part = slice(rows.start, rows.stop)
        ended = rows.start + np.flatnonzero(self.first[part])
        return {
            **{name: getattr(self, name)[part] for name in (*STEPPED, *OBSERVATION)},
            **{f"last_{name}": getattr(self, f"last_{name}")[ended] for name in OBSERVATION},
        }

    def put(self, rows: range, fields: dict[str, np.ndarray]) -> None:
        """Write what `told` or `found` gave of as many rows."""
        for name, values in fields.items():
            if name.startswith("last_"):
                getattr(self, name)[rows.start + np.flatnonzero(fields["first"])] = values
            else:
                getattr(self, name)[rows.start : rows.stop] = values


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _fields(spec: EnvSpec, count: int) -> dict[str, tuple[tuple[int, ...], str]]:
    n, agents = count, (count, spec.n_agents)
    state = (*agents, spec.state_size) if spec.agent_state else (n, spec.state_size)
    seen = {
        "obs": ((*agents, *spec.obs_array), spec.obs_dtype),
        "state": (state, "float32"),
        "avail": ((*agents, spec.n_actions), "bool"),
        "alive": (agents, "bool"),
    }
    discrete = spec.action_kind == "discrete"
    return {
        "action": (agents, "int32") if discrete else ((*agents, spec.n_actions), "float32"),
        "next_seed": ((n,), "uint64"),
        "active": ((n,), "bool"),
        **seen,
        **{f"last_{name}": field for name, field in seen.items()},
        "reward": (agents, "float32"),
        "terminated": ((n,), "bool"),
        "truncated": ((n,), "bool"),
        "won": ((n,), "bool"),
        "agent_terminated": (agents, "bool"),
        "returns": (agents, "float32"),
        "length": ((n,), "int32"),
        "first": ((n,), "bool"),
        "broken": ((n,), "bool"),
        "progress": ((n,), "int64"),
    }

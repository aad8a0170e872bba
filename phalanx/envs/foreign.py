"""What the adapters of other packages' compiled environments share: imports, observations, actions."""

import contextlib
import importlib
import io
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.base import joint_features
from phalanx.errors import PhalanxError
from phalanx.types import Array, PyTree


def package(name: str, install: str = "") -> Any:
    """Import a package: an extra of phalanx of the same name, or what `install` says."""
    try:
        with _silence():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        why = f"this environment needs the package {name}"
        why += "" if missing == name else f", which needs {missing}"
        raise PhalanxError(f"{why}: pip install '{install or f'phalanx[{name}]'}'") from None


@contextlib.contextmanager
def building(name: str) -> Iterator[None]:
    """Make an environment of a package.

    Arrays that it keeps must be constants of every program, also when it is first asked for within a trace.
    """
    try:
        with jax.ensure_compile_time_eval():
            yield
    except PhalanxError:
        raise
    except Exception as error:  # constructors of other packages may raise anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise PhalanxError(f"cannot build {name}: {reason}") from None


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep standard output clean: it belongs to the command, and some packages print while they are imported.

    `sys.__stdout__` too, since one of them puts it in the place of `sys.stdout`.
    """
    before = sys.stdout, sys.__stdout__, sys.stderr
    sys.stdout = sys.__stdout__ = io.StringIO()
    try:
        yield
    finally:
        sys.stdout, sys.__stdout__, sys.stderr = before


def prefixed(prefix: str, size: int) -> tuple[str, ...]:
    """Names for entries that the package does not name."""
    return tuple(f"{prefix} {i}" for i in range(size))


class Sight(NamedTuple):
    """How the agents' observations become one array, found from their shapes.

    An observation that is one array with three axes is a picture. Any other is flattened, its parts in the
    order of their names, and padded with zeros to the longest.
    """

    agents: tuple[str, ...]
    sizes: tuple[int, ...]
    picture: tuple[int, ...] | None
    dtype: str

    @classmethod
    def of(cls, agents: tuple[str, ...], shapes: list[PyTree], counts: bool = False) -> "Sight":
        """From the shapes of each agent's observation. `counts`: integers in pictures are no intensities."""
        leaves = [jax.tree.leaves(each) for each in shapes]
        sizes = tuple(sum(int(np.prod(leaf.shape)) for leaf in each) for each in leaves)
        first = leaves[0][0]
        same = all(len(each) == 1 and each[0].shape == first.shape for each in leaves)
        if not (same and len(first.shape) == 3):
            return cls(agents, sizes, None, "float32")
        # Networks scale uint8 to [0, 1] as intensities: counts and flags would almost vanish.
        dtype = "int8" if counts else "uint8" if first.dtype == jnp.uint8 else "float32"
        return cls(agents, sizes, tuple(first.shape), dtype)

    @property
    def spec(self) -> dict[str, Any]:
        """The fields of an `EnvSpec` about observations, and a state of all of them in a row."""
        names = tuple(prefixed("observation", size) for size in self.sizes)
        joint = joint_features(self.agents, names)
        if self.picture is None:
            return {"obs_features": names, "state_features": joint}
        shape = {"obs_shape": self.picture, "obs_dtype": self.dtype}
        return {"obs_features": (), "state_features": joint, **shape}

    def array(self, observations: list[PyTree]) -> Array:
        """(A, O), or (A, *picture)."""
        if self.picture is not None:
            return jnp.stack([jax.tree.leaves(each)[0].astype(self.dtype) for each in observations])
        rows = [
            jnp.concatenate([jnp.asarray(leaf, jnp.float32).reshape(-1) for leaf in jax.tree.leaves(each)])
            for each in observations
        ]
        return pad(rows, max(self.sizes))


def pad(rows: list[Array], width: int) -> Array:
    """(A, width) from vectors that may be shorter; what is added is zero, or False."""
    return jnp.stack([jnp.pad(row, (0, width - len(row))) for row in rows])


class Hands(NamedTuple):
    """How phalanx's actions become those of the package, found from the agents' action spaces."""

    counts: tuple[int, ...]
    low: np.ndarray | None = None
    """(A, U) of continuous actions; None for discrete ones"""
    high: np.ndarray | None = None

    @classmethod
    def of(cls, name: str, spaces: list[Any]) -> "Hands":
        """From spaces with `n`, or with `low`, `high` and a `shape` of one axis (or none)."""
        if all(hasattr(space, "n") for space in spaces):
            return cls(tuple(int(space.n) for space in spaces))
        if not all(hasattr(space, "low") and len(space.shape) <= 1 for space in spaces):
            kinds = ", ".join(sorted({type(space).__name__ for space in spaces}))
            raise PhalanxError(f"{name} has actions that phalanx does not support: {kinds}")
        counts = tuple(int(np.prod(space.shape)) for space in spaces)
        low, high = np.zeros((2, len(spaces), max(counts)), np.float32)
        high[:] = 1.0
        for agent, (space, count) in enumerate(zip(spaces, counts, strict=True)):
            low[agent, :count], high[agent, :count] = space.low, space.high
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise PhalanxError(f"{name} has actions without bounds, which phalanx does not support")
        return cls(counts, low, high)

    @property
    def own(self) -> np.ndarray:
        """(A, U): entries that are not padding."""
        return np.arange(max(self.counts)) < np.array(self.counts)[:, None]

    @property
    def shared_range(self) -> tuple[float, float] | None:
        """The package's range of continuous actions if it is the same for all entries."""
        if self.low is None or self.high is None:
            return None
        lows, highs = set(self.low[self.own].tolist()), set(self.high[self.own].tolist())
        return (lows.pop(), highs.pop()) if len(lows) == len(highs) == 1 else None

    @property
    def spec(self) -> dict[str, Any]:
        """The fields of an `EnvSpec` about actions."""
        if self.low is None:
            return {"action_counts": self.counts}
        limits = self.shared_range or (-1.0, 1.0)
        return {"action_counts": self.counts, "action_kind": "continuous", "action_range": limits}

    def rows(self, actions: Array) -> list[Array]:
        """What each agent does, in the package's terms: () integers, or vectors of its own size and range."""
        if self.low is None or self.high is None:
            return list(actions)
        actions = jnp.clip(actions, *(self.shared_range or (-1.0, 1.0)))
        if self.shared_range is None:
            actions = jnp.asarray(self.low) + (actions + 1.0) / 2.0 * (self.high - self.low)
        return [row[:count] for row, count in zip(actions, self.counts, strict=True)]


def like(values: PyTree, shapes: PyTree) -> PyTree:
    """The same values in the dtypes of `shapes`, since a state must not change its type at the first step."""
    return jax.tree.map(
        lambda value, shape: value if value.dtype == shape.dtype else value.astype(shape.dtype),
        jax.tree.map(jnp.asarray, values),
        shapes,
    )

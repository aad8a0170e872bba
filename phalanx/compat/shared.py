"""Functions that all interfaces share: creating the environment, checking seeds and actions."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from phalanx.envs.base import Env
from phalanx.errors import PhalanxError
from phalanx.registry import build_env
from phalanx.types import EnvSpec

Program = Callable[..., Any]


def programs(env: Env) -> tuple[Program, Program]:
    """`reset` and `step`, compiled; both take a random key, split it, and return a new one."""

    @jax.jit
    def begin(key):
        key, now = jax.random.split(key)
        return key, *env.reset(now)

    @jax.jit
    def play(key, state, actions):
        key, now = jax.random.split(key)
        return key, *env.step(now, state, actions)

    return begin, play


def environment(env: str | Env, options: Mapping[str, Any] | None) -> Env:
    """The environment of a name, with its own `options`, or the object that was given."""
    if options is not None and not isinstance(options, Mapping):
        raise PhalanxError(f"options must be a dictionary, not {type(options).__name__}")
    if isinstance(env, str):
        built = build_env(env, **(options or {}))
        if not isinstance(built, Env):
            raise PhalanxError(
                f"{env} is a Python environment of another package: use that package's own class"
            )
        return built
    if not isinstance(env, Env):
        if isinstance(env, type) and issubclass(env, Env):
            raise PhalanxError(f"env must be an object, not a class: {env.__name__}()")
        raise PhalanxError(f"env must be a name or a phalanx.Env, not {type(env).__name__}")
    if options:
        raise PhalanxError("options are for an environment given by name: build the object with them")
    return env


def checked_seed(seed: Any) -> int:
    """Check that a seed is valid for JAX."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise PhalanxError(f"seed must be a whole number from 0 to 4294967295, not {seed!r}")
    return int(seed)


def read(actions: Any, shape: tuple[int, ...], spec: EnvSpec, what: str, wanted: str) -> np.ndarray:
    """`actions` as an array of `shape`: int64, or float64 where they are continuous.

    `what` and `wanted` describe them and their shape in the error message.
    """
    try:
        array = np.asarray(actions)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of unequal length, a tensor on a GPU
        raise PhalanxError(f"{what} cannot be read as a numpy array: {error}") from None
    if array.shape != shape:
        raise PhalanxError(f"{what} must be {wanted}, not {array.shape}")
    if spec.action_kind == "continuous":
        if not np.issubdtype(array.dtype, np.floating) and not np.issubdtype(array.dtype, np.integer):
            raise PhalanxError(f"{what} must consist of numbers, such as float32, not {array.dtype}")
        return array.astype(np.float64)
    if not np.issubdtype(array.dtype, np.integer):
        raise PhalanxError(f"{what} must consist of whole numbers, such as int64, not {array.dtype}")
    return array.astype(np.int64)


def judge(spec: EnvSpec, avail: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The actions that can be played, and (..., A) bool: whose action was not available.

    `chosen` is (..., A), or (..., A, U) if continuous, `avail` (..., A, U). Continuous actions are clipped to
    their range; only values that are not finite are errors. An agent without available actions may send
    anything, and so may any agent in entries beyond its own action size.
    """
    if spec.action_kind == "continuous":
        own = np.where(avail, chosen, 0.0)
        return own.clip(*spec.action_range).astype(np.float32), np.any(~np.isfinite(own), axis=-1)
    within = chosen.clip(0, spec.n_actions - 1)
    legal = np.take_along_axis(avail, within[..., None], -1)[..., 0] & (within == chosen)
    return within.astype(np.int32), ~legal & avail.any(-1)


def refusal(spec: EnvSpec, agent: int, avail: np.ndarray, chosen: Any) -> str:
    """The error for an action, a number or (U,), that is not in `avail` (U,)."""
    name = spec.agents[agent]
    if spec.action_kind == "continuous":
        entry = int(np.flatnonzero(avail & ~np.isfinite(chosen))[0])
        return f"{name} cannot take an action with {chosen[entry]} in entry {entry}: it must be finite"
    available = ", ".join(map(str, np.flatnonzero(avail)))
    return f"{name} cannot take action {chosen} now; available: {available}"

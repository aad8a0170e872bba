"""An environment of your own, module:Thing, recognised by what it is.

`Thing` is a class or a function that makes the environment, or the environment itself.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
from phalanx.envs.host.packages import cause, is_drawing
from phalanx.envs.host.randomness import OwnRandomness, uses_python_random
from phalanx.envs.host.spaces import kind_of
from phalanx.envs.host.variant import TeamsVariant
from phalanx.errors import PhalanxError, suggest
from phalanx.spec import EnvSpec

SMAC_METHODS = ("get_obs", "get_state", "get_avail_actions", "get_env_info")
ACCEPTED = (
    "a HostEnv of phalanx, a gymnasium.Env (also with Tuple spaces, one entry an agent), a ParallelEnv or "
    f"AECEnv of PettingZoo, or an object with SMAC's methods {', '.join(SMAC_METHODS)}"
)


class OwnEnv(HostEnv):
    """An environment, or what a class or function makes when it is called with `options`."""

    def __init__(
        self,
        thing: Any,
        name: str,
        module: str,
        time_limit: int | None = None,
        shrink: int = 1,
        options: dict[str, Any] | None = None,
        teams: str = "",
    ):
        """`module` is where the environment is defined."""
        self._given = (thing, name, module, time_limit, shrink, options, teams)
        self._object = not callable(thing) or is_environment(thing)
        if self._object and options:
            raise PhalanxError(
                f"{name} is an environment, not a class, and takes no option {', '.join(options)}"
            )
        made = thing if self._object else call(thing, name, options or {})
        self.inner = recognised(made, name, time_limit, shrink, teams)
        self._randomness = OwnRandomness(uses_python_random(module))

    @property
    def spec(self) -> EnvSpec:
        return self.inner.spec

    def copy(self) -> OwnEnv:
        other = OwnEnv(*self._given)
        if self._object:  # there is but one
            other.inner = self.inner.copy()
        return other

    def reset(self, seed: int) -> HostStep:
        self._randomness.seed(seed)
        with self._randomness:
            return self.inner.reset(seed)

    def step(self, actions: np.ndarray) -> HostStep:
        with self._randomness:
            return self.inner.step(actions)

    def get_state(self) -> Any:
        state = self.inner.get_state()
        return None if state is None else (state, self._randomness.get_state())

    def set_state(self, state: Any) -> HostObservation:
        inner, randomness = state
        self._randomness.set_state(randomness)
        return self.inner.set_state(inner)

    def render(self) -> Any:
        return self.inner.render()

    def close(self) -> None:
        self.inner.close()


@dataclass(eq=False)
class Adapter(TeamsVariant, OwnEnv):
    """The environment `package.module:Thing`, which is called with `extra` if it can be."""

    def __post_init__(self):
        thing, module = find(self.variant), self.variant.partition(":")[0]
        OwnEnv.__init__(
            self, thing, self.variant, module, self.time_limit, self.shrink, self.extra, self.teams
        )


def named_or_own(thing: Any) -> str | OwnEnv:
    """An environment, class or function that a program gives us, as `train` takes it.

    `module:Thing` where another process can import it, so that workers can step it; otherwise it is stepped
    in this process.
    """
    known = thing if hasattr(thing, "__qualname__") else type(thing)
    module, label = known.__module__, known.__qualname__
    importable = module != "__main__" and getattr(sys.modules.get(module), label, None) is thing
    if importable and not is_environment(thing):
        return f"{module}:{label}"
    return OwnEnv(thing, f"object:{label}", module)


def find(name: str) -> Any:
    """What `package.module:Thing` names, with the working folder on the path as `python -m` has it."""
    module_name, _, thing = name.partition(":")
    if not (module_name and thing):
        raise PhalanxError(f"environment {name!r} is not of the form package.module:Thing")
    folder = str(Path.cwd())
    if "" not in sys.path and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise PhalanxError(f"cannot import environment {name!r}: {error}") from None
    except Exception as error:  # a user's module may raise anything
        raise PhalanxError(f"cannot import environment {name!r}: {raised(error)}") from None
    found = getattr(module, thing, None)
    if found is None:
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise PhalanxError(f"module {module_name!r} has no {thing!r}.{suggest(thing, own)}")
    return found


def call(thing: Any, name: str, options: dict[str, Any]) -> Any:
    """Make the environment from its class or function."""
    try:
        signature = inspect.signature(thing)
        signature.bind(**options)
        if is_drawing() and "render_mode" in signature.parameters:
            options = {"render_mode": "rgb_array", **options}
    except TypeError as error:
        raise PhalanxError(f"{name} does not take these options: {error}") from None
    except ValueError:  # it has no signature to look at
        pass
    try:
        return thing(**options)
    except PhalanxError:
        raise
    except Exception as error:  # a user's constructor may raise anything
        raise PhalanxError(f"{name} cannot be made: {raised(error)}") from None


def raised(error: BaseException) -> str:
    """An exception in the user's own code: what, and where."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{cause(error)} ({place.filename}, line {place.lineno})"


def recognised(env: Any, name: str, time_limit: int | None, shrink: int, teams: str = "") -> HostEnv:
    """An environment of any accepted kind as a host environment."""
    zoo = _is_a(env, "pettingzoo", "ParallelEnv") or _is_a(env, "pettingzoo", "AECEnv")
    if teams and not zoo:
        raise PhalanxError(f"{name} is not PettingZoo's: leave out --env.teams, and name teams in its spec")
    if shrink != 1 and (isinstance(env, HostEnv) or _has_smac_methods(env)):
        raise PhalanxError(f"{name} has no pictures that could be shrunk: leave out --env.shrink")
    if isinstance(env, HostEnv):
        if time_limit is not None and time_limit != env.spec.time_limit:
            raise PhalanxError(
                f"{name} has a time limit of its own, {env.spec.time_limit}: leave out --env.time_limit"
            )
        return env
    if _has_smac_methods(env):
        from phalanx.envs.host.smac_like import SmacLike  # pyright: ignore[reportMissingImports]

        return SmacLike(env, name, time_limit=time_limit)
    if _is_a(env, "gymnasium", "Env") or _is_a(env, "gym", "Env"):
        if kind_of(env.action_space) == "Tuple":
            from phalanx.envs.host.tuples import TupleEnv

            return TupleEnv(env, name, time_limit, shrink)
        from phalanx.envs.host.gym import GymEnv

        return GymEnv(env, name, time_limit, shrink)
    if zoo:
        from phalanx.envs.host.pettingzoo import PettingZooEnv

        return PettingZooEnv(env, name, time_limit, shrink, teams)
    raise PhalanxError(f"{name} gives a {type(env).__name__}, which is none of these: {ACCEPTED}")


def is_environment(thing: Any) -> bool:
    """Whether a thing is an environment, rather than a class or function that makes one."""
    if isinstance(thing, type):
        return False
    kinds = (("gymnasium", "Env"), ("gym", "Env"), ("pettingzoo", "ParallelEnv"), ("pettingzoo", "AECEnv"))
    return (
        isinstance(thing, HostEnv) or _has_smac_methods(thing) or any(_is_a(thing, *kind) for kind in kinds)
    )


def _has_smac_methods(env: Any) -> bool:
    return all(callable(getattr(env, method, None)) for method in SMAC_METHODS)


def _is_a(env: Any, package: str, name: str) -> bool:
    """Whether `env` is of a class of a package, which is loaded if that is so."""
    cls = getattr(sys.modules.get(package), name, None)
    return cls is not None and isinstance(env, cls)

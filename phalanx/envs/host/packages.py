"""Other people's packages: imported when they are needed, with errors of one line."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from phalanx.errors import PhalanxError

_DRAWING = ContextVar("drawing", default=False)
GYMNASIUM_ADDS = " was raised from the environment creator"  # and lists all arguments


def own_paths() -> list[str]:
    """Where modules of the user are found by this process, such as the folder of a script, for others."""
    own = (sys.prefix + os.sep, sys.base_prefix + os.sep)
    return [
        os.path.abspath(path) for path in sys.path if not path.startswith(own) and "-packages" not in path
    ]


def needed(module: str, name: str) -> Any:
    """Import `module` for the environment `name`, or say what to install; its family names an extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing, family = (error.name or module).partition(".")[0], name.partition("/")[0]
        extra = f" (or phalanx with the extra {family})" if missing == module else ""
        raise PhalanxError(f"{name} needs the package {missing}: pip install {missing}{extra}") from None
    except Exception as error:  # a package may raise anything when it is imported
        raise PhalanxError(f"{name} cannot import {module}: {cause(error)}") from None


def made(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Make an environment, or say in one line why that is not possible."""
    try:
        return make(**options)
    except PhalanxError:
        raise
    except Exception as error:  # its constructor may raise anything
        raise PhalanxError(f"{name} cannot be made: {cause(error)}") from None


def drawing(make: Callable[[], Any]) -> Callable[[], Any]:
    """A function that makes environments as `make` does, and such that can be rendered."""

    def to_draw() -> Any:
        before = _DRAWING.set(True)
        try:
            return make()
        finally:
            _DRAWING.reset(before)

    return to_draw


def is_drawing() -> bool:
    """Whether the environment that is made now will be rendered."""
    return _DRAWING.get()


def picture(env: Any) -> Any:
    """What an environment with gymnasium's or gym's interface looks like; None if it cannot tell."""
    if getattr(env, "render_mode", None) == "rgb_array":
        return env.render()
    render = getattr(getattr(env, "unwrapped", env), "render", None)
    if callable(render) and "mode" in inspect.signature(render).parameters:
        return render(mode="rgb_array")
    return None


def made_to_draw(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Make an environment; if it will be rendered, with `render_mode="rgb_array"` where it has that mode."""
    if "render_mode" in options or not is_drawing():
        return made(name, make, options)
    try:
        env = make(**options, render_mode="rgb_array")
    except Exception:  # if it is not for the mode, it raises again without it
        return made(name, make, options)
    modes = (getattr(env, "metadata", None) or {}).get("render_modes") or ()
    return env if "rgb_array" in modes else made(name, make, options)


def cause(error: BaseException) -> str:
    """An exception in one line."""
    said = " ".join(str(error).split()).partition(GYMNASIUM_ADDS)[0].rstrip(".")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def limited(name: str, own: int | None, given: int | None, longer: str = "") -> int:
    """The time limit of an environment: its own, or the one given, which can only be shorter."""
    if own is None and given is None:
        raise PhalanxError(f"{name} has no time limit of its own: give one with --env.time_limit N")
    if own is not None and given is not None and given > own:
        raise PhalanxError(
            f"{name} itself ends after {own} steps: --env.time_limit {given} is too long{longer}"
        )
    limit = own if given is None else given
    assert limit is not None
    return limit


def with_limit(name: str, options: Mapping[str, Any], word: str, time_limit: int | None) -> dict[str, Any]:
    """The options of a constructor with the time limit, which it calls `word`."""
    if time_limit is None:
        return dict(options)
    if word in options:
        raise PhalanxError(f"{name}: --env.{word} and --env.time_limit mean the same, leave one out")
    return {**options, word: time_limit}

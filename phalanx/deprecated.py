"""Old names of arguments, which still work for one version, with a warning."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed_argument(old: str, new: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function whose argument `old` is now called `new` be called with either."""

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(fn)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            given: dict[str, Any] = dict(kwargs)
            if old in given:
                if new in given:
                    raise TypeError(f"{fn.__name__}() got {new}, and {old}, its old name")
                warnings.warn(f"{fn.__name__}({old}=...) is now {new}", FutureWarning, stacklevel=2)
                given[new] = given.pop(old)
            return fn(*args, **given)  # type: ignore[arg-type]

        return wrapper

    return decorate

"""Classes outside of phalanx, by name: `package.module:Class`."""

import importlib
import sys
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError, suggest


def import_class(name: str, base: type, what: str) -> Any:
    """Import `package.module:Class`, with the working folder on the path as `python -m` has it."""
    module_name, _, class_name = name.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise PhalanxError(f"cannot import {what} {name!r}: {error}") from None
    except Exception as error:  # a user's module may raise anything: say what, not how we got there
        raise PhalanxError(f"cannot import {what} {name!r}: {type(error).__name__}: {error}") from None
    found = getattr(module, class_name, None)
    if found is None:
        fitting = [
            key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, base)
        ]
        raise PhalanxError(f"module {module_name!r} has no {class_name!r}.{suggest(class_name, fitting)}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise PhalanxError(f"{name!r} is not a subclass of {base.__module__}.{base.__name__}")
    return found

"""Import a class of the user's own by its name, `package.module:Class`."""

import importlib
import sys
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError, suggest


def is_subclass(name: str, base: type, what: str, origin: str = "") -> bool:
    """Whether `package.module:Class` is a subclass of `base`, as far as it can be imported here."""
    if not all(name.partition(":")):
        raise PhalanxError(f"{what} {name!r}{origin} is not of the form package.module:Class")
    try:
        module = _imported(name.partition(":")[0])
    except ImportError:  # another Python may have what it needs
        return False
    except Exception:  # `import_class` says what is wrong
        return True
    found = getattr(module, name.partition(":")[2], base)  # `import_class` says what is missing
    return isinstance(found, type) and issubclass(found, base)


def _imported(module: str) -> Any:
    """Import a module, with the working folder on the path as `python -m` has it."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(module)


def import_class(name: str, base: type, what: str, origin: str = "") -> Any:
    """Import `package.module:Class`.

    `origin` is said after the name in errors, such as ` of the package P`.
    """
    module_name, _, class_name = name.partition(":")
    if not (module_name and class_name):
        raise PhalanxError(f"{what} {name!r}{origin} is not of the form package.module:Class")
    try:
        module = _imported(module_name)
    except ModuleNotFoundError as error:
        raise PhalanxError(f"cannot import {what} {name!r}{origin}: {error}") from None
    except Exception as error:  # a user's module may raise anything: say what, not how we got there
        raise PhalanxError(
            f"cannot import {what} {name!r}{origin}: {type(error).__name__}: {error}"
        ) from None
    found = getattr(module, class_name, None)
    if found is None:
        fitting = [
            key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, base)
        ]
        near = suggest(class_name, fitting)
        raise PhalanxError(f"module {module_name!r}{origin} has no {class_name!r}.{near}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise PhalanxError(f"{name!r}{origin} is not a subclass of {base.__module__}.{base.__name__}")
    return found

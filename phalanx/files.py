"""Files that are written whole or not at all, and files that are read only where they belong."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from phalanx.errors import PhalanxError


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.unlink(missing_ok=True)  # a link by this name would be written through
        write(unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        raise PhalanxError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def inside(folder: Path, name: str) -> Path:
    """The real path of a file in a folder; a link that leads out of the folder is refused."""
    try:
        real = (folder / name).resolve()
        if real.is_relative_to(folder.resolve()):
            return real
    except (OSError, RuntimeError):  # a link to itself
        pass
    raise PhalanxError(f"{folder / name} is a link out of its folder: it is not read")


def open_inside(folder: Path, name: str) -> BinaryIO:
    """Open a plain file in a folder for reading; links out of the folder, pipes and devices are refused.

    Raises an OSError if there is no such file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    number = os.open(inside(folder, name), flags)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise PhalanxError(f"{folder / name} is not a plain file: it is not read")
    return os.fdopen(number, "rb")


def read_inside(folder: Path, name: str, most: int) -> bytes:
    """Read a plain file in a folder, of at most so many bytes. Raises an OSError if there is none."""
    with open_inside(folder, name) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise PhalanxError(f"{folder / name} has more than {most / 1e6:,.0f} MB: it is not read")
    return found

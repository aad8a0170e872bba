"""A lock file for one process at a time: the operating system frees it when that process ends in any way."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from phalanx.errors import PhalanxError

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock while open, unless another process has it; yields whether it is ours."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            _lock(file)
            ours = True
        except (BlockingIOError, PermissionError):  # taken, as POSIX and as Windows say it
            ours = False
        except OSError as error:
            raise PhalanxError(f"cannot lock {path}: {error.strerror}") from None
        yield ours
    finally:
        os.close(file)


@contextlib.contextmanager
def lock(path: Path, every: float = 0.2) -> Iterator[None]:
    """Hold the lock while open; wait until it can be had, asking `every` so many seconds."""
    while True:
        with try_lock(path) as ours:
            if ours:
                yield
                return
        time.sleep(every)


def is_locked(path: Path) -> bool:
    """Whether a process has the lock now."""
    with try_lock(path) as ours:
        return not ours

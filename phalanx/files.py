"""Files that are written whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        raise PhalanxError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)

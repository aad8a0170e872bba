"""The metrics file: plain lines of JSON, one for each seed and evaluation."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.report.mirrors import Mirror

FILE = "metrics.jsonl"


class MetricsWriter:
    """Appends rows to metrics.jsonl and hands them to the tools that mirror it."""

    def __init__(self, folder: Path, mirrors: Sequence[Mirror] = ()):
        self.path, self.mirrors = folder / FILE, mirrors
        try:
            self.path.touch()
        except OSError as error:
            raise PhalanxError(f"cannot write {self.path}: {error.strerror}") from None

    def require(self, size: int) -> None:
        """Refuse a file that has lost rows which a checkpoint says it had."""
        if self.size < size:
            raise PhalanxError(f"{self.path} is shorter than its checkpoint says: rows of it are missing")

    def rewind(self, size: int) -> None:
        """Drop what was written behind that byte: it will be written again."""
        os.truncate(self.path, size)

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Append one row a seed, all of one evaluation, at once."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
        except OSError as error:
            raise PhalanxError(f"cannot write {self.path}: {error.strerror}") from None
        for row in rows:
            for mirror in self.mirrors:
                mirror.write(row)

    def close(self) -> None:
        for mirror in self.mirrors:
            mirror.close()


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics file."""
    path = folder / FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise PhalanxError(f"cannot read {path}: {error.strerror}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError
            rows.append(row)
        except ValueError:
            if number == len(lines):
                continue  # a run killed in the middle of a line; `resume` writes it again
            raise PhalanxError(f"{path}, line {number} is not a row of metrics") from None
    return rows

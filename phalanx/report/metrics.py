"""The metrics file: plain lines of JSON, one for each seed and evaluation."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.files import open_inside
from phalanx.report.mirrors import Mirror

FILE = "metrics.jsonl"
MOST = 512_000_000  # bytes that are read at once


class MetricsWriter:
    """Appends rows to metrics.jsonl and passes them to other logging tools."""

    def __init__(self, folder: Path, mirrors: Sequence[Mirror] = ()):
        self.path, self.mirrors = folder / FILE, mirrors
        try:
            self.path.touch()
        except OSError as error:
            raise PhalanxError(f"cannot write {self.path}: {error.strerror}") from None

    def require(self, size: int) -> None:
        """Refuse a file that is shorter than the checkpoint says."""
        if self.size < size:
            raise PhalanxError(f"{self.path} is shorter than its checkpoint says: rows of it are missing")

    def rewind(self, size: int) -> None:
        """Truncate the file at this byte: later rows will be written again."""
        os.truncate(self.path, size)

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Append the rows of one evaluation, one per seed, in one write."""
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
    path, rows, wrong = folder / FILE, [], 0
    try:
        with open_inside(folder, FILE) as file:
            if os.fstat(file.fileno()).st_size > MOST:
                raise PhalanxError(f"{path} has more than {MOST / 1e6:,.0f} MB: it is not read")
            for number, line in enumerate(file, 1):
                if wrong:
                    raise PhalanxError(f"{path}, line {wrong} is not a row of metrics")
                row = parse(line)
                if row is not None:
                    rows.append(row)
                else:
                    wrong = number  # as the last line, of a run killed while it wrote: it is left out
    except OSError as error:
        raise PhalanxError(f"cannot read {path}: {error.strerror}") from None
    return rows


def parse(line: bytes) -> dict[str, Any] | None:
    """Parse a line of the file as a row with a seed and env steps; None if it is not one."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    sound = isinstance(row, dict) and all(_whole(row.get(name)) for name in ("seed", "env_steps"))
    return row if sound else None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63

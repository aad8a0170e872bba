"""The metrics file: plain lines of JSON, one for each seed and evaluation; TensorBoard beside it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError

FILE = "metrics.jsonl"


class MetricsWriter:
    """Appends rows to metrics.jsonl and mirrors them as TensorBoard events."""

    def __init__(self, folder: Path, tensorboard: bool):
        self.path = folder / FILE
        try:
            self.path.touch()
        except OSError as error:
            raise PhalanxError(f"cannot write {self.path}: {error.strerror}") from None
        self._events = {} if tensorboard else None
        self._folder = folder / "tb"

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
        if self._events is not None:
            for row in rows:
                self._mirror(row)

    def _mirror(self, row: Mapping[str, Any]) -> None:
        """TensorBoard is a convenience: whatever is wrong with it must not stop a run."""
        assert self._events is not None
        try:
            from tensorboardX import SummaryWriter

            seed, step = row["seed"], row["env_steps"]
            if seed not in self._events:
                self._events[seed] = SummaryWriter(str(self._folder / f"seed_{seed}"), purge_step=step)
            for name, value in row.items():
                if name not in ("seed", "env_steps") and isinstance(value, (int, float)):
                    self._events[seed].add_scalar(name, value, step)
            self._events[seed].flush()
        except Exception as error:
            print(f"warning: TensorBoard events are off from here on: {error}")
            self._events = None

    def close(self) -> None:
        for writer in (self._events or {}).values():
            writer.close()


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

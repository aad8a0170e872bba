"""The metrics of a run, read as they are written, in memory that does not grow with the file.

A point is what was logged at some env steps: for each metric the number of values, their sum, the least and
the most, over seeds. Of a long file neighbouring points are joined, so that there are never more than `MOST`.
"""

import bisect
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from phalanx.errors import PhalanxError
from phalanx.files import open_inside
from phalanx.report import metrics

NUMBERS, CLOCK = (float, int), ("seed", "env_steps")
LARGEST = 1e300  # of a value that is drawn
MOST = 600  # points of a curve
NAMES = 500  # metrics of a run
LETTERS = 200  # of the name of a metric
SEEDS = 200  # whose latest rows are kept
BLOCK = 1 << 20  # bytes that are read at once, and of one line
MARK = 64  # bytes before the place that was read to, by which a file that was written anew is noticed


class Curves:
    """The points of a run, in the order of env steps."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        """first and last env steps of each point; points do not overlap"""
        self.values: list[dict[str, list[float]]] = []
        """for each point and metric: count, sum, least, most"""
        self.changed: list[int] = []
        """the row after which each point last changed"""
        self.rows, self.generation = 0, 0
        """rows so far; how often points were joined: what was seen of them before is then of no use"""
        self.odd: dict[str, int] = {}
        """number of values of each metric that are not finite"""
        self.names: dict[str, None] = {}
        self.more_names = False
        self.latest: dict[int, dict[str, Any]] = {}
        """the last row of each seed"""

    def add(self, row: dict[str, Any]) -> None:
        """Add a row of metrics.jsonl."""
        self.rows += 1
        step = row["env_steps"]
        at = bisect.bisect_left(self.ends, step)
        if at == len(self.ends) or self.starts[at] > step:
            self.starts.insert(at, step)
            self.ends.insert(at, step)
            self.values.insert(at, {})
            self.changed.insert(at, 0)
        self.changed[at] = self.rows
        point = self.values[at]
        for name, value in row.items():
            if type(value) not in NUMBERS:
                continue
            entry = point.get(name)
            if entry is None:
                if name in CLOCK or not self._known(name):
                    continue
                entry = point[name] = _nothing()
            if not _count(entry, value):
                self.odd[name] = self.odd.get(name, 0) + 1
        if row["seed"] in self.latest or len(self.latest) < SEEDS:
            self.latest[row["seed"]] = row
        if len(self.ends) > MOST:
            self._join()

    def _known(self, name: str) -> bool:
        if name in self.names:
            return True
        if len(name) > LETTERS or len(self.names) == NAMES:
            self.more_names = True
            return False
        self.names[name] = None
        return True

    def _join(self) -> None:
        """Merge neighbouring points that together span less than a given share of all env steps."""
        width = (self.ends[-1] - self.starts[0]) / (MOST / 4)
        starts, ends, values = self.starts[:1], self.ends[:1], self.values[:1]
        for start, end, point in zip(self.starts[1:], self.ends[1:], self.values[1:], strict=True):
            if end - starts[-1] <= width:
                ends[-1] = end
                _merge(values[-1], point)
            else:
                starts.append(start)
                ends.append(end)
                values.append(point)
        self.starts, self.ends, self.values = starts, ends, values
        self.changed = [self.rows] * len(ends)
        self.generation += 1

    def points(self, name: str, since: int = 0) -> list[list[float | None]]:
        """Env steps, mean, minimum and maximum of the points that changed after a row.

        The mean is None where no value is finite.
        """
        found: list[list[float | None]] = []
        for at, end in enumerate(self.ends):
            if self.changed[at] > since and name in self.values[at]:
                found.append([end, *_summary(self.values[at][name])])
        return found

    def last(self, name: str) -> list[float | None] | None:
        """Mean, minimum and maximum over the last rows of all seeds."""
        entry, found = _nothing(), False
        for row in self.latest.values():
            if type(row.get(name)) in NUMBERS:
                _count(entry, row[name])
                found = True
        return _summary(entry) if found else None


def _nothing() -> list[float]:
    """Count, sum, minimum and maximum of no values."""
    return [0, 0.0, math.inf, -math.inf]


def _count(entry: list[float], value: float) -> bool:
    """Add a value; False if it is not finite."""
    if not -LARGEST < value < LARGEST:  # nor NaN
        return False
    entry[0] += 1
    entry[1] += value
    if value < entry[2]:
        entry[2] = value
    if value > entry[3]:
        entry[3] = value
    return True


def _merge(into: dict[str, list[float]], point: dict[str, list[float]]) -> None:
    for name, (count, total, least, most) in point.items():
        entry = into.setdefault(name, _nothing())
        entry[0] += count
        entry[1] += total
        entry[2] = min(entry[2], least)
        entry[3] = max(entry[3], most)


def _summary(entry: list[float]) -> list[float | None]:
    count, total, least, most = entry
    return [_short(total / count), _short(least), _short(most)] if count else [None, None, None]


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


class MetricsFile:
    """A metrics file that may still grow: each read continues where the last one ended."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.life = 0
        """how often the file was begun anew"""
        self._begin()

    def _begin(self) -> None:
        self.curves = Curves()
        self.place, self.size, self.lines = 0, 0, 0
        self.broken, self.first_broken = 0, 0
        self.trouble = ""
        self._mark, self._node = b"", 0
        self.life += 1

    @property
    def cursor(self) -> str:
        """The position where reading ended, which the client sends back."""
        return f"{self.life}.{self.curves.generation}.{self.curves.rows}"

    def since(self, cursor: str) -> int:
        """The row after which points are new for a client with this cursor; 0 if all are."""
        before, _, row = cursor.rpartition(".")
        known = before == f"{self.life}.{self.curves.generation}" and row.isascii() and row.isdecimal()
        return min(int(row[:18]), self.curves.rows) if known else 0

    @property
    def unread(self) -> float:
        """The share of the file that is still to be read."""
        return 1 - self.place / self.size if self.size else 0.0

    def notes(self) -> Iterable[str]:
        """Problems of the file, in sentences."""
        if self.trouble:
            yield self.trouble
        if self.broken:
            are = "line is" if self.broken == 1 else "lines are"
            yield f"{self.broken:,} {are} not rows of metrics, the first is line {self.first_broken:,}"
        if self.curves.more_names:
            yield f"only {NAMES} metrics are shown"
        for name, count in list(self.curves.odd.items())[:3]:
            yield f"{count:,} values of {name} are not finite"

    def refresh(self, until: float) -> None:
        """Read to the end, or until this time of the monotonic clock."""
        try:
            with open_inside(self.folder, metrics.FILE) as file:
                self._check(file)
                while self._read(file) and time.monotonic() < until:
                    pass
        except FileNotFoundError:
            if self.place:
                self._begin()
        except OSError as error:
            self.trouble = f"cannot read {metrics.FILE}: {error.strerror}"
        except PhalanxError as error:
            self.trouble = str(error)

    def _check(self, file: BinaryIO) -> None:
        """Start again if the file or its content is not the one that was read so far."""
        about = os.fstat(file.fileno())
        file.seek(max(self.place - MARK, 0))
        same = about.st_ino == self._node and about.st_size >= self.place
        if self.place and not (same and file.read(len(self._mark)) == self._mark):
            self._begin()
        self._node, self.size = about.st_ino, about.st_size

    def _read(self, file: BinaryIO) -> bool:
        """Read a block of whole lines; False at the end. A line without its end is left for later."""
        file.seek(self.place)
        block = file.read(BLOCK)
        end = block.rfind(b"\n") + 1
        if not end:
            if len(block) == BLOCK:
                self.trouble = (
                    f"line {self.lines + 1:,} of {metrics.FILE} is too long: what follows is not read"
                )
            return False
        for line in block[: end - 1].split(b"\n"):
            self.lines += 1
            row = metrics.parse(line)
            if row is None:
                self.broken += 1
                self.first_broken = self.first_broken or self.lines
            else:
                self.curves.add(row)
        self.place += end
        self._mark = (self._mark + block[:end])[-MARK:]
        return True

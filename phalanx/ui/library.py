"""The runs in some folders: finds them, reads what is readable, and returns plain data."""

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.files import inside, open_inside, read_inside
from phalanx.report import folder as run_folder
from phalanx.report import metrics
from phalanx.report.compare import Trained, differences
from phalanx.report.page import BEFORE_DATA, rebuilt
from phalanx.ui.curves import MetricsFile

SIGNS = (run_folder.FACTS, run_folder.CONFIG, metrics.FILE)  # by which a run folder is known
MOST_RUNS, MOST_FOLDERS, DEEPEST = 1000, 50_000, 12
RESCAN = 4.0  # seconds between two searches for runs
MOST_REPLAYS, REPLAY_BYTES = 50, 128_000_000
HEAD = 1 << 16  # bytes of a page in which its episodes begin
TABLES = ("run", "algorithm", "env")
SHOWN = ("eval/return", "eval/win_rate", "train/return")  # of which a summary has the last values


def plain(value: Any, depth: int = 6) -> Any:
    """A value from a file, reduced to JSON of a bounded size."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)[:60]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping) and depth:
        return {str(key)[:200]: plain(each, depth - 1) for key, each in list(value.items())[:200]}
    if isinstance(value, list | tuple) and depth:
        return [plain(each, depth - 1) for each in list(value)[:200]]
    return str(value)[:2000]


def _text(value: Any, most: int = 200) -> str:
    return value[:most] if isinstance(value, str) else ""


class Run:
    """A run folder, possibly a broken one."""

    def __init__(self, folder: Path, name: str, refused: str = ""):
        self.folder, self.name, self.refused = folder, name, refused
        self.id = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        self.metrics = MetricsFile(folder)
        self.facts: dict[str, Any] = {}
        self.config: dict[str, dict[str, Any]] = {}
        self.replays: list[str] = []
        self.written = 0.0
        """when its metrics or facts were last written"""
        self._troubles: dict[str, str] = {}
        self._stamps: dict[str, Any] = {}
        self._pages: dict[str, tuple[Any, bool]] = {}
        self.told: dict[str, Any] = {}
        self.version = 0
        """the version of the library in which what is told of it last changed"""

    def refresh(self, until: float) -> None:
        """Read what has changed."""
        if self.refused:
            return
        self._reread(run_folder.FACTS, self._read_facts)
        self._reread(run_folder.CONFIG, self._read_config)
        self.metrics.refresh(until)
        self.replays = list(self._find_replays())
        stamps = [self._stamp(name) for name in (run_folder.FACTS, metrics.FILE)]
        self.written = max((stamp[0] / 1e9 for stamp in stamps if stamp), default=0.0)

    def _stamp(self, name: str) -> tuple[int, int, int] | None:
        try:
            about = inside(self.folder, name).stat()
        except (OSError, PhalanxError):
            return None
        return about.st_mtime_ns, about.st_size, about.st_ino

    def _reread(self, name: str, read: Callable[[], None]) -> None:
        """Read a file again if it has changed, and record its errors."""
        stamp = self._stamp(name)
        if name in self._stamps and self._stamps[name] == stamp:
            return
        try:
            read()
            self._troubles.pop(name, None)
        except PhalanxError as error:
            self._troubles[name] = str(error)
        self._stamps[name] = stamp

    def _read_facts(self) -> None:
        self.facts = {}
        self.facts = run_folder.facts(self.folder)

    def _read_config(self) -> None:
        self.config = {}
        self.config = run_folder.config(self.folder)

    def _find_replays(self) -> Iterator[str]:
        """The pages of `phalanx watch` in the folder."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".html"))
        except OSError:
            return
        for name in names[:MOST_REPLAYS]:
            stamp = self._stamp(name)
            if name not in self._pages or self._pages[name][0] != stamp:
                self._pages[name] = (stamp, stamp is not None and self._is_replay(name))
            if self._pages[name][1]:
                yield name

    def _is_replay(self, name: str) -> bool:
        try:
            with open_inside(self.folder, name) as file:
                return BEFORE_DATA.encode() in file.read(HEAD)
        except (OSError, PhalanxError):
            return False

    def replay(self, name: str) -> str:
        """A page that plays the episodes of one of `replays`."""
        if name not in self.replays:
            raise PhalanxError("this run has no such replay")
        try:
            content = read_inside(self.folder, name, REPLAY_BYTES)
        except OSError as error:
            raise PhalanxError(f"cannot read {name}: {error.strerror}") from None
        return rebuilt(content.decode("utf-8", "replace"))

    def table(self, name: str) -> dict[str, Any]:
        """A table of the configuration; empty if there is none."""
        found = self.config.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def seeds(self) -> int:
        named = self.facts.get("seeds")
        return len(named) if isinstance(named, list) else len(self.metrics.curves.latest)

    def trouble(self) -> str:
        """The problems of the folder, in one line."""
        return self.refused or next(iter(self._troubles.values()), "")

    def summary(self) -> dict[str, Any]:
        """The data of this run for the list of runs."""
        run, curves = self.table("run"), self.metrics.curves
        budget = run.get("steps")
        steps = curves.ends[-1] if curves.ends else 0
        return {
            "id": self.id,
            "name": self.name,
            "path": str(self.folder),
            "algorithm": _text(run.get("algorithm")),
            "env": _text(run.get("env")),
            "status": _text(self.facts.get("status")),
            "error": self.trouble()[:500],
            "notes": list(self.metrics.notes()),
            "seeds": self.seeds,
            "steps": min(steps, 2**53),
            "budget": budget if isinstance(budget, int) and 0 < budget < 2**53 else None,
            "unread": round(self.metrics.unread, 3),
            "started": _text(self.facts.get("started"), 40),
            "seconds": (curves.last("seconds") or [None])[0],
            "written": round(self.written),
            "metrics": list(curves.names),
            "last": {name: curves.last(name) for name in SHOWN if name in curves.names},
            "final": self._final_means(),
            "replays": self.replays,
        }

    def _final(self) -> list[dict[str, Any]]:
        """The final evaluation of the last parameters, by seed."""
        found: Any = self.facts
        for name in ("final", "last", "seeds"):
            found = found.get(name) if isinstance(found, dict) else None
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []

    def _final_means(self) -> dict[str, float]:
        """Means over seeds."""
        means = {}
        for name in ("return", "win_rate"):
            values = [row[name] for row in self._final() if isinstance(row.get(name), int | float)]
            if values and all(-1e300 < each < 1e300 for each in values):
                means[name] = sum(values) / len(values)
        return means

    def detail(self) -> dict[str, Any]:
        """All data of one run for its page."""
        origins = self.facts.get("origins")
        names = ("command", "started", "device", "git", "versions", "resume", "stopped_early", "resumed")
        latest = sorted(self.metrics.curves.latest.items())
        return {
            **self.summary(),
            "facts": {name: plain(self.facts[name]) for name in names if name in self.facts},
            "config": {table: plain(self.table(table)) for table in TABLES},
            "origins": plain(origins) if isinstance(origins, dict) else {},
            "final_seeds": plain(self._final()),
            "latest": [plain(row) for _, row in latest],
        }


class Library:
    """All runs in some folders. Each change increases the version."""

    def __init__(self, roots: Sequence[Path]):
        self.roots = list(roots)
        self.runs: dict[str, Run] = {}
        self.notes: list[str] = []
        self.version = 0
        self._searched = -math.inf

    def refresh(self, seconds: float = 0.5) -> None:
        """Search for runs and read new data, with a time limit; the rest is read next time."""
        if time.monotonic() - self._searched > RESCAN:
            self._search()
            self._searched = time.monotonic()
        until = time.monotonic() + seconds
        # Those of which most is read come first, so that one huge file keeps no other waiting.
        for run in sorted(self.runs.values(), key=lambda run: (run.metrics.unread, run.metrics.size)):
            run.refresh(until)
            told = run.summary()
            if told != run.told:
                self.version += 1
                run.told, run.version = told, self.version

    def _search(self) -> None:
        found: dict[str, Run] = {}
        self.notes = []
        for root in self.roots:
            for run in self._under(root):
                if len(found) == MOST_RUNS:
                    self.notes.append(f"only {MOST_RUNS:,} runs are shown: name the folders you want to see")
                    break
                found[run.id] = self.runs.get(run.id, run)
        if found.keys() != self.runs.keys():
            self.version += 1
        self.runs = found

    def _under(self, root: Path) -> Iterator[Run]:
        """The runs in a folder, or the folder itself if it is a run. Links that lead out are not followed."""
        for count, (place, names, files) in enumerate(os.walk(root)):
            folder = Path(place)
            depth = len(folder.parts) - len(root.parts)
            if any(name in SIGNS for name in (*files, *names)):
                names.clear()
                yield Run(folder, self._name(root, folder))
            if count > MOST_FOLDERS or depth >= DEEPEST:
                names.clear()
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in names:
                if (folder / name).is_symlink() and _leads_out(root, folder / name):
                    line = "is a link out of its folder: name it on the command line to see it"
                    yield Run(folder / name, self._name(root, folder / name), line)

    def _name(self, root: Path, folder: Path) -> str:
        short = str(folder.relative_to(root)) if folder != root else folder.absolute().name
        return short if len(self.roots) == 1 or folder == root else f"{root.name}/{short}"

    def overview(self, since: int) -> dict[str, Any]:
        """All runs by name, and what changed of them since a version."""
        changed = [run.told for run in self.runs.values() if run.version > since]
        return {
            "version": self.version,
            "now": round(time.time()),
            "ids": list(self.runs),
            "changed": changed,
            "notes": self.notes,
            "roots": [str(root) for root in self.roots],
        }

    def curves(self, names: Sequence[str], cursors: Mapping[str, str]) -> dict[str, Any]:
        """The points of some metrics of some runs that are new for a client with these cursors."""
        told = {}
        for each, cursor in cursors.items():
            if each in self.runs:
                file = self.runs[each].metrics
                since = file.since(cursor)
                points = {name: file.curves.points(name, since) for name in names}
                told[each] = {"cursor": file.cursor, "whole": since == 0, "points": points}
        return told

    def differences(self, ids: Sequence[str], everything: bool = False) -> dict[str, Any]:
        """The options that differ between some runs, or all, with their values; None where there is none."""
        runs = [self.runs[each] for each in ids if each in self.runs]
        trained = [Trained(run.folder, {t: run.table(t) for t in TABLES}, run.facts, []) for run in runs]
        differ = dict.fromkeys(differences(trained))
        keys = differ
        if everything:
            keys = dict.fromkeys(f"{t}.{name}" for t in TABLES for run in runs for name in run.table(t))
        rows = []
        for key in list(keys)[:1000]:
            table, _, name = key.partition(".")
            values = [plain(run.table(table).get(name)) for run in runs]
            rows.append({"option": key[:300], "differs": key in differ, "values": values})
        return {"ids": [run.id for run in runs], "options": rows}


def _leads_out(root: Path, link: Path) -> bool:
    try:
        inside(root, str(link.relative_to(root)))
    except PhalanxError:
        return True
    return False

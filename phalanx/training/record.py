"""A run folder: `config.toml`, `run.json`, `metrics.jsonl`, `tb/`, `checkpoints/`, `plots/`."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx import device, hosts
from phalanx.config import to_toml
from phalanx.errors import PhalanxError
from phalanx.report import folder
from phalanx.training.interrupt import Interrupted
from phalanx.training.setup import Setup


def record_of(folder: Path) -> "Record":
    """The record of a run. Hosts other than the first have a temporary one, deleted with the process."""
    if hosts.first():
        return Record(folder)
    apart = tempfile.TemporaryDirectory(prefix="phalanx-host-")
    record = Record(Path(apart.name, folder.name), folder)
    record.apart = apart  # it is removed with the record
    for name in ("run.json", "config.toml", "metrics.jsonl"):
        if (folder / name).is_file():
            record.folder.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, record.folder / name)
    return record


class Record:
    """The folder of a run: `config.toml`, `run.json`, `metrics.jsonl`, `checkpoints/`."""

    apart: tempfile.TemporaryDirectory[str] | None = None

    def __init__(self, folder: Path, run: Path | None = None):
        """`run` is the folder that a user knows, if this record is another one."""
        self.folder, self.run = folder, run or folder

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def require_new(self) -> None:
        """Raise an error if the folder is not empty or cannot be created."""
        try:
            taken = self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir()))
        except OSError as error:
            raise PhalanxError(f"cannot write {self.folder}: {error.strerror}") from None
        if taken:
            raise PhalanxError(
                f"{self.folder} already exists: give another --out, or `phalanx resume {self.folder}`"
            )
        there = next(parent for parent in self.folder.absolute().parents if parent.exists())
        if not os.access(there, os.W_OK) or not there.is_dir():
            raise PhalanxError(f"cannot write {self.folder}: {there} is not a folder one can write to")

    def create(self, setup: Setup, memory: Mapping[str, int], command: str) -> None:
        """Make the folder and write down what will run in it."""
        self.require_new()
        facts = {
            "command": command,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": device.versions(),
            "device": device.describe(),
            "git": device.git_revision(),
            "origins": {table: dict(names) for table, names in setup.resolved.origins.items()},
            "tuning": dict(setup.resolved.tuning),
            "seeds": setup.seeds,
            "env_version": setup.env.spec.version,
            "resume": setup.loop.collector.promise,
            "memory_plan": dict(memory),
            "status": "running",
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PhalanxError(f"cannot write {self.folder}: {error.strerror}") from None
        self._replace("config.toml", to_toml(setup.resolved))
        self.write(facts)

    def resumed(self, setup: Setup, env_steps: int, begun_again: int) -> None:
        """Record a resume: versions, checkpoint, and how many episodes start again."""
        now = {
            "env_steps": env_steps,
            "steps": setup.config.steps,
            "episodes_begun_again": begun_again,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": device.versions(),
            "device": device.describe(),
        }
        self._replace("config.toml", to_toml(setup.resolved))
        origins = {table: dict(names) for table, names in setup.resolved.origins.items()}
        facts = {
            name: fact
            for name, fact in self.read().items()
            if name not in ("final", "seconds", "stopped_early")
        }
        resumed = [*facts.get("resumed", []), now]
        self.write({**facts, "status": "running", "origins": origins, "resumed": resumed})

    def write(self, facts: Mapping[str, Any]) -> None:
        """Replace run.json in one go."""
        self._replace("run.json", json.dumps(facts, indent=1) + "\n")

    def _replace(self, name: str, text: str) -> None:
        unfinished = self.folder / f".{name}"
        try:
            unfinished.write_text(text, encoding="utf-8")
            os.replace(unfinished, self.folder / name)
        except OSError as error:
            raise PhalanxError(f"cannot write {self.folder / name}: {error.strerror}") from None

    def read(self) -> dict[str, Any]:
        """What run.json says."""
        return folder.facts(self.folder)

    def note(self, **facts: Any) -> None:
        """Change some facts in run.json."""
        self.write({**self.read(), **facts})

    @contextlib.contextmanager
    def failures_noted(self) -> Generator[None]:
        """Write the reason to run.json if a run does not finish."""
        try:
            yield
        except Interrupted:
            self.note(status="interrupted")
            raise
        except BaseException as error:
            with contextlib.suppress(PhalanxError):
                self.note(status=f"failed: {str(error) or type(error).__name__}")
            raise

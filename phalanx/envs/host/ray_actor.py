"""A Ray actor, which steps some of the environments on any machine. It does not use JAX.

It has its own block for each part. It answers a command for a part once, for all rows of it.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import phalanx
from phalanx.envs.host.block import Block
from phalanx.envs.host.rows import Rows
from phalanx.envs.host.worker import BEGIN, maker, told_error


class Actor:
    """Environments of one actor."""

    def __init__(self, task: dict[str, Any]):
        """`task`: the recipe and spec of the environments, what each part showed last, and time limits."""
        self.timeouts: dict[bytes, float] = task["timeouts"]
        make, spec = maker(task["recipe"]), task["spec"]
        self.parts: list[tuple[range, Rows]] = []
        for shown in task["parts"]:
            rows = range(len(shown["first"]))
            block = Block(spec, len(rows))
            block.put(rows, shown)
            self.parts.append((rows, Rows(make, spec, block)))
        self._timeout: float | None = None
        """of what is being done"""
        threading.Thread(target=self._watch, daemon=True).start()

    def about(self) -> dict[str, Any]:
        """Which phalanx this is, and where."""
        return {"version": phalanx.__version__, "pid": os.getpid()}

    def answer(self, command: bytes, part: int, told: dict[str, Any]) -> tuple[Any, ...]:
        """Begin or step a part: what it shows then and faults of environments, or why it could not."""
        rows, stepper = self.parts[part]
        stepper.block.put(rows, told)
        self._timeout = self.timeouts[command]
        try:
            (stepper.begin if command == BEGIN else stepper.step)(rows)
        except (Exception, SystemExit):
            return None, told_error()
        finally:
            self._timeout = None
        faults, stepper.faults = stepper.faults, []
        return stepper.block.found(rows), faults

    def close(self) -> None:
        for _, stepper in self.parts:
            stepper.close()

    def _progress(self) -> int:
        return sum(int(stepper.block.progress.sum()) for _, stepper in self.parts)

    def _watch(self) -> None:
        """End this process if an environment hangs: only here can one tell it from many slow ones."""
        seen, since = -1, time.monotonic()
        while True:
            time.sleep(min(1.0, min(self.timeouts.values()) / 4))
            timeout, progress = self._timeout, self._progress()
            if timeout is None or progress != seen:
                seen, since = progress, time.monotonic()
            elif time.monotonic() - since > timeout:
                os._exit(1)

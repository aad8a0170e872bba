"""A worker: a program that creates environments and steps them on command. It needs numpy but no JAX.

It is started by path, with any Python from 3.8 on. Commands come in on one pipe, answers go out on another;
what the environments print goes to a third. A command is a byte, and so is its answer; data may follow.
Steps pass through shared memory: see `block.py`.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

DESCRIBE, OPEN, QUIT = b"d", b"o", b"q"
# Of a part, whose number follows:
BEGIN, STEP, GET_STATES, SET_STATES, GET_FILMS = b"b", b"s", b"g", b"t", b"f"
DONE, DATA, FAILED = b"k", b"a", b"e"
SPIN = 5e-5  # seconds to look for a byte before sleeping until it comes


def read(fd: int, size: int) -> bytes:
    """Read exactly `size` bytes. EOFError when the other side is gone."""
    parts = bytearray()
    while len(parts) < size:
        part = os.read(fd, size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def send_long(fd: int, kind: bytes, data: bytes) -> None:
    """Send a byte, and data behind it."""
    rest = memoryview(kind + len(data).to_bytes(8, "little") + data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_long(fd: int) -> bytes:
    """Read the data behind a byte."""
    return read(fd, int.from_bytes(read(fd, 8), "little"))


def wait_readable(fd: int, seconds: float | None = None) -> bool:
    """Wait for a byte: first awake, for a moment, because waking up takes longer than a short step."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    end = time.perf_counter() + SPIN
    while time.perf_counter() < end:
        if poll.poll(0):
            return True
    return bool(poll.poll(None if seconds is None else 1000 * seconds))


class Worker:
    """Answers commands until its pool is gone."""

    def __init__(self, commands: int, answers: int):
        self.commands, self.answers = commands, answers
        self.rows: Any = None
        self.parts: list[range] = []

    def serve(self) -> None:
        while True:
            wait_readable(self.commands)
            command = read(self.commands, 1)
            if command == QUIT:
                break
            self.handle(command)
        self.close()

    def handle(self, command: bytes) -> None:
        self.respond(self.answer, command)

    def respond(self, carry_out: Callable[[Any], bytes | None], what: Any) -> None:
        """Carry something out, and say what came of it."""
        try:
            answer = carry_out(what)
        except (Exception, SystemExit):
            send_long(self.answers, FAILED, json.dumps(told_error()).encode())
            return
        if answer is None:
            os.write(self.answers, DONE)
        else:
            send_long(self.answers, DATA, answer)

    def close(self) -> None:
        if self.rows is not None:
            self.rows.close()

    def answer(self, command: bytes) -> bytes | None:
        """Carry out a command."""
        if command == DESCRIBE:
            env = maker(pickle.loads(read_long(self.commands)))()
            spec = env.spec
            env.close()
            return pickle.dumps(spec, 4)
        if command == OPEN:
            self.open(pickle.loads(read_long(self.commands)))
            return None
        part, result = self.parts[read(self.commands, 1)[0]], None
        if command == BEGIN:
            self.rows.begin(part)
        elif command == STEP:
            self.rows.step(part)
        elif command == GET_STATES:
            result = self.rows.get_states(part)
        elif command == GET_FILMS:
            result = self.rows.get_films(part)
        else:
            result = self.rows.set_states(pickle.loads(read_long(self.commands)))
        faults, self.rows.faults = self.rows.faults, []
        return pickle.dumps((result, faults), 4) if result or faults else None

    def open(self, task: dict[str, Any]) -> None:
        """Map the shared memory, and learn which rows are ours."""
        from phalanx.envs.host.block import Block
        from phalanx.envs.host.packages import drawing
        from phalanx.envs.host.rows import Rows

        spec, count = task["spec"], task["count"]
        memory = mmap.mmap(task["memory"], Block.size(spec, count))
        self.parts = task["parts"]
        make, film = maker(task["recipe"]), task["film"]
        if film:
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame then needs no screen
        self.rows = Rows(drawing(make) if film else make, spec, Block(spec, count, memory), film)


def maker(recipe: dict[str, Any]) -> Callable[[], Any]:
    """What makes an environment, from its class, `module:Class`, and its fields."""
    import importlib

    module, _, name = recipe["target"].partition(":")
    cls = getattr(importlib.import_module(module), name)
    return lambda: cls(**recipe["fields"])


def told_error() -> dict[str, Any]:
    """An exception, for the pool: what to tell a user, and how it came about."""
    error = sys.exc_info()[1]
    told = getattr(error, "told", None)  # by a worker of our own
    if told is not None:
        return told
    kind = type(error).__name__
    ours = kind == "PhalanxError"
    return {
        "error": str(error) if ours else f"{kind}: {error}",
        "traceback": traceback.format_exc(),
        "mistake": ours,
    }


def _prepare_imports(package: str) -> None:
    """Let `phalanx.envs.host` be imported, of this very version, where phalanx is not installed."""
    import importlib.util

    try:
        found = importlib.util.find_spec("phalanx")
    except (ImportError, ValueError):
        found = None
    if found is not None and found.origin and os.path.samefile(os.path.dirname(found.origin), package):
        return
    for name, path in (("phalanx", package), ("phalanx.envs", os.path.join(package, "envs"))):
        module = types.ModuleType(name)
        module.__path__ = [path]
        sys.modules[name] = module


def _leave_with_parent(life: int) -> None:
    """End this process when the pool's end of `life` is closed, whatever the environments are doing.

    And all that it has started: the pool made it the leader of a process group.
    """
    os.read(life, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main(kind: type[Worker] = Worker) -> None:
    """Serve the pool that started this process."""
    package, commands, answers, life = sys.argv[1], *map(int, sys.argv[2:5])
    _prepare_imports(package)
    threading.Thread(target=_leave_with_parent, args=(life,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError):  # the pool is gone
        kind(commands, answers).serve()


if __name__ == "__main__":
    main()

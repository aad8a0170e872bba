"""A pool of worker processes on this machine, with shared memory; a crashed worker is replaced."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pickle
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from phalanx.envs.host import worker
from phalanx.envs.host.base import HostObservation
from phalanx.envs.host.block import Block
from phalanx.envs.host.crew import Crew, Failed, Lost
from phalanx.envs.host.packages import own_paths
from phalanx.envs.host.pool import HostFailure, Pool, PoolStep, note_fault
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.spec import EnvSpec

START_TIMEOUT = 300.0  # seconds to start Python and make the first environments
LINES_KEPT = 200  # of what a worker prints
RUN = "import runpy, sys; path = sys.argv.pop(1); runpy.run_path(path, run_name='__main__')"


class Process:
    """A worker process, seen from the pool."""

    def __init__(
        self,
        python: str,
        memory: int | None = None,
        program: str = worker.__file__,
        env: dict[str, str] | None = None,
    ):
        """`memory` is a descriptor that the worker gets; `env` is added to its environment variables."""
        package = str(Path(__file__).parents[2])
        # The worker can import what this process can of the user's own; it finds phalanx by `package`.
        paths = [path for path in own_paths() if path != str(Path(package).parent)]
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        env = {"PYTHONPATH": os.pathsep.join(paths), **(env or {})}
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        life, self._life = os.pipe()
        theirs = [commands, answers, life]
        kept = [*theirs, memory] if memory is not None else theirs
        single = {name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        try:
            self.process = subprocess.Popen(
                [python, "-c", RUN, program, package, *map(str, theirs)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=kept,
                env={**os.environ, **single, **env},
                start_new_session=True,  # Ctrl-C is for the pool, which ends its workers
            )
        except OSError as error:
            for fd in (self._commands, self._answers, self._life):
                os.close(fd)
            raise PhalanxError(f"cannot start a worker with {python}: {error.strerror}") from None
        finally:
            for fd in theirs:
                os.close(fd)
        self._ended = False
        self.printed: deque[str] = deque(maxlen=LINES_KEPT)
        self._printer = threading.Thread(target=self._drain, daemon=True)
        self._printer.start()

    def _drain(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append(line[:1000].decode(errors="replace"))

    def send(self, command: bytes, data: bytes | None = None) -> None:
        """Send a command; a dead worker is noticed when its answer is awaited."""
        if self._ended:
            return
        try:
            if data is None:
                os.write(self._commands, command)
            else:
                worker.send_long(self._commands, command, data)
        except BrokenPipeError:
            pass

    def answer(self, timeout: float, progress: np.ndarray | None = None) -> bytes | None:
        """Wait for the answer to a command.

        `timeout` is in seconds since the last progress: a worker that steps many slow environments is not
        late as long as `progress` changes.
        """
        progress = np.zeros(0) if progress is None else progress
        seen, end = progress.sum(), time.monotonic() + timeout
        while not worker.wait_readable(self._answers, max(0.0, min(1.0, end - time.monotonic()))):
            if progress.sum() != seen:
                seen, end = progress.sum(), time.monotonic() + timeout
            elif time.monotonic() > end:
                raise Lost(f"it did not finish a step within {timeout:g} s")
        try:
            kind = worker.read(self._answers, 1)
            data = None if kind == worker.DONE else worker.read_long(self._answers)
        except EOFError:
            raise Lost(self._last_words()) from None
        if kind == worker.FAILED:
            assert data is not None
            raise Failed(json.loads(data))
        return data

    def _last_words(self) -> str:
        """How a dead worker ended."""
        code = self.process.wait()
        self._printer.join(1.0)
        ended = (
            f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it exited with code {code}"
        )
        printed = "".join(self.printed).strip()
        return f"{printed}\n{ended}" if printed else ended

    def end(self) -> None:
        """End the process, now. Descriptors are closed once: their numbers are used again by others."""
        if self._ended:
            return
        self._ended = True
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for fd in (self._commands, self._answers, self._life):
            os.close(fd)
        self._printer.join(1.0)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def leave(self, seconds: float = 2.0) -> None:
        """Let the process close its environments and end; if it does not in time, end it."""
        self.send(worker.QUIT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.end()


def describe(recipe: dict[str, Any], python: str) -> EnvSpec:
    """Ask a worker for the spec of an environment."""
    process = Process(python)
    try:
        process.send(worker.DESCRIBE, pickle.dumps(recipe, 4))
        answer = process.answer(START_TIMEOUT)
        assert answer is not None
        return pickle.loads(answer)
    except Failed as failed:
        if failed.mistake:
            raise PhalanxError(str(failed)) from None
        raise PhalanxError(f"{recipe['name']} cannot be made: {failed}") from None
    except Lost as lost:
        last = str(lost).splitlines()
        raise PhalanxError(f"no worker could be started with {python}: {' '.join(last[-2:])}") from None
    finally:
        process.leave()


class WorkerPool(Crew, Pool):
    """N environments in worker processes, K in each."""

    seconds_to_leave = 2.0  # for workers at the end

    def __init__(
        self,
        recipe: dict[str, Any],
        spec: EnvSpec,
        count: int,
        workers: int,
        python: str,
        timeout: float,
        film: int = 0,
    ):
        # It has no name, so that nothing is left of it, however this process ends.
        self._file = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: SIM115
        size = Block.size(spec, count)
        self._file.truncate(size)
        Pool.__init__(self, spec, count, Block(spec, count, mmap.mmap(self._file.fileno(), size)))
        workers = min(workers, count)
        self.parts = self._parts(count, workers)
        Crew.__init__(self, self.parts, workers)
        self.recipe, self.python, self.timeout = recipe, python, timeout
        self.film = film
        self.processes: list[Process] = []
        weakref.finalize(self, _end_all, self.processes)
        for _ in range(workers):
            self.processes.append(self._process())
        for w in range(workers):
            self._open(w)

    def _parts(self, count: int, workers: int) -> tuple[range, ...]:
        return parts_for(count, workers)

    def _process(self) -> Process:
        return Process(self.python, self._file.fileno())

    def _task(self, w: int) -> dict[str, Any]:
        """What a worker has to know."""
        return {
            "recipe": self.recipe,
            "spec": self.spec,
            "count": self.count,
            "memory": self._file.fileno(),
            "parts": self.shares[w],
            "film": self.film,
        }

    def _open(self, w: int) -> None:
        """Tell a new worker what to do."""
        self.processes[w].send(worker.OPEN, pickle.dumps(self._task(w), 4))
        self.processes[w].answer(START_TIMEOUT)

    def begin(self, seeds: np.ndarray) -> HostObservation:
        self.block.next_seed[:] = seeds
        for part in range(len(self.parts)):
            self._tell(worker.BEGIN, part)
            self._await_begun(part)
        return self._began()

    def send(self, part: int, actions: np.ndarray, next_seeds: np.ndarray, active: Any = True) -> None:
        self._write(part, actions, next_seeds, active)
        self._tell(worker.STEP, part)

    def receive(self, part: int) -> PoolStep:
        self._await(part, self.timeout)
        return self._read(part)

    def get_states(self) -> list[bytes | None]:
        found = []
        for part in range(len(self.parts)):
            self._tell(worker.GET_STATES, part)
            found += self._await(part, self._long)
        return self._given(found)

    def resume(self, seeds: np.ndarray, states: Sequence[bytes | None]) -> tuple[HostObservation, np.ndarray]:
        self.begin(seeds)
        found = []
        for part in range(len(self.parts)):
            for w, process in enumerate(self.processes):
                given = {row: states[row] for row in self.shares[w][part] if states[row] is not None}
                if self.shares[w][part]:
                    process.send(worker.SET_STATES + bytes([part]), pickle.dumps(given, 4))
                    # A worker that dies of a state is replaced by one that does without.
                    self.waiting[w][part] = worker.BEGIN
            found += self._await_begun(part)
        return self._taken(found)

    def films(self) -> list[tuple[np.ndarray, np.ndarray]]:
        found = []
        for part in range(len(self.parts)):
            self._tell(worker.GET_FILMS, part)
            found += self._await(part, self.timeout)
        return self._filmed(found)

    @property
    def _long(self) -> float:
        """Seconds for what takes longer than a step."""
        return max(self.timeout, START_TIMEOUT)

    def _await_begun(self, part: int) -> list[Any]:
        try:
            return self._await(part, self._long)
        except Failed as failed:
            line = str(failed) if failed.mistake else f"{self.spec.name} cannot begin: {failed}"
            raise PhalanxError(line) from None

    def _start(self, w: int) -> None:
        try:
            self.processes[w] = self._process()
            self._open(w)
        except (Lost, Failed, PhalanxError) as error:
            raise HostFailure(f"a worker of {self.spec.name} could not be started again: {error}") from None

    def _end(self, w: int) -> None:
        self.processes[w].end()

    def _send(self, w: int, command: bytes, part: int) -> None:
        self.processes[w].send(command + bytes([part]))

    def _answer(self, w: int, part: int, timeout: float) -> tuple[Any, list[str]]:
        rows = self.shares[w][part]
        answer = self.processes[w].answer(timeout, self.block.progress[rows.start : rows.stop])
        return pickle.loads(answer) if answer else (None, [])

    def _note(self, text: str) -> None:
        note_fault(self.faults, text, self.spec.name)

    def close(self) -> None:
        for process in self.processes:
            process.send(worker.QUIT)
        for process in self.processes:
            process.leave(self.seconds_to_leave)
        self.processes.clear()
        self._file.close()


def parts_for(count: int, workers: int) -> tuple[range, ...]:
    """Two parts, so that one steps while actions are computed for the other; one if workers would be idle."""
    middle = count // 2
    return (range(middle), range(middle, count)) if count >= 2 * workers > 0 else (range(count),)


def _end_all(processes: list[Process]) -> None:
    for process in processes:
        process.end()


def default_workers() -> int:
    """As many as there are cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The program that drives Ray actors for a pool: to the pool it is one worker process, to Ray a driver.

It is a separate process because Ray ends its driver if the cluster is lost, installs signal handlers and
prints to the terminal. The training process survives this and saves a checkpoint.
"""

from __future__ import annotations

import mmap
import os
import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from phalanx import __version__
from phalanx.envs.host import worker
from phalanx.envs.host.block import Block
from phalanx.envs.host.crew import Crew, Failed, Lost
from phalanx.envs.host.packages import own_paths
from phalanx.errors import PhalanxError

START_RAY, JOIN = b"r", b"j"
CPUS = 0.5  # of an actor: one that trains and one that evaluates share a core, because they take turns
OBJECT_STORE = 2**29  # bytes, of a Ray started here: a step of all environments passes through it
TRIES = 3  # to start an actor
GRACE = 10.0  # seconds more than an actor has to end itself when it hangs


class Seat:
    """The class of the actors. It is sent by value, so that a machine without phalanx can say so."""

    def __init__(self, paths: list[str], task: bytes):
        sys.path.extend(path for path in paths if path not in sys.path and os.path.isdir(path))
        from phalanx.envs.host.ray_actor import Actor

        self.actor = Actor(pickle.loads(task))

    def about(self) -> Any:
        return self.actor.about()

    def answer(self, *args: Any) -> Any:
        return self.actor.answer(*args)

    def close(self) -> None:
        self.actor.close()


class Actors(Crew):
    """The actors of a pool. Commands may be given by one thread while another waits for answers."""

    def __init__(self, task: dict[str, Any]):
        import ray  # pyright: ignore[reportMissingImports]

        self.ray, self.task = ray, task
        super().__init__(task["parts"], task["actors"])
        self.block = Block(task["spec"], task["count"], mmap.mmap(task["memory"], 0))
        environment: Any = {"py_executable": task["python"]} if task["python"] else None
        self.make = ray.remote(
            num_cpus=CPUS, max_restarts=0, scheduling_strategy="SPREAD", runtime_env=environment
        )(Seat)
        self.lock = threading.Lock()
        self.faults: list[str] = []
        self.calls: list[dict[int, Any]] = [{} for _ in self.shares]
        self.handles: list[Any] = [self._made(w) for w in range(len(self.shares))]
        for w in range(len(self.shares)):
            self._ready(w)

    def tell(self, command: bytes, part: int) -> None:
        with self.lock:
            self._tell(command, part)

    def wait(self, part: int) -> list[str]:
        """Wait for all actors, and write what they found into the block. Returns faults."""
        self._await(part, 0.0)
        faults, self.faults = self.faults, []
        return faults

    def close(self) -> None:
        """Let environments close, and end the actors."""
        closing = [handle.close.remote() for handle in self.handles]
        self.ray.wait(closing, num_returns=len(closing), timeout=1.0)
        for w in range(len(self.handles)):
            self._end(w)

    def _made(self, w: int) -> Any:
        task = {
            "recipe": self.task["recipe"],
            "spec": self.task["spec"],
            "parts": [self.block.found(rows) for rows in self.shares[w]],
            "timeouts": self.task["timeouts"],
        }
        return self.make.remote(own_paths(), pickle.dumps(task, 4))

    def _ready(self, w: int) -> None:
        """Wait until an actor has started; where its machine is lost meanwhile, on another."""
        for attempt in range(TRIES):
            try:
                about = self._got(self.handles[w].about.remote(), self.task["start_timeout"], self._no_room)
                break
            except Lost:
                if attempt == TRIES - 1:
                    raise
                self.handles[w] = self._made(w)
        if about["version"] != __version__:
            raise PhalanxError(
                f"Ray's machines have phalanx {about['version']}, and this is {__version__}: install the same"
            )

    def _no_room(self) -> PhalanxError:
        resources = (self.ray.available_resources(), self.ray.cluster_resources())
        free, total = (each.get("CPU", 0.0) for each in resources)
        python = self.task["python"]
        return PhalanxError(
            f"Ray did not start {len(self.shares)} workers, each with {CPUS:g} CPU, within "
            f"{self.task['start_timeout']:g} s: {free:g} of its {total:g} CPUs are free"
            + (f", and {python} must have the same Ray and phalanx on every machine" if python else "")
        )

    def _got(self, call: Any, seconds: float, late: Callable[[], Exception]) -> Any:
        """The result of a call. Lost if its actor is; what `late` says if there is none in time."""
        end = time.monotonic() + seconds
        while not self.ray.wait([call], timeout=1.0)[0]:
            self.block.progress += 1  # tells the pool that this program is alive
            if time.monotonic() > end:
                raise late()
        try:
            return self.ray.get(call)
        except self.ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            raise Lost(lines[-1].strip() if lines else type(error).__name__) from None

    def _replace(self, w: int, reason: str) -> None:
        with self.lock:
            super()._replace(w, reason)

    def _start(self, w: int) -> None:
        self.handles[w] = self._made(w)
        self._ready(w)

    def _end(self, w: int) -> None:
        self.ray.kill(self.handles[w])

    def _send(self, w: int, command: bytes, part: int) -> None:
        told = self.block.told(self.shares[w][part])
        self.calls[w][part] = self.handles[w].answer.remote(command, part, told)

    def _answer(self, w: int, part: int, timeout: float) -> tuple[None, list[str]]:
        rows, begun = self.shares[w][part], time.monotonic()
        limit = self.task["timeouts"][self.waiting[w][part]]
        hung = f"it did not finish a step within {limit:g} s"
        try:
            found, faults = self._got(self.calls[w][part], limit * len(rows) + GRACE, lambda: Lost(hung))
        except Lost as lost:
            # An actor that hangs ends itself, which Ray reports as any other end.
            raise Lost(f"{lost}\n{hung}" if time.monotonic() - begun > limit else str(lost)) from None
        if found is None:
            raise Failed(faults)
        self.block.put(rows, found)
        return None, faults

    def _note(self, text: str) -> None:
        self.faults.append(text)


class Driver(worker.Worker):
    """Answers the commands of a pool, and of what starts a Ray on this machine."""

    actors: Actors | None = None

    def __init__(self, commands: int, answers: int):
        super().__init__(commands, answers)
        self.told: queue.Queue[int] = queue.Queue()
        threading.Thread(target=self._answer_in_turn, daemon=True).start()

    def handle(self, command: bytes) -> None:
        if command in (worker.BEGIN, worker.STEP):  # answered when its turn comes
            part = worker.read(self.commands, 1)[0]
            assert self.actors is not None
            self.actors.tell(command, part)
            self.told.put(part)
        else:
            super().handle(command)

    def answer(self, command: bytes) -> bytes | None:
        given = pickle.loads(worker.read_long(self.commands))
        if command == worker.OPEN:
            self.actors = Actors(given)
            return None
        import ray  # pyright: ignore[reportMissingImports]

        quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if command == JOIN:
            ray.init(given, **quiet)
            return None
        assert command == START_RAY
        ray.init("local", num_cpus=given, include_dashboard=False, object_store_memory=OBJECT_STORE, **quiet)
        return ray.get_runtime_context().gcs_address.encode()

    def close(self) -> None:
        if self.actors is not None:
            self.actors.close()
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()

    def _answer_in_turn(self) -> None:
        """Answer steps in the order in which they were told, while the next is told to the actors."""
        while True:
            self.respond(self._step, self.told.get())

    def _step(self, part: int) -> bytes | None:
        assert self.actors is not None
        faults = self.actors.wait(part)
        return pickle.dumps((None, faults), 4) if faults else None


if __name__ == "__main__":
    worker.main(Driver)

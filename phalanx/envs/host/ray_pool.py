"""A pool whose environments are stepped by Ray actors, on one machine or many.

The training process does not talk to Ray itself: `ray_driver.py` does, in a process of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import secrets
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.envs.host import processes, ray_driver, worker
from phalanx.envs.host.crew import Failed, Lost
from phalanx.envs.host.packages import own_paths
from phalanx.envs.host.pool import Pool
from phalanx.envs.host.processes import Process, WorkerPool, parts_for
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.spec import EnvSpec

RAY_START_TIMEOUT = 180.0  # seconds to start Ray on this machine
JOIN_TIMEOUT = 60.0  # seconds to connect to a cluster
ACTORS_TIMEOUT = 120.0  # seconds until a cluster has started an actor
SILENCE = 60.0  # seconds without a sign of life after which the driver is replaced
LEAVE = 10.0  # seconds to end actors, or a Ray that was started here


def require_ray() -> None:
    """Say what to install if Ray is missing, without importing it."""
    if importlib.util.find_spec("ray") is None:
        raise PhalanxError("ray needs the package ray: pip install 'phalanx[ray]'")


class LocalRay:
    """A Ray on this machine, which ends with this object."""

    def __init__(self, cpus: int):
        # Ray asks whoever joins it for a token; ours is known to this process and its children only.
        self.env = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # training waits for them
        }
        self.process = _driver(env=self.env)
        weakref.finalize(self, _end_ray, self.process)
        self.process.send(ray_driver.START_RAY, pickle.dumps(cpus))
        try:
            address = self.process.answer(RAY_START_TIMEOUT)
        except (Lost, Failed) as error:
            raise PhalanxError(f"Ray could not be started here: {_last_line(error)}") from None
        assert address is not None
        self.address = address.decode()

    @property
    def alive(self) -> bool:
        return self.process.process.poll() is None


_running: weakref.WeakValueDictionary[int, LocalRay] = weakref.WeakValueDictionary()


def _local_ray(cpus: int) -> LocalRay:
    """The one that another pool has started, or a new one."""
    found = _running.get(cpus)
    if found is None or not found.alive:
        found = _running[cpus] = LocalRay(cpus)
    return found


class RayPool(WorkerPool):
    """N environments in `actors` Ray actors. Its one worker process is the driver of the actors."""

    seconds_to_leave = LEAVE
    # Actors keep the states of environments to themselves: a resumed run begins new episodes.
    get_states, resume = Pool.get_states, Pool.resume

    def __init__(
        self,
        recipe: dict[str, Any],
        spec: EnvSpec,
        count: int,
        actors: int,
        python: str,
        timeout: float,
        address: str,
    ):
        self.actors, self.actor_python, self.step_timeout = min(actors, count), python, timeout
        self._local = None
        if address == "local":
            # Each actor asks for half a CPU, and there is a pool for training and one for evaluation.
            self._local = _local_ray(max(actors, processes.default_workers()))
            address = self._local.address
        self.address = address
        super().__init__(recipe, spec, count, 1, sys.executable, SILENCE)

    def _parts(self, count: int, workers: int) -> tuple[range, ...]:
        return parts_for(count, self.actors)

    def _process(self) -> Process:
        return _driver(self._file.fileno(), self._local.env if self._local is not None else {})

    def _task(self, w: int) -> dict[str, Any]:
        begin = max(self.step_timeout, processes.START_TIMEOUT)
        return {
            **super()._task(w),
            "actors": self.actors,
            "python": self.actor_python,
            "timeouts": {worker.STEP: self.step_timeout, worker.BEGIN: begin},
            "start_timeout": ACTORS_TIMEOUT,
        }

    def _open(self, w: int) -> None:
        process = self.processes[w]
        process.send(ray_driver.JOIN, pickle.dumps(self.address))
        try:
            process.answer(JOIN_TIMEOUT)
        except (Lost, Failed) as error:
            raise PhalanxError(f"no Ray cluster answers at {self.address}: {_last_line(error)}") from None
        try:
            super()._open(w)
        except (Lost, Failed) as error:
            raise PhalanxError(f"Ray's workers cannot be started: {_last_line(error)}") from None

    def close(self) -> None:
        super().close()
        self._local = None


def _end_ray(process: Process) -> None:
    """Shut a Ray down. All its processes are in the group of the one that started it."""
    process.send(worker.QUIT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.process.wait(LEAVE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.process.pid, signal.SIGKILL)
    process.end()


def _driver(memory: int | None = None, env: dict[str, str] | None = None) -> Process:
    """The process that talks to Ray, in which this very phalanx can be imported."""
    package = str(Path(__file__).parents[3])
    own = package.startswith(sys.prefix + os.sep)  # then it is found, and other Pythons should not look there
    paths = [*([] if own else [package]), *own_paths(), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**(env or {}), "PYTHONPATH": os.pathsep.join(paths)}
    return Process(sys.executable, memory, ray_driver.__file__, env)


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else "no reason was given"

"""Environments with their running episodes, stepped one after the other; every worker uses this.

It counts the time limit, sums returns and starts a new episode when one ends, so that environments need not.
An environment that raises an error or violates its spec is created again; its episode is marked `broken`.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from phalanx.envs.host.block import OBSERVATION, Block
from phalanx.envs.host.film import Film

if TYPE_CHECKING:
    from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
    from phalanx.spec import EnvSpec

TRIES = 3  # to begin an episode with an environment made anew
MOST_STATES = 64 * 2**20  # bytes of the states of a pool
TOO_LARGE = f"they take more than {MOST_STATES // 2**20} MB"


class Breach(Exception):
    """An environment violated its spec."""


class Rows:
    """Some rows of a block, each with an environment of its own."""

    def __init__(self, make: Callable[[], HostEnv], spec: EnvSpec, block: Block, film: int = 0):
        """`film` is how many pictures to take of the first episode of each row; 0: none."""
        self.make, self.spec, self.block = make, spec, block
        self.film, self.films, self.unfilmed = film, {}, ""
        self.envs: dict[int, HostEnv] = {}
        self.running: set[int] = set()
        self._agents = block.reward.shape[1:]
        self._seen = [(name, getattr(block, name), getattr(block, name).shape[1:]) for name in OBSERVATION]
        self._picture = None if spec.obs_shape is None else block.obs.dtype
        self.faults: list[str] = []
        """what went wrong since somebody last looked: a traceback each"""

    def begin(self, rows: range) -> None:
        """Begin an episode in these rows, each from its `next_seed`."""
        for row in rows:
            self._begin(row)
            self.block.first[row] = True
            self.block.progress[row] += 1

    def step(self, rows: range) -> None:
        """Play one step in those of the rows that are active, and begin a new episode where one ends."""
        for row in rows:
            if self.block.active[row]:
                self._step(row)
                self.block.progress[row] += 1
        for row, breach in self._breaches(rows):
            self.faults.append(breach)
            self._break(row)

    def get_states(self, rows: range) -> tuple[dict[int, bytes], str]:
        """The states of the running episodes that can be given, pickled, and what went wrong with others.

        A state has everything that a row needs to continue: the environment's own state and the block's
        `returns`, `length` and `first`. It is not a fault if an environment cannot give its state.
        """
        block, states, wrong, size = self.block, {}, "", 0
        for row in sorted(self.running.intersection(rows)):
            try:
                own = self.envs[row].get_state()
                if own is not None:
                    kept = (own, block.returns[row].tolist(), int(block.length[row]), bool(block.first[row]))
                    states[row] = pickle.dumps(kept, 4)
                    size += len(states[row])
            except (Exception, SystemExit) as error:
                wrong = f"{type(error).__name__}: {error}"
            if size > MOST_STATES:
                return {}, TOO_LARGE
            block.progress[row] += 1
        return states, wrong

    def set_states(self, states: dict[int, bytes]) -> tuple[list[int], str]:
        """Continue from states, in rows with an episode; the rows that do, and what went wrong with others.

        The others begin an episode from their `next_seed`, with a new environment.
        """
        block, taken, wrong = self.block, [], ""
        for row, state in states.items():
            try:
                own, returns, length, first = pickle.loads(state)
                self._see(row, self.envs[row].set_state(own))
                block.returns[row], block.length[row], block.first[row] = returns, length, first
                taken.append(row)
            except (Exception, SystemExit) as error:
                wrong = f"{type(error).__name__}: {error}"
                self._discard(row)
                self.begin(range(row, row + 1))
            block.progress[row] += 1
        return taken, wrong

    def close(self) -> None:
        for row in list(self.envs):
            self._discard(row)

    def _step(self, row: int) -> None:
        block = self.block
        if block.first[row]:
            block.returns[row], block.length[row] = 0, 0
        if row not in self.running:  # its episode was lost with an earlier worker
            self._break(row)
            return
        try:
            over = self._write(row, self.envs[row].step(block.action[row]))
        except (Exception, SystemExit):
            self._note()
            self._break(row)
            return
        self._film(row, int(block.length[row]), over)
        if over:
            for name in OBSERVATION:
                getattr(block, f"last_{name}")[row] = getattr(block, name)[row]
            self._begin(row)

    def _write(self, row: int, step: HostStep) -> bool:
        """Write down a step; whether it is the last of its episode."""
        block, spec = self.block, self.spec
        self._see(row, step.observation)
        reward = np.asarray(step.reward, np.float32)
        if reward.shape != self._agents:
            raise Breach(f"reward has the shape {reward.shape}, and the spec says {self._agents}")
        block.reward[row] = reward
        block.returns[row] += reward
        block.length[row] += 1
        if spec.agents_end:
            block.agent_terminated[row] = step.agent_terminated
        terminated = bool(step.terminated)
        over = terminated or bool(step.truncated) or int(block.length[row]) >= spec.time_limit
        block.terminated[row], block.truncated[row] = terminated, over and not terminated
        block.won[row], block.broken[row], block.first[row] = bool(step.won), False, over
        return over

    def _see(self, row: int, seen: HostObservation) -> None:
        for (name, field, shape), value in zip(self._seen, seen):
            if np.shape(value) != shape:
                raise Breach(f"{name} has the shape {np.shape(value)}, and the spec says {shape}")
            field[row] = value
        if self._picture is not None and seen.obs.dtype != self._picture:
            raise Breach(f"obs is {seen.obs.dtype}, and the spec says {self._picture}")

    def _breaches(self, rows: range) -> list[tuple[int, str]]:
        """Rows whose numbers or masks cannot be learnt from, each with what is wrong."""
        block, part = self.block, slice(rows.start, rows.stop)
        numbers = block.reward[part], block.obs[part], block.state[part]
        living, avail = block.alive[part], block.avail[part]
        if all(np.isfinite(each).all() for each in numbers) and (avail.any(2) | ~living).all():
            return []
        active = block.active[part] & ~block.broken[part]
        wrong = {
            "reward is not finite": ~np.isfinite(block.reward[part]).all(1),
            "obs is not finite": ~np.isfinite(block.obs[part]).reshape(len(rows), -1).all(1),
            "state is not finite": ~np.isfinite(block.state[part]).reshape(len(rows), -1).all(1),
            "a living agent has no available action": (living & ~avail.any(2)).any(1),
        }
        return [
            (rows.start + int(row), f"{what}, in {self.spec.name}")
            for what, found in wrong.items()
            for row in np.flatnonzero(found & active)
        ]

    def _break(self, row: int) -> None:
        """End an episode that cannot continue, and begin another with a new environment."""
        block = self.block
        if self.film:
            self.films.setdefault(row, Film(self.film)).over = True
        self._discard(row)
        block.reward[row], block.agent_terminated[row] = 0, False
        block.terminated[row], block.truncated[row], block.won[row] = False, True, False
        block.broken[row], block.first[row] = True, True
        self._begin(row)

    def _begin(self, row: int) -> None:
        seed = int(self.block.next_seed[row])
        for attempt in range(TRIES):
            try:
                if row not in self.envs:
                    self.envs[row] = self.make()
                self._see(row, self.envs[row].reset((seed + attempt) % 2**64).observation)
                break
            except (Exception, SystemExit):
                self._discard(row)
                if attempt == TRIES - 1:
                    raise
                self._note()
        self.running.add(row)
        self._film(row, 0)

    def _film(self, row: int, step: int, last: bool = False) -> None:
        """Take a picture, if the first episode of a row is filmed and not yet over."""
        film = self.films.setdefault(row, Film(self.film)) if self.film and not self.unfilmed else None
        if film is None or film.over:
            return
        try:
            film.take(step, self.envs[row], last)
        except (Exception, SystemExit) as error:  # its packages may raise anything
            known = type(error) is ValueError
            self.unfilmed = str(error) if known else f"{type(error).__name__}: {error}"
        film.over = last

    def get_films(self, rows: range) -> tuple[dict[int, tuple[list[int], tuple[int, ...], bytes]], str]:
        """The films of first episodes, packed; and why there are none."""
        return {row: self.films[row].packed() for row in rows if row in self.films}, self.unfilmed

    def _discard(self, row: int) -> None:
        self.running.discard(row)
        env = self.envs.pop(row, None)
        if env is not None:
            with contextlib.suppress(Exception):  # it is gone either way
                env.close()

    def _note(self) -> None:
        self.faults.append(traceback.format_exc())

"""Pools step many host environments. This one does so in this process, one after the other."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from phalanx.envs.host.base import HostObservation, HostStep
from phalanx.envs.host.block import OBSERVATION, Block
from phalanx.envs.host.film import unpacked
from phalanx.envs.host.rows import MOST_STATES, TOO_LARGE, Rows
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.envs.host.base import HostEnv
    from phalanx.spec import EnvSpec

logger = logging.getLogger(__name__)
NOT_SAVED = "the states of %s cannot be saved, so a resumed run begins its episodes again: %s"
NOT_RESTORED = "saved states of %s cannot be restored, so their episodes begin again: %s"


class PoolStep(NamedTuple):
    """The result of one step of N environments, (N, ...)."""

    step: HostStep
    """as it was; the observation is the true last one where an episode ended"""
    returns: Any
    """(N, A) float32: sums of rewards in the episode so far"""
    length: Any
    """(N,) int32: steps of the episode so far"""
    observation: Any
    """what to act on next: the first observation of a new episode where one ended"""
    first: Any
    """(N,) bool: `observation` begins an episode"""
    broken: Any
    """(N,) bool: a fault of the environment cut the episode; `step` has the last observation known"""


class HostFailure(PhalanxError):
    """Environments fail again and again."""


class Pool(ABC):
    """N environments in parts, each a range of rows: while one part steps, actions are computed for another.

    The results of a row depend only on its seeds and actions, not on parts and workers.
    """

    parts: tuple[range, ...]

    def __init__(self, spec: EnvSpec, count: int, block: Block):
        self.spec, self.count, self.block = spec, count, block
        self.faults = Faults()
        self._warned: set[str] = set()
        # What was last shown, for steps that are lost.
        self._observation = HostObservation(*(np.copy(getattr(block, name)) for name in OBSERVATION))
        self._returns, self._length = np.zeros_like(block.returns), np.zeros_like(block.length)

    @abstractmethod
    def send(self, part: int, actions: np.ndarray, next_seeds: np.ndarray, active: Any = True) -> None:
        """Let the environments of a part that are `active` (n,) play a step with `actions` (n, ...).

        Where an episode ends the next one begins from its seed in `next_seeds`, (n,) uint64.
        """

    @abstractmethod
    def receive(self, part: int) -> PoolStep:
        """Wait for the step of a part, (n, ...)."""

    @abstractmethod
    def begin(self, seeds: np.ndarray) -> HostObservation:
        """Begin an episode in every environment, from `seeds` (N,) uint64: the first observations."""

    def get_states(self) -> list[bytes | None]:
        """The state of each running episode, for `resume`; None where it cannot be given.

        Between steps only. A pool that cannot ask its environments gives none.
        """
        return [None] * self.count

    def resume(self, seeds: np.ndarray, states: Sequence[bytes | None]) -> tuple[HostObservation, np.ndarray]:
        """Continue the episodes that have a state, and begin the others, as `begin` does.

        Also returns which are continued, (N,) bool.
        """
        return self.begin(seeds), np.zeros(self.count, bool)

    def films(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Pictures of the first episodes so far: for each its steps (F,) and pictures (F, h, w, 3) uint8."""
        raise PhalanxError(f"{self.spec.name} cannot be watched with these workers")

    def step(self, actions: np.ndarray, next_seeds: np.ndarray) -> PoolStep:
        """Play one step in every environment, (N, ...)."""
        for part, rows in enumerate(self.parts):
            which = slice(rows.start, rows.stop)
            self.send(part, actions[which], next_seeds[which])
        return joined([self.receive(part) for part in range(len(self.parts))])

    def close(self) -> None:  # noqa: B027
        """Release the environments."""

    def _write(self, part: int, actions: np.ndarray, next_seeds: np.ndarray, active: Any) -> None:
        rows = _rows(self.parts[part])
        self.block.action[rows], self.block.next_seed[rows] = actions, next_seeds
        self.block.active[rows] = active

    def _began(self) -> HostObservation:
        """What all environments show at the start of their episodes."""
        for name, kept in zip(OBSERVATION, self._observation, strict=True):
            kept[:] = getattr(self.block, name)
        self._returns[:], self._length[:] = 0, 0
        return HostObservation(*(np.copy(getattr(self.block, name)) for name in OBSERVATION))

    def _given(self, found: Iterable[tuple[dict[int, bytes], str]]) -> list[bytes | None]:
        """States by row, from what workers gave; why some could not is said once."""
        states: dict[int, bytes] = {}
        for some, wrong in found:
            states |= some
            self._warn(NOT_SAVED, wrong)
        if sum(map(len, states.values())) > MOST_STATES:
            states = {}
            self._warn(NOT_SAVED, TOO_LARGE)
        return [states.get(row) for row in range(self.count)]

    def _taken(self, found: Iterable[tuple[list[int], str]]) -> tuple[HostObservation, np.ndarray]:
        """As `resume`, from what workers say of the states that they took."""
        continued = np.zeros(self.count, bool)
        for rows, wrong in found:
            continued[rows] = True
            self._warn(NOT_RESTORED, wrong)
        observation, running = self._began(), ~self.block.first
        self._returns[running], self._length[running] = (
            self.block.returns[running],
            self.block.length[running],
        )
        return observation, continued

    def _filmed(self, found: Iterable[tuple[dict[int, Any], str]]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Films by row, from what workers gave."""
        films = {}
        for some, wrong in found:
            if wrong:
                raise PhalanxError(f"{self.spec.name} cannot be watched: {' '.join(wrong.split())[:500]}")
            films |= some
        lost = [row for row in range(self.count) if row not in films or not films[row][0]]
        if lost:
            raise PhalanxError(f"{self.spec.name} failed while it was watched: {self.faults.last}")
        return [unpacked(films[row]) for row in range(self.count)]

    def _warn(self, what: str, wrong: str) -> None:
        """Say in one line what is wrong with states, once."""
        if wrong and wrong not in self._warned:
            self._warned.add(wrong)
            logger.warning(what, self.spec.name, " ".join(wrong.split())[:500])

    def _read(self, part: int) -> PoolStep:
        """What the block says of a part, copied: workers will write into it again."""
        rows, block = _rows(self.parts[part]), self.block
        first, broken, active = block.first[rows].copy(), block.broken[rows].copy(), block.active[rows]
        first, broken = first & active, broken & active
        some_ended = first.any()  # a broken episode has ended too
        seen, last = [], []
        for name, before in zip(OBSERVATION, self._observation, strict=True):
            now = last_one = getattr(block, name)[rows].copy()
            if some_ended:
                final = np.where(_like(first, now), getattr(block, f"last_{name}")[rows], now)
                last_one = np.where(_like(broken, now), before[rows], final)
            before[rows] = now
            last.append(last_one)
            seen.append(now)
        returns = np.where(broken[:, None], self._returns[rows], block.returns[rows])
        length = np.where(broken, self._length[rows], block.length[rows])
        self._returns[rows] = np.where(first[:, None], 0, returns)
        self._length[rows] = np.where(first, 0, length)
        step = HostStep(
            observation=HostObservation(*last),
            reward=block.reward[rows].copy(),
            terminated=block.terminated[rows].copy(),
            truncated=block.truncated[rows].copy(),
            won=block.won[rows].copy(),
            agent_terminated=block.agent_terminated[rows].copy() if self.spec.agents_end else None,
        )
        if (first & ~broken).any():
            self.faults.in_a_row = 0
        return PoolStep(step, returns, length, HostObservation(*seen), first, broken)


class Faults:
    """Counts faults, and raises an error if there are too many."""

    MOST_IN_A_ROW = 20  # without a whole episode between them

    def __init__(self):
        self.total = 0
        self.in_a_row = 0
        self.last = ""

    def note(self, text: str, name: str) -> bool:
        """Count a fault; whether it should be shown, because it is another than the last."""
        self.total += 1
        self.in_a_row += 1
        line = text.strip().splitlines()[-1] if text.strip() else "no message"
        news, self.last = line != self.last, line
        if self.in_a_row >= self.MOST_IN_A_ROW:
            raise HostFailure(f"{name} failed {self.in_a_row} times in a row, the last time with: {line}")
        return news


class LocalPool(Pool):
    """N environments in this process, stepped one after the other."""

    def __init__(self, make: Callable[[], HostEnv], spec: EnvSpec, count: int, film: int = 0):
        super().__init__(spec, count, Block(spec, count))
        self.parts = (range(count),)
        self.rows = Rows(make, spec, self.block, film)

    def begin(self, seeds: np.ndarray) -> HostObservation:
        self.block.next_seed[:] = seeds
        self.rows.begin(self.parts[0])
        self._note_faults()
        return self._began()

    def send(self, part: int, actions: np.ndarray, next_seeds: np.ndarray, active: Any = True) -> None:
        self._write(part, actions, next_seeds, active)

    def receive(self, part: int) -> PoolStep:
        self.rows.step(self.parts[part])
        self._note_faults()
        return self._read(part)

    def get_states(self) -> list[bytes | None]:
        return self._given([self.rows.get_states(self.parts[0])])

    def resume(self, seeds: np.ndarray, states: Sequence[bytes | None]) -> tuple[HostObservation, np.ndarray]:
        self.begin(seeds)
        given = {row: state for row, state in enumerate(states) if state is not None}
        taken = self.rows.set_states(given)
        self._note_faults()
        return self._taken([taken])

    def films(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return self._filmed([self.rows.get_films(self.parts[0])])

    def _note_faults(self) -> None:
        faults, self.rows.faults = self.rows.faults, []
        for text in faults:
            note_fault(self.faults, text, self.spec.name)

    def close(self) -> None:
        self.rows.close()


def note_fault(faults: Faults, text: str, name: str) -> None:
    """Count a fault of an environment, and show it once."""
    if faults.note(text, name):
        logger.warning("an environment failed and was created again; its episode is lost:\n%s", text)


def _rows(part: range) -> slice:
    return slice(part.start, part.stop)


def _like(flags: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Flags (n,) with as many axes as `values` (n, ...)."""
    return flags.reshape(-1, *[1] * (values.ndim - 1))


def joined(parts: list[Any]) -> Any:
    """Join nested tuples of arrays along their first axis. None stays None."""
    if len(parts) == 1 or parts[0] is None:
        return parts[0]
    if isinstance(parts[0], tuple):
        return type(parts[0])(*(joined(list(each)) for each in zip(*parts, strict=True)))
    return np.concatenate(parts)

"""Workers that each step a part of the environments, and are replaced when they are lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from phalanx.envs.host.worker import BEGIN


class Lost(Exception):
    """A worker died, or did not answer in time."""


class Failed(Exception):
    """A worker could not carry out a command."""

    def __init__(self, told: dict[str, Any]):
        super().__init__(told["error"])
        self.told = told
        self.traceback, self.mistake = told["traceback"], told["mistake"]


class Crew(ABC):
    """K workers that each step a share of every part."""

    def __init__(self, parts: tuple[range, ...], workers: int):
        self.shares = [[_share(part, w, workers) for part in parts] for w in range(workers)]
        self.waiting: list[dict[int, bytes]] = [{} for _ in range(workers)]
        """commands to each worker, by part, that are not answered yet"""

    @abstractmethod
    def _start(self, w: int) -> None:
        """Start a worker. Lost or Failed if it cannot be started."""

    @abstractmethod
    def _end(self, w: int) -> None:
        """End a worker, now."""

    @abstractmethod
    def _send(self, w: int, command: bytes, part: int) -> None:
        """Send a command; a dead worker is noticed when its answer is awaited."""

    @abstractmethod
    def _answer(self, w: int, part: int, timeout: float) -> tuple[Any, list[str]]:
        """Wait for a worker: its result, and faults of its environments, a text each. Lost, or Failed."""

    @abstractmethod
    def _note(self, text: str) -> None:
        """Count a fault."""

    def _tell(self, command: bytes, part: int) -> None:
        for w, shares in enumerate(self.shares):
            if shares[part]:
                self._send(w, command, part)
                self.waiting[w][part] = command

    def _await(self, part: int, timeout: float) -> list[Any]:
        """Wait for all workers; one that is lost is replaced, and so are its episodes.

        Returns the results of those that have one. Failed if the first episodes cannot begin.
        """
        results = []
        for w, waiting in enumerate(self.waiting):
            while part in waiting:
                try:
                    result, faults = self._answer(w, part, timeout)
                    del waiting[part]
                    results += [] if result is None else [result]
                    for text in faults:
                        self._note(text)
                except Failed as failed:
                    if waiting[part] == BEGIN:
                        raise
                    self._replace(w, failed.traceback)
                except Lost as lost:
                    self._replace(w, f"worker {w}: {lost}")
        return results

    def _replace(self, w: int, reason: str) -> None:
        """End a worker and start another, which begins new episodes in all rows of the old one.

        Commands that the old one did not answer are sent again.
        """
        self._end(w)
        self._note(reason)
        self._start(w)
        for part, command in self.waiting[w].items():
            self._send(w, command, part)


def _share(part: range, w: int, workers: int) -> range:
    """The rows of a part that a worker steps."""
    first, last = (part.start + len(part) * k // workers for k in (w, w + 1))
    return range(first, last)

"""What happened in an episode, in words, from its frames: hits, deaths, touches, arrivals, the end."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.types import EnvSpec

Frame = Mapping[str, Any]
LEAST_HEALTH = 0.05  # health that counts as lost or healed; regeneration of a step is less


class Event(NamedTuple):
    """Something that happened in the step that led to the frame `step`."""

    step: int
    kind: str
    """hit, heal, death, loss (the death of one's own), touch, home, word, win, lose or end"""
    text: str


def events(frames: Sequence[Frame | None], spec: EnvSpec, won: bool | None, terminated: bool) -> list[Event]:
    """All events of an episode, in order."""
    found: list[Event] = []
    tell = {"battle": _battle, "particles": _particles, "grid": _grid}
    for step in range(1, len(frames)):
        before, after = frames[step - 1], frames[step]
        if before is not None and after is not None and after["kind"] in tell:
            found += [Event(step, *each) for each in tell[after["kind"]](before, after, spec)]
    found.append(Event(len(frames) - 1, *_end(spec, won, terminated)))
    return found


def _end(spec: EnvSpec, won: bool | None, terminated: bool) -> tuple[str, str]:
    if won:
        return "win", "won"
    how = "the task is over" if terminated else "time is up"
    return ("lose", f"not won: {how}") if spec.has_win else ("end", how)


def _battle(before: Frame, after: Frame, spec: EnvSpec):
    """The health that each unit lost or regained and, if known, the cause."""
    allies, types = int(after["allies"]), after["types"]
    names = [*spec.agents, *(f"enemy {j}" for j in range(len(types) - allies))]
    had, has = (np.asarray(f["health"], float) + np.asarray(f["shield"], float) for f in (before, after))
    lived, lives = np.asarray(before["health"]) > 0, np.asarray(after["health"]) > 0
    fired, target = np.asarray(after["fired"], bool), np.asarray(before["target"])
    # Who fired may have turned to somebody else since; the dead keep no target.
    target = np.where(np.asarray(after["target"]) >= 0, after["target"], target)
    for unit in map(int, np.flatnonzero(lived)):
        lost = had[unit] - max(has[unit], 0.0)
        heals = lost < 0
        friend = (np.arange(len(names)) < allies) == (unit < allies)
        by = [names[i] for i in np.flatnonzero(fired & (target == unit) & (friend == heals))]
        from_whom = f" ({', '.join(by)})" if by else ""
        who = f"{names[unit]} {types[unit]}"
        if not lives[unit]:
            yield "death" if unit >= allies else "loss", f"{who} dies{from_whom}"
        elif lost > LEAST_HEALTH:
            yield "hit", f"{who} loses {lost:.3g}{from_whom}"
        elif -lost > LEAST_HEALTH and by:
            yield "heal", f"{who} gets {-lost:.3g} back{from_whom}"


def _particles(before: Frame, after: Frame, spec: EnvSpec):
    """New contacts between agents, and new messages."""
    agents, names = int(after["agents"]), after["names"]
    then, now = _touching(before, agents), _touching(after, agents)
    for i, j in np.argwhere(now & ~then):
        yield "touch", f"{names[i]} touches {names[j]}"
    for line in after["said"]:
        if line not in before["said"]:
            yield "word", line


def _touching(frame: Frame, agents: int) -> np.ndarray:
    """(A, A) bool, above the diagonal: whose discs overlap."""
    position, radius = np.asarray(frame["position"])[:agents], np.asarray(frame["radius"])[:agents]
    distance = np.linalg.norm(position[:, None] - position[None], axis=-1)
    return np.triu(distance < radius[:, None] + radius[None], 1)


def _grid(before: Frame, after: Frame, spec: EnvSpec):
    """Agents that reached their goal, and agents that blocked each other."""
    for agent in np.flatnonzero(np.asarray(after["home"]) & ~np.asarray(before["home"])):
        yield "home", f"{spec.agents[agent]} is home"

"""Episodes of `StarCraft2Env` as files: JSON that `phalanx watch` plays."""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from phalanx.envs.battle.env import Battle
from phalanx.errors import PhalanxError
from phalanx.types import Observation, PyTree, TimeStep

if TYPE_CHECKING:
    from phalanx.report.page import Show

FORMAT = "phalanx replay 1"
BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""what a file raises that is no replay, or no JSON"""
DIGITS = 4  # that observations are rounded to


class Moment(NamedTuple):
    """A state, its observations, and the actions that led to it (None at the start)."""

    state: PyTree
    step: TimeStep
    actions: list[int] | None


def write(folder: Path, prefix: str, head: Mapping[str, Any], battle: Battle, played: list[Moment]) -> str:
    """Write an episode to `folder/PREFIX_TIME.json`; returns the path."""
    frames = [
        {name: _plain(value) for name, value in battle.frame(moment.state).items()} for moment in played
    ]
    same = [name for name in frames[0] if all(frame[name] == frames[0][name] for frame in frames)]
    steps, last = [moment.step for moment in played], played[-1].step
    replay = {
        "format": FORMAT,
        **head,
        "won": bool(last.info["won"]),
        "terminated": bool(last.terminated),
        "scene": {name: frames[0][name] for name in same},
        "frames": [{name: frame[name] for name in frame if name not in same} for frame in frames],
        "obs": [_plain(np.round(np.asarray(step.observation.obs, np.float64), DIGITS)) for step in steps],
        "avail": [_plain(np.asarray(step.observation.avail, int)) for step in steps],
        "alive": [_plain(np.asarray(step.observation.alive, int)) for step in steps],
        "actions": [moment.actions for moment in played[1:]],
        "rewards": [float(step.reward[0]) for step in steps[1:]],
    }
    path = folder / f"{prefix}_{datetime.now().strftime('%Y%m%d-%H%M%S-%f')}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(replay, separators=(",", ":")), "utf-8")
    except OSError as error:
        raise PhalanxError(f"cannot write {path}: {error.strerror}") from None
    return str(path)


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist() if not isinstance(value, (str, type(None), list)) else value


def refusal(path: str | Path) -> str:
    """The error for a file that cannot be shown."""
    return f"{path} is not a replay that StarCraft2Env.save_replay() wrote"


def read(path: str | Path) -> "Show":
    """The episode of a file, for the page that plays it."""
    from phalanx import registry
    from phalanx.data.episodes import Episode
    from phalanx.report.page import Show

    frames: list[dict[str, Any] | None]
    try:
        replay = json.loads(Path(path).read_text("utf-8"))
        if replay["format"] != FORMAT:
            raise KeyError
        spec = registry.build_env(f"battle/{replay['map']}", **replay["options"]).spec
        frames = [{**replay["scene"], **frame} for frame in replay["frames"]]
        seen: list[Any] = [np.array(replay[name]) for name in ("obs", "avail", "alive")]
        obs, avail, alive = seen
        rewards = np.array(replay["rewards"], np.float32).reshape(-1, 1)
        episode = Episode(
            observation=Observation(obs, obs[:, 0, :0], avail, alive),
            action=np.array(replay["actions"], np.int32).reshape(-1, spec.n_agents),
            reward=np.broadcast_to(rewards, (len(rewards), spec.n_agents)),
            terminated=replay["terminated"],
            truncated=not replay["terminated"],
            won=replay["won"],
            preferences=None,
            states=None,
        )
    except OSError as error:
        raise PhalanxError(f"cannot read {path}: {error.strerror}") from None
    except BROKEN:
        raise PhalanxError(refusal(path)) from None
    if episode.length == 0:
        raise PhalanxError(f"{path} has no step to play: it was saved right after reset()")
    return Show(Path(path).stem, spec, "", [episode], [frames])

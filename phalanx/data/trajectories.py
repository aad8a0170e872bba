"""Recorded episodes in one file, for offline use: see `docs/watching.md`.

The file is a `.npz` of plain arrays (no pickle), padded to the longest of E episodes, T steps; entries after
an episode's `length` are zero. `header` is a JSON text that describes the recording.
"""

import dataclasses
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from phalanx import __version__
from phalanx.errors import PhalanxError
from phalanx.types import EnvSpec

if TYPE_CHECKING:
    from phalanx.data.episodes import Episode

FORMAT = 1


class Trajectories(NamedTuple):
    """E episodes of at most T steps."""

    header: dict[str, Any]
    """format, phalanx, env, env_options, env_version, algorithm, run, seed, greedy, spec"""
    obs: np.ndarray
    """(E, T + 1, A, O) float32, or pictures of the spec's `obs_shape` and `obs_dtype`: what was seen before
    each step and after the last, as the environment gives it; rows of dead agents are zero"""
    state: np.ndarray
    """(E, T + 1, X) float32, or (E, T + 1, A, X) where the spec says `agent_state`"""
    avail: np.ndarray
    """(E, T + 1, A, U) bool"""
    alive: np.ndarray
    """(E, T + 1, A) bool"""
    action: np.ndarray
    """(E, T, A) int32, or (E, T, A, U) float32"""
    reward: np.ndarray
    """(E, T, A) float32"""
    terminated: np.ndarray
    """(E, T) bool: the task ended with this step; nothing is bootstrapped from what followed"""
    truncated: np.ndarray
    """(E, T) bool: the episode was cut after this step"""
    valid: np.ndarray
    """(E, T) bool: this step was played, and is not padding"""
    length: np.ndarray
    """(E,) int32"""
    won: np.ndarray
    """(E,) bool; all False where episodes cannot be won"""


def save(
    path: Path,
    episodes: "list[Episode]",
    spec: EnvSpec,
    env_options: Mapping[str, Any],
    about: Mapping[str, Any],
) -> None:
    """Write some episodes; `about` goes into the header."""
    lengths = np.array([each.length for each in episodes], np.int32)
    longest = int(lengths.max())
    step = np.arange(longest)
    last = step == lengths[:, None] - 1

    def padded(arrays: list[np.ndarray], size: int) -> np.ndarray:
        return np.stack([np.pad(x, [(0, size - len(x)), *[(0, 0)] * (x.ndim - 1)]) for x in arrays])

    seen = [each.observation for each in episodes]
    told = {
        "format": FORMAT,
        "phalanx": __version__,
        "env": spec.name,
        "env_options": dict(env_options),
        "env_version": spec.version,
        **about,
        "spec": {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name != "script"},
    }
    arrays = {
        **{
            name: padded([np.asarray(getattr(each, name)) for each in seen], longest + 1)
            for name in ("obs", "state", "avail", "alive")
        },
        "action": padded([each.action for each in episodes], longest),
        "reward": padded([each.reward for each in episodes], longest),
        "terminated": last & np.array([[each.terminated] for each in episodes]),
        "truncated": last & np.array([[each.truncated] for each in episodes]),
        "valid": step < lengths[:, None],
        "length": lengths,
        "won": np.array([bool(each.won) for each in episodes]),
    }
    with path.open("wb") as file:
        np.savez_compressed(file, header=np.array(json.dumps(told)), **arrays)


def load_trajectories(path: str | Path) -> Trajectories:
    """Read what `phalanx record` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in Trajectories._fields}
            header = json.loads(str(arrays.pop("header")))
    except FileNotFoundError:
        raise PhalanxError(f"there is no file {path}") from None
    except (OSError, EOFError, ValueError, KeyError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise PhalanxError(f"{path} is not a file of trajectories, or is damaged: {error}") from None
    if header.get("format") != FORMAT:
        raise PhalanxError(f"{path} has the format {header.get('format')}, and this phalanx reads {FORMAT}")
    return Trajectories(header, **arrays)

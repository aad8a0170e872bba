"""Checkpoints: the whole `Carry` (`training/loop.py`), written so that a kill at any moment does no damage.

A checkpoint is a folder `checkpoints/<updates>/` with the arrays (`carry.npz`), those of a replay apart
(`replay.npz`), the states of environments that are Python programs (`environments.npz`), and a manifest with
the checksums of all and the score of the evaluation it followed. It is written under another name and renamed
when it is complete. Arrays are stored unchanged, so that restoring is exact. A replay buffer is large and
only needed to resume, so it is dropped from older checkpoints. Without the states of environments a run can
still be resumed. The configuration is not in a checkpoint: it is `config.toml` of the run folder.
"""

import hashlib
import json
import logging
import os
import shutil
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import device, hosts
from phalanx.errors import PhalanxError, suggest
from phalanx.files import inside
from phalanx.training import keys
from phalanx.training.keys import Purpose
from phalanx.training.loop import Carry
from phalanx.types import PyTree, is_key

logger = logging.getLogger(__name__)
ARRAYS, REPLAY, STATES, MANIFEST = "carry.npz", "replay.npz", "environments.npz", "manifest.json"
FORMAT = 2  # of the names of arrays; raised when a carry is laid out differently


class Checkpoint(NamedTuple):
    """A checkpoint on disk and what its manifest says."""

    path: Path
    updates: int
    score: float | None = None
    """mean return over the seeds in the evaluation just before; None if there was none"""
    metrics_bytes: int = 0
    """length of metrics.jsonl when it was written: what is behind it is made again"""
    seconds: float = 0.0
    """how long the run had taken"""
    sha256: str = ""
    """checksum of the arrays"""
    replay_sha256: str | None = None
    """checksum of the replay; None if there is none, or it was not stored"""
    states_sha256: str | None = None
    """checksum of the states of environments; None if there are none"""
    versions: dict[str, str] | None = None
    """of everything that a number may depend on, and the device"""
    unreadable: str | None = None
    """what is wrong with the manifest"""


def _named_leaves(tree: PyTree) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _by_file(carry: Carry, states: Sequence[bytes | None] = ()) -> dict[str, dict[str, Any]]:
    """Which array goes into which file, by name."""
    files = {ARRAYS: _named_leaves(carry.without_replay())}
    if carry.learner.replay is not None:
        files[REPLAY] = _named_leaves(carry.learner.replay)
    known = {str(row): np.frombuffer(each, np.uint8) for row, each in enumerate(states) if each is not None}
    return {**files, STATES: known} if known else files


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save(
    folder: Path,
    carry: Carry,
    *,
    updates: int,
    score: float | None,
    metrics_bytes: int,
    seconds: float,
    keep: int,
    states: Sequence[bytes | None] = (),
    devices: int = 1,
) -> None:
    """Write a checkpoint and drop all but the last `keep` and the best; older ones lose their replay.

    `states` are those of running episodes, by environment, if they are not in the carry. Arrays are gathered
    from all `devices`. With several hosts only the first one writes.
    """
    files = _by_file(carry, states)
    if not hosts.first():
        for leaves in files.values():
            _as_numpy(leaves)
        return
    target = folder / f"{updates:010d}"
    unfinished = folder / f".unfinished-{updates:010d}"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        for name, leaves in files.items():
            _write(unfinished / name, leaves)
        manifest = {
            "format": FORMAT,
            "updates": updates,
            "score": score,
            "metrics_bytes": metrics_bytes,
            "seconds": seconds,
            "sha256": _digest(unfinished / ARRAYS),
            "replay_sha256": _digest(unfinished / REPLAY) if REPLAY in files else None,
            "states_sha256": _digest(unfinished / STATES) if STATES in files else None,
            "versions": circumstances(devices),
        }
        _write_manifest(unfinished / MANIFEST, manifest)
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise PhalanxError(
            f"cannot write checkpoint {target}: {error.strerror}; earlier checkpoints are untouched"
        ) from None
    _prune(folder, keep)


def _write(path: Path, leaves: dict[str, Any]) -> None:
    """Write arrays to a file."""
    with path.open("wb") as file:
        np.savez(file, **_as_numpy(leaves))  # pyright: ignore[reportArgumentType]
        _flush(file)


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump({**manifest, "seal": _seal(manifest)}, file, indent=1)
        _flush(file)


def _as_numpy(leaves: dict[str, Any]) -> dict[str, np.ndarray]:
    return {
        name: hosts.fetch(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for name, leaf in leaves.items()
    }


def circumstances(devices: int) -> dict[str, str]:
    """Versions and devices, on which numbers may depend."""
    return {**device.versions(), "device": device.describe(), "devices": str(devices)}


def first_nan(tree: PyTree) -> str | None:
    """The name of the first array with a NaN in it; None if there is none."""
    for name, leaf in _named_leaves(tree).items():
        if (
            not is_key(leaf)
            and jnp.issubdtype(leaf.dtype, jnp.floating)
            and np.isnan(hosts.fetch(leaf)).any()
        ):
            return name
    return None


def _seal(manifest: dict[str, Any]) -> str:
    """A checksum of the manifest itself: a number changed in it is as bad as one changed in the arrays."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _prune(folder: Path, keep: int) -> None:
    found = listing(folder)
    # The latest of equals: a team that stays at its best is best represented by its last state.
    best = max(found, key=lambda each: (float("-inf") if each.score is None else each.score, each.updates))
    for each in found[:-keep]:
        if each.path == best.path:
            (each.path / REPLAY).unlink(missing_ok=True)
        else:
            shutil.rmtree(each.path, ignore_errors=True)


def listing(folder: Path) -> list[Checkpoint]:
    """All checkpoints, valid or not, oldest first."""
    inside(folder.parent, folder.name)
    return [_manifest(path) for path in sorted(folder.glob("[0-9]" * 10)) if path.is_dir()]


def _manifest(path: Path) -> Checkpoint:
    updates = int(path.name)
    try:
        for name in (ARRAYS, REPLAY, STATES, MANIFEST):
            inside(path.parent, f"{path.name}/{name}")
    except PhalanxError:
        return Checkpoint(path, updates, unreadable="it is a link out of the run folder")
    if not (path / MANIFEST).is_file():
        return Checkpoint(path, updates, unreadable=f"{MANIFEST} is missing")
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest.pop("seal") == _seal(manifest) and manifest["updates"] == updates:
            if manifest.pop("format", 1) == FORMAT:
                return Checkpoint(path, **manifest)
            made_with = (manifest.get("versions") or {}).get("phalanx", "0.1")
            return Checkpoint(
                path, updates, unreadable=f"it was written by phalanx {made_with}: use that version"
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return Checkpoint(path, updates, unreadable=f"{MANIFEST} is not what was written")


def fault(checkpoint: Checkpoint, to_go_on: bool) -> str | None:
    """What is wrong with the files of a checkpoint; None if they are what was written.

    To play, its policy is enough; `to_go_on` needs the replay buffer, if there is one.
    """
    if checkpoint.unreadable:
        return checkpoint.unreadable
    with_replay = to_go_on and checkpoint.replay_sha256
    written_files = {ARRAYS: checkpoint.sha256} | ({REPLAY: checkpoint.replay_sha256} if with_replay else {})
    for name, written in written_files.items():
        if not (checkpoint.path / name).is_file():
            return f"{name} is missing" + (", which only the last ones keep" if name == REPLAY else "")
        if _digest(checkpoint.path / name) != written:
            return f"{name} does not match its checksum"
    return None


def forget_after(checkpoint: Checkpoint) -> None:
    """Remove the checkpoints after the one that the run continues from."""
    for each in listing(checkpoint.path.parent):
        if each.updates > checkpoint.updates:
            shutil.rmtree(each.path, ignore_errors=True)


def choose(
    folder: Path, name: str | None = None, *, to_go_on: bool = True, use: str = "use --checkpoint {}"
) -> Checkpoint:
    """The newest checkpoint, or the one called `name`; the error for a damaged one suggests a valid one.

    `use` says how a user selects the valid one.
    """
    found = listing(folder)
    if not found:
        raise PhalanxError(f"there is no checkpoint in {folder}: the run must be started again")
    named = {each.path.name: each for each in found}
    if name is not None and name not in named:
        raise PhalanxError(f"there is no checkpoint {name!r} in {folder}.{suggest(name, named)}")
    chosen = named[name] if name is not None else found[-1]
    wrong = fault(chosen, to_go_on)
    if wrong is None:
        return chosen
    sound = [each for each in found if each != chosen and fault(each, to_go_on) is None]
    before = [each for each in sound if each.updates < chosen.updates]
    offer = "no other checkpoint is valid"
    if sound:
        which, offered = ("before", before[-1]) if before else ("after", sound[-1])
        offer = f"the one {which} it is valid: {use.format(offered.path.name)}"
    raise PhalanxError(f"checkpoint {chosen.path} is damaged: {wrong}; {offer}")


def restore(checkpoint: Checkpoint, like: Carry) -> Carry:
    """Read a carry with the structure, shapes and types of `like`, which may be one without its replay.

    Arrays go to the devices that the shapes in `like` name, if they name some.
    """
    path, found = checkpoint.path, {}
    for file, wanted in _by_file(like).items():
        try:
            found[file] = _arrays(path, file, wanted)
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise PhalanxError(f"checkpoint {path} is damaged: {file}: {error}") from None
    carry = jax.tree.unflatten(jax.tree.structure(like.without_replay()), found[ARRAYS])
    if REPLAY not in found:
        return carry
    replay = jax.tree.unflatten(jax.tree.structure(like.learner.replay), found[REPLAY])
    return carry.with_replay(replay)


def _arrays(path: Path, file: str, wanted: dict[str, Any]) -> list[jax.Array]:
    """The arrays of a file of a checkpoint, which must be those that are wanted."""
    with np.load(path / file, allow_pickle=False) as arrays:
        if set(arrays.files) != set(wanted):
            odd = sorted(set(arrays.files) ^ set(wanted))[0]
            raise PhalanxError(
                f"checkpoint {path} does not fit this configuration or version: {odd} is in only one"
            )
        return [_leaf(arrays[name], leaf, f"{path}: {name}") for name, leaf in wanted.items()]


def states(checkpoint: Checkpoint, count: int) -> list[bytes | None]:
    """The states of `count` environments; all None, with a warning, if what was written is lost."""
    none: list[bytes | None] = [None] * count
    if checkpoint.states_sha256 is None:
        return none
    path = checkpoint.path / STATES
    if not path.is_file() or _digest(path) != checkpoint.states_sha256:
        logger.warning("%s is not what was written: running episodes begin again from their seeds", path)
        return none
    with np.load(path, allow_pickle=False) as arrays:
        return [arrays[str(row)].tobytes() if str(row) in arrays else None for row in range(count)]


def _leaf(array: np.ndarray, like: Any, where: str) -> jax.Array:
    wanted = jax.eval_shape(jax.random.key_data, like) if is_key(like) else like
    if array.shape != wanted.shape or array.dtype != wanted.dtype:
        raise PhalanxError(
            f"checkpoint does not fit: {where} is {array.dtype}{list(array.shape)}, "
            f"needed is {wanted.dtype}{list(wanted.shape)}"
        )
    sharding = getattr(like, "sharding", None)
    placed = jnp.asarray(array) if sharding is None else hosts.spread(array, sharding)
    if not is_key(like):
        return placed
    ours = like.dtype == keys.root(Purpose.TRAINING, 0).dtype
    return jax.random.wrap_key_data(placed, impl=keys.IMPLEMENTATION if ours else None)


def differences(saved: Checkpoint, devices: int, replay: bool, begun_again: int) -> list[str]:
    """A line for each reason why a run does not continue from a checkpoint bit for bit.

    It was written with other versions or on other devices, where sums may differ; or without its `replay`, if
    it has one; or some running episodes have `begun_again`.
    """
    lines = [_other_versions(saved, devices)]
    if replay and saved.updates and saved.replay_sha256 is None:
        lines.append(
            "note: the replay buffer was not saved: the run continues with an empty one, not bit for bit"
        )
    if begun_again:
        lines.append(
            f"note: {begun_again} running episodes begin again from their seeds; "
            f"everything else continues bit for bit"
        )
    return [line for line in lines if line]


def _other_versions(saved: Checkpoint, devices: int) -> str:
    changed = {
        name: (was, now)
        for name, now in circumstances(devices).items()
        if (was := (saved.versions or {}).get(name, now)) != now
    }
    if not changed:
        return ""
    listed = ", ".join(f"{name} {was} (now {now})" for name, (was, now) in changed.items())
    return f"note: the checkpoint was written with {listed}: the run continues, but not bit for bit"

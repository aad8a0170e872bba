"""One self-contained HTML page that plays episodes: see `docs/watching.md`.

Everything that changes from step to step travels as whole numbers of 16 bits, each as its difference to the
step before, in one gzipped block that the page unpacks by itself. Nothing is loaded from anywhere.
"""

import base64
import gzip
import hashlib
import html
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import jax
import numpy as np

from phalanx.data.episodes import Episode
from phalanx.envs.base import Env
from phalanx.envs.host.base import HostSource
from phalanx.errors import PhalanxError, suggest
from phalanx.report.draw import KINDS
from phalanx.report.events import events
from phalanx.report.pictures import picture_frames
from phalanx.types import EnvSpec

STEPS = 65_534  # that a range of numbers is cut into
BEFORE_DATA = '<script id="data" type="text/plain">'
MOST = 512_000_000  # bytes of unpacked episodes that `rebuilt` takes


class Show(NamedTuple):
    """The episodes of one team."""

    label: str
    spec: EnvSpec
    prefers: str
    """what its preferences are: see `Algorithm.prefers`"""
    episodes: list[Episode]
    frames: list[list[dict[str, Any] | None]]
    """for each episode what `Env.frame` says of each of its T + 1 states, or a picture of it"""


def show(label: str, env: Env | HostSource, prefers: str, episodes: list[Episode]) -> Show:
    """Describe every state of some episodes for the viewer, by frames or by rendered images."""
    frames = [
        [env.frame(jax.tree.map(lambda x, t=t: x[t], each.states)) for t in range(each.length + 1)]
        if isinstance(env, Env)
        else picture_frames(each)
        for each in episodes
    ]
    return Show(label, env.spec, prefers, episodes, frames)


def require_same_starts(one: Show, other: Show) -> None:
    """Refuse to show two teams side by side whose episodes start differently."""
    for mine, theirs in zip(one.frames, other.frames, strict=True):
        first, second = _start(mine[0]), _start(theirs[0])
        if first.keys() != second.keys() or not all(np.array_equal(first[k], second[k]) for k in first):
            raise PhalanxError(
                f"{one.label} plays {one.spec.name} and {other.label} plays {other.spec.name}, which do not "
                "start from the same states: two teams can be watched together in one environment with the "
                "same options"
            )


def _start(frame: dict[str, Any] | None) -> dict[str, Any]:
    """The part of an episode that identifies its start: the first state or image."""
    if frame is None or frame["kind"] != "pictures":
        return frame or {}
    return {"kind": "pictures", "picture": frame["pictures"][0]}


class Packer:
    """Packs arrays into one block of bytes; a placeholder for each array says how to read it."""

    def __init__(self):
        self.block = bytearray()

    def over_time(self, array: np.ndarray) -> dict[str, Any]:
        """An array (T, ...) of numbers.

        Fractions are quantised: `STEPS` levels between minimum and maximum of each entry of the last axis. 0
        stays exactly 0, because environments use it for what is not seen.
        """
        fields: dict[str, Any] = {"shape": array.shape}
        if array.dtype.kind == "f":
            flat = np.asarray(array, np.float64).reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
            low, high = flat.min(0), flat.max(0)
            unit = np.where(high > low, (high - low) / STEPS, np.where(low == 0, 1.0, low))
            base = (low / unit).round()
            whole = ((flat / unit).round() - base).reshape(array.shape)
            fields |= {"base": base.astype(int).tolist(), "unit": unit.tolist()}
        else:
            whole = array
        steps = np.diff(np.asarray(whole, np.int64), axis=0, prepend=0).astype(np.uint16)
        # Low bytes and high bytes apart: most high bytes are 0, which packs well.
        parts = steps.astype("<u2").reshape(-1).view(np.uint8).reshape(-1, 2).T
        fields["at"] = len(self.block)
        self.block += parts.tobytes()
        return fields

    def frames(self, frames: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Store constant parts of an episode's frames once, and the rest over time."""
        fields = {}
        for name in frames[0]:
            values = [frame[name] for frame in frames]
            if isinstance(values[0], (str, type(None))) or _of_words(values[0]):
                fields[name] = values[0] if all(each == values[0] for each in values) else {"each": values}
                continue
            stack = np.stack([np.asarray(each) for each in values])
            if stack.dtype.kind == "f" and not np.isfinite(stack).all():
                raise PhalanxError(f"cannot show this: {name!r} of the environment's frame is not finite")
            same = (stack == stack[0]).all()
            fields[name] = _plain(stack[0]) if same else self.over_time(stack)
        return fields


def _of_words(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)


def _plain(array: np.ndarray) -> Any:
    """Lists of short numbers, for JSON."""
    if array.dtype.kind == "f":
        return np.vectorize(_short, otypes=[object])(array).tolist() if array.size else []
    return array.astype(int).tolist()


def _short(number: float) -> float:
    return float(f"{number:.7g}")


def page(shows: Sequence[Show], title: str) -> str:
    """The page that plays one team, or two beside each other."""
    packer = Packer()
    fields = {"title": title, "shows": [_show(each, packer) for each in shows]}
    head = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
    packed = gzip.compress(len(head).to_bytes(4, "little") + head + bytes(packer.block), 9, mtime=0)
    return _filled(title, base64.b64encode(packed).decode())


def _filled(title: str, data: str) -> str:
    """The page around packed episodes."""
    files = resources.files("phalanx.report") / "viewer"
    parts = {**_code(), "TITLE": html.escape(title), "DATA": data}
    text = (files / "page.html").read_text("utf-8")
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda found: parts[found[1]], text)


def _code() -> dict[str, str]:
    """The style and the script of the page."""
    files = resources.files("phalanx.report") / "viewer"
    return {
        "STYLE": (files / "viewer.css").read_text("utf-8"),
        "SCRIPT": "\n".join((files / name).read_text("utf-8") for name in ("scenes.js", "viewer.js")),
    }


def rebuilt(text: str) -> str:
    """Rebuild a page from the episodes of an untrusted page; nothing else of that page is kept."""
    found = re.search(re.escape(BEFORE_DATA) + r"([A-Za-z0-9+/=\s]*)</script>", text)
    if found is None:
        raise PhalanxError("this is not a page of `phalanx watch`")
    try:
        packed = base64.b64decode(found[1], validate=True)
        unpack = zlib.decompressobj(wbits=31)  # 31: of gzip
        plain = unpack.decompress(packed, MOST)
        if unpack.unconsumed_tail:
            raise PhalanxError(f"the episodes of this page take more than {MOST / 1e6:,.0f} MB")
        told = json.loads(plain[4 : 4 + int.from_bytes(plain[:4], "little")])
        title, _ = str(told["title"]), told["shows"]
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error):
        raise PhalanxError(
            "the episodes of this page are damaged: write it again with `phalanx watch`"
        ) from None
    return _filled(title, found[1])


def hashes() -> tuple[str, str]:
    """Of the page's style and script, as a Content-Security-Policy names them."""

    def digest(text: str) -> str:
        found = hashlib.sha256(f"\n{text}\n".encode()).digest()
        return f"'sha256-{base64.b64encode(found).decode()}'"

    code = _code()
    return digest(code["STYLE"]), digest(code["SCRIPT"])


def _show(show: Show, packer: Packer) -> dict[str, Any]:
    spec = show.spec
    return {
        "label": show.label,
        "env": spec.name,
        "agents": spec.agents,
        "types": spec.agent_types,
        "teams": spec.teams,
        "counts": spec.action_counts,
        "actions": spec.action_names
        or tuple(tuple(f"action {u}" for u in range(count)) for count in spec.action_counts),
        "continuous": spec.action_range if spec.action_kind == "continuous" else None,
        "features": spec.obs_features or ((),) * spec.n_agents,
        "prefers": show.prefers,
        "common": spec.common_reward,
        "limit": spec.time_limit,
        "episodes": [
            _episode(episode, frames, spec, packer)
            for episode, frames in zip(show.episodes, show.frames, strict=True)
        ],
    }


def _episode(episode: Episode, frames: list[Any], spec: EnvSpec, packer: Packer) -> dict[str, Any]:
    seen = episode.observation
    drawn = {"kind": "plain"} if frames[0] is None else packer.frames(frames)
    if drawn["kind"] not in (*KINDS, "plain"):
        raise PhalanxError(
            f"cannot show a frame of the kind {drawn['kind']!r}.{suggest(drawn['kind'], KINDS)}"
        )
    wanted = episode.preferences
    return {
        "length": episode.length,
        "won": episode.won,
        "terminated": episode.terminated,
        "frame": drawn,
        "events": events(frames, spec, episode.won, episode.terminated),
        # The table beside the scene has a cell for each named entry; a picture has none.
        "obs": packer.over_time(
            np.asarray(seen.obs if spec.obs_shape is None else seen.alive[..., None], np.float32)
        ),
        "avail": packer.over_time(np.asarray(seen.avail, np.uint8)),
        "alive": packer.over_time(np.asarray(seen.alive, np.uint8)),
        "action": packer.over_time(episode.action),
        "reward": packer.over_time(np.asarray(episode.reward, np.float32)),
        "preferences": None if wanted is None else packer.over_time(np.asarray(wanted, np.float32)),
    }

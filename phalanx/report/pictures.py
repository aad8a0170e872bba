"""Images that environments rendered, as frames of the viewer."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from phalanx.data.episodes import Episode

JPEG_QUALITY = 85


def picture_frames(episode: Episode) -> list[dict[str, Any] | None]:
    """A frame for each of the T + 1 states of an episode: the last image rendered up to that state."""
    film = episode.film
    assert film is not None
    height, width = film.picture.shape[1:3]
    constant = {
        "kind": "pictures",
        "width": width,
        "height": height,
        "pictures": _encoded(film.picture),
        "note": _note(episode.length, film.step, (width, height)),
    }
    shown = np.searchsorted(film.step, np.arange(episode.length + 1), side="right") - 1
    return [{**constant, "shown": int(each)} for each in shown]


def _note(length: int, steps: np.ndarray, size: tuple[int, int]) -> str:
    every = int(steps[1] - steps[0]) if len(steps) > 2 else 1
    often = f", one every {every} steps" if every > 1 and length > every else ""
    return f"pictures by the environment, {size[0]} x {size[1]}{often}"


def _encoded(pictures: np.ndarray) -> list[str]:
    """Pictures (F, h, w, 3) as data URLs: PNG, or JPEG if the first is smaller by it."""
    kind = min(("PNG", "JPEG"), key=lambda kind: len(_bytes(pictures[0], kind)))
    prefix = f"data:image/{kind.lower()};base64,"
    return [prefix + base64.b64encode(_bytes(each, kind)).decode() for each in pictures]


def _bytes(picture: np.ndarray, kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, kind, quality=JPEG_QUALITY, optimize=True)
    return file.getvalue()


def decoded(url: str) -> Image.Image:
    """Decode the image of a data URL."""
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")

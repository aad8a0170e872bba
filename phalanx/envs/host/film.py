"""Pictures of episodes by the environments' own `render`, taken where they are stepped, if watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from phalanx.envs.host.base import HostEnv

LONGEST_SIDE = 320  # pixels
IN_ALL = 900  # pictures of a pool
NO_PICTURES = 'it draws no pictures: render_mode="rgb_array" is needed'


def most_pictures(count: int) -> int:
    """How many pictures an episode may have if `count` are filmed."""
    return max(2, IN_ALL // count)


class Film:
    """The pictures of one episode. If there are more than `most`, every second one is dropped."""

    def __init__(self, most: int):
        self.most = most
        self.every = 1
        self.steps: list[int] = []
        self.pictures: list[np.ndarray] = []
        self.over = False

    def take(self, step: int, env: HostEnv, last: bool = False) -> None:
        """Take a picture after a step, if it is one of those to be kept; always of the last."""
        if step % self.every and not last:
            return
        picture = reduced(env.render())
        if self.pictures and picture.shape != self.pictures[0].shape:
            raise ValueError(f"its pictures change from {self.pictures[0].shape} to {picture.shape}")
        self.steps.append(step)
        self.pictures.append(picture)
        if len(self.steps) > self.most and not last:
            self.every *= 2
            kept = [i for i, each in enumerate(self.steps) if each % self.every == 0]
            self.steps, self.pictures = [self.steps[i] for i in kept], [self.pictures[i] for i in kept]

    def packed(self) -> tuple[list[int], tuple[int, ...], bytes]:
        """Steps, shape and pixels, which any version of numpy reads."""
        pictures = np.stack(self.pictures) if self.pictures else np.zeros((0, 1, 1, 3), np.uint8)
        return self.steps, pictures.shape, pictures.tobytes()


def unpacked(film: tuple[list[int], tuple[int, ...], bytes]) -> tuple[np.ndarray, np.ndarray]:
    """What was packed: steps (F,) and pictures (F, h, w, 3) uint8."""
    steps, shape, pixels = film
    return np.array(steps), np.frombuffer(pixels, np.uint8).reshape(shape)


def reduced(picture: Any) -> np.ndarray:
    """A picture with at most `LONGEST_SIDE` pixels a side, averaged over blocks, (h, w, 3) uint8."""
    if picture is None:
        raise ValueError(NO_PICTURES)
    picture = np.asarray(picture)
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        raise ValueError(f"it renders {picture.dtype}{list(picture.shape)}, not uint8[height, width, 3]")
    by = -(-max(picture.shape[:2]) // LONGEST_SIDE)
    if by == 1:
        return picture.copy()
    height, width = (max(1, side // by) for side in picture.shape[:2])
    blocks = picture[: height * by, : width * by]
    if blocks.shape[:2] != (height * by, width * by):  # thinner than a block
        return picture[::by, ::by].copy()
    return blocks.reshape(height, by, width, by, 3).mean((1, 3)).round().astype(np.uint8)

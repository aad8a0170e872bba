"""Pages and films of episodes: GIF with what is always installed, MP4 with the extra `video`."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from phalanx.errors import PhalanxError
from phalanx.files import write_whole
from phalanx.report.draw import image
from phalanx.report.page import Show, page

PIXELS = 480  # of the longer side of each picture
BETWEEN = 3  # pictures a step: bodies glide from one to the next
STEPS_PER_SECOND = 4
HOLD = 4  # pictures for which the end of an episode stays
MOVING = ("x", "y", "position", "lines")  # what glides; the rest is that of the step


def write(
    shows: Sequence[Show], title: str, path: Path, as_gif: bool = False, as_mp4: bool = False
) -> list[Path]:
    """Write the page that shows some teams, and films beside it; returns the files."""
    files = {path.with_suffix(".html"): lambda file: file.write_text(page(shows, title), encoding="utf-8")}
    if as_gif:
        files[path.with_suffix(".gif")] = lambda file: gif(shows, file)
    if as_mp4:
        files[path.with_suffix(".mp4")] = lambda file: mp4(shows, file)
    for file, make in files.items():
        write_whole(file, make)
    return list(files)


def pictures(shows: Sequence[Show]) -> Iterator[np.ndarray]:
    """(H, W, 3) uint8: all episodes one after another, two teams beside each other."""
    for episode in range(len(shows[0].frames)):
        played = [show.frames[episode] for show in shows]
        rendered = played[0][0] is not None and played[0][0]["kind"] == "pictures"
        for step in range(max(map(len, played)) - 1):
            for k in range(1 if rendered else BETWEEN):  # there is nothing between two pictures
                yield np.hstack([image(_between(frames, step + k / BETWEEN), PIXELS) for frames in played])
        end = np.hstack([image(frames[-1], PIXELS) for frames in played])
        for _ in range(HOLD * BETWEEN):
            yield end


def _between(frames: Sequence[Any], time: float) -> Any:
    """The frame at a time, with positions interpolated; the last frame after the end of the episode."""
    step = min(int(time), len(frames) - 1)
    now, after, part = frames[step], frames[min(step + 1, len(frames) - 1)], time - step
    if now is None or step == len(frames) - 1:
        return now
    moved = {
        name: (1 - part) * np.asarray(now[name], float) + part * np.asarray(after[name], float)
        for name in MOVING
        if name in now
    }
    return {**now, **moved}


def gif(shows: Sequence[Show], path: Path) -> None:
    """Write an animated GIF."""
    frames = [Image.fromarray(picture) for picture in pictures(shows)]
    # One palette for all, of the first and the last picture: colours that flicker disturb.
    sample = Image.fromarray(np.vstack([np.asarray(frames[0]), np.asarray(frames[-1])]))
    palette = sample.quantize(128, dither=Image.Dither.NONE)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    wait = round(1000 / (STEPS_PER_SECOND * BETWEEN))
    small[0].save(path, "GIF", save_all=True, append_images=small[1:], duration=wait, loop=0, optimize=False)


def require_mp4() -> str:
    """The path of ffmpeg, or an error that says how to install it."""
    try:
        import imageio_ffmpeg
    except ImportError:
        raise PhalanxError(
            "--mp4 needs the extra `video`: pip install 'phalanx[video]'; --gif does not"
        ) from None
    return imageio_ffmpeg.get_ffmpeg_exe()


def mp4(shows: Sequence[Show], path: Path) -> None:
    """Write an H.264 film."""
    frames = pictures(shows)
    first = next(frames)
    size, rate = f"{first.shape[1]}x{first.shape[0]}", str(STEPS_PER_SECOND * BETWEEN)
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", rate, "-i", "-"]
    coded = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-movflags", "+faststart", "-f", "mp4"]
    words = [require_mp4(), "-y", "-loglevel", "error", *raw, *coded, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stderr is not None
        with contextlib.suppress(BrokenPipeError):  # what it then says tells more
            for picture in (first, *frames):
                program.stdin.write(np.ascontiguousarray(picture).tobytes())
            program.stdin.close()
        said = program.stderr.read().decode(errors="replace").strip()
    if program.returncode:
        raise PhalanxError(f"cannot write {path}: {said.splitlines()[-1] if said else 'ffmpeg failed'}")

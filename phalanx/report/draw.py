"""Pictures of what `Env.frame` describes: grids, battles, and worlds of particles."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from phalanx.errors import PhalanxError, suggest
from phalanx.report.pictures import decoded
from phalanx.report.plots import COLOURS

FINER = 2  # pictures are drawn this much larger and scaled down, so that edges come out smooth
SMALLEST_RADIUS = 2.0  # pixels of radius that even the smallest body gets, or it would not be seen
SMALLEST_PICTURE = 16
READABLE = 6.0  # pixels of radius from which on a body has room for its number

Colour = tuple[int, ...]

WHITE, INK = (255, 255, 255), (40, 40, 40)
WALL, OPEN = (70, 74, 82), (240, 240, 236)
# From level 1 to level 2; what can be stood on, and what cannot.
GROUND = ((201, 194, 178), (233, 227, 212))
ROCK, CLIFF = (58, 56, 60), ((92, 89, 90), (112, 108, 106))
# Okabe and Ito's blue, vermilion and green.
ALLY, ENEMY, HEALING = (0, 114, 178), (213, 94, 0), (0, 158, 115)
BAR, HEALTH, SHIELD = (30, 30, 34), (86, 196, 74), (86, 180, 233)
AROUND = 2  # cells that a battle is shown beyond its ground
MARGIN = 0.9  # of a picture of particles that the camera's square fills
LINE = 0.03  # how thick lines among particles are, in units of the world


def image(frame: Mapping[str, Any] | None, pixels: int = 640) -> np.ndarray:
    """Draw a frame of `Env.frame` as an image, (H, W, 3) uint8; the longer side has `pixels` pixels.

    All frames of an environment come out in one size, and both sides of it are even if `pixels`
    is, as films must be.
    """
    if frame is None:
        raise PhalanxError("there is nothing to draw: the environment's frame(state) gives None")
    kind = frame.get("kind") if isinstance(frame, Mapping) else type(frame).__name__
    if not isinstance(frame, Mapping) or kind not in KINDS:
        raise PhalanxError(f"cannot draw a frame of the kind {kind!r}.{suggest(str(kind), KINDS)}")
    whole = isinstance(pixels, int | np.integer) and not isinstance(pixels, bool)
    if not whole or pixels < SMALLEST_PICTURE:
        raise PhalanxError(f"pixels must be a whole number of at least {SMALLEST_PICTURE}, not {pixels!r}")
    return KINDS[kind](frame, int(pixels)).picture()


class Canvas:
    """An image to draw on. Lengths are in pixels of the final image; y points down."""

    def __init__(self, width: int, height: int, ground: Colour):
        self.image = Image.new("RGB", (FINER * width, FINER * height), ground)
        self.pen = ImageDraw.Draw(self.image, "RGBA")

    def picture(self) -> np.ndarray:
        """The finished picture, (H, W, 3) uint8."""
        return np.array(self.image.reduce(FINER))

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: Colour | None,
        outline: Colour | None = None,
        line: float = 1,
        corner: float = 0,
    ) -> None:
        """A rectangle from its top left corner, with an outline and round corners if wanted."""
        edges = _finer(x, y, x + width, y + height)
        self.pen.rounded_rectangle(
            (edges[0], edges[1], max(edges[0], edges[2] - 1), max(edges[1], edges[3] - 1)),
            radius=FINER * corner,
            fill=fill,
            outline=outline,
            width=max(1, round(FINER * line)),
        )

    def disc(self, x: float, y: float, radius: float, fill: Colour, border: Colour, line: float = 1) -> None:
        """A filled circle with a border and a minimum size."""
        r = max(radius, SMALLEST_RADIUS)
        west, north, east, south = _finer(x - r, y - r, x + r, y + r)
        # The border of a very small body must leave some of its colour.
        width = max(1, round(FINER * min(line, r / 3)))
        self.pen.ellipse((west, north, east - 1, south - 1), fill=fill, outline=border, width=width)

    def line(self, start: Sequence[float], end: Sequence[float], colour: Colour, width: float = 1) -> None:
        """A straight line from one point to another."""
        self.pen.line(_finer(*start, *end), fill=colour, width=max(1, round(FINER * width)))

    def text(self, x: float, y: float, words: str, size: float, colour: Colour, anchor: str = "mm") -> None:
        """Text at a point; `anchor` is Pillow's."""
        self.pen.text((FINER * x, FINER * y), words, fill=colour, font=_font(size), anchor=anchor)


def _finer(*lengths: float) -> tuple[float, ...]:
    return tuple(FINER * float(length) for length in lengths)


def _font(size: float) -> Any:
    return ImageFont.load_default(max(1.0, FINER * size))


def _rgb(code: str) -> Colour:
    """`#0072B2` as numbers."""
    return tuple(int(code[i : i + 2], 16) for i in (1, 3, 5))


def _between(one: Colour, other: Colour, part: float) -> Colour:
    """Interpolate between two colours."""
    return tuple(round(a + part * (b - a)) for a, b in zip(one, other, strict=True))


def _legible(ground: Colour) -> Colour:
    """A text colour for this background: white, or dark on light colours."""
    red, green, blue = ground[:3]
    return WHITE if 0.3 * red + 0.59 * green + 0.11 * blue < 160 else INK


def _size(width: float, height: float, pixels: int) -> tuple[int, int]:
    """Width and height in pixels: `pixels` the longer, and the other even."""
    longer = max(width, height)
    across, down = (
        pixels if side == longer else 2 * round(pixels * side / longer / 2) for side in (width, height)
    )
    return across, down


# Grids


def _grid(frame: Mapping[str, Any], pixels: int) -> Canvas:
    """Walls dark; each agent's home in its colour; an agent that is home is white on its coloured cell."""
    is_open = np.asarray(frame["open"], bool)
    rows, columns = is_open.shape
    cell = pixels / max(rows, columns)
    canvas = Canvas(*_size(columns, rows, pixels), WALL)
    gap = max(0.5, cell / 80)
    for row, column in np.argwhere(is_open):
        canvas.box(column * cell + gap, row * cell + gap, cell - 2 * gap, cell - 2 * gap, OPEN)
    at_home = np.asarray(frame["home"], bool)
    for agent, (row, column) in enumerate(np.asarray(frame["target"])):
        colour, inset = _agent_colour(agent), cell / 10
        side = cell - 2 * inset
        fill = colour if at_home[agent] else _between(OPEN, colour, 0.2)
        canvas.box(
            column * cell + inset, row * cell + inset, side, side, fill,
            outline=colour, line=cell / 24, corner=cell / 10,
        )  # fmt: skip
    for agent, (row, column) in enumerate(np.asarray(frame["position"])):
        colour = _agent_colour(agent)
        fill, border = (WHITE, colour) if at_home[agent] else (colour, _between(colour, (0, 0, 0), 0.45))
        x, y, radius = (column + 0.5) * cell, (row + 0.5) * cell, 0.31 * cell
        canvas.disc(x, y, radius, fill, border, line=cell / 40)
        if radius >= READABLE:
            words = colour if at_home[agent] else _legible(fill)
            canvas.text(x, y, str(agent), 1.1 * radius, words)
    return canvas


def _agent_colour(agent: int) -> Colour:
    return _rgb(COLOURS[agent % len(COLOURS)])


# Battles


def _battle(frame: Mapping[str, Any], pixels: int) -> Canvas:
    """Draw blue allies and orange enemies with their numbers on the walkable map; north is up."""
    view = _view(np.asarray(frame["level"]), int(frame["size"]))
    width, height = view.east - view.west, view.north - view.south
    canvas = Canvas(*_size(width, height, pixels), ROCK)
    _ground(canvas, view, np.asarray(frame["walkable"], bool), np.asarray(frame["level"]))
    cell = pixels / max(width, height)
    x = (np.asarray(frame["x"]) - view.west) * cell
    y = (view.north - np.asarray(frame["y"])) * cell  # y grows to the north
    radius = np.maximum(np.asarray(frame["radius"]) * cell, SMALLEST_RADIUS)
    alive, allies = np.asarray(frame["health"]) > 0, int(frame["allies"])
    for unit in map(int, np.flatnonzero(~alive)):
        colour, arm = (*_side_colour(unit, allies), 110), 0.6 * radius[unit]
        for sign in (-1, 1):
            ends = (x[unit] - arm, y[unit] - sign * arm), (x[unit] + arm, y[unit] + sign * arm)
            canvas.line(*ends, colour, width=cell / 14)
    for unit in map(int, np.flatnonzero(alive)):
        colour = _side_colour(unit, allies)
        canvas.disc(x[unit], y[unit], radius[unit], colour, _between(colour, (0, 0, 0), 0.5), line=cell / 20)
        if radius[unit] >= READABLE:
            number = unit if unit < allies else unit - allies
            canvas.text(x[unit], y[unit], str(number), 1.1 * radius[unit], WHITE)
    _shots(canvas, frame, x, y, alive, cell)
    for unit in map(int, np.flatnonzero(alive)):
        _bars(canvas, frame, unit, x[unit], y[unit] - radius[unit], max(radius[unit], 0.4 * cell), cell)
    return canvas


class View(NamedTuple):
    """Which cells of a battle's map are shown, up to but without `east` and `north`."""

    west: int
    south: int
    east: int
    north: int


def _view(level: np.ndarray, size: int) -> View:
    """The part of the map (32, 32) [x, y] to show: walkable cells and a margin for flying units."""
    xs, ys = np.nonzero(level > 0)
    low = (max(0, int(each.min()) - AROUND) for each in (xs, ys))
    high = (min(size, int(each.max()) + 1 + AROUND) for each in (xs, ys))
    return View(*low, *high)


def _side_colour(unit: int, allies: int) -> Colour:
    return ALLY if unit < allies else ENEMY


def _ground(canvas: Canvas, view: View, walkable: np.ndarray, level: np.ndarray) -> None:
    """The map, from [x, y] cells with y = 0 in the south: the higher the lighter, dark where nobody walks."""
    height = (level - 1).clip(0, 1)[..., None]
    low, high = (np.array(each, float) for each in GROUND)
    ledge, top = (np.array(each, float) for each in CLIFF)
    barred = np.where((level > 0)[..., None], ledge + height * (top - ledge), np.array(ROCK, float))
    cells = np.where(walkable[..., None], low + height * (high - low), barred).round().astype(np.uint8)
    shown = cells[view.west : view.east, view.south : view.north].transpose(1, 0, 2)[::-1]
    ground = Image.fromarray(np.ascontiguousarray(shown))
    canvas.image.paste(ground.resize(canvas.image.size, Image.Resampling.NEAREST))


def _shots(canvas: Canvas, frame: Mapping[str, Any], x: Any, y: Any, alive: Any, cell: float) -> None:
    """Draw a line from each unit that attacked in the last step to its target; healing is green."""
    allies, targets = int(frame["allies"]), np.asarray(frame["target"])
    for unit in map(int, np.flatnonzero(np.asarray(frame["fired"], bool) & alive & (targets >= 0))):
        target = int(targets[unit])
        heals = (unit < allies) == (target < allies)
        colour = HEALING if heals else _side_colour(unit, allies)
        canvas.line((x[unit], y[unit]), (x[target], y[target]), (*colour, 190), width=cell / 16)


def _bars(
    canvas: Canvas, frame: Mapping[str, Any], unit: int, x: float, top: float, half: float, cell: float
) -> None:
    """Draw the health of a unit and, above it, its shield, as bars of the unit's width."""
    thick, at = max(2.0, 0.16 * cell), top
    for name, colour in (("health", HEALTH), ("shield", SHIELD)):
        most = float(np.asarray(frame[f"max_{name}"])[unit])
        if most <= 0:
            continue
        at -= thick + max(1.0, 0.05 * cell)
        part = min(1.0, max(0.0, float(np.asarray(frame[name])[unit]) / most))
        canvas.box(x - half, at, 2 * half, thick, BAR)
        if part > 0:
            canvas.box(x - half, at, 2 * half * part, thick, colour)


# Particles


def _particles(frame: Mapping[str, Any], pixels: int) -> Canvas:
    """Bodies in their own colours on white, agents over landmarks over lines, and what was said below."""
    canvas = Canvas(pixels, pixels, WHITE)
    position = np.asarray(frame["position"], float).reshape(-1, 2)
    lines = np.asarray(frame.get("lines", ()), float).reshape(-1, 2)
    camera = max(1.0, float(np.abs(np.concatenate([position, lines])).max(initial=0.0)))
    scale = MARGIN * pixels / (2 * camera)
    ends = pixels / 2 + lines * (scale, -scale)
    for start, end in zip(ends[::2], ends[1::2], strict=True):
        canvas.line(start, end, WALL, width=max(1.5, LINE * scale))
    x, y = pixels / 2 + position[:, 0] * scale, pixels / 2 - position[:, 1] * scale
    radius = np.asarray(frame["radius"], float) * (scale if frame["rescale"] else pixels / 2)
    colours = (np.asarray(frame["color"], float).clip(0, 1) * 255).round().astype(int)
    agents = int(frame["agents"])
    for entity in (*range(agents, len(position)), *range(agents)):
        fill = tuple(map(int, colours[entity]))
        canvas.disc(x[entity], y[entity], radius[entity], fill, INK, line=pixels / 640)
    _said(canvas, [str(line) for line in frame["said"]], pixels)
    return canvas


def _said(canvas: Canvas, lines: list[str], pixels: int) -> None:
    """Write lines of text in the bottom left corner, in a smaller font if they are too long."""
    size, left = pixels / 32, pixels * (1 - MARGIN) / 4
    widest = max((_font(size).getlength(line) / FINER for line in lines), default=0.0)
    size *= min(1.0, (pixels - 2 * left) / max(widest, 1.0))
    for up, line in enumerate(reversed(lines)):
        canvas.text(left, pixels - left - 1.3 * size * up, line, size, INK, anchor="ls")


# Pictures


class Given(NamedTuple):
    """An image that the environment rendered itself."""

    image: Image.Image

    def picture(self) -> np.ndarray:
        return np.array(self.image)


def _pictures(frame: Mapping[str, Any], pixels: int) -> Given:
    picture = decoded(frame["pictures"][frame["shown"]])
    return Given(picture.resize(_size(*picture.size, pixels), Image.Resampling.BICUBIC))


KINDS = {"grid": _grid, "battle": _battle, "particles": _particles, "pictures": _pictures}

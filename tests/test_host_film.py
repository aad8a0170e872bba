"""Watching hosted environments by the pictures that they render themselves."""

import numpy as np
import pytest
from PIL import Image
from test_watch import chromium, unpacked  # noqa: F401  (a fixture)
from test_workers import importable, task  # noqa: F401  (a fixture)

import phalanx
from phalanx.envs.host import own
from phalanx.envs.host.film import IN_ALL, LONGEST_SIDE, Film, most_pictures, reduced
from phalanx.envs.host.gym import Adapter
from phalanx.envs.host.packages import drawing, picture
from phalanx.errors import PhalanxError
from phalanx.report import film, page
from phalanx.report.pictures import decoded
from phalanx.runs import untrained
from phalanx.training import playback


class Counting:
    """Renders how often it was rendered."""

    drawn = -1

    def render(self):
        self.drawn += 1
        return np.full((2, 3, 3), self.drawn % 256, np.uint8)


@pytest.mark.parametrize(("length", "every", "count"), [(5, 1, 6), (9, 1, 10), (10, 2, 6), (37, 8, 6)])
def test_a_long_film_has_fewer_pictures_and_always_the_last(length, every, count):
    env, taken = Counting(), Film(9)
    for step in range(length + 1):
        taken.take(step, env, last=step == length)  # type: ignore[arg-type]
    assert taken.every == every
    assert len(taken.steps) == len(taken.pictures) == count
    assert taken.steps[:-1] == list(range(0, length, every))
    assert taken.steps[-1] == length
    assert most_pictures(3) * 3 <= IN_ALL


def test_pictures_are_averaged_over_blocks():
    picture = np.zeros((400, 600, 3), np.uint8)
    picture[::2] = 100
    small = reduced(picture)
    assert small.shape == (200, 300, 3)
    assert (small == 50).all()
    assert max(reduced(np.zeros((1, 5000, 3), np.uint8)).shape) <= LONGEST_SIDE
    for wrong in (None, "@", np.zeros((4, 4)), np.zeros((4, 4, 4), np.uint8)):
        with pytest.raises(ValueError, match=r"draws no pictures|it renders"):
            reduced(wrong)


def played(workers, episodes=3, **options):
    """Episodes of the stand-in, played by a random team, with their films."""
    env = task(workers, **options)
    setup, _ = untrained("random", env, {})
    return setup, playback.play(env, setup.algorithm, (), seed=1, episodes=episodes, film=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_pictures_are_those_of_the_steps(workers):
    setup, episodes = played(workers, drawn="given")
    assert len({episode.length for episode in episodes}) > 1
    for episode in episodes:
        x = episode.observation.state[:, 0]
        assert episode.film.picture.shape == (episode.length + 1, 200, 250, 3)
        np.testing.assert_array_equal(episode.film.picture[:, 0, -1, 0], range(episode.length + 1))
        np.testing.assert_array_equal(episode.film.picture[:, 0, 0, 0] == 200, x > 0)  # the last one included
    shown = page.show("random", setup.env, "", episodes)
    frames = shown.frames[0]
    for step, frame in enumerate(frames):
        assert np.array(decoded(frame["pictures"][frame["shown"]]))[0, -1, 0] == step
    page.require_same_starts(shown, shown)
    backwards = [[{**frame, "pictures": frame["pictures"][::-1]} for frame in frames]]
    with pytest.raises(PhalanxError, match="do not start from the same states"):
        page.require_same_starts(shown._replace(frames=[frames]), shown._replace(frames=backwards))
    pictures = list(film.pictures([shown]))
    assert pictures[0].shape == (384, 480, 3)
    assert len(pictures) == sum(episode.length + film.HOLD * film.BETWEEN for episode in episodes)


@pytest.mark.parametrize(
    ("drawn", "line"),
    [
        ("", 'troubled cannot be watched: it draws no pictures: render_mode="rgb_array" is needed'),
        ("raise", "troubled cannot be watched: RuntimeError: no screen"),
        ("text", r"troubled cannot be watched: it renders <U1\[\], not uint8\[height, width, 3\]"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_what_cannot_be_drawn_is_one_line(drawn, line, workers):
    with pytest.raises(PhalanxError, match=line):
        played(workers, drawn=drawn)


def test_a_worker_that_dies_while_it_is_watched_is_one_line():
    with pytest.raises(PhalanxError, match=r"troubled failed while it was watched: .*SIGKILL"):
        played(1, episodes=1, drawn="given", fault="kill", often=0.15)


def test_environments_are_made_to_draw_only_if_they_are_watched():
    assert Adapter("CartPole-v1").env.render_mode is None
    assert drawing(lambda: Adapter("CartPole-v1"))().env.render_mode == "rgb_array"
    assert Adapter("CartPole-v1", extra={"render_mode": "rgb_array"}).env.render_mode == "rgb_array"


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    out = tmp_path_factory.mktemp("film") / "cartpole.html"
    return phalanx.watch("random", env="gym/CartPole-v1", episodes=2, out=out, gif=True)


def test_cartpole_is_watched(cartpole):
    html, gif = cartpole
    told, _ = unpacked(html)
    for episode in told["shows"][0]["episodes"]:
        assert episode["frame"]["kind"] == "pictures"
        assert len(episode["frame"]["pictures"]) == episode["length"] + 1
        assert decoded(episode["frame"]["pictures"][0]).size == (300, 200)
        assert episode["frame"]["note"] == "pictures by the environment, 300 x 200"
    assert Image.open(gif).size == (480, 320)


def test_cartpole_in_a_browser(chromium, cartpole):  # noqa: F811
    seen = []
    for step in (0, 5):
        chromium.open(cartpole[0], f"#step={step}")
        chromium.until("Boolean(view.stages[0].scene.last)")
        seen.append(chromium.ask("view.stages[0].canvas.toDataURL()"))
    assert chromium.text("figcaption") == "pictures by the environment, 300 x 200"
    assert seen[0] != seen[1]
    assert chromium.complaints == []


class Old:
    """What gym had before 0.26, and what lbforaging and rware have: the mode is an argument of `render`."""

    @property
    def unwrapped(self):
        return self

    def render(self, mode="human"):
        assert mode == "rgb_array"
        return np.zeros((2, 2, 3), np.uint8)


def test_a_mode_may_be_an_argument_of_render():
    assert picture(Old()).shape == (2, 2, 3)


def test_a_function_of_the_users_is_asked_for_pictures_if_it_takes_a_render_mode():
    def makes(size=1, render_mode=None):
        return size, render_mode

    assert own.call(makes, "makes", {"size": 2}) == (2, None)
    assert drawing(lambda: own.call(makes, "makes", {"size": 2}))() == (2, "rgb_array")
    assert drawing(lambda: own.call(lambda size: size, "plain", {"size": 2}))() == 2

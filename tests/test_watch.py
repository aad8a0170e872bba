"""Watching, recording and exporting: what is shown, written and loaded is what was played."""

import base64
import contextlib
import dataclasses
import gzip
import io
import json
import re
import sys
import threading
import types
import zipfile

import browser as browsers
import jax
import numpy as np
import pytest
from conftest import OWN_ENVS
from PIL import Image

import phalanx
from phalanx import api, cli, registry
from phalanx.config import Resolved, RunConfig
from phalanx.envs.debug import Identity
from phalanx.errors import PhalanxError
from phalanx.report import film, mirrors
from phalanx.report.events import events
from phalanx.report.metrics import MetricsWriter
from phalanx.report.page import Packer, page, require_same_starts, show
from phalanx.training import keys, playback
from phalanx.training.keys import Purpose

NO_BROWSER = "no Chromium here (apt-get install chromium, or set PHALANX_BROWSER)"


def unpacked(file):
    """What a page holds: its description and its block of bytes."""
    (data,) = re.findall(r'<script id="data" type="text/plain">(.*?)</script>', file.read_text("utf-8"))
    plain = gzip.decompress(base64.b64decode(data))
    size = int.from_bytes(plain[:4], "little")
    return json.loads(plain[4 : 4 + size]), plain[4 + size :]


def decoded(told, block):
    """The slow twin of the page's own decoder: an array (T, ...), or (1, ...) of what never changes."""
    if isinstance(told, list):
        return np.array([told])
    count = int(np.prod(told["shape"]))
    low, high = (np.frombuffer(block, np.uint8, count, told["at"] + k * count) for k in (0, 1))
    steps = (low.astype(np.int64) + 256 * high.astype(np.int64)).reshape(told["shape"])
    whole = np.cumsum(steps, axis=0) % 65_536
    if "base" in told:
        return (np.array(told["base"]) + whole) * np.array(told["unit"])
    return whole.astype(np.uint16).astype(np.int16)


def start_of(seed):
    """The key of the first episodes that `watch` shows of a seed."""
    return jax.random.fold_in(keys.root(Purpose.PLAYBACK, seed), 0)


@pytest.fixture(scope="module")
def battle():
    """Two battles of an untrained team from random starts, and the team's set-up."""
    this, policies = api.untrained("ippo", "battle/2m_vs_1m", {"starts": 64})
    params = jax.tree.map(lambda p: p[0], policies)
    play = playback.player(this.env, this.algorithm, 2, greedy=True, film=True)
    played = play(params, start_of(7))
    return this, show("ippo", this.env, this.algorithm.actor.preference, played)


@pytest.fixture(scope="module")
def scripted(battle):
    """The same battles as the scripted team plays them, by their seed."""
    this, policies = api.untrained("heuristic", battle[0].env, {})
    params = jax.tree.map(lambda p: p[0], policies)
    play = playback.player(this.env, this.algorithm, 2, greedy=True, film=True)
    return lambda seed: show("heuristic", this.env, "", play(params, start_of(seed)))


@pytest.fixture(scope="module")
def battle_page(battle, tmp_path_factory):
    file = tmp_path_factory.mktemp("pages") / "battle.html"
    file.write_text(page([battle[1]], "ippo on battle/2m_vs_1m"), "utf-8")
    return file


@pytest.fixture(scope="module")
def switch_page(small_run, tmp_path_factory):
    (file,) = phalanx.watch(
        small_run.folder, episodes=2, out=tmp_path_factory.mktemp("pages") / "switch.html"
    )
    return file


@pytest.fixture(scope="module")
def chromium():
    path = browsers.find()
    if path is None:
        pytest.skip(NO_BROWSER)
    with browsers.browser(path) as opened:
        yield opened


# What is played


def test_what_is_played_is_an_episode_of_the_environment(battle):
    this, shown = battle
    step = jax.jit(this.env.step)
    for episode in shown.episodes:
        assert episode.terminated != episode.truncated
        assert len(episode.observation.obs) == len(episode.action) + 1 == len(episode.reward) + 1
        # Masks and probabilities belong to the step that they stand at.
        avail = episode.observation.avail[:-1]
        assert np.take_along_axis(avail, episode.action[..., None], -1).all()
        alive = episode.observation.alive[:-1]
        np.testing.assert_allclose(episode.preferences.sum(-1)[alive], 1, rtol=1e-5)
        assert (episode.preferences.argmax(-1) == episode.action)[alive].all()
        assert (episode.preferences[~avail & alive[..., None]] == 0).all()
        # The state of each step, played on with the action of that step, sees what the next one sees.
        state = jax.tree.map(lambda x: x[0], episode.states)
        _, after = step(jax.random.key(0), state, episode.action[0])
        np.testing.assert_allclose(after.observation.obs, episode.observation.obs[1], atol=1e-5)


def test_a_state_may_hold_random_keys(tmp_path):
    class Keyed(Identity):
        def reset(self, key):
            target, step = super().reset(key)
            return (target, key), step

        def step(self, key, state, actions):
            target, step = super().step(key, state[0], actions)
            return (target, key), step

    (file,) = phalanx.watch("random", env=Keyed(), episodes=1, out=tmp_path / "keyed.html")
    assert file.is_file()


def test_starts_depend_on_the_seed_alone(battle, scripted):
    require_same_starts(battle[1], scripted(7))
    assert len(scripted(7).frames[0]) != len(battle[1].frames[0])
    with pytest.raises(PhalanxError, match="do not start from the same states"):
        require_same_starts(battle[1], scripted(8))


@pytest.mark.parametrize("name", OWN_ENVS)
def test_every_action_has_a_name(name):
    spec = registry.make_env(name, {}).spec
    if spec.action_names:
        assert tuple(map(len, spec.action_names)) == spec.action_counts
    else:
        assert name.startswith("debug/")


# The page


def test_page_holds_what_was_played(battle, battle_page):
    told, block = unpacked(battle_page)
    for episode, frames, held in zip(
        battle[1].episodes, battle[1].frames, told["shows"][0]["episodes"], strict=True
    ):
        assert held["length"] == episode.length
        for name in ("x", "y", "health"):
            true = np.array([frame[name] for frame in frames])
            found = np.broadcast_to(decoded(held["frame"][name], block), true.shape)
            np.testing.assert_allclose(found, true, atol=2e-3)
        np.testing.assert_allclose(decoded(held["obs"], block), episode.observation.obs, atol=1e-4)
        np.testing.assert_array_equal(decoded(held["action"], block), episode.action)
        np.testing.assert_array_equal(decoded(held["avail"], block), episode.observation.avail)
        np.testing.assert_allclose(decoded(held["preferences"], block), episode.preferences, atol=1e-4)
        assert held["frame"]["kind"] == "battle"


def test_negative_numbers_and_constants_come_back():
    packer = Packer()
    for array in (np.array([[-1, 5], [3, -7]]), np.array([[0.5, 2.0], [0.5, -30.0], [0.5, 0]], np.float32)):
        told = json.loads(json.dumps(packer.over_time(array)))
        found = decoded(told, bytes(packer.block))
        np.testing.assert_allclose(found, array, atol=1e-4 * np.abs(array).max())
        assert ((found == 0) == (array == 0)).all()


def test_page_needs_nothing_from_anywhere(battle_page):
    text = battle_page.read_text("utf-8")
    assert "default-src 'none'" in text
    assert not re.search(
        r"(src|href)=|url\(|@import|https?://", text.replace("href: URL.createObjectURL", "")
    )
    assert len(text) < 1_000_000


def test_a_frame_that_cannot_be_shown_is_refused(battle):
    strange = [[{"kind": "batle"} for _ in frames] for frames in battle[1].frames]
    with pytest.raises(PhalanxError, match="battle"):
        page([battle[1]._replace(frames=strange)], "strange")


# What happened, in words


def test_events_of_a_battle():
    spec = registry.make_env("battle/2m_vs_1m", {}).spec
    calm = {
        "kind": "battle", "allies": 2, "types": ["marine"] * 3, "health": np.array([45.0, 45, 45]),
        "shield": np.zeros(3), "fired": np.zeros(3, bool), "target": np.array([2, 2, 0]),
    }  # fmt: skip
    hit = {**calm, "health": np.array([39.0, 45, 33]), "fired": np.ones(3, bool)}
    dead = {**hit, "health": np.array([39.0, 45, 0]), "fired": np.array([True, False, False])}
    dead["target"] = np.array([-1, -1, -1])
    told = events([calm, hit, dead], spec, won=True, terminated=True)
    assert [tuple(event) for event in told] == [
        (1, "hit", "agent_0 marine loses 6 (enemy 0)"),
        (1, "hit", "enemy 0 marine loses 12 (agent_0, agent_1)"),
        (2, "death", "enemy 0 marine dies (agent_0)"),
        (2, "win", "won"),
    ]
    lost = events([calm, {**calm, "health": np.array([45.0, 0, 45])}], spec, won=False, terminated=False)
    assert [event.kind for event in lost] == ["loss", "lose"]


def test_events_of_particles_and_grids():
    spec = registry.make_env("switch/2", {}).spec
    grid = {"kind": "grid", "home": np.array([False, False])}
    told = events([grid, {**grid, "home": np.array([False, True])}], spec, won=False, terminated=False)
    assert told[0][1:] == ("home", "agent_1 is home")
    apart = {
        "kind": "particles", "agents": 2, "names": ["a", "b", "goal"], "radius": np.array([0.1, 0.1, 0.1]),
        "position": np.array([[0.0, 0], [1, 0], [0, 0]]), "said": ["a says nothing"],
    }  # fmt: skip
    close = {**apart, "position": np.array([[0.0, 0], [0.15, 0], [0, 0]]), "said": ["a says B"]}
    told = events([apart, close, close], spec, won=None, terminated=False)
    assert [event[:2] for event in told] == [(1, "touch"), (1, "word"), (2, "lose")]


# In a browser


def test_battle_page_in_a_browser(chromium, battle, battle_page):
    this, shown = battle
    length = shown.episodes[0].length
    chromium.complaints.clear()
    chromium.resize(1280, 800)
    chromium.open(battle_page)
    assert "battle/2m_vs_1m" in chromium.text("#title")
    assert chromium.text("#step") == f"step 0 / {length}"
    # Play moves the counter, pause stops it.
    chromium.click("#play")
    chromium.until("parseInt(document.querySelector('#step').innerText.slice(5)) >= 2")
    chromium.click("#play")
    assert not chromium.ask("document.body.classList.contains('playing')")
    # Scrubbing shows the right step, and so do the keys.
    chromium.ask(
        "(s => { s.value = 5; s.dispatchEvent(new Event('input')) })(document.querySelector('#scrub'))"
    )
    chromium.until(f"document.querySelector('#step').innerText === 'step 5 / {length}'")
    x = chromium.ask("view.stages[0].scene.now(view.time).map(u => u.x)")
    np.testing.assert_allclose(x, shown.frames[0][5]["x"], atol=2e-3)
    chromium.press("ArrowRight")
    chromium.until("document.querySelector('#scrub').value === '6'")
    chromium.press("End")
    chromium.until(f"document.querySelector('#step').innerText === 'step {length} / {length}'")
    assert chromium.ask("document.querySelectorAll('#events .now').length") > 0
    chromium.press("Home")
    # Choosing an agent shows what it does, weighs and sees.
    chromium.click("#agents button[data-agent='1']")
    name = this.env.spec.action_names[1][shown.episodes[0].action[0, 1]]
    chromium.until(f"document.querySelector('#chosen b')?.innerText === {json.dumps(name)}")
    best = shown.episodes[0].preferences[0, 1].max()
    assert chromium.text("#actions .taken span:last-child") == f"{100 * best:.1f} %"
    open_actions = int(shown.episodes[0].observation.avail[0, 1].sum())
    assert chromium.ask("document.querySelectorAll('#actions .bar').length") == open_actions
    own = dict(zip(this.env.spec.obs_features[1], shown.episodes[0].observation.obs[0, 1], strict=True))
    assert f"{own['agent_0: distance']:.2f}" in chromium.text("#sees")
    # The second episode.
    chromium.press("2")
    chromium.until(f"document.querySelector('#step').innerText.endsWith('/ {shown.episodes[1].length}')")
    assert chromium.complaints == []


def test_agent_is_chosen_in_the_scene_and_on_a_phone(chromium, battle_page):
    chromium.complaints.clear()
    chromium.resize(390, 844, dark=True, phone=True)
    chromium.open(battle_page, "#step=3")
    assert chromium.ask("document.documentElement.dataset.theme") == "dark"
    assert chromium.ask("document.documentElement.scrollWidth") <= 390
    where = "(s => [s.pen.x(s.scene.now(3)[1].x), s.pen.y(s.scene.now(3)[1].y)])(view.stages[0])"
    x, y = chromium.ask(where)
    box = chromium.ask("(b => [b.x, b.y])(document.querySelector('figure canvas').getBoundingClientRect())")
    for what in ("mousePressed", "mouseReleased"):
        chromium.call(
            "Input.dispatchMouseEvent", type=what, x=box[0] + x, y=box[1] + y, button="left", clickCount=1
        )
    chromium.until("document.querySelector('#chosen').innerText.includes('agent_1')")
    assert chromium.complaints == []


def test_two_teams_side_by_side(chromium, battle, scripted, tmp_path):
    file, other = tmp_path / "two.html", scripted(7)
    action = other.episodes[0].action.copy()
    action[2] = (4, 1)
    other.episodes[0] = other.episodes[0]._replace(action=action)
    file.write_text(page([battle[1], other], "two"), "utf-8")
    chromium.complaints.clear()
    chromium.resize(1280, 800)
    chromium.open(file)
    assert chromium.ask("document.querySelectorAll('figure').length") == 2
    most = battle[1].episodes[0].length
    assert chromium.text("#step") == f"step 0 / {most}"
    chromium.press("End")
    chromium.until(f"document.querySelector('#step').innerText === 'step {most} / {most}'")
    assert "heuristic" in chromium.text("#score")
    # Each agent of the other team has its own action.
    chromium.ask("go(2)")
    for agent, name in enumerate(("move east", "stop")):
        chromium.click(f"#agents button[data-show='1'][data-agent='{agent}']")
        chromium.until(f"document.querySelector('#actions .taken span')?.innerText === '{name}'")
    assert chromium.complaints == []


@pytest.mark.parametrize(
    "env", ["mpe/simple_crypto", "mpe/simple_tag", "debug/memory", "classic/CartPole-v1"]
)
def test_other_worlds_in_a_browser(chromium, env, tmp_path):
    options = {"continuous_actions": True} if env == "mpe/simple_tag" else {}
    (file,) = phalanx.watch("random", env=env, episodes=1, out=tmp_path / "page.html", env_options=options)
    chromium.complaints.clear()
    chromium.resize(1000, 700)
    chromium.open(file, "#step=1&agent=0")
    assert chromium.text("#step").startswith("step 1 ")
    assert chromium.text("#sees")
    assert chromium.ask("document.querySelectorAll('#actions .bar').length") > 0
    assert chromium.complaints == []


def test_switch_page_in_a_browser(chromium, switch_page):
    chromium.complaints.clear()
    chromium.resize(1000, 700, dark=True)
    chromium.open(switch_page, "#step=4&agent=1")
    told, block = unpacked(switch_page)
    position = decoded(told["shows"][0]["episodes"][0]["frame"]["position"], block)
    row, column = position[min(4, len(position) - 1), 1]
    seen = chromium.ask("Array.from(at(view.stages[0].scene.frame.position, 4))")
    assert seen[2:] == [row, column]
    assert "row" in chromium.text("#sees")
    assert chromium.complaints == []


# Films


def test_gif_shows_every_step(battle, tmp_path):
    one = battle[1]._replace(episodes=battle[1].episodes[:1], frames=[battle[1].frames[0][:4]])
    film.gif([one, one], tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as picture:
        pictures = 3 * film.BETWEEN + film.HOLD * film.BETWEEN
        assert picture.size[0] == 2 * film.PIXELS
        shown = 0
        for k in range(picture.n_frames):  # equal pictures are one that stays longer
            picture.seek(k)
            shown += picture.info["duration"]
        assert shown == pytest.approx(pictures * 1000 / (film.STEPS_PER_SECOND * film.BETWEEN), rel=0.05)


def test_mp4_is_written_or_names_its_extra(battle, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(PhalanxError, match=r"phalanx\[video\]"):
        phalanx.watch("random", env="debug/memory", mp4=True)
    monkeypatch.undo()
    pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed")
    one = battle[1]._replace(episodes=battle[1].episodes[:1], frames=[battle[1].frames[0][:3]])
    film.mp4([one], tmp_path / "film.mp4")
    assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"


def test_a_film_needs_something_to_draw(tmp_path):
    with pytest.raises(PhalanxError, match="nothing to draw"):
        phalanx.watch("random", env="debug/memory", episodes=1, gif=True, out=tmp_path / "x.html")
    assert not (tmp_path / "x.gif").exists()


# Mistakes


def test_mistakes_are_one_line(small_run, tmp_path):
    for wrong, words in (
        ({"run": tmp_path / "none"}, "no run folder"),
        ({"run": small_run.folder, "episodes": 0}, "at least 1"),
        ({"run": small_run.folder, "team": 5}, "has the seeds 0, 1"),
        ({"run": small_run.folder, "env": "switch/2"}, "has its own environment"),
        ({"run": "randm", "env": "switch/2"}, "random"),
    ):
        with pytest.raises(PhalanxError, match=words):
            phalanx.watch(**wrong)
    with pytest.raises(PhalanxError, match=r"\.npz"):
        phalanx.record(small_run.folder, tmp_path / "x.csv", episodes=1)
    with pytest.raises(PhalanxError, match="cannot write"):
        phalanx.export(small_run.folder, "/proc/nowhere/team.zip")


def test_commands_print_what_they_wrote(small_run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = str(small_run.folder)
    for words, file in (
        (["watch", run, "--episodes", "1", "--seed", "3", "--gif"], f"{run}/watch.gif"),
        (["watch", run, "random", "--episodes", "1"], "watch.html"),
        (["record", run, "t.npz", "--episodes", "2", "--sampled"], "t.npz"),
        (["record", "random", "switch/2", "u.npz", "--episodes", "2"], "u.npz"),
        (["export", run, "team.zip", "--trained-seed", "1"], "team.zip"),
    ):
        assert cli.run(words) == 0
        assert capsys.readouterr().out.splitlines()[-1] == file
        assert (tmp_path / file).stat().st_size > 100
    for words, said in (
        (["watch", "nothing"], "no run folder"),
        (["watch", "heuristic"], "name an environment for heuristic"),
        (["watch", run, "nothing"], "no run folder"),
        (["watch", run, "--episodes", "none"], "whole number"),
        (["export", run, "team.tar"], "ends in .zip"),
    ):
        with pytest.raises(PhalanxError, match=re.escape(said)):
            cli.run(words)


# Trajectories


def test_recorded_episodes_can_be_played_again(small_run, tmp_path):
    file = phalanx.record(small_run.folder, tmp_path / "t.npz", episodes=6, greedy=False, trained_seed=1)
    found = phalanx.load_trajectories(file)
    spec = phalanx.make_env("switch/2").spec
    episodes, longest = found.valid.shape
    assert episodes == 6
    assert found.header["spec"]["agents"] == list(spec.agents)
    assert found.header["greedy"] is False
    assert found.obs.shape == (6, longest + 1, 2, spec.obs_size)
    assert (found.valid.sum(1) == found.length).all()
    assert (found.terminated | found.truncated).sum() == 6
    env = phalanx.make_env("switch/2")
    step = jax.jit(env.step)
    for e in range(2):
        state, now = env.reset(jax.random.key(0))  # starts are always the same
        for t in range(found.length[e]):
            alive = np.asarray(now.observation.alive)[:, None]
            np.testing.assert_allclose(found.obs[e, t], np.where(alive, now.observation.obs, 0))
            np.testing.assert_allclose(found.state[e, t], now.observation.state)
            np.testing.assert_array_equal(found.avail[e, t], now.observation.avail)
            state, now = step(jax.random.key(0), state, found.action[e, t])
            np.testing.assert_allclose(found.reward[e, t], now.reward)
        assert bool(now.terminated) == found.terminated[e, found.length[e] - 1]
        assert (found.obs[e, found.length[e] + 1 :] == 0).all()
    with np.load(file, allow_pickle=False) as plain:
        assert set(plain.files) == {"header", *found._fields}


def test_damaged_trajectories_are_refused(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\3\4 nothing")
    for name in ("x.npz", "none.npz"):
        with pytest.raises(PhalanxError, match=r"damaged|no file"):
            phalanx.load_trajectories(tmp_path / name)


# Teams in one file


def test_exported_team_acts_as_the_run_does(small_run, tmp_path, monkeypatch):
    file = phalanx.export(small_run.folder, tmp_path / "team.zip", trained_seed=1, which="last")
    mine = phalanx.load(small_run.folder, seed=1, which="last")

    def nothing(*_):
        raise AssertionError("a team must not need its environment")

    monkeypatch.setattr(registry, "make_env", nothing)
    team = phalanx.load_team(file)
    assert team.spec.agents == mine.spec.agents
    rng = np.random.default_rng(0)
    memory = mine_memory = None
    for _ in range(4):  # the gru's memory goes along
        obs, avail = rng.random((3, 2, 2)), rng.random((3, 2, 5)) < 0.6
        avail[..., 4] = True
        actions, memory = team.act(obs, memory, avail)
        expected, mine_memory = mine.act(obs, mine_memory, avail)
        np.testing.assert_array_equal(actions, expected)
        assert np.take_along_axis(avail, actions[..., None], -1).all()
    np.testing.assert_array_equal(memory.network, mine_memory.network)
    with zipfile.ZipFile(file) as archive:
        assert sorted(archive.namelist()) == ["README.md", "params.npz", "team.json"]


def test_damaged_team_is_one_line(small_run, tmp_path):
    file = phalanx.export(small_run.folder, tmp_path / "team.zip")
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [whole[: len(whole) // 2], b"", b"no zip"]
    for at in rng.integers(0, len(whole), 40):
        damaged.append(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    refused = 0
    for each in damaged:
        file.write_bytes(each)
        with contextlib.suppress(PhalanxError):
            phalanx.load_team(file)  # a flipped bit in the README, or in a date, harms nobody
            refused -= 1
        refused += 1
    assert refused > 25
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:  # a sound archive of other parameters
        archive.writestr("team.json", parts["team.json"])
        archive.writestr("params.npz", parts["params.npz"][:-1] + b"x")
    with pytest.raises(PhalanxError, match="checksum"):
        phalanx.load_team(file)
    told = {"format": 99}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("team.json", json.dumps(told))
        archive.writestr("params.npz", b"")
    with pytest.raises(PhalanxError, match="not a team"):
        phalanx.load_team(file)


# Other people's tools


def written(folder, monkeypatch, **modules):
    """Write rows with fake tools; returns what metrics.jsonl then holds."""
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    run = RunConfig("mappo", "switch/2", tensorboard=False, wandb="project", mlflow="experiment")
    empty = dataclasses.make_dataclass("Empty", [("lr", float, 0.1)], frozen=True)()
    writer = MetricsWriter(folder, mirrors.mirrors(folder, Resolved(run, empty, {"clock": True}, {})))
    for step in (0, 10):
        writer.write([{"seed": s, "env_steps": step, "eval/return": s + step, "note": None} for s in (3, 4)])
    writer.close()
    return (folder / "metrics.jsonl").read_text()


class Recorder:
    """Stands for a module: remembers what was called."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            if name in ("search_runs", "get_experiment_by_name"):
                return None
            return self

        return call


def test_metrics_reach_other_tools(tmp_path, monkeypatch):
    wandb, client = Recorder(), Recorder()
    client.__dict__.update(info=types.SimpleNamespace(run_id="r"))
    mlflow = types.SimpleNamespace(MlflowClient=lambda: client)
    written(tmp_path, monkeypatch, wandb=wandb, mlflow=mlflow)
    begun = [kwargs for name, _, kwargs in wandb.calls if name == "init"]
    assert [each["config"]["seed"] for each in begun] == [3, 4]
    assert begun[0]["project"] == "project"
    assert begun[0]["config"]["env.clock"] is True
    assert begun[0]["id"] != begun[1]["id"]
    logged = [(args[0], kwargs["step"]) for name, args, kwargs in wandb.calls if name == "log"]
    assert ({"eval/return": 13}, 10) in logged
    assert len(logged) == 4
    assert [name for name, *_ in wandb.calls].count("finish") == 2
    values = [(*args[1:], kwargs["step"]) for name, args, kwargs in client.calls if name == "log_metric"]
    assert ("eval/return", 14, 10) in values
    assert len(values) == 4


def test_mlflow_gets_only_names_that_it_takes(tmp_path):
    """It takes letters, digits and _ - . / space; a group may be called agent_0+agent_1."""
    client = Recorder()
    mlflow = mirrors.MLflow.__new__(mirrors.MLflow)
    mlflow.client, mlflow.runs = client, {0: "r"}  # pyright: ignore[reportAttributeAccessIssue]
    mlflow.log(0, 10, {"learn/entropy/agent_0+agent_1": 1.0, "learn/kl/all agents": 2.0})
    assert [args[1] for _, args, _ in client.calls] == [
        "learn/entropy/agent_0_agent_1",
        "learn/kl/all agents",
    ]


def test_tools_that_fail_are_told_of_once(tmp_path, monkeypatch, caplog):
    def init(**_):
        raise SystemExit("no\nlogin")

    rows = written(tmp_path, monkeypatch, wandb=types.SimpleNamespace(init=init), mlflow=None)
    assert rows.count("\n") == 4
    assert {(record.name, record.levelname) for record in caplog.records} == {
        ("phalanx.report.mirrors", "WARNING")
    }
    assert sorted(caplog.messages) == [
        "MLflow is off from here on: it is not installed (pip install 'phalanx[mlflow]')",
        "Weights & Biases is off from here on: no login",
    ]


def test_a_tool_that_hangs_does_not_keep_the_run(tmp_path, monkeypatch, caplog):
    never = threading.Event()
    monkeypatch.setattr(mirrors, "PATIENCE", 0.1)
    rows = written(
        tmp_path, monkeypatch, wandb=types.SimpleNamespace(init=lambda **_: never.wait()), mlflow=None
    )
    never.set()
    assert rows.count("\n") == 4
    assert "does not answer" in caplog.text

"""Opponents in worlds that are Python programs: the same as in compiled ones."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import small
from posing import Posing
from test_hosted import assert_close
from test_opponents import AlwaysFirst, says
from test_run import assert_same_end, rows

import phalanx
from phalanx import cli, registry
from phalanx.algorithms.base import AlgorithmConfig
from phalanx.algorithms.shared.normalised import build
from phalanx.config import Layer, merge
from phalanx.crossplay import cross_play, film
from phalanx.envs.host.pettingzoo import teams_of
from phalanx.envs.host.task import Placement
from phalanx.envs.sides import one_side
from phalanx.envs.wrappers import policy_spec
from phalanx.errors import PhalanxError
from phalanx.opponents.kinds import Frozen, Learning, Mixed, PastSelves, Pool
from phalanx.opponents.make import Team
from phalanx.opponents.player import Player
from phalanx.runs import open_run
from phalanx.training.collectors import collector_for
from phalanx.training.loop import Loop
from phalanx.training.programs import HostedTraining, compile_programs
from phalanx.training.setup import set_up

ENVS = 6
PAST = {"opponent": "past", "opponent_pool": 4, "snapshot_every": 100, "opponent_draw": "hard"}
THROWS = {"env": "own_envs:Throws", "env_options": {"teams": "type"}, "envs": 4, "network": "gru", **PAST}


@pytest.fixture(autouse=True)
def beside_the_tests(monkeypatch):
    """Where workers find the game."""
    monkeypatch.chdir(Path(__file__).parent)


def tag():
    """The particle world, and itself as a Python program."""
    world = phalanx.make_env("mpe/simple_tag", max_cycles=5)
    return world, Posing(world)


def made(spec, **options):
    """A small team for a side."""
    options = {"hidden": 8, "network": "gru", "agent_id": True, "last_action": True, **options}
    config = registry.algorithm_config("ippo")(batch_steps=ENVS * 4, **options)
    return build(registry.algorithm("ippo"), config, policy_spec(spec, **config.inputs))


def parameters(algorithm, seed):
    """Of a team that does not know yet what to do, but is sure of it: what it sees and remembers counts."""
    params = jax.jit(lambda key: algorithm.policy(algorithm.init(key, ENVS)))(jax.random.key(seed))
    return jax.tree.map(lambda x: 10 * x, params)


def pooled(side):
    """A frozen team in two environments, two past selves in the others, with memories of their own."""
    spec = side.sides.spec(side.others[0])
    team = made(spec)
    frozen = Frozen(side, Player(spec, team), 2, False, parameters(team, 3))
    past = PastSelves(side, Player(spec, team), 4, 2, False, 3, 10, "uniform", ENVS * 4)
    mixed = Mixed(side, [frozen, past])
    selves = jax.tree.map(lambda *x: jnp.stack(x), *(parameters(team, seed) for seed in range(3)))
    pool = Pool(selves, jnp.int32(3), jnp.full(3, 0.5), jnp.array([2, 0]))
    return mixed, mixed.playing((frozen.init((), jax.random.key(0)), pool), ())


def learning(side, envs=ENVS):
    spec = side.sides.spec(side.others[0])
    team = made(spec)
    return Learning(side, Player(spec, team), envs), parameters(team, 3)


def both(side):
    """One that learns in two environments, and two past selves of it in the others."""
    mixed, (_, selves) = pooled(side)
    past, (one, params) = mixed.parts[1], learning(side, envs=2)
    return Mixed(side, [one, past]), (params, selves)


def learners_steps(opponents, rollout):
    """The steps (S, T, B) of the opponent that learns, as it played them."""
    if isinstance(opponents, Mixed):
        rollout = jax.tree.map(lambda x: x[:, :, opponents.slices[0]], rollout)
        opponents = opponents.parts[0]
    return opponents.own(rollout)


@pytest.mark.parametrize("who", [pooled, learning, both])
def test_the_other_side_is_played_as_in_a_compiled_world(who):
    """Through two rollouts: what the learner's side sees, does and earns, and nothing of the other."""
    played, learns = [], who is not pooled
    for world in tag():
        side = one_side(world, "adversary", tells=learns)
        learner = made(side.spec, network="mlp")
        opponents, playing = who(side)
        collector = collector_for(side, learner, ENVS, opponents=opponents)
        given = jax.tree.map(lambda x: x[None], (parameters(learner, 0), playing))
        start, collect = collector.start, collector.collect
        if not isinstance(world, Posing):
            start, collect = jax.jit(start), jax.jit(collect, static_argnums=2)
        actors, found = start(jax.random.key(5)[None]), []
        for _ in range(2):
            actors, rollout = collect(given[0], actors, 7, playing=given[1])
            theirs = learners_steps(opponents, rollout)._replace(broken=None) if learns else None
            info = {name: rollout.info[name] for name in ("return", "length", "other_return")}
            found.append((rollout._replace(broken=None, info=info), theirs))
        played.append(jax.device_get(found))
    mine, theirs = played[1][0]
    assert mine.reward.shape == (1, 7, ENVS, 3)
    assert theirs is None or theirs.reward.shape == (1, 7, ENVS if who is learning else 2, 1)
    assert mine.observation.obs.shape[-1] == learner.spec.obs_size
    assert len(np.unique(mine.info["other_return"])) > ENVS
    assert_close(*played, atol=1e-5)
    if learns:
        assert learners_steps(opponents, rollout).broken is not None  # what failed is left out by both
        shapes = collector.shapes(7)
        assert jax.tree.map(jnp.shape, shapes[0]) == jax.tree.map(jnp.shape, actors)
        like = [jax.tree.map(lambda x: (x.shape, x.dtype), each) for each in (shapes[1], rollout)]
        assert like[0] == like[1]


def test_a_mixture_of_one_team_is_this_team():
    """Each part sees and remembers its own environments."""
    _, world = tag()
    side = one_side(world, "adversary")
    spec, hunters = side.sides.spec("good"), AlwaysFirst(AlgorithmConfig(), side.spec)
    team = made(spec)
    player, params = Player(spec, team), parameters(team, 3)
    one = Frozen(side, player, ENVS, True, params)
    parts = [Frozen(side, player, size, True, params) for size in (2, 4)]
    seen = []
    for opponents in (one, Mixed(side, parts)):
        collector = collector_for(side, hunters, ENVS, opponents=opponents)
        _, rollout = collector.collect((), collector.start(jax.random.key(0)[None]), 7)
        seen.append(rollout.next_observation.obs)
    np.testing.assert_allclose(*seen, atol=1e-6)


def throws(workers=0, **options):
    env = registry.make_env("own_envs:Throws", {"teams": "type", **options})
    return replace(env, placement=Placement(workers=workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_each_of_a_mixture_plays_its_own_part(workers):
    """Also if it is acted for in parts, while others step."""
    side = one_side(throws(workers), "left")
    sizes = [1, 3, 2]
    parts = [Frozen(side, says(side, action), size, True, ()) for action, size in enumerate(sizes)]
    rock = AlwaysFirst(AlgorithmConfig(), side.spec)
    with closing(collector_for(side, rock, 6, opponents=Mixed(side, parts))) as collector:
        _, played = collector.collect((), collector.start(jax.random.key(0)[None]), 7)
    np.testing.assert_array_equal(played.reward[0, :, :, 0], [[0, -1, -1, -1, 1, 1]] * 7)
    np.testing.assert_array_equal(played.info["return"][0, 4, :, 0], [0, -5, -5, -5, 5, 5])
    np.testing.assert_array_equal(played.info["other_return"][0, 4], [0, 5, 5, 5, -5, -5])
    assert played.completed[0, 4].all()


def test_training_faces_the_opponent_of_the_carry():
    """Made as rock, it has become paper: rock loses to it in the next rollout."""
    side = one_side(throws(), "left")
    player = says(side, None)
    player.algorithm.actor.act = lambda policy, observation, first, memory, key, greedy: (
        jnp.broadcast_to(policy, observation.alive.shape).astype(jnp.int32),
        memory,
        {},
    )
    rock = AlwaysFirst(AlgorithmConfig(batch_steps=4), side.spec)
    loop = Loop(collector_for(side, rock, 2, opponents=Frozen(side, player, 2, True, jnp.int32(0))))
    training = HostedTraining(loop, None, lambda carry, actors, rollout, budget: rollout)
    actors = loop.collector.start(jax.random.key(0)[None])
    carry = SimpleNamespace(learner=(), opponent=jnp.ones((1, 1), jnp.int32), actors=actors)
    rollout = training.advance(carry, np.int32(1), np.float32(1))
    np.testing.assert_array_equal(rollout.reward, -np.ones((1, 2, 2, 1)))


def test_a_frozen_team_is_exploited_fully():
    """Against who always throws rock the one good answer is paper: five of five."""
    env = throws()
    values = {"opponent": "rock", "side": "right", "envs": 16, "steps": 20 * 160, "eval_episodes": 8}
    algorithm = {"batch_steps": 160, "hidden": 16, "lr": 1e-2, "critic_lr": 1e-2, "epochs": 4}
    layer = Layer("test", {"run": values, "algorithm": algorithm, "env": {}})
    resolved = merge(("ippo", "throws"), registry.algorithm_config("ippo"), {}, [layer])

    def load(name):
        spec = one_side(env, "left").spec
        return Team(name, spec, AlwaysFirst(AlgorithmConfig(), spec), ())

    setup = set_up(resolved, env, load)
    programs = compile_programs(setup.loop, setup.evaluation, against=setup.against)
    with closing(setup):
        carry = programs.advance(programs.init(np.zeros(1, np.int32)), np.int32(20), np.float32(3200))
        policy = jax.vmap(setup.algorithm.policy)(carry.learner)
        played = programs.against(policy, carry.opponent, jax.random.key(3)[None])["opponent"]
    assert played.returns.shape == (1, 16, 1)
    assert (played.returns == 5).all()
    assert float(carry.tally.episodes.returns[0, 0] / carry.tally.episodes.ended[0]) > 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run against past selves, with two workers. Episodes of five steps run on between its updates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parent)
        return small(tmp_path_factory.mktemp("runs") / "whole", steps=384, workers=2, **THROWS)


def test_a_run_with_a_pool_resumes_to_the_bit_with_other_workers(whole, tmp_path):
    half = small(tmp_path / "half", steps=128, workers=1, **THROWS)
    phalanx.resume(half.folder, 384, quiet=True, workers=0)
    assert half.facts["resumed"][-1]["episodes_begun_again"] == 0
    assert rows(whole) == rows(half)
    assert_same_end(whole.folder, half.folder)
    assert {"eval/return", "against_opponent/return", "train/return"} <= rows(whole)[-1].keys()
    assert open_run(whole.folder, None)[0].env.spec.agents == ("left_0",)


def test_past_selves_of_a_learning_opponent_resume_to_the_bit(tmp_path):
    options = {**THROWS, "opponent_algorithm": "ippo", "network": "mlp"}
    whole = small(tmp_path / "whole", steps=256, workers=0, **options)
    half = small(tmp_path / "half", steps=128, workers=0, **options)
    phalanx.resume(half.folder, 256, quiet=True, workers=1)
    assert rows(whole) == rows(half)
    assert_same_end(whole.folder, half.folder)
    assert "learn/opponent_policy_loss" in rows(whole)[-1]


def test_teams_play_each_other(whole, tmp_path, capsys):
    """More games than there are environments at once; one player's gain is the other's loss."""
    words = ["play", f"{whole.folder}:past", "random", "--env", "own_envs:Throws"]
    words += ["--env.teams", "type", "--episodes", "20", "--workers", "0", "--out", str(tmp_path)]
    assert cli.run(words) == 0
    assert "rows play left, columns play right" in " ".join(capsys.readouterr().out.split())
    saved = json.loads((tmp_path / "crossplay.json").read_text())
    assert len(saved["games"]) == 4
    for game in saved["games"].values():
        assert game["returns"][0] == pytest.approx(-game["returns"][1])


def test_a_film_shows_the_same_games_from_both_sides():
    ours, theirs = film(["random", "random"], throws(), games=2)
    assert (ours.label, theirs.label) == ("random (left)", "random (right)")
    for mine, yours in zip(ours.episodes, theirs.episodes, strict=True):
        np.testing.assert_array_equal(mine.reward, -yours.reward)
        np.testing.assert_array_equal(mine.observation.obs[..., :3], yours.observation.obs[..., 3:])
        assert np.abs(mine.reward).sum() > 0
        np.testing.assert_array_equal(mine.film.picture[:, 0, 0, 0], range(6))
        np.testing.assert_array_equal(mine.film.picture, yours.film.picture)


def test_a_team_is_evaluated_on_its_side(whole):
    assert -5 <= phalanx.evaluate(whole.folder, episodes=4)["return"] <= 5
    assert phalanx.load(whole.folder).spec.agents == ("left_0",)


def test_tag_is_that_of_the_compiled_world():
    """The same hunters against the same prey, in MPE's own code: the same returns, within their errors."""
    found = []
    for name in ("mpe/simple_tag", "pettingzoo/mpe2.simple_tag_v3"):
        env = registry.make_env(name, {})
        env = env if name.startswith("mpe/") else replace(env, placement=Placement(workers=0))
        side = one_side(env, "adversary")
        prey, hunters = (made(spec) for spec in (side.sides.spec(side.others[0]), side.spec))
        opponents = Frozen(side, Player(side.sides.spec(side.others[0]), prey), 48, True, parameters(prey, 1))
        policy = jax.tree.map(lambda x: x[None], parameters(hunters, 0))
        with closing(collector_for(side, hunters, 48, opponents=opponents)) as collector:

            def games(policy, keys, collector=collector):
                actors = collector.start(keys)
                return collector.first_episodes(policy, actors, False, lambda step: step.info)[1]

            games = jax.jit(games) if name.startswith("mpe/") else games
            info = games(policy, jax.random.key(0)[None])
        assert (info["length"][0, 24] == 25).all()
        found.append(np.asarray(info["other_return"])[0, 24])
    errors = [each.std() / np.sqrt(len(each)) for each in found]
    assert min(errors) > 0
    assert abs(found[0].mean() - found[1].mean()) < 3.5 * np.hypot(*errors)


MPE = {
    "adversary_0 adversary_1 agent_0": "adversary adversary agent",
    "leadadversary_0 adversary_0 agent_0 agent_1": "adversary adversary agent agent",
    "eve_0 bob_0 alice_0": "adversary good good",
    "agent_0 agent_1": "",
    "speaker_0 listener_0": "",
}
ASKED = {
    "type": "red red blue",
    "agent": "red_0 red_1 blue_0",
    "none": "",
    "blue+red_0,red_1": "blue red_1 blue",
}


def teams(agents, wanted=""):
    agents = agents.split()
    types = [agent.rpartition("_")[0] for agent in agents]
    return " ".join(teams_of("zoo", agents, types, wanted))


def test_teams_are_known_by_name_or_said():
    for agents, expected in MPE.items():
        assert teams(agents) == expected
    for wanted, expected in ASKED.items():
        assert teams("red_0 red_1 blue_0", wanted) == expected
    for wanted, line in {
        "red,green": "zoo has no 'green', but red, blue, red_0, red_1, blue_0",
        "red,blue+red": "red is in two teams",
        "red_0,blue": "red_1 of zoo is in no team",
    }.items():
        with pytest.raises(PhalanxError, match=line):
            teams("red_0 red_1 blue_0", wanted)


@pytest.mark.parametrize(
    ("env", "options", "line"),
    [
        ("own_envs:Throws", {"opponent": "self"}, "has no other side.* --env.teams agent"),
        (throws, {"opponent": "script"}, "has no script for one side"),
        (throws, {"opponent": "self", "side": "middle"}, "choose one of left, right"),
        ("own_envs:Walk", {"opponent": "self", "env_options": {"teams": "agent"}}, "is not PettingZoo's"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(tmp_path, env, options, line):
    env = env if isinstance(env, str) else env()
    with pytest.raises(PhalanxError, match=line):
        small(tmp_path / "run", env=env, **options)
    with pytest.raises(PhalanxError, match="has no script for one side: leave out script"):
        cross_play(["random", "script"], throws())

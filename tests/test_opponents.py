"""Who plays the other side: frozen teams, the learner itself, its past selves."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import same, small
from test_run import assert_same_end, rows

import phalanx
from phalanx import registry
from phalanx.algorithms.base import AlgorithmConfig
from phalanx.algorithms.random import RandomActor
from phalanx.algorithms.shared.fixed import FixedPolicy
from phalanx.config import Layer
from phalanx.crossplay import cross_play
from phalanx.envs.game import MatrixGame
from phalanx.envs.sides import OneSide, sides_of
from phalanx.errors import PhalanxError
from phalanx.opponents.kinds import Frozen, Mixed, PastSelves, Pool
from phalanx.opponents.player import Player
from phalanx.runs import open_run, read_carry, resolve
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.loop import Loop
from phalanx.types import Clock

TINY = {"batch_steps": 256, "hidden": 16, "agent_id": False, "epochs": 4, "minibatches": 1, "critic_lr": 1e-2}


def set_up(env, opponent, updates, algorithm="ippo", run=None, **options):
    run = {"opponent": opponent, "envs": 64, "steps": 256 * updates, **(run or {})}
    layer = Layer("argument", {"run": run, "algorithm": {**TINY, **options}, "env": {}})
    return resolve(algorithm, env, layer, preset="none")


def chances(setup, policy, observation):
    """The policy's probabilities of each action."""
    actor = setup.algorithm.actor
    return actor.preferences(policy, observation, jnp.ones(1, bool), actor.initial_memory(1))[0, 0]


def history(setup, updates, looks, seed=0, each=lambda of_seed: of_seed):
    """Train, and look at the policy now and then, (looks, U); also the last carry.

    With `each=jax.vmap`, of many seeds at once, (looks, S, U).
    """
    loop = setup.loop
    carry = jax.jit(each(loop.init))(jnp.asarray(seed, jnp.int32))
    advance = jax.jit(each(lambda carry: loop.advance(carry, jnp.int32(updates // looks), jnp.float32(1e9))))

    @jax.jit
    @each
    def look(carry):
        seen = jax.tree.map(lambda x: x[:1], carry.actors.running.observation)
        return chances(setup, setup.algorithm.policy(carry.learner), seen)

    found = []
    for _ in range(looks):
        carry = advance(carry)
        found.append(np.asarray(look(carry)))
    return np.array(found), carry


def test_past_selves_end_near_the_mixture_where_self_play_cycles():
    """Rock, paper, scissors: who plays itself runs after itself; who plays its past learns to mix."""
    updates, away = 1200, {}
    for opponent in ("self", "past"):
        run = {"opponent_pool": 32, "snapshot_every": 256 * updates // 32}
        setup = set_up("game/rock_paper_scissors", opponent, updates, run=run, lr=3e-3, entropy=0.2)
        found, carry = history(setup, updates, 40)
        away[opponent] = np.abs(found[20:] - 1 / 3).mean()
        if opponent == "past":
            assert int(carry.opponent.taken) == 33
    assert away["past"] < 0.12
    assert away["self"] > 0.25


class FirstAction(RandomActor):
    def act(self, policy, observation, first, memory, key, greedy):
        return jnp.zeros(observation.alive.shape, jnp.int32), memory, {}


class AlwaysFirst(FixedPolicy):
    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.actor = FirstAction(spec)


@pytest.mark.parametrize(("side", "best"), [("left", 1), ("right", 1)])
def test_a_frozen_team_is_exploited_fully(side, best):
    """Against who always plays rock the one good answer is paper, from either side."""
    env = OneSide(sides_of(registry.make_env("game/rock_paper_scissors", {})), side)
    learner = set_up("game/rock_paper_scissors", "random", 40, run={"side": side}, lr=1e-2).algorithm
    spec = env.sides.spec(env.others[0])
    player = Player(spec, AlwaysFirst(AlgorithmConfig(), spec))
    loop = Loop(Compiled(env, learner, 64, opponents=Frozen(env, player, 64, True, ())))
    carry = jax.jit(lambda c: loop.advance(c, jnp.int32(40), jnp.float32(1e9)))(loop.init(jnp.int32(0)))
    seen = jax.tree.map(lambda x: x[:1], carry.actors.running.observation)
    actor = learner.actor
    chosen = actor.preferences(
        learner.policy(carry.learner), seen, jnp.ones(1, bool), actor.initial_memory(1)
    )
    assert float(chosen[0, 0, best]) > 0.95
    assert float(carry.tally.episodes.returns[0] / carry.tally.episodes.ended) > 0.5


def test_who_plays_is_who_is_in_the_pool():
    """Each past self plays its part of the environments, with the parameters that it had."""
    env = OneSide(sides_of(registry.make_env("game/pennies", {})), "left")

    class Says(RandomActor):
        def act(self, policy, observation, first, memory, key, greedy):
            return jnp.broadcast_to(policy, observation.alive.shape).astype(jnp.int32), memory, {}

    spec = env.sides.spec("right")
    algorithm = AlwaysFirst(AlgorithmConfig(), spec)
    algorithm.actor = Says(spec)
    past = PastSelves(env, Player(spec, algorithm), 8, 4, True, size=3, every=10, draw="uniform", steps=5)
    pool = Pool(jnp.array([0, 1, 1]), jnp.int32(3), jnp.full(3, 0.5), jnp.array([1, 0, 2, 0]))
    collector = Compiled(env, AlwaysFirst(AlgorithmConfig(), env.spec), 8, opponents=past)
    actors = collector.start_one(jax.random.key(0))
    _, played = collector.collect_one((), actors, 1, playing=past.playing(pool, None))
    # Left says heads, and wins where right says heads too.
    np.testing.assert_array_equal(played.reward[0, :, 0], [-1, -1, 1, 1, -1, -1, 1, 1])
    won, games = past.scores(played)
    np.testing.assert_array_equal(won, [0, 2, 0, 2])
    np.testing.assert_array_equal(games, [2, 2, 2, 2])


def says(env, action):
    """A frozen opponent that always does the same."""
    spec = env.sides.spec(env.others[0])

    class Says(RandomActor):
        def act(self, policy, observation, first, memory, key, greedy):
            return jnp.full(observation.alive.shape, action, jnp.int32), memory, {}

    algorithm = AlwaysFirst(AlgorithmConfig(), spec)
    algorithm.actor = Says(spec)
    return Player(spec, algorithm)


def test_each_of_a_mixture_plays_its_own_part():
    env = OneSide(sides_of(registry.make_env("game/rock_paper_scissors", {})), "left")
    sizes = [1, 3, 2]
    parts = [Frozen(env, says(env, action), size, True, ()) for action, size in enumerate(sizes)]
    mixed = Mixed(env, parts)
    collector = Compiled(env, AlwaysFirst(AlgorithmConfig(), env.spec), 6, opponents=mixed)
    actors = collector.start_one(jax.random.key(0))
    _, played = collector.collect_one(
        (), actors, 2, playing=mixed.playing(mixed.init((), jax.random.key(0)), ())
    )
    # Rock against rock, paper and scissors.
    np.testing.assert_array_equal(played.reward[:, :, 0], [[0, -1, -1, -1, 1, 1]] * 2)


def test_a_pool_file_lists_opponents_with_weights(tmp_path):
    pool = tmp_path / "pool.toml"
    pool.write_text("[opponents]\nself = 2\npast = 1\nrandom = 1\n")
    options = {"env": "game/pennies", "opponent": str(pool), "opponent_pool": 2, "envs": 16}
    run = small(tmp_path / "run", steps=64, **options)
    mixed = open_run(run.folder, None)[0].loop.opponents
    assert [type(part).__name__ for part in mixed.parts] == ["SelfPlay", "PastSelves", "Frozen"]
    assert [where.stop - where.start for where in mixed.slices] == [8, 4, 4]
    for text, line in {
        "self = 1": r"must have one table \[opponents\]",
        "[opponents]": r"must have one table \[opponents\]",
        "[opponents]\nself = 0": "the weight of self must be a number above 0, not 0",
        "[opponents]\nnobody = 1": "there is no opponent 'nobody'",
        "[opponents": "cannot read the pool",
    }.items():
        pool.write_text(text)
        with pytest.raises(PhalanxError, match=line):
            small(tmp_path / "wrong", **options)


def test_snapshots_are_taken_when_due_and_overwrite_the_oldest():
    env = OneSide(sides_of(registry.make_env("game/pennies", {})), "left")
    spec = env.sides.spec("right")
    past = PastSelves(
        env,
        Player(spec, AlwaysFirst(AlgorithmConfig(), spec)),
        4,
        2,
        True,
        size=3,
        every=10,
        draw="hard",
        steps=5,
    )
    collector = Compiled(env, AlwaysFirst(AlgorithmConfig(), env.spec), 4, opponents=past)
    _, rollout = collector.collect_one(
        (), collector.start_one(jax.random.key(0)), 1, playing=jnp.zeros((2, 1))
    )
    pool = past.init(jnp.float32(0), jax.random.key(0))
    seen = []
    for step in range(5, 60, 5):
        before = Clock(jnp.float32(step - 5), jnp.float32(100))
        pool, _ = past.learnt(pool, jnp.float32(step), rollout, jax.random.key(step), before)
        seen.append(sorted(np.asarray(pool.params).tolist()))
    # 0 at the start, then at 10, 20, ...; three are kept.
    assert seen[1] == [0, 0, 10]
    assert seen[3] == [0, 10, 20]
    assert seen[-1] == [30, 40, 50]
    hard = past.chances(pool._replace(won=jnp.array([1.0, 0.5, 0.0])))
    assert float(hard[2]) > 3 * float(hard[1]) > 30 * float(hard[0])
    past.draw = "newest"
    slot = (int(pool.taken) - 1) % 3
    drawn = np.asarray(past.chances(pool))
    assert drawn[slot] == pytest.approx(4 / 3)
    assert drawn.sum() == pytest.approx(2)


def test_a_run_with_a_pool_resumes_to_the_bit(tmp_path):
    options = {
        "env": "game/rock_paper_scissors",
        "opponent": "past",
        "opponent_pool": 4,
        "snapshot_every": 100,
        "opponent_draw": "hard",
    }
    whole = small(tmp_path / "whole", steps=1024, **options)
    half = small(tmp_path / "half", steps=512, **options)
    phalanx.resume(half.folder, 1024, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert rows(whole) == rows(half)


def test_a_trained_team_plays_the_other_side(tmp_path):
    """A run and its export are the same opponent; evaluations are against the script."""
    small(tmp_path / "first", env="battle/3m", steps=128, envs=8)
    file = tmp_path / "team.zip"
    phalanx.export(tmp_path / "first", file)
    runs = [
        small(tmp_path / name, env="battle/3m", steps=128, envs=8, eval_episodes=16, opponent=str(what))
        for name, what in (("by_run", tmp_path / "first"), ("by_file", file))
    ]
    assert rows(runs[0]) == rows(runs[1])
    setup, record = open_run(runs[0].folder, None)
    carry = read_carry(setup, record, None)
    assert_best_by_the_script(runs[0].metrics(), carry)
    assert same(carry.opponent, jax.tree.map(lambda x: x[None, None], phalanx.load_team(file).params))
    again = phalanx.evaluate(runs[0].folder, episodes=8)
    assert "win_rate" in again
    assert phalanx.load(runs[0].folder).spec.name == "battle/3m"


def assert_best_by_the_script(logged, carry):
    """Evaluations are logged against all three; the best parameters have the best return with the script."""
    against = {
        name: [row[f"{name}/return"] for row in logged]
        for name in ("eval", "against_opponent", "against_random")
    }
    assert all(0 <= row[f"{name}/win_rate"] <= 1 for row in logged for name in against)
    best = {name: max(returns) for name, returns in against.items()}
    assert float(carry.best.score[0]) == pytest.approx(best["eval"])
    assert len(set(best.values())) == 3, "or another choice would not be noticed"


def test_a_pool_file_lists_runs_and_exported_teams(tmp_path):
    """Each plays its part of the environments with its own parameters."""
    teams = [
        small(tmp_path / f"team{seed}", env="game/pennies", steps=64, opponent="random", seed=seed)
        for seed in (1, 2)
    ]
    phalanx.export(teams[1].folder, tmp_path / "team.zip")
    pool = tmp_path / "pool.toml"
    pool.write_text(f'[opponents]\n"{teams[0].folder}" = 1\n"{tmp_path}/team.zip" = 3\nrandom = 1\n')
    run = small(tmp_path / "run", env="game/pennies", steps=64, envs=10, opponent=str(pool), batch_steps=60)
    setup, record = open_run(run.folder, None)
    mixed = setup.loop.opponents
    assert [where.stop - where.start for where in mixed.slices] == [2, 6, 2]
    by_run, by_file, _ = read_carry(setup, record, None).opponent
    for state, team in ((by_run, phalanx.load(teams[0].folder)), (by_file, phalanx.load(teams[1].folder))):
        assert same(state, jax.tree.map(lambda x: x[None, None], team.params))
    assert not same(by_run, by_file)


def test_hunters_learn_against_a_random_prey_and_are_evaluated_against_it(tmp_path):
    run = small(
        tmp_path / "run", env="mpe/simple_tag", steps=128, envs=4, opponent="random", side="adversary"
    )
    last = run.metrics()[-1]
    assert "eval/return" in last
    assert phalanx.load(run.folder).spec.n_agents == 3
    files = phalanx.watch(run.folder, episodes=1, out=tmp_path / "page.html")
    assert files[0].exists()


@pytest.mark.parametrize(("world", "side", "agents"), [("crypto", "good", 2), ("world_comm", "adversary", 4)])
def test_a_side_of_a_particle_world_with_messages_learns(tmp_path, world, side, agents):
    run = small(
        tmp_path / "run", env=f"mpe/simple_{world}", steps=64, eval_every=64, opponent="random", side=side
    )
    assert phalanx.load(run.folder).spec.n_agents == agents
    row = run.metrics()[-1]
    assert row["env_steps"] == 64
    assert np.isfinite([row["eval/return"], row["against_opponent/return"]]).all()


@pytest.mark.parametrize(
    ("env", "options", "line"),
    [
        ("game/pennies", {"side": "left"}, "side is for a run with an opponent"),
        ("switch/2", {"opponent": "self"}, "switch/2 has no other side"),
        (
            "mpe/simple_tag",
            {"opponent": "self"},
            "sides of mpe/simple_tag are not alike: number of agents 3 and 1; use .* --opponent-algorithm",
        ),
        ("mpe/simple_tag", {"opponent": "past"}, "sides of mpe/simple_tag are not alike"),
        ("game/pennies", {"opponent": "self", "side": "middle"}, "choose one of left, right"),
        ("game/pennies", {"opponent": "nobody"}, "there is no opponent 'nobody'"),
        ("game/pennies", {"opponent": "script"}, "has no script for one side"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(tmp_path, env, options, line):
    with pytest.raises(PhalanxError, match=line):
        small(tmp_path / "run", env=env, **options)


def test_a_team_of_other_rules_cannot_play(tmp_path, monkeypatch):
    """Neither a run nor its export, alone or in a pool."""
    run = small(tmp_path / "run", env="game/pennies", steps=64, opponent="random")
    file, pool = tmp_path / "team.zip", tmp_path / "pool.toml"
    phalanx.export(run.folder, file)
    pool.write_text(f'[opponents]\nself = 1\n"{file}" = 1\n')
    rules = MatrixGame.spec.func
    monkeypatch.setattr(MatrixGame, "spec", property(lambda game: replace(rules(game), version=2)))
    line = "was made with version 1 of game/pennies, and this is version 2"
    for opponent in (run.folder, file, pool):
        with pytest.raises(PhalanxError, match=line):
            small(tmp_path / "other", env="game/pennies", opponent=str(opponent))
    with pytest.raises(PhalanxError, match=line):
        cross_play([str(file), "random"], "game/pennies", episodes=2)


def test_a_team_of_another_world_cannot_play(tmp_path):
    small(tmp_path / "run", env="battle/3m", steps=64)
    with pytest.raises(PhalanxError, match="cannot play the enemies of battle/8m: number of agents 3 and 8"):
        small(tmp_path / "other", env="battle/8m", opponent=str(tmp_path / "run"))

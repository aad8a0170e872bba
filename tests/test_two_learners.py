"""Both sides learn: another algorithm plays, and learns from, the other side of the same episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import same, small
from test_opponents import AlwaysFirst, history, says, set_up
from test_run import assert_same_end, rows

import phalanx
from phalanx import registry
from phalanx.algorithms.base import AlgorithmConfig
from phalanx.algorithms.random import RandomActor
from phalanx.algorithms.shared.fixed import FixedPolicy
from phalanx.algorithms.shared.normalised import build
from phalanx.crossplay import cross_play
from phalanx.envs.sides import OneSide, sides_of
from phalanx.envs.wrappers import policy_spec
from phalanx.errors import PhalanxError
from phalanx.opponents.kinds import Frozen, Learning, Mixed, PastSelves, Pool
from phalanx.opponents.player import Player
from phalanx.runs import load_opponent, open_run, past_selves, read_carry
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.evaluate import Against
from phalanx.training.loop import Loop
from phalanx.types import Clock


def test_the_other_side_learns():
    """Against who always plays rock, the opponent learns paper."""
    env = OneSide(sides_of(registry.make_env("game/rock_paper_scissors", {})), "left", tells=True)
    learner = set_up("game/rock_paper_scissors", "random", 40, run={"side": "right"}, lr=1e-2).algorithm
    opponent = Learning(env, Player(env.sides.spec("right"), learner), 64)
    rock = AlwaysFirst(AlgorithmConfig(batch_steps=256), env.spec)
    loop = Loop(Compiled(env, rock, 64, opponents=opponent))
    carry = jax.jit(lambda c: loop.advance(c, jnp.int32(40), jnp.float32(1e9)))(loop.init(jnp.int32(0)))
    seen = jax.tree.map(lambda x: x[:1], carry.actors.running.state.inner.inner.inner.seen["right"])
    actor = learner.actor
    chosen = actor.preferences(
        learner.policy(carry.opponent), seen, jnp.ones(1, bool), actor.initial_memory(1)
    )
    assert float(chosen[0, 0, 1]) > 0.95
    assert "opponent_policy_loss" in carry.tally.metrics


def test_what_the_opponent_learns_from_is_its_own_side_of_the_episodes():
    """In simple_push: rewards, inputs with last actions, true last observations, log-probabilities."""
    env = OneSide(sides_of(registry.make_env("mpe/simple_push", {"max_cycles": 5})), "adversary", tells=True)
    spec = env.sides.spec("good")
    options = {"hidden": 8, "agent_id": True, "last_action": True, "batch_steps": 24}
    config = registry.algorithm_config("ippo")(**options)
    learner = build(registry.algorithm("ippo"), config, policy_spec(spec, **config.inputs))
    opponent = Learning(env, Player(spec, learner), 2)
    hunters = AlwaysFirst(AlgorithmConfig(), env.spec)
    collector = Compiled(env, hunters, 2, opponents=opponent)
    state = opponent.init((), jax.random.key(1))
    _, played = collector.collect_one(
        (), collector.start_one(jax.random.key(0)), 12, playing=opponent.playing(state, ())
    )
    own = opponent.own(played)
    assert own.reward.shape == (12, 2, 1)
    assert not np.allclose(own.reward[..., 0], played.reward[..., 0])
    np.testing.assert_array_equal(own.first, played.first)
    goes_on = ~np.asarray(own.first[1:])
    after, then = np.asarray(own.next_observation.obs[:-1]), np.asarray(own.observation.obs[1:])
    np.testing.assert_array_equal(after[goes_on], then[goes_on])
    assert not np.allclose(after[~goes_on], then[~goes_on])
    assert np.asarray(own.truncated)[4].all()
    # The last action stands at the end of what the networks see.
    last = np.asarray(own.next_observation.obs[..., -spec.n_actions :]).argmax(-1)
    np.testing.assert_array_equal(last, own.action)
    policy, actor = learner.policy(state), learner.actor
    for t in range(3):
        step = jax.tree.map(lambda x, t=t: x[t], own)
        chances = actor.preferences(policy, step.observation, step.first, step.memory)
        taken = np.take_along_axis(np.asarray(chances), np.asarray(step.action)[..., None], -1)[..., 0]
        np.testing.assert_allclose(np.exp(step.extras["log_prob"]), taken, rtol=1e-5)


def whole_and_resumed(folder, options):
    """A run of 512 steps, which one that was resumed after 256 equals to the bit."""
    whole = small(folder / "whole", steps=512, **options)
    half = small(folder / "half", steps=256, **options)
    phalanx.resume(half.folder, 512, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert rows(whole) == rows(half)
    return whole


def test_two_algorithms_in_one_run_resume_to_the_bit(tmp_path):
    """PPO against Q-learning with its replay; the opponent can be played with afterwards."""
    options = {"env": "game/rock_paper_scissors", "opponent_algorithm": "iql", "seeds": 2}
    whole = whole_and_resumed(tmp_path, options)
    assert {"against_opponent/return", "learn/opponent_td_error"} <= rows(whole)[-1].keys()
    setup, record = open_run(whole.folder, None)
    learner = read_carry(setup, record, None).opponent
    algorithm = setup.loop.opponents.player.algorithm
    second = jax.tree.map(lambda x: x[0], jax.vmap(algorithm.policy)(learner))
    assert same(load_opponent(f"{whole.folder}:opponent").params, second)
    result = cross_play(
        [str(whole.folder), f"{whole.folder}:opponent"], "game/rock_paper_scissors", episodes=8
    )
    assert set(result.returns) == {(0, 0), (0, 1), (1, 0), (1, 1)}


class Notes(FixedPolicy):
    """Plays what its learner says, a number. Its update adds 1 and logs the batch."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.actor = RandomActor(spec)
        self.actor.act = lambda policy, observation, first, memory, key, greedy: (
            jnp.broadcast_to(policy, observation.alive.shape).astype(jnp.int32),
            memory,
            {},
        )

    def init(self, key, envs):
        return jnp.int32(1)

    def policy(self, learner):
        return learner

    def update(self, learner, rollout, key, clock):
        return learner + 1, {"action": rollout.action, "reward": rollout.reward, "first": rollout.first}


def test_a_learner_learns_only_from_what_it_played_and_the_pool_keeps_its_policies():
    """Rock against paper, which learns, and in four other environments against rock and scissors."""
    env = OneSide(sides_of(registry.make_env("game/rock_paper_scissors", {})), "left", tells=True)
    spec = env.sides.spec("right")
    player = Player(spec, Notes(AlgorithmConfig(), spec))
    past = PastSelves(env, player, 4, 2, True, size=3, every=10, draw="uniform", steps=12)
    mixed = Mixed(env, [Learning(env, player, 2), past])
    collector = Compiled(env, AlwaysFirst(AlgorithmConfig(), env.spec), 6, opponents=mixed)
    started = mixed.init(jnp.int32(7), jax.random.key(0))  # 7 is the policy of the first learner
    assert started[0] == 1
    np.testing.assert_array_equal(started[1].params, [1, 1, 1])
    pool = Pool(jnp.array([0, 2, 1]), jnp.int32(2), jnp.full(3, 0.5), jnp.array([0, 1]))
    state = (started[0], pool)
    actors = collector.start_one(jax.random.key(0))
    _, played = collector.collect_one((), actors, 2, playing=mixed.playing(state, jnp.int32(7)))
    np.testing.assert_array_equal(played.reward[..., 0], [[-1, -1, 0, 0, 1, 1]] * 2)
    clock = Clock(jnp.float32(12), jnp.float32(100))
    (learner, after), logged = mixed.learnt(state, jnp.int32(7), played, jax.random.key(1), clock)
    np.testing.assert_array_equal(logged["opponent_action"], np.ones((2, 2, 1)))
    np.testing.assert_array_equal(logged["opponent_reward"], np.ones((2, 2, 1)))
    assert logged["opponent_first"].all()
    assert learner == 2
    # A snapshot was due: the newest policy of who learns on this side.
    assert after.taken == 3
    np.testing.assert_array_equal(after.params, [0, 2, 2])


def test_past_selves_of_the_other_side_end_the_cycle():
    """Matching pennies: two learners run after each other; who plays past selves too learns to mix."""
    updates, away = 1200, {}
    for opponent in ("", "past"):
        run = {
            "opponent_algorithm": "ippo",
            "opponent_pool": 32,
            "snapshot_every": 256 * updates // 32,
        }
        setup = set_up("game/pennies", opponent, updates, run=run, lr=3e-3, entropy=0.2)
        found, carry = history(setup, updates, 40, range(3), jax.vmap)
        away[opponent] = np.abs(found[20:] - 1 / 2).mean()
    assert carry.opponent[1].taken.tolist() == [33] * 3
    assert away["past"] < 0.15
    assert away[""] > 0.4


def test_past_selves_of_a_learning_opponent_resume_to_the_bit(tmp_path):
    """In simple_push, whose sides are not alike. Learner, opponent and past selves can play afterwards."""
    options = {
        "env": "mpe/simple_push",
        "side": "adversary",
        "opponent": "past",
        "opponent_algorithm": "ippo",
        "opponent_pool": 4,
        "snapshot_every": 100,
        "opponent_draw": "hard",
        "seeds": 2,
        "envs": 8,
        "lr": 0.1,  # past selves then act differently: the result depends on who plays
    }
    whole = whole_and_resumed(tmp_path, options)
    assert {"against_opponent/return", "learn/opponent_policy_loss"} <= rows(whole)[-1].keys()
    setup, record = open_run(whole.folder, None)
    learner, pool = read_carry(setup, record, None).opponent
    assert pool.taken.tolist() == [6, 6]
    algorithm = setup.loop.opponents.player.algorithm
    assert algorithm.steps_per_update == setup.algorithm.steps_per_update // 4
    second = jax.tree.map(lambda x: x[0], jax.vmap(algorithm.policy)(learner))
    assert same(load_opponent(f"{whole.folder}:opponent").params, second)
    past = past_selves(whole.folder)
    assert past is not None
    assert same(past.params, jax.tree.map(lambda x: x[0], pool.params))
    teams = [f"{whole.folder}{which}" for which in ("", ":opponent", ":past")]
    result = cross_play(teams, "mpe/simple_push", episodes=8)
    # The learner plays the adversary, the other two the good agent.
    assert set(result.returns) == {(0, 1), (0, 2)}


def test_a_pool_file_has_a_share_for_the_learning_opponent(tmp_path):
    pool = tmp_path / "pool.toml"
    pool.write_text("[opponents]\nrandom = 1\nlearning = 2\npast = 1\n")
    setup = set_up("game/pennies", str(pool), 4, run={"opponent_algorithm": "ippo"})
    parts = setup.loop.opponents.parts
    assert [(type(part).__name__, part.envs) for part in parts] == [
        ("Learning", 32),
        ("Frozen", 16),
        ("PastSelves", 16),
    ]
    assert parts[0].player.algorithm.steps_per_update == 128
    assert parts[2].player is parts[0].player
    assert parts[2].steps == 256
    with pytest.raises(PhalanxError, match=r"pool.toml lists learning: add --opponent-algorithm"):
        set_up("game/pennies", str(pool), 4)
    pool.write_text("[opponents]\npast = 1\n")
    with pytest.raises(PhalanxError, match=r"pool.toml must list learning, with a weight for ippo"):
        set_up("game/pennies", str(pool), 4, run={"opponent_algorithm": "ippo"})


def test_gradient_steps_keep_their_ratio_to_env_steps(tmp_path):
    """Q-learning takes 4 gradient steps for 512 env steps by itself: 1 for 128 of another's rollouts."""
    setup = set_up("game/rock_paper_scissors", "", 4, batch_steps=128, run={"opponent_algorithm": "iql"})
    config = setup.loop.opponents.player.algorithm.config
    assert (config.batch_steps, config.gradient_steps) == (128, 1)
    long = set_up("game/rock_paper_scissors", "", 4, batch_steps=8192, run={"opponent_algorithm": "iql"})
    assert long.loop.opponents.player.algorithm.config.buffer == 8192
    own = set_up("game/rock_paper_scissors", "", 4, hidden=24, run={"opponent_algorithm": "ippo"})
    assert own.loop.opponents.player.algorithm.config.hidden == 24
    quarter = set_up("game/pennies", "past", 4, batch_steps=1024, run={"opponent_algorithm": "iql"})
    config = quarter.loop.opponents.player.algorithm.config
    assert (config.batch_steps, config.gradient_steps) == (256, 2)


def test_evaluations_face_each_opponent_in_its_part():
    """Rock against rock, paper and scissors, and against a team that is not trained with."""
    env = OneSide(sides_of(registry.make_env("game/rock_paper_scissors", {})), "left")
    rock = AlwaysFirst(AlgorithmConfig(batch_steps=6), env.spec)
    sizes = [1, 3, 2]
    parts = [Frozen(env, says(env, action), size, True, ()) for action, size in enumerate(sizes)]
    loop = Loop(Compiled(env, rock, 6, opponents=Mixed(env, parts)))
    against = Against(loop, {"paper": Frozen(env, says(env, 1), 4, True, ())})
    state = loop.opponents.init((), jax.random.key(0))
    key = jax.random.key(0)[None]
    found = against.play((), jax.tree.map(lambda x: x[None], state), key)
    np.testing.assert_array_equal(found["opponent"].returns[0, :, 0], [0, -1, -1, -1, 1, 1])
    np.testing.assert_array_equal(found["paper"].returns[0, :, 0], [-1] * 4)


def test_evaluations_face_the_opponent_of_the_carry():
    """Made as rock, it has become paper in the course of training: rock loses to it."""
    env = OneSide(sides_of(registry.make_env("game/rock_paper_scissors", {})), "left")
    spec = env.sides.spec("right")

    class Says(RandomActor):
        def act(self, policy, observation, first, memory, key, greedy):
            return jnp.broadcast_to(policy, observation.alive.shape).astype(jnp.int32), memory, {}

    algorithm = AlwaysFirst(AlgorithmConfig(), spec)
    algorithm.actor = Says(spec)
    opponent = Frozen(env, Player(spec, algorithm), 2, True, jnp.int32(0))
    rock = AlwaysFirst(AlgorithmConfig(batch_steps=2), env.spec)
    against = Against(Loop(Compiled(env, rock, 2, opponents=opponent)), {})
    found = against.play((), jnp.ones((1, 1), jnp.int32), jax.random.key(0)[None])
    np.testing.assert_array_equal(found["opponent"].returns[0, :, 0], [-1, -1])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"opponent": "self", "opponent_algorithm": "iql"}, "are two learners for one side: leave out one"),
        ({"opponent": "past", "opponent_algorithm": "iql", "envs": 1}, "2 opponents need .* use --envs 2"),
        (
            {"opponent": "past", "opponent_algorithm": "ippo", "batch_steps": 12, "minibatches": 4},
            "opponent_algorithm=ippo cannot learn in 1 of 4 environments: batch_steps=3 cannot be cut",
        ),
        (
            {"opponent": "script", "opponent_algorithm": "ippo", "env": "battle/3m"},
            "opponent=script and opponent_algorithm=ippo cannot play in one run",
        ),
        ({"opponent_algorithm": "nothing"}, "'nothing'"),
        ({"opponent_algorithm": "sac", "env": "switch/2"}, "switch/2 has no other side"),
    ],
)
def test_what_cannot_learn_is_refused_in_one_line(tmp_path, options, line):
    with pytest.raises(PhalanxError, match=line):
        small(tmp_path / "run", **{"env": "game/pennies", **options})


def test_a_run_without_a_learning_opponent_says_so(tmp_path):
    small(tmp_path / "run", env="game/pennies", steps=64, opponent="random")
    with pytest.raises(PhalanxError, match=r"no opponent learnt in .* without --opponent-algorithm"):
        load_opponent(f"{tmp_path / 'run'}:opponent")

"""Both sides learn: another algorithm plays, and learns from, the other side of the same episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import same, small
from test_opponents import AlwaysFirst, says, set_up
from test_run import assert_same_end, rows

import phalanx
from phalanx import registry
from phalanx.algorithms.base import AlgorithmConfig
from phalanx.algorithms.random import RandomActor
from phalanx.algorithms.shared.normalised import build
from phalanx.crossplay import cross_play
from phalanx.envs.sides import OneSide, sides_of
from phalanx.envs.wrappers import policy_spec
from phalanx.errors import PhalanxError
from phalanx.opponents.kinds import Frozen, Learning, Mixed
from phalanx.opponents.player import Player
from phalanx.runs import load_opponent, open_run, read_carry
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.evaluate import Against
from phalanx.training.loop import Loop


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


def test_two_algorithms_in_one_run_resume_to_the_bit(tmp_path):
    """PPO against Q-learning with its replay; the opponent can be played with afterwards."""
    options = {"env": "game/rock_paper_scissors", "opponent_algorithm": "iql", "seeds": 2}
    whole = small(tmp_path / "whole", steps=512, **options)
    half = small(tmp_path / "half", steps=256, **options)
    phalanx.resume(half.folder, 512, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert rows(whole) == rows(half)
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


def test_gradient_steps_keep_their_ratio_to_env_steps(tmp_path):
    """Q-learning takes 4 gradient steps for 512 env steps by itself: 1 for 128 of another's rollouts."""
    setup = set_up("game/rock_paper_scissors", "", 4, batch_steps=128, run={"opponent_algorithm": "iql"})
    config = setup.loop.opponents.player.algorithm.config
    assert (config.batch_steps, config.gradient_steps) == (128, 1)
    long = set_up("game/rock_paper_scissors", "", 4, batch_steps=8192, run={"opponent_algorithm": "iql"})
    assert long.loop.opponents.player.algorithm.config.buffer == 8192
    own = set_up("game/rock_paper_scissors", "", 4, hidden=24, run={"opponent_algorithm": "ippo"})
    assert own.loop.opponents.player.algorithm.config.hidden == 24


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
        ({"opponent": "self", "opponent_algorithm": "iql"}, "are two opponents: leave out one"),
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

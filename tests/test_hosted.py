"""The hosted collector against the compiled one: a compiled environment that poses as a Python program."""

from contextlib import closing
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, small_for
from posing import Posing

import phalanx
from phalanx import registry
from phalanx.data import replay
from phalanx.envs.host.task import Placement
from phalanx.errors import PhalanxError
from phalanx.training import playback
from phalanx.training.collectors import collector_for
from phalanx.training.collectors.hosted import Hosted
from phalanx.training.loop import Loop

# Worlds whose steps draw nothing: what is random in an episode comes from the seed of its reset.
WORLDS = [("mpe/simple_spread", {"max_cycles": 5}), ("debug/two_step", {}), ("switch/2", {})]


def both(algorithm, env, env_options, seeds=2, envs=3, **options):
    """A compiled and a hosted collector of the same algorithm in the same world."""
    loop = build(algorithm, env, env_options=env_options, **options)
    world = loop.collector.env
    return [collector_for(each, loop.algorithm, envs, seeds) for each in (world, Posing(world))]


def new_policies(algorithm, keys):
    return jax.jit(jax.vmap(lambda key: algorithm.policy(algorithm.init(key, 3))))(keys)


def assert_close(one, two, **tolerance):
    leaves = zip(*(jax.tree_util.tree_leaves_with_path(tree) for tree in (one, two)), strict=True)
    for (path, a), (_, b) in leaves:
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, err_msg=jax.tree_util.keystr(path), **tolerance)


@pytest.mark.parametrize(("env", "env_options"), WORLDS, ids=[name for name, _ in WORLDS])
def test_same_seeds_give_same_actions_and_same_rollouts(env, env_options):
    """Through ends and time limits, with a memory, ids and last actions, in two rollouts for two seeds."""
    compiled, hosted = both("ippo", env, env_options, network="gru", last_action=True)
    assert (compiled.promise, hosted.promise) == ("exact", "replayable")
    keys = jax.random.split(jax.random.key(3), 2)
    policy = new_policies(compiled.algorithm, keys)
    played = []
    programs = jax.jit(compiled.start), jax.jit(compiled.collect, static_argnums=2)
    for start, collect in (programs, (hosted.start, hosted.collect)):
        actors, rollouts = start(keys), []
        for _ in range(2):
            actors, rollout = collect(policy, actors, 7)
            rollouts.append(rollout)
        played.append(jax.device_get(rollouts))
    assert (played[0][0].first[:, 1:].any()) or env == "switch/2"
    np.testing.assert_array_equal(played[0][1].action, played[1][1].action)
    assert not any(rollout.broken.any() for rollout in played[1])
    assert_close(played[0], [rollout._replace(broken=None) for rollout in played[1]], atol=1e-6)
    shapes = hosted.shapes(7)
    assert jax.tree.map(jnp.shape, shapes[0]) == jax.tree.map(jnp.shape, actors)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), shapes[1]) == jax.tree.map(
        lambda x: (x.shape, x.dtype), rollout
    )


@pytest.fixture(scope="module")
def corridor():
    """A small algorithm for `switch/2`, its policy, and a rollout of the compiled world."""
    loop = build("ippo", "switch/2", envs=8, env_options={"time_limit": 11}, last_action=True)
    keys = jax.random.split(jax.random.key(5), 1)
    policy = new_policies(loop.algorithm, keys)
    start, collect = jax.jit(loop.collector.start), jax.jit(loop.collector.collect, static_argnums=2)
    return loop.algorithm, keys, policy, jax.device_get(collect(policy, start(keys), 40)[1])


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_a_program_and_a_compiled_world_play_alike_with_any_number_of_workers(corridor, workers):
    """The same corridor, written twice: in JAX, and in numpy for workers."""
    algorithm, keys, policy, compiled = corridor
    env = registry.make_env("corridor_program:Corridor", {"limit": 11})
    hosted = Hosted(replace(env, placement=Placement(workers=workers)), algorithm, envs=8)
    with closing(hosted):
        rollout = jax.device_get(hosted.collect(policy, hosted.start(keys), 40)[1])
    assert compiled.truncated.any()
    assert not rollout.broken.any()
    np.testing.assert_array_equal(compiled.action, rollout.action)
    assert_close(compiled, rollout._replace(broken=None), atol=1e-6)


OPTIONS = {"steps": 320, "seeds": 2, "envs": 4, "eval_every": 128, "eval_episodes": 3, "final_episodes": 3}


def trained(algorithm, env, out, **options):
    return phalanx.train(
        algorithm, env, out=out, preset="none", quiet=True, **{**OPTIONS, **small_for(algorithm), **options}
    )


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("mappo", {"network": "gru"}),
        ("qmix", {"buffer": 64, "episodes": 4, "reward": "mean"}),
        ("ippo", {"normalise_obs": True, "normalise_reward": True}),
    ],
)
def test_learning_is_the_same(tmp_path, algorithm, options):
    """The driver, its evaluations and its final one, to float tolerance."""
    world = phalanx.make_env("mpe/simple_spread", max_cycles=5)
    one = trained(algorithm, world, tmp_path / "compiled", **options)
    two = trained(algorithm, Posing(world), tmp_path / "hosted", **options)
    assert len(one.metrics()) == len(two.metrics()) > 4
    learnt = [name for name in one.metrics()[-1] if name.startswith("learn/")]
    assert len(learnt) > 5
    for a, b in zip(one.metrics(), two.metrics(), strict=True):
        assert b.pop("faults") == 0
        assert a.keys() == b.keys()
        for name in a.keys() - {"seconds"}:
            assert (a[name] is None) == (b[name] is None)
            if a[name] is not None:
                np.testing.assert_allclose(a[name], b[name], rtol=2e-3, atol=1e-4, err_msg=name)
    finals = [run.facts["final"]["last"]["return"] for run in (one, two)]
    np.testing.assert_allclose(*finals, rtol=1e-3)


def test_a_resumed_run_begins_its_episodes_again_from_their_seeds(tmp_path, capsys):
    """As `Collector.promise` says: the learner to the bit, running episodes from their recorded seeds."""
    hosted = Posing(phalanx.make_env("mpe/simple_spread", max_cycles=5))
    run = trained("mappo", hosted, tmp_path / "run", steps=192, eval_every=64)
    phalanx.resume(run.folder, 320, env=hosted)
    said = " ".join(capsys.readouterr().out.split())
    assert "8 running episodes begin again from their seeds; everything else continues bit for bit" in said
    assert run.facts["status"] == "finished"
    assert run.metrics()[-1]["env_steps"] == 320


def test_restored_actors_begin_the_recorded_episodes():
    _, hosted = both("ippo", "mpe/simple_spread", {"max_cycles": 5})
    keys = jax.random.split(jax.random.key(3), 2)
    policy = new_policies(hosted.algorithm, keys)
    start = hosted.start(keys)
    actors, _ = hosted.collect(policy, start, 3)
    again, begun_again = hosted.restored(actors, [])
    assert begun_again == 6
    assert again.first.all()
    np.testing.assert_array_equal(again.episode_seeds, start.episode_seeds)
    np.testing.assert_allclose(again.observation.obs, start.observation.obs)
    np.testing.assert_array_equal(jax.random.key_data(again.key), jax.random.key_data(actors.key))
    later, _ = hosted.collect(policy, again, 5)  # through an end: other episodes
    assert not np.array_equal(hosted.restored(later, [])[0].episode_seeds, start.episode_seeds)


def test_replay_drops_an_episode_that_was_begun_again():
    """Three steps, then the environment begins again: only the whole episode after it is kept."""
    loop = build("iql", "debug/identity", envs=1, env_options={"time_limit": 4}, buffer=64, episodes=1)

    @jax.jit
    def play():
        carry = loop.init(jnp.int32(0))
        _, rollout = loop.collector.collect_one(loop.algorithm.policy(carry.learner), carry.actors, 4)
        begun = jax.tree.map(lambda x: x[:3], rollout)
        kept = replay.add(replay.add(carry.learner.replay, begun), rollout)
        return rollout, kept.count, replay.take(kept, replay.draw(kept, jax.random.key(0), 1))

    rollout, count, episode = jax.device_get(play())
    assert count == 1
    assert episode.valid.sum() == 4
    np.testing.assert_array_equal(episode.action[:, 0], rollout.action[:, 0])
    np.testing.assert_array_equal(episode.observation.obs[:-1, 0], rollout.observation.obs[:, 0])


def test_a_pool_cuts_episodes_at_the_time_limit():
    env = Posing(phalanx.make_env("debug/forever", time_limit=3))
    pool = env.pool(1)
    pool.begin(np.array([1], np.uint64))
    actions = np.zeros((1, env.spec.n_agents), np.int32)
    cuts = [pool.step(actions, np.array([seed], np.uint64)) for seed in range(7)]
    assert [bool(each.step.truncated) for each in cuts] == [False, False, True, False, False, True, False]
    assert [int(each.length[0]) for each in cuts] == [1, 2, 3, 1, 2, 3, 1]
    assert not any(each.step.terminated.any() for each in cuts)


def test_a_hosted_team_is_recorded_and_not_watched_without_pictures():
    compiled, hosted = both("random", "debug/two_step", {}, seeds=1)
    episodes = [
        playback.play(each.env, each.algorithm, (), seed=5, episodes=4, greedy=False)
        for each in (compiled, hosted)
    ]
    for one, two in zip(*episodes, strict=True):
        np.testing.assert_array_equal(one.action, two.action)
        np.testing.assert_allclose(one.observation.obs, two.observation.obs, atol=1e-6)
        assert (one.length, one.terminated, one.won) == (two.length, two.terminated, two.won)
    with pytest.raises(PhalanxError, match="cannot be watched: it draws no pictures"):
        playback.play(hosted.env, hosted.algorithm, (), seed=5, episodes=1, film=True)


def test_a_loop_needs_no_compiled_environment_to_know_its_shapes():
    _, hosted = both("qmix", "mpe/simple_spread", {}, seeds=1, reward="mean", buffer=64, episodes=4)
    loop = Loop(hosted)
    actors, rollout = loop.shapes
    assert rollout.reward.shape == (1, loop.length, 3, 3)
    assert actors.episode_seeds.shape == (1, 3, 2)

"""Random keys: no two purposes share one, and final evaluations are each seed's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import phalanx
from phalanx.training import keys, playback, programs
from phalanx.training.collectors import collector_for
from phalanx.training.keys import Purpose


def words(key):
    return [tuple(row) for row in np.asarray(jax.random.key_data(key)).reshape(-1, 2).tolist()]


def test_no_two_purposes_share_a_key_whatever_the_seed():
    """Roots, and what descends from them by `split` and by `fold_in`, the two being alike in JAX."""
    seeds = [*range(40), 20_210, 31_415, 27_182, 2**31 - 1]
    found = []
    for purpose in Purpose:
        for seed in seeds:
            root = keys.root(purpose, seed)
            found += words(root) + words(jax.random.split(root, 40))
    assert len(set(found)) == len(found)


def test_training_begins_with_the_key_of_its_seed():
    """So that trainings of earlier versions can be had again."""
    for seed in (0, 7, 2**31 - 1):
        assert words(keys.root(Purpose.TRAINING, seed)) == words(jax.random.key(seed))
        assert words(keys.root(Purpose.TRAINING, jnp.int32(seed))) == words(jax.random.key(seed))


def test_keys_do_not_depend_on_the_users_default():
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_data(keys.root(Purpose.FINAL, 3)).shape == (2,)


@pytest.fixture(scope="module")
def random_run(tmp_path_factory):
    """A random team, all of whose seeds act alike: what differs is the episodes."""
    out = tmp_path_factory.mktemp("keys") / "run"
    sizes = {"steps": 64, "batch_steps": 64, "envs": 4, "eval_episodes": 16, "final_episodes": 40}
    return phalanx.train("random", "debug/identity", seeds=3, out=out, quiet=True, **sizes)


def test_final_evaluations_are_of_each_seeds_own_episodes(random_run):
    finals = [row["return"] for row in random_run.facts["final"]["last"]["seeds"]]
    assert len(set(finals)) == 3
    evaluated = [row["return"] for row in phalanx.evaluate(random_run.folder, episodes=40)["seeds"]]
    assert len(set(evaluated)) == 3
    assert finals != evaluated


def test_curves_are_of_common_episodes(random_run):
    rows = random_run.metrics()
    for steps in {row["env_steps"] for row in rows}:
        assert len({row["eval/return"] for row in rows if row["env_steps"] == steps}) == 1


def test_a_seed_is_evaluated_alike_alone_and_with_others(random_run):
    """The episodes of a seed do not depend on how many are trained beside it."""
    from phalanx import api

    this, policies = api.policies_of(random_run.folder, None, "last", None)
    roots = programs.seed_keys(Purpose.FINAL, this.seeds)
    evaluation = collector_for(this.env, this.algorithm, this.config.eval_episodes)
    together = programs.play_many(programs.play_program(this.evaluation), policies, roots, 40)
    alone = programs.play_many(programs.play_program(evaluation), policies, roots[1:2], 40)
    np.testing.assert_array_equal(together.returns[1], alone.returns[0])


@pytest.mark.parametrize("greedy", [True, False])
def test_what_is_watched_is_what_is_recorded(small_run, tmp_path, greedy):
    """The same seed shows the same episodes, however many are asked for, filmed or not."""
    from phalanx import api

    this, params = api.team_of(small_run.folder, None, None, None, None)
    few = playback.play(this.env, this.algorithm, params, 5, 2, greedy=greedy, film=True)
    more = playback.play(this.env, this.algorithm, params, 5, 9, greedy=greedy)
    other = playback.play(this.env, this.algorithm, params, 6, 2, greedy=greedy)
    for watched, recorded in zip(few, more, strict=False):
        np.testing.assert_array_equal(watched.observation.obs, recorded.observation.obs)
        np.testing.assert_array_equal(watched.action, recorded.action)
    if not greedy:  # the corridor itself draws nothing
        assert any(not np.array_equal(a.action, b.action) for a, b in zip(few, other, strict=True))


def test_a_random_team_is_watched_as_it_is_recorded():
    from phalanx import api

    this, policies = api.untrained("random", "debug/identity", {})
    one, two = (playback.play(this.env, this.algorithm, policies, 3, count) for count in (2, 70))
    assert len(two) == 70
    for watched, recorded in zip(one, two, strict=False):
        np.testing.assert_array_equal(watched.action, recorded.action)
    assert not np.array_equal(two[0].action, two[64].action)

"""What acts: made without a learner, given what it acts on, and its memory cleared row by row."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, same

import phalanx
from phalanx import api, cli, device, registry
from phalanx.errors import PhalanxError
from phalanx.training.programs import bytes_needed

ALGORITHMS = [name for name in registry.algorithms() if name not in ("heuristic",)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_policy_is_that_of_a_new_learner(algorithm):
    loop = build(algorithm, "debug/two_step")
    policies = jax.jit(lambda seed: (loop.algorithm.policy(loop.init(seed).learner), loop.init_policy(seed)))
    assert same(*policies(jnp.int32(5)))


def test_an_untrained_team_is_made_without_its_replay_buffer():
    """A learner of values holds a replay, of gigabytes in a large battle."""
    loop = build("qmix", "debug/two_step", buffer=10**7, episodes=32)
    replay = jax.eval_shape(loop.init, jnp.int32(0)).learner.replay
    assert device.bytes_of(replay) > 1e9
    program = jax.jit(jax.vmap(loop.init_policy)).lower(jnp.arange(1)).compile()
    assert 0 < bytes_needed(program) < 1e6


@pytest.mark.parametrize(("algorithm", "network"), [("mappo", "gru"), ("qmix", "gru")])
def test_memory_is_cleared_row_by_row(algorithm, network):
    """Three episodes at once, the second of which begins anew after two steps."""
    loop = build(algorithm, "switch/2", network=network, last_action=True, reward="mean")
    policy = phalanx.Policy(
        registry.make_env("switch/2", {}).spec, loop.algorithm, jax.jit(loop.init_policy)(jnp.int32(0))
    )
    assert policy.acts_on == {"observation", "memory"}
    rng = np.random.default_rng(0)
    seen = rng.random((4, 3, 2, policy.spec.obs_size)).astype(np.float32)
    memory, alone = None, None
    for t in range(4):
        first = [False, t == 2, False] if t else None
        _, memory = policy.act(seen[t], memory, first=first)
        _, alone = policy.act(seen[t, 1], None if t == 2 else alone)
    assert memory is not None
    assert alone is not None
    np.testing.assert_allclose(memory.network[1], alone.network[0], atol=1e-6)
    np.testing.assert_array_equal(memory.last_action[1], alone.last_action[0])
    steady = None
    for t in range(4):
        _, steady = policy.act(seen[t, 0], steady)
    assert steady is not None
    np.testing.assert_allclose(memory.network[0], steady.network[0], atol=1e-6)
    for remembered in (memory, None):
        with pytest.raises(PhalanxError, match=r"first must be \(3,\)"):
            policy.act(seen[0], remembered, first=[True])
    with pytest.raises(PhalanxError, match="without a memory every episode begins"):
        policy.act(seen[0], None, first=[True, False, True])


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """A run of the scripted team."""
    out = tmp_path_factory.mktemp("policy") / "run"
    sizes = {"steps": 64, "batch_steps": 64, "envs": 4, "eval_episodes": 2, "final_episodes": 2}
    return phalanx.train("heuristic", "battle/2m_vs_1m", out=out, quiet=True, **sizes)


def test_who_acts_on_the_state_is_given_it_or_refuses(scripted):
    team = phalanx.load(scripted.folder)
    assert "state" in team.acts_on
    env = team.env
    assert env is not None
    state, now = jax.jit(env.reset)(jax.random.key(0))
    step, memory, keys = jax.jit(env.step), None, jax.random.split(jax.random.key(1), 40)
    with pytest.raises(PhalanxError, match="acts on the global state: give act"):
        team.act(now.observation.obs)
    won = False
    for key in keys:
        seen = now.observation
        actions, memory = team.act(seen.obs, memory, seen.avail, seen.alive, state=seen.state)
        # It may order attacks on what is out of range, but never does nothing while it lives.
        assert ((actions == 0) == ~np.asarray(seen.alive)).all()
        state, now = step(key, state, jnp.asarray(actions))
        won |= bool(now.info["won"])
        if now.terminated:
            break
    assert won
    with pytest.raises(PhalanxError, match="state must be"):
        team.act(seen.obs, state=np.zeros(3))


def test_a_team_without_parameters_cannot_be_exported(scripted, tmp_path):
    with pytest.raises(PhalanxError, match="heuristic has no parameters to export"):
        phalanx.export(scripted.folder, tmp_path / "team.zip")
    assert not list(tmp_path.iterdir())


def test_an_evaluation_is_greedy_or_sampled(capsys):
    assert cli.run(["eval", "ippo", "switch/2", "--episodes", "64", "--json"]) == 0
    assert cli.run(["eval", "ippo", "switch/2", "--episodes", "64", "--json", "--sampled"]) == 0
    greedy, sampled = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    # The starts are the same: without draws, all episodes of an untrained team are alike.
    assert greedy["return_std"] < 1e-3
    assert sampled["return_std"] > 0.5


def test_parameters_of_an_untrained_algorithm_cannot_be_chosen(tmp_path):
    for choice in ({"which": "last"}, {"checkpoint": "0"}):
        with pytest.raises(PhalanxError, match="is for a run folder, and random is an untrained algorithm"):
            phalanx.evaluate("random", "debug/identity", **choice)
    with pytest.raises(PhalanxError, match="trained_seed is for a run folder"):
        phalanx.record("random", tmp_path / "t.npz", env="debug/identity", trained_seed=1)


def test_teams_of_version_0_1_load_under_the_new_names(tmp_path, small_run):
    from phalanx.config import renamed

    assert renamed({"standardise_rewards": True, "lr": 1}) == {"reward_norm": "standardise", "lr": 1}
    assert renamed({"standardise_rewards": False}) == {"reward_norm": "none"}


def test_every_algorithm_declares_what_it_acts_on():
    for name in ALGORITHMS:
        config = registry.algorithm_config(name)
        whole = {
            key: value for key, value in {"burn_in": 0, "replay": "episodes"}.items() if hasattr(config, key)
        }
        for network in ("mlp", "gru"):
            if hasattr(config, "network"):
                acts_on = build(name, "debug/two_step", network=network, **whole).algorithm.actor.acts_on
                assert ("memory" in acts_on) == (network == "gru")
                assert "state" not in acts_on
    assert api.untrained("heuristic", "battle/2m_vs_1m", {})[0].algorithm.actor.acts_on >= {"state"}


def test_old_names_of_arguments_still_work_with_a_warning(small_run, tmp_path, caplog):
    """`seed` of load and `team` of the others meant the trained seed."""
    new = phalanx.load(small_run.folder, trained_seed=1)
    with pytest.warns(FutureWarning, match=r"load\(seed=...\) is now trained_seed"):
        old = phalanx.load(small_run.folder, seed=1)  # type: ignore[call-arg]
    assert same(new.params, old.params)
    assert not same(new.params, phalanx.load(small_run.folder).params)
    with pytest.warns(FutureWarning, match="is now trained_seed"):
        phalanx.export(small_run.folder, tmp_path / "a.zip", team=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="its old name"):
        phalanx.load(small_run.folder, seed=1, trained_seed=1)  # type: ignore[call-arg]
    assert cli.run(["export", str(small_run.folder), str(tmp_path / "b.zip"), "--team", "1"]) == 0
    assert "--team is now --trained-seed" in caplog.text
    assert same(phalanx.load_team(tmp_path / "b.zip").params, new.params)

"""Normalised observations and rewards: the statistics, what they touch, and where they go with a policy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, same, small
from test_learning import fast, trained
from test_run import assert_same_end, rows
from test_warm_start import drawn, setup_of, started

import phalanx
from phalanx import registry
from phalanx.algorithms.shared.fixed import FixedLearner
from phalanx.algorithms.shared.normalised import InputNormaliser, RewardNormaliser
from phalanx.data.normalise import Moments
from phalanx.envs.debug import Identity
from phalanx.envs.wrappers import policy_spec
from phalanx.errors import PhalanxError
from phalanx.runs import open_run, read_carry
from phalanx.training.warm_start import start_from
from phalanx.types import Observation, Transition

BOTH = {"normalise_obs": True, "normalise_reward": True}


@dataclasses.dataclass(frozen=True)
class Wild(Identity):
    """Identity with observations and rewards on other scales."""

    obs_scale: float = 1.0
    obs_shift: float = 0.0
    reward_scale: float = 1.0

    def reset(self, key):
        state, now = super().reset(key)
        return state, self._wild(now)

    def step(self, key, state, actions):
        state, now = super().step(key, state, actions)
        return state, self._wild(now)

    def _wild(self, now):
        seen = now.observation
        obs, state = (self.obs_scale * x + self.obs_shift for x in (seen.obs, seen.state))
        seen = seen._replace(obs=obs, state=state)
        return now._replace(observation=seen, reward=self.reward_scale * now.reward)


# The statistics


def test_statistics_are_those_of_all_that_was_counted():
    """Of three batches, each group of agents on its own, with a mean far from zero."""
    rng, groups = np.random.default_rng(0), (0, 1, 0)
    membership = np.array([[1, 0, 1], [0, 1, 0]], np.float32)
    batches = [rng.normal(300, [1, 20, 500, 0], (5, 4, 3, 4)).astype(np.float32) for _ in range(3)]
    masks = [rng.random((5, 4, 3, 1)) < share for share in (0.5, 0.0, 0.9)]
    moments = Moments.start(2, 4)
    assert not moments.normalise(batches[0], groups).any()  # nothing is known yet
    for batch, counted in zip(batches, masks, strict=True):
        moments = moments.update(jnp.asarray(batch), jnp.asarray(counted), membership)
    for g in range(2):
        mine = [agent for agent in range(3) if groups[agent] == g]
        kept = np.concatenate(
            [batch[:, :, mine][counted[:, :, mine, 0]] for batch, counted in zip(batches, masks, strict=True)]
        )
        np.testing.assert_array_equal(moments.count[g], len(kept))
        np.testing.assert_allclose(moments.mean[g], kept.mean(0, dtype=np.float64), rtol=1e-6)
        np.testing.assert_allclose(
            jnp.sqrt(moments.var[g]), kept.std(0, dtype=np.float64), rtol=1e-4, atol=1e-3
        )
    normal = moments.normalise(jnp.asarray(batches[2]), groups)
    assert (jnp.abs(normal[..., 3]) < 0.1).all()  # an entry that never changes is not blown up
    assert moments.normalise(jnp.full((3, 4), 1e9), groups).max() == 10


def test_only_what_living_agents_see_is_normalised():
    """Padding, rows of the dead, agent ids, last actions and action masks stay as they are."""
    spec = registry.make_env("debug/roles", {}).spec  # entries: the scout has 2, the worker 5
    added = {"agent_id": True, "last_action": True}
    inputs = InputNormaliser(policy_spec(spec, **added), added)
    rng, rows = np.random.default_rng(0), (6, 4)
    alive = rng.random((*rows, 2)) < 0.7
    padding = np.array([[0, 0, 1, 1, 1], [0] * 5], bool)
    obs = rng.normal(50, 20, (*rows, 2, 5)) * ~padding * alive[..., None]
    behind = rng.integers(0, 2, (*rows, 2, 2 + 4))
    state = rng.normal(-3, 5, (*rows, spec.state_size))
    avail = rng.random((*rows, 2, 4)) < 0.5
    whole = np.concatenate([obs, behind], -1)
    given = Observation(*(jnp.asarray(x, jnp.float32) for x in (whole, state)), avail, alive)
    statistics = inputs.update(inputs.start(), given)
    seen = inputs.apply(statistics, given)
    np.testing.assert_array_equal(seen.avail, avail)
    np.testing.assert_array_equal(seen.alive, alive)
    np.testing.assert_array_equal(seen.obs[..., 5:], behind)
    assert not seen.obs[..., :5][~alive].any()
    for agent, own in ((0, 2), (1, 5)):
        living = alive[..., agent]
        kept = obs[..., agent, :own][living]
        assert (statistics.obs.count[agent, :own] == len(kept)).all()
        expected = (kept - kept.mean(0)) / kept.std(0)
        np.testing.assert_allclose(seen.obs[..., agent, :own][living], expected, atol=1e-4)
        assert not seen.obs[..., agent, own:5].any()
    flat = state.reshape(-1, spec.state_size)
    np.testing.assert_allclose(seen.state.reshape(flat.shape), (flat - flat.mean(0)) / flat.std(0), atol=1e-4)


def test_rewards_are_scaled_by_the_returns_of_their_team():
    """Through ends of episodes and of rollouts; three adversaries learn from their mean, one agent alone."""
    spec = registry.make_env("mpe/simple_tag", {}).spec
    config = registry.algorithm_config("mappo")(gamma=0.9, reward="mean")
    normaliser, rng = RewardNormaliser(config, spec), np.random.default_rng(0)
    reward = rng.normal([1, 5, 9, -300], [1, 2, 3, 100], (12, 2, 4)).astype(np.float32)
    first = rng.random((12, 2)) < 0.3
    seen = Observation(None, None, None, jnp.ones((6, 2, 4), bool))
    statistics = normaliser.start(2)
    for part in (slice(6), slice(6, 12)):
        empty = dict.fromkeys(Transition._fields)
        steps = {"reward": jnp.asarray(reward[part]), "first": jnp.asarray(first[part]), "observation": seen}
        statistics = normaliser.update(statistics, Transition(**{**empty, **steps}))
    so_far, returns = np.zeros((2, 2)), []
    for t in range(12):
        earned = np.stack([reward[t, :, :3].mean(-1), reward[t, :, 3]], -1)
        so_far = np.where(first[t][:, None], 0, 0.9 * so_far) + earned
        returns.append(so_far)
    scale = np.stack(returns).std((0, 1))
    expected = reward / scale[[0, 0, 0, 1]]
    np.testing.assert_allclose(normaliser.apply(statistics, reward), expected, rtol=1e-5)


# Learning


def learnt(seeds, env):
    """What IPPO has learnt after six updates of each seed, all in one program."""
    loop = build("ippo", env, value_norm="none", **BOTH)
    run = jax.vmap(lambda seed: loop.advance(loop.init(seed), jnp.int32(6), jnp.float32(1e4)).learner)
    return jax.jit(run)(jnp.array(seeds))


@pytest.fixture(scope="module")
def plain():
    """Of the seeds 5 and 6."""
    return learnt([5, 6], Wild())


def test_scales_of_observations_and_rewards_do_not_matter(plain):
    wild = learnt([5, 6], Wild(obs_scale=1000.0, obs_shift=-5000.0, reward_scale=1000.0))
    for one, other in zip(*(jax.tree.leaves(x.learner) for x in (plain, wild)), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)
    np.testing.assert_allclose(wild.rewards.moments.std, 1000 * plain.rewards.moments.std, rtol=1e-4)
    np.testing.assert_allclose(wild.inputs.obs.mean, 1000 * plain.inputs.obs.mean - 5000, rtol=1e-4)


def test_seeds_together_match_seeds_alone(plain):
    alone = learnt([6], Wild())
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a[1], b[0], rtol=1e-4, atol=1e-4)


def test_a_rollout_is_learnt_from_as_it_was_played():
    """Before its first gradient step PPO's ratio is 1, although the statistics have moved since."""
    env, few = Wild(obs_scale=1000.0, obs_shift=200.0), {"batch_steps": 16, "epochs": 1, "minibatches": 1}
    loop = build("mappo", env, network="gru", lr=0.1, **few, **BOTH)
    run = jax.jit(lambda seed: loop.advance(loop.init(seed), jnp.int32(8), jnp.float32(1e4)))
    carry = run(jnp.int32(0))
    assert (carry.learner.inputs.obs.count == 8 * 16 * 2).all()
    assert carry.tally.metrics["kl"] / 8 < 1e-8  # 5e-6 with the statistics after the rollout


@pytest.mark.parametrize("options", [BOTH, {}], ids=["normalised", "raw"])
def test_qmix_on_observations_of_a_thousand(options):
    """Solved only with normalisation in this budget."""
    settings = fast("qmix", network="mlp", **options)
    loop = build("qmix", Wild(obs_scale=1000.0, obs_shift=3000.0), envs=16, **settings)
    reached = trained(loop, 60).returns.mean()
    assert reached > 7.8 if options else reached < 4  # by chance 8 / 3


# Wherever a policy goes


@pytest.mark.parametrize(
    ("algorithm", "more"), [("mappo", {"network": "gru"}), ("qmix", {"buffer": 64, "episodes": 4})]
)
def test_a_run_is_resumed_to_the_bit_and_exported(tmp_path, algorithm, more):
    options = {**more, **BOTH, "env": "debug/two_step", "algorithm": algorithm}
    whole = small(tmp_path / "whole", **options)
    half = small(tmp_path / "half", steps=128, **options)
    phalanx.resume(half.folder, 256, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert rows(whole) == rows(half)
    assert rows(whole)[-1]["learn/reward_scale"] > 0

    setup, record = open_run(whole.folder, None)
    statistics = read_carry(setup, record, None).learner.inputs
    assert (statistics.obs.count == 256 * 2).all()  # of training alone, though there were evaluations
    assert (statistics.state.count == 256).all()

    phalanx.export(whole.folder, tmp_path / "team.zip", which="last")
    policy, team = phalanx.load(whole.folder, which="last"), phalanx.load_team(tmp_path / "team.zip")
    assert same(policy.params, team.params)
    assert same(policy.params.inputs, jax.tree.map(lambda x: x[0], statistics))
    obs = np.random.default_rng(0).random((9, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(policy.act(obs)[0], team.act(obs)[0])


def test_networks_are_taken_over_with_their_statistics():
    before, after = started(*(setup_of("mappo", share="team", **BOTH) for _ in range(2)))
    assert len(before) == 5
    for role, network in before.items():
        assert same(network.parameters, after[role].parameters)


# What is refused


@pytest.mark.parametrize(
    ("algorithm", "env", "options", "said"),
    [
        (
            "ippo",
            "debug/pictures",
            {"normalise_obs": True},
            "debug/pictures are pictures.*leave out normalise_obs",
        ),
        (
            "iql",
            "debug/identity",
            {"normalise_reward": True, "reward_norm": "scale"},
            "both scale rewards: leave",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(algorithm, env, options, said):
    with pytest.raises(PhalanxError, match=said):
        build(algorithm, env, **options)


@pytest.mark.parametrize("option", list(BOTH))
def test_networks_on_another_scale_are_not_taken_over(option):
    with_it, without = setup_of("ippo", **{option: True}), setup_of("ippo")
    with pytest.raises(PhalanxError, match=f"trained with {option}, and this run is without it"):
        start_from("RUN", with_it, drawn(with_it, 1), without)
    with pytest.raises(PhalanxError, match=f"trained without {option}, and this run is with it"):
        start_from("RUN", without, drawn(without, 1), with_it)


def test_a_replay_that_cannot_be_normalised_is_refused(monkeypatch):
    """An algorithm of the user's own that samples in its own way."""
    algorithm = build("ippo", "debug/identity", **BOTH).algorithm
    learner = FixedLearner(jnp.int32(0), replay=())
    monkeypatch.setattr(algorithm.algorithm, "init", lambda key, envs: learner)
    with pytest.raises(
        PhalanxError, match="PPO has a replay buffer, but no attribute `replay` to sample from it"
    ):
        algorithm.init(jax.random.key(0), 4)

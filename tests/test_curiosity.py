"""Curiosity: the bonus of ICM and RND, who gets it, what is logged, and that it finds sparse rewards."""

import dataclasses
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, same, small
from test_learning import fast, trained
from test_normalise import Wild
from test_run import assert_same_end, rows

import phalanx
from phalanx import registry
from phalanx.algorithms.shared.fixed import FixedLearner
from phalanx.algorithms.shared.normalised import Normalised
from phalanx.algorithms.shared.novelty import ICM, RND, Experience
from phalanx.data.replay import Episodes
from phalanx.envs.base import Env, numbered
from phalanx.envs.wrappers import policy_spec
from phalanx.errors import PhalanxError
from phalanx.types import Clock, EnvSpec, Observation, Transition

CLOCK = Clock(jnp.float32(0), jnp.float32(1e4))
KINDS = {"icm": ICM, "rnd": RND}


@dataclasses.dataclass(frozen=True)
class Chain(Env):
    """A corridor. Its near end pays 0.01 a step, its far end 1, which random steps do not reach."""

    cells: int = 16

    @cached_property
    def spec(self):
        cells, walker = numbered("cell", self.cells), ("walker",)
        return EnvSpec(
            "chain", walker, walker, (cells,), cells, action_counts=(2,), time_limit=self.cells + 4
        )

    def reset(self, key):
        return jnp.int32(0), self._show(jnp.int32(0), 0.0)

    def step(self, key, state, actions):
        cell = jnp.clip(state + 2 * actions[0] - 1, 0, self.cells - 1)
        return cell, self._show(cell, 1.0 * (cell == self.cells - 1) + 0.01 * (cell == 0))

    def _show(self, cell, reward):
        seen = jax.nn.one_hot(cell, self.cells)
        return self.timestep(seen[None], state=seen, reward=reward)


def model(kind, spec, **options):
    """A model that sees the observations of a spec."""
    config = registry.algorithm_config("ippo")(**{"hidden": 16, "curiosity_lr": 3e-3, **options})
    return KINDS[kind](config, spec, spec.obs_size)


def begun(novelty, envs):
    """The state of a model before anything was seen."""
    return jax.jit(lambda: novelty.init(jax.random.key(0), envs))()


def walks(rng, cells, count=64, within=None):
    """Steps of random walks on `Chain`, all that is counted: (1, count, 1, ...)."""
    before = rng.integers(0, within or cells, count)
    action = rng.integers(0, 2, count)
    after = np.clip(before + 2 * action - 1, 0, cells - 1)
    see = np.eye(cells, dtype=np.float32)
    return experience(see[before][None, :, None], action[None, :, None], see[after][None, :, None])


def experience(obs, action, next_obs, actions=2, counted=None):
    avail = np.ones((*obs.shape[:3], actions), bool)
    counted = np.ones(obs.shape[:3], bool) if counted is None else counted
    return Experience(*(jnp.asarray(x) for x in (obs, action, avail, next_obs, counted)))


def fitted(novelty, state, batches):
    """The state of a model after the batches (N, T, B, ...), and its losses."""
    never = jnp.zeros(batches.counted.shape[1:3], bool)

    def step(state, seen):
        return novelty.train(novelty.observe(state, never, seen), seen, CLOCK)

    return jax.jit(lambda state: jax.lax.scan(step, state, batches))(state)


def stacked(batches):
    return jax.tree.map(lambda *x: jnp.stack(x), *batches)


# The models


def dense_slowly(layers, x, activation):
    for i, layer in enumerate(layers):
        x = np.array(x) @ np.array(layer["kernel"], np.float64) + np.array(layer["bias"], np.float64)
        x = activation(x) if i < len(layers) - 1 else x
    return x


def encoded_slowly(params, x):
    return dense_slowly([*params["layers"].values(), params["head"]], x, np.tanh)


def one_of(params, group):
    return jax.tree.map(lambda p: np.asarray(p[group]), params)


def relu(x):
    return np.maximum(x, 0)


@pytest.fixture(scope="module")
def random_steps():
    """Of a scout and a worker, some of which do not count: (3, 4, 2, ...)."""
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(3, 2, (2, 3, 4, 2, 5)).astype(np.float32)
    action = rng.integers(0, 2, (3, 4, 2))
    return experience(obs, action, next_obs, 4, counted=rng.random((3, 4, 2)) < 0.7)


def test_the_bonus_of_icm_is_that_of_a_slow_loop(random_steps):
    icm = model("icm", registry.make_env("debug/roles", {}).spec, share="type")
    state, seen = begun(icm, 4), random_steps
    bonus = jax.jit(icm.bonus)(state, seen)
    for t, b, a in np.ndindex(3, 4, 2):
        own = one_of(state.params, a)
        before, after = (encoded_slowly(own["encoder"], x[t, b, a]) for x in (seen.obs, seen.next_obs))
        chosen = np.eye(4)[seen.action[t, b, a]]
        expected = dense_slowly(own["forward"], np.concatenate([before, chosen]), relu)
        error = 0.5 * np.square(expected - after).sum()
        np.testing.assert_allclose(bonus[t, b, a], error * seen.counted[t, b, a], rtol=1e-4)


def test_the_bonus_of_rnd_is_that_of_a_slow_loop(random_steps):
    """Of two rollouts, the second of which is judged by the statistics of both."""
    rnd = model("rnd", registry.make_env("debug/roles", {}).spec, share="type", gamma=0.8)
    state, seen = begun(rnd, 4), random_steps
    firsts = np.random.default_rng(1).random((2, 3, 4)) < 0.3
    rollouts = [seen, seen._replace(next_obs=40 * seen.next_obs)]
    so_far, kept, returns = np.zeros((4, 2)), [[], []], [[], []]
    for first, rollout in zip(firsts, rollouts, strict=True):
        state = jax.jit(rnd.observe)(state, jnp.asarray(first), rollout)
        counted = np.asarray(rollout.counted)
        for a in range(2):
            kept[a] += list(np.asarray(rollout.next_obs)[:, :, a][counted[:, :, a]])
        error = np.zeros((3, 4, 2))
        for t, b, a in np.ndindex(3, 4, 2):
            x = (np.asarray(rollout.next_obs[t, b, a]) - np.mean(kept[a], 0)) / np.std(kept[a], 0)
            own, target = one_of(state.predictor.params, a), one_of(state.target, a)
            known = dense_slowly(own["tail"], relu(encoded_slowly(own["encoder"], x.clip(-5, 5))), relu)
            missed = np.square(known - encoded_slowly(target, x.clip(-5, 5))).mean()
            error[t, b, a] = missed * counted[t, b, a]
        for t in range(3):
            so_far = np.where(first[t][:, None], 0, 0.8 * so_far) + error[t]
            for a in range(2):
                returns[a] += list(so_far[:, a][counted[t, :, a]])
    expected = np.stack([error[..., a] / np.std(returns[a]) for a in range(2)], -1)
    np.testing.assert_allclose(jax.jit(rnd.bonus)(state, rollouts[1]), expected, rtol=2e-3, atol=1e-5)
    assert expected.max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_the_bonus_vanishes_on_what_is_known_and_is_larger_on_what_is_new(kind):
    rng, novelty = np.random.default_rng(0), model(kind, Chain().spec)
    known, new = walks(rng, 16, within=6), walks(rng, 16)
    batches = stacked([walks(rng, 16, within=6) for _ in range(150)])
    start = begun(novelty, 64)
    end, losses = fitted(novelty, start, batches)
    name = "icm_forward_loss" if kind == "icm" else "rnd_loss"
    assert losses[name][-1] < 0.05 * losses[name][0]
    bonus = jax.jit(novelty.bonus)
    of_known, of_new = bonus(end, known), bonus(end, new)[new.next_obs[..., 7:].any(-1)]
    assert of_new.mean() > 5 * of_known.mean()


def test_the_inverse_model_learns_which_action_was_taken():
    rng, icm = np.random.default_rng(0), model("icm", Chain().spec)
    _, losses = fitted(icm, begun(icm, 64), stacked([walks(rng, 16) for _ in range(100)]))
    assert losses["icm_inverse_loss"][0] > 0.6  # by chance log 2
    assert losses["icm_inverse_loss"][-1] < 0.15  # at the ends of the corridor two actions look the same


def test_the_inverse_model_learns_continuous_actions():
    """Of a plane on which an agent moves by its action; half of the error is 1 / 3 by chance."""
    chain, rng = Chain().spec, np.random.default_rng(0)
    plane = dataclasses.replace(
        chain, obs_features=(("x", "y"),), action_kind="continuous", action_range=(0.0, 4.0)
    )
    icm = model("icm", plane)

    def moves():
        obs, action = rng.normal(size=(1, 64, 1, 2)), rng.uniform(0, 4, (1, 64, 1, 2))
        return experience(*(np.float32(x) for x in (obs, action, obs + action - 2)))

    _, losses = fitted(icm, begun(icm, 64), stacked([moves() for _ in range(100)]))
    assert 0.3 < losses["icm_inverse_loss"][0] < 2  # 5 on the scale of the actions
    assert losses["icm_inverse_loss"][-1] < 0.03


def test_the_forward_model_does_not_train_the_features(random_steps, monkeypatch):
    """With the inverse model left out of the loss, the encoder stays as it is."""
    icm = model("icm", registry.make_env("debug/roles", {}).spec)
    monkeypatch.setattr(icm, "inverse_error", lambda *_: jnp.zeros((3, 4, 2)))
    start = begun(icm, 4)
    end, _ = jax.jit(lambda state: icm.train(state, random_steps, CLOCK))(start)
    assert same(start.params["encoder"], end.params["encoder"])
    assert not same(start.params["forward"], end.params["forward"])


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_shared_as_asked_and_the_target_stays(kind, random_steps):
    spec = registry.make_env("debug/roles", {}).spec
    novelty = model(kind, spec, share="all", curiosity_share="type")
    assert novelty.groups.names == ("scout", "worker")
    only_scout = random_steps._replace(counted=jnp.ones((3, 4, 2), bool).at[..., 1].set(False))
    never = jnp.zeros((3, 4), bool)
    start = jax.jit(novelty.observe)(begun(novelty, 4), never, only_scout)
    end, _ = jax.jit(lambda state: novelty.train(state, only_scout, CLOCK))(start)
    changed = jax.tree.map(
        lambda a, b: (a != b).reshape(2, -1).any(-1), *map(novelty.parameters, (start, end))
    )
    scout, worker = np.stack(jax.tree.leaves(changed)).T
    assert scout.any()
    assert not worker.any()
    if kind == "rnd":
        assert same(start.target, end.target)


# Who gets the bonus, and what is logged


def rollout_of(spec, rng, time=6, envs=3):
    """A random rollout in which agents die, episodes end and one is broken."""
    rows, n = (time, envs), spec.n_agents

    def seen():
        obs = rng.normal(size=(*rows, n, spec.obs_size))
        alive = jnp.asarray(rng.random((*rows, n)) < 0.7)
        return Observation(
            jnp.float32(obs), jnp.zeros((*rows, spec.state_size)), jnp.ones((*rows, n, 2), bool), alive
        )

    over = rng.random(rows) < 0.4
    broken = over & (rng.random(rows) < 0.3)
    return Transition(
        observation=seen(),
        first=jnp.asarray(rng.random(rows) < 0.4),
        memory=None,
        action=jnp.asarray(rng.integers(0, 2, (*rows, n))),
        extras=None,
        reward=jnp.float32(rng.normal(size=(*rows, n))),
        terminated=jnp.asarray(over & ~broken),
        truncated=jnp.asarray(broken),
        next_observation=seen(),
        info={},
        broken=jnp.asarray(broken),
    )


def listening(env, **options):
    """A curious algorithm whose inside only passes on the rewards that it is given, and its update."""
    algorithm = build("ippo", env, **options).algorithm
    inside = FixedLearner(jnp.int32(0))
    algorithm.algorithm.init = lambda key, envs: inside
    algorithm.algorithm.update = lambda learner, rollout, key, clock: (learner, {"reward": rollout.reward})
    update = jax.jit(lambda learner, rollout: algorithm.update(learner, rollout, jax.random.key(0), CLOCK))
    return algorithm, update


def test_the_dead_get_no_bonus_and_returns_are_counted():
    """Over two rollouts, the second of which ends no episode."""
    curious, update = listening("debug/leave", icm=True, curiosity_weight=3.0, curiosity_share="agent")
    rng, learner = np.random.default_rng(0), jax.jit(lambda: curious.init(jax.random.key(0), 3))()
    so_far, last = np.zeros((3, 2)), np.zeros(2)
    for number in range(2):
        rollout = rollout_of(curious.spec, rng)
        if number:
            never = jnp.zeros((6, 3), bool)
            rollout = rollout._replace(terminated=never, truncated=never, broken=never)
        before = learner.novelty
        learner, metrics = update(learner, rollout)
        bonus = np.asarray(metrics["reward"] - rollout.reward) / 3
        lives = (
            rollout.observation.alive
            & rollout.next_observation.alive
            & ~np.asarray(rollout.broken)[..., None]
        )
        assert (bonus[~lives] == 0).all()
        assert (bonus[lives] > 0).all()
        assert same(before.params, learner.novelty.params) is False
        ended = []
        for t in range(6):
            so_far = np.where(rollout.first[t][:, None], 0, so_far) + bonus[t]
            ended += list(so_far[np.asarray(rollout.completed[t])])
        last = np.mean(ended, 0) if ended else last
        for a, agent in enumerate(curious.spec.agents):
            np.testing.assert_allclose(metrics[f"intrinsic_return/{agent}"], last[a], rtol=1e-4)
            mean = bonus[..., a][lives[..., a]].mean()
            np.testing.assert_allclose(metrics[f"intrinsic_reward/{agent}"], mean, rtol=1e-4)
            # Logged is the loss before the model has learnt from the rollout, which is the bonus.
            np.testing.assert_allclose(metrics[f"icm_forward_loss/{agent}"], mean, rtol=1e-4)
    assert last.all()


def test_a_common_reward_stays_common():
    curious, update = listening("debug/death", rnd=True)
    rollout = rollout_of(curious.spec, np.random.default_rng(0))
    rollout = rollout._replace(reward=jnp.broadcast_to(rollout.reward[..., :1], rollout.reward.shape))
    learner = jax.jit(lambda: curious.init(jax.random.key(0), 3))()
    _, metrics = update(learner, rollout)
    np.testing.assert_array_equal(metrics["reward"][..., 0], metrics["reward"][..., 1])
    seen = curious._experience(rollout)
    known = jax.jit(curious.novelty.observe)(learner.novelty, rollout.first, seen)
    mean = jax.jit(curious.novelty.bonus)(known, seen).mean(-1)
    np.testing.assert_allclose(metrics["reward"][..., 0] - rollout.reward[..., 0], mean, rtol=1e-4, atol=1e-6)


def test_samples_of_a_replay_get_the_bonus_of_their_valid_steps():
    """Two episodes of three steps, as `Episodes` and as a `Transition`, get the same."""
    curious, _ = listening("debug/leave", icm=True, curiosity_weight=2.0)
    rollout = rollout_of(curious.spec, np.random.default_rng(0), time=3, envs=2)._replace(broken=None)
    following = jax.tree.map(lambda x: x[1:], rollout.observation)
    ends = jax.tree.map(lambda x, y: x.at[:-1].set(y), rollout.next_observation, following)
    living = jnp.ones((3, 2, 2), bool)
    ends = ends._replace(alive=living)
    rollout = rollout._replace(observation=rollout.observation._replace(alive=living), next_observation=ends)
    valid = jnp.array([[True, True], [True, True], [True, False]])
    episodes = Episodes(
        observation=jax.tree.map(lambda x, y: jnp.concatenate([x, y[-1:]]), rollout.observation, ends),
        first=jnp.zeros((4, 2), bool),
        action=rollout.action,
        reward=rollout.reward,
        terminated=rollout.terminated,
        agent_terminated=None,
        last=rollout.terminated,
        valid=valid,
    )
    state = begun(curious.novelty, 2)
    sampled = jax.jit(lambda state, steps: curious._sampled(state, steps).reward)
    as_steps, as_episodes = (sampled(state, each) for each in (rollout, episodes))
    assert (as_steps != rollout.reward).all()
    expected = jnp.where(valid[..., None], as_steps, rollout.reward)
    np.testing.assert_allclose(as_episodes, expected, rtol=1e-6)
    bonus = jax.jit(curious.novelty.bonus)(state, curious._experience(rollout))
    np.testing.assert_allclose(as_steps - rollout.reward, 2 * bonus, rtol=1e-4, atol=1e-5)


def test_models_do_not_see_the_last_action():
    spec = policy_spec(registry.make_env("debug/leave", {}).spec, agent_id=True, last_action=True)
    curious = build("ippo", "debug/leave", icm=True, last_action=True).algorithm
    seen = curious._experience(rollout_of(spec, np.random.default_rng(0)))
    assert seen.obs.shape[-1] == seen.next_obs.shape[-1] == 2 + 2  # good, clock, and who it is
    picture = build(
        "ippo", "debug/pictures", rnd=True, network="cnn", last_action=True, curiosity_share="agent"
    )
    metrics = jax.eval_shape(picture.init, jnp.int32(0)).tally.metrics
    assert {"rnd_loss/agent_0", "rnd_loss/agent_1"} <= set(metrics)


# Around an algorithm

OFF_POLICY = {"buffer": 64, "episodes": 4, "network": "mlp"}
NOTHING = 1e-60  # a weight that is 0 in float32


def after(updates, algorithm, env, **options):
    loop = build(algorithm, env, **options)
    return loop, jax.jit(
        lambda: loop.advance(loop.init(jnp.int32(0)), jnp.int32(updates), jnp.float32(1e4))
    )()


@pytest.mark.parametrize(("algorithm", "more"), [("ippo", {}), ("iql", OFF_POLICY)])
def test_a_bonus_without_weight_changes_nothing(algorithm, more):
    """Draws, updates and logged metrics of the algorithm inside are as without curiosity, up to rounding."""
    loop, plain = after(4, algorithm, "debug/two_step", **more)
    assert not hasattr(loop.algorithm, "novelty")
    _, curious = after(4, algorithm, "debug/two_step", icm=True, curiosity_weight=NOTHING, **more)
    inside = curious.learner.learner._replace(replay=curious.learner.replay)
    for one, other in zip(*(jax.tree.leaves(x) for x in (plain.learner, inside)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for name, value in plain.tally.metrics.items():
        np.testing.assert_allclose(value, curious.tally.metrics[name], rtol=1e-4, atol=1e-4)
    added = set(curious.tally.metrics) - set(plain.tally.metrics)
    assert added == {"intrinsic_reward", "intrinsic_return", "icm_inverse_loss", "icm_forward_loss"}


def test_models_on_replay_see_normalised_observations():
    """Of a thousand: the forward model would be wrong by 1e6."""
    loop, carry = after(
        4, "iql", Wild(obs_scale=1000.0, obs_shift=3000.0), icm=True, normalise_obs=True, **OFF_POLICY
    )
    assert isinstance(loop.algorithm, Normalised)
    assert carry.tally.metrics["icm_forward_loss"] / 4 < 100


@pytest.mark.parametrize(("algorithm", "more"), [("ippo", {}), ("iql", OFF_POLICY)])
def test_a_run_is_resumed_to_the_bit_and_evaluated_without_the_bonus(tmp_path, algorithm, more):
    options = {
        **more,
        "rnd": True,
        "curiosity_weight": 1000.0,
        "env": "debug/two_step",
        "algorithm": algorithm,
    }
    whole = small(tmp_path / "whole", **options)
    half = small(tmp_path / "half", steps=128, **options)
    phalanx.resume(half.folder, 256, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert rows(whole) == rows(half)
    last = rows(whole)[-1]
    assert last["learn/intrinsic_return"] > 0.01
    assert last["learn/rnd_loss"] > 0
    assert 0 <= last["eval/return"] <= 8  # of the task
    assert 0 <= last["train/return"] <= 8

    # Nothing of it is in a team.
    plain = build(algorithm, "debug/two_step", **more)
    shapes = jax.eval_shape(plain.init_policy, jnp.int32(0))
    policy = phalanx.load(whole.folder, which="last").params
    assert jax.tree.structure(policy) == jax.tree.structure(shapes)


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_sparse_rewards_are_found_with_curiosity_alone(kind):
    """The far end of a corridor, for 6 of its steps; without curiosity IPPO stays at the near one."""
    curiosity = {kind: True, "curiosity_lr": 5e-3} if kind else {}
    played = trained(build("ippo", Chain(), envs=16, **fast("ippo", **curiosity)), 60)
    np.testing.assert_allclose(played.returns.mean(), 6.0 if kind else 0.2, rtol=0.05)


# What is refused


@pytest.mark.parametrize(
    ("algorithm", "options", "said"),
    [
        ("ippo", {"icm": True, "rnd": True}, "icm and rnd are two kinds of curiosity: leave one out"),
        ("ippo", {"curiosity_weight": 1.0}, "curiosity_weight is an option of curiosity: add icm or rnd"),
        ("iql", {"curiosity_share": "agent"}, "curiosity_share is an option of curiosity"),
        ("iql", {"rnd": True, "reward_norm": "scale"}, "reward_norm=scale would also scale the bonus"),
        ("ippo", {"rnd": True, "curiosity_share": "pairs"}, "curiosity_share must be all, team, type"),
    ],
)
def test_what_makes_no_sense_is_refused(algorithm, options, said):
    with pytest.raises(PhalanxError, match=said):
        build(algorithm, "debug/identity", **options)

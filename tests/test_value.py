"""The value family: targets against slow loops, mixers against what they promise (pitfalls C13, C14, C30)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build
from test_ppo import CLOCK, rollout_of

from phalanx.algorithms.shared.value_based import Weights, best_of
from phalanx.data import replay
from phalanx.data.replay import Episodes
from phalanx.errors import PhalanxError
from phalanx.types import Observation

SMALL = {"batch_steps": 64, "hidden": 8, "buffer": 200, "episodes": 6}
LEARNT = {"value_loss", "td_error", "q_taken", "value_target"}
ALGORITHMS = ("iql", "vdn", "qmix", "qplex")


def learner_of(name="qmix", env="debug/roles", **options):
    options = {**SMALL, "reward": "mean", **options}
    return build(name, env, env_options={"time_limit": 6}, **options)


def new_learner(algorithm):
    return jax.jit(lambda: algorithm.init(jax.random.key(0), 4))()


def batch_of(loop, seed=0, episodes=6, longest=6):
    """Random episodes of random lengths, some ended and some cut; everything after the last step is noise."""
    spec, rng = loop.collector.spec, np.random.default_rng(seed)
    rows, n = (longest + 1, episodes), spec.n_agents
    length = rng.integers(1, longest + 1, episodes)
    length[0], length[1] = 1, longest
    steps = np.arange(longest)[:, None]
    last = steps == length - 1
    avail = rng.random((*rows, n, spec.n_actions)) < 0.6
    avail[..., 0] = True
    action = rng.integers(0, spec.n_actions, (longest, episodes, n)).astype(np.int32)
    seen = Observation(
        rng.normal(size=(*rows, n, spec.obs_size)).astype(np.float32),
        rng.normal(size=(*rows, spec.state_size)).astype(np.float32),
        avail,
        rng.random((*rows, n)) < 0.8,
    )
    reward = rng.normal(size=(longest, episodes, n)).astype(np.float32)
    ended = last & (rng.random(episodes) < 0.5)
    ended[:, 0] = last[:, 0]
    first = np.zeros(rows, bool)
    first[0] = True
    return jax.tree.map(
        jnp.asarray, Episodes(seen, first, action, reward, ended, None, last, steps < length)
    ), length


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize(
    ("name", "target"),
    [("iql", "td"), ("qmix", "td"), ("vdn", "n_step"), ("qplex", "q_lambda"), ("vdn", "td_lambda")],
)
def test_targets_equal_a_slow_loop(name, target, double):
    """Step by step through each episode, from the formula; what stands after its end changes nothing."""
    loop = learner_of(name, target=target, double_q=double, n_steps=3, td_lambda=0.7, gamma=0.9)
    algorithm, c = loop.algorithm, loop.algorithm.config
    batch, length = batch_of(loop)

    @jax.jit
    def compute():
        learner, other = (algorithm.init(jax.random.key(i), 4) for i in (0, 1))
        target_weights = Weights(other.actor.params, other.mixer.params)
        q, after = algorithm.q_values(learner.actor.params, target_weights.actor, batch)
        return target_weights, q, after, algorithm.targets(q, after, target_weights.mixer, batch)

    target_weights, q, after, found = jax.device_get(compute())
    mix, avail = jax.jit(algorithm.mix), np.asarray(batch.observation.avail)

    def mixed(t, n, action):
        chosen = np.array([after[t, n, a, u] for a, u in enumerate(action)])
        best = np.where(avail[t, n], after[t, n], -np.inf).max(-1)
        args = (chosen, best, np.array(action), np.asarray(batch.observation.state)[t, n])
        return np.asarray(mix(target_weights.mixer, *args))

    for n, steps in enumerate(length):
        reward = np.asarray(batch.reward[:, n])[:, : 1 if algorithm.team_value else None]
        ended = bool(batch.terminated[steps - 1, n])

        def greedy(t, n=n):
            scores = np.where(avail[t, n], q[t, n] if double else after[t, n], -np.inf)
            return mixed(t, n, scores.argmax(-1))

        def bootstrap(t, n=n, steps=steps, ended=ended, greedy=greedy):  # what row t is worth
            if t == steps and ended:
                return 0.0
            if target == "td_lambda" and t < steps:
                return mixed(t, n, np.asarray(batch.action)[t, n])
            return greedy(t)

        value = bootstrap(steps)
        for t in reversed(range(steps)):
            if target == "td":
                expected = reward[t] + c.gamma * bootstrap(t + 1)
            elif target == "n_step":
                stop = min(t + c.n_steps, steps)
                expected = sum(c.gamma ** (i - t) * reward[i] for i in range(t, stop))
                expected = expected + c.gamma ** (stop - t) * bootstrap(stop)
            else:
                onward = (
                    value if t == steps - 1 else (1 - c.td_lambda) * bootstrap(t + 1) + c.td_lambda * value
                )
                expected = value = reward[t] + c.gamma * onward
            np.testing.assert_allclose(found[t, n], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_stands_behind_an_episode_changes_nothing(name):
    """Noise there, or zeros: the same loss and the same gradient."""
    loop = learner_of(name)
    algorithm = loop.algorithm
    learner = new_learner(algorithm)
    batch, length = batch_of(loop)
    rows = jnp.arange(len(batch.valid) + 1)[:, None] <= length

    def clean(x, keep):
        return jnp.where(keep.reshape(*keep.shape, *[1] * (x.ndim - 2)), x, jnp.zeros_like(x))

    other = batch._replace(
        observation=jax.tree.map(lambda x: clean(x, rows), batch.observation),
        action=clean(batch.action, batch.valid),
        reward=clean(batch.reward, batch.valid),
    )
    weights = Weights(learner.actor.params, learner.mixer.params)
    grad = jax.jit(jax.value_and_grad(lambda w, b: algorithm.loss(w, learner.target, b)[0]))
    for one, two in zip(*map(jax.tree.leaves, (grad(weights, batch), grad(weights, other))), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def buffer_of(batch):
    """A replay buffer of one environment that holds the episodes of a batch."""

    def kept(x):
        return jnp.moveaxis(x, 0, 1)[None]

    nowhere = jnp.zeros(1, jnp.int32)
    return replay.EpisodeBuffer(
        observation=jax.tree.map(kept, batch.observation),
        action=kept(batch.action),
        reward=kept(batch.reward),
        ended=batch.terminated.any(0)[None],
        agent_terminated=jax.tree.map(kept, batch.agent_terminated),
        length=batch.valid.sum(0)[None],
        place=nowhere,
        step=nowhere,
    )


@pytest.mark.parametrize(
    ("name", "target"),
    [("iql", "n_step"), ("vdn", "td_lambda"), ("qmix", "td"), ("qplex", "q_lambda")],
)
def test_packed_episodes_are_learnt_from_as_if_each_had_a_column(name, target):
    """The same loss and the same gradient, from fewer columns."""
    loop = learner_of(name, target=target)
    algorithm = loop.algorithm
    learner = new_learner(algorithm)
    batch, _ = batch_of(loop, episodes=9)
    kept = buffer_of(batch)
    packing = replay.packed(kept, jnp.arange(9))
    assert packing.columns < 9
    narrow = replay.take_packed(kept, packing.first(int(packing.columns)))
    weights = Weights(learner.actor.params, learner.mixer.params)
    grad = jax.jit(jax.value_and_grad(lambda w, b: algorithm.loss(w, learner.target, b), has_aux=True))
    for one, two in zip(*map(jax.tree.leaves, (grad(weights, batch), grad(weights, narrow))), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_on_a_gpu_only_large_batches_are_packed(monkeypatch):
    """Each number of columns takes long to compile there."""
    small, large = (learner_of("qmix", network="mlp", episodes=n).algorithm for n in (8, 64))
    monkeypatch.setattr("phalanx.algorithms.shared.value_based.LONG_EPISODE", 1)
    size = large.spec.time_limit * large.spec.n_agents
    monkeypatch.setattr("phalanx.algorithms.shared.value_based.LARGE_BATCH", 64 * size)
    for backend, few in (("cpu", True), ("gpu", False)):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        assert len(large._columns()) > 1
        assert (len(small._columns()) > 1) == few
    monkeypatch.setattr("phalanx.algorithms.shared.value_based.VERY_LONG_EPISODE", 1)
    assert large._columns() == [16, 24, 32, 64]


@pytest.mark.parametrize(("name", "seeds"), [("qmix", 1), ("qmix", 2), ("vdn", 1)])
def test_an_update_that_packs_learns_what_one_that_does_not_would(name, seeds, monkeypatch):
    """Short episodes, in fewer columns than were drawn; each seed has its own draw, and VDN no state."""
    loop = learner_of(name, network="mlp", gradient_steps=2)
    learner, rollout = rollout_of(loop)
    ends = jax.random.bernoulli(jax.random.key(3), 0.2, rollout.terminated.shape)
    rollout = rollout._replace(terminated=rollout.terminated | ends)
    update = partial(loop.algorithm.update, learner, rollout, clock=CLOCK)
    keys = jax.random.split(jax.random.key(4), seeds)
    learnt = []
    for long in (1, 100):
        monkeypatch.setattr("phalanx.algorithms.shared.value_based.LONG_EPISODE", long)
        run = jax.vmap(update) if seeds > 1 else lambda keys: update(keys[0])
        after, metrics = jax.jit(run)(keys)
        learnt.append((after.actor.params, after.mixer.params, metrics))
    assert (after.gradient_steps == 2).all()
    for one, two in zip(*map(jax.tree.leaves, learnt), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_an_illegal_next_action_never_moves_a_target():
    """C13: however much it would be worth, by either network."""
    loop = learner_of("qmix")
    algorithm = loop.algorithm
    learner = new_learner(algorithm)
    batch, _ = batch_of(loop)
    q, after = jax.jit(algorithm.q_values)(learner.actor.params, learner.target.actor, batch)
    huge = jnp.where(batch.observation.avail, q, 1e6)
    targets = jax.jit(algorithm.targets)
    plain = targets(q, after, learner.target.mixer, batch)
    np.testing.assert_array_equal(targets(huge, after, learner.target.mixer, batch), plain)
    np.testing.assert_array_equal(best_of(huge, batch), best_of(q, batch))


def new_mixer(algorithm, seed=0):
    return jax.tree.map(lambda x: x[None], algorithm.init_mixer(jax.random.key(seed)))


def slopes_of_qmix(value_size, state_size, **options):
    """Derivatives of a new mixer's value in each agent's, (300, A), at random values and states."""
    loop = learner_of("qmix", **options)
    algorithm, spec = loop.algorithm, loop.collector.spec
    keys = jax.random.split(jax.random.key(1), 2)
    chosen = value_size * jax.random.normal(keys[0], (300, spec.n_agents))
    state = state_size * jax.random.normal(keys[1], (300, spec.state_size))
    action = jnp.zeros((300, spec.n_agents), int)
    return jax.jit(jax.grad(lambda q: algorithm.mix(new_mixer(algorithm), q, q, action, state).sum()))(chosen)


@pytest.mark.parametrize("options", [{}, {"positive": "softplus", "hyper_layers": 1}])
def test_qmix_is_monotonic_in_every_agents_value(options):
    slopes = slopes_of_qmix(5, 3, **options)
    assert (slopes >= 0).all()
    assert (slopes > 0).mean() > 0.95


@pytest.mark.parametrize("size", [1.0, 3.0])
def test_a_new_qmix_mixer_does_not_amplify_what_agents_overestimate(size):
    assert 0.001 < slopes_of_qmix(1, size).mean() < 0.3


@pytest.mark.parametrize("name", ["vdn", "qmix", "qplex"])
def test_the_best_joint_action_is_each_agents_best(name):
    """Individual-global-max, by enumeration of all joint actions."""
    loop = learner_of(name)
    algorithm, spec = loop.algorithm, loop.collector.spec

    @jax.jit
    def enumerated(seed):
        params = new_mixer(algorithm, seed)
        keys = jax.random.split(jax.random.key(seed), 2)
        q = 3 * jax.random.normal(keys[0], (spec.n_agents, spec.n_actions))
        state = jax.random.normal(keys[1], (spec.state_size,))
        grid = jnp.stack(
            jnp.meshgrid(*[jnp.arange(spec.n_actions)] * spec.n_agents, indexing="ij"), -1
        ).reshape(-1, spec.n_agents)
        chosen = jnp.take_along_axis(q[None], grid[..., None], -1)[..., 0]
        best = jnp.broadcast_to(q.max(-1), chosen.shape)
        total = algorithm.mix(params, chosen, best, grid, jnp.broadcast_to(state, (len(grid), len(state))))
        return grid[total[:, 0].argmax()], q.argmax(-1)

    for seed in range(5):
        np.testing.assert_array_equal(*enumerated(seed))


def test_values_are_logged_by_group_where_agents_learn_their_own():
    """The same network for all, and in a group for each agent: the mean of what is logged is the same."""
    together, apart = (learner_of("iql", share=share, network="mlp") for share in ("all", "agent"))
    batch, _ = batch_of(together)

    @jax.jit
    def compute():
        half = together.algorithm.init(jax.random.key(1), 4).actor.params
        found = []
        for loop, params in (
            (together, half),
            (apart, jax.tree.map(lambda p: jnp.concatenate([p, p]), half)),
        ):
            weights = Weights(params, {})
            found.append(loop.algorithm.loss(weights, weights, batch)[1][0])
        return found

    of_all, of_each = jax.device_get(compute())
    assert of_all.keys() == of_each.keys() == LEARNT
    for name, values in of_each.items():
        np.testing.assert_allclose(values.mean(), of_all[name][0], rtol=1e-4, atol=1e-6, err_msg=name)
        assert values[0] != values[1]


@pytest.mark.parametrize(
    ("name", "network", "share"), [("iql", "mlp", "agent"), ("qmix", "gru", "type"), ("qplex", "gru", "all")]
)
def test_an_update_moves_everything_once_there_are_episodes_enough(name, network, share):
    loop = learner_of(name, network=network, share=share, gradient_steps=2, target_every=3, epsilon_steps=128)
    algorithm = loop.algorithm
    learner, rollout = rollout_of(loop)
    update = jax.jit(algorithm.update)
    none_yet, metrics = update(learner, jax.tree.map(lambda x: x[:2], rollout), jax.random.key(0), CLOCK)
    assert none_yet.gradient_steps == 0
    assert all(value == 0 for name, value in metrics.items() if name.partition("/")[0] == "value_loss")
    of_group = {metric.partition("/")[0] for metric in metrics if "/" in metric}
    of_agents = {"actor_lr", "actor_grad_norm"} | (LEARNT if name == "iql" else set())
    assert of_group == (set() if share == "all" else of_agents)
    after = learner
    for i in range(3):
        after, metrics = update(after, rollout, jax.random.key(i), CLOCK)
    assert after.gradient_steps == 6
    np.testing.assert_allclose(after.epsilon, 1 - 0.5 * 0.95, rtol=1e-6)
    for half, before in ((after.actor, learner.actor), (after.mixer, learner.mixer)):
        pairs = zip(jax.tree.leaves(half.params), jax.tree.leaves(before.params), strict=True)
        assert all((np.abs(a - b).reshape(len(a), -1).max(1) > 0).all() for a, b in pairs)
    new = Weights(after.actor.params, after.mixer.params)
    same = jax.tree.map(lambda a, b: bool((a == b).all()), after.target, new)
    assert all(jax.tree.leaves(same)), "the sixth step copies the target"
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))


def test_values_when_acting_are_those_of_learning():
    """C14: from whole episodes with an empty memory at the start, as they were acted by."""
    loop = learner_of("vdn", network="gru")
    algorithm = loop.algorithm
    learner, rollout = rollout_of(loop, rollouts=1)

    def acting(obs, memory, first):
        return algorithm.actor.outputs(learner.actor.params, obs[None], memory, first[None])[0][0]

    acted = np.asarray(jax.jit(jax.vmap(acting))(rollout.observation.obs, rollout.memory, rollout.first))
    kept = jax.jit(replay.add)(learner.replay, replay.without_state(rollout))
    count = int(kept.count)
    assert count > 2
    drawn = replay.draw(kept, jax.random.key(0), count)
    episodes = jax.device_get(jax.jit(replay.take)(kept, drawn))
    params = learner.actor.params
    learnt = np.asarray(jax.jit(algorithm.q_values)(params, params, episodes)[0])
    seen = np.asarray(rollout.observation.obs)
    for n in range(count):
        for t in np.flatnonzero(episodes.valid[:, n]):
            same = (seen == np.asarray(episodes.observation.obs)[t, n]).all((-1, -2))
            near = np.abs(acted[same] - learnt[t, n]).max((-1, -2))
            assert near.min() < 1e-5


def test_unlike_rewards_are_refused_with_what_to_choose():
    for name in ("vdn", "qmix", "qplex"):
        with pytest.raises(PhalanxError, match="choose reward=mean or reward=sum"):
            learner_of(name, reward="own")
    learner_of("iql", reward="own")
    with pytest.raises(PhalanxError, match="is for one team"):
        build("qmix", "mpe/simple_tag", reward="mean", **SMALL)
    with pytest.raises(PhalanxError, match="needs one state for all"):
        build("qmix", "battle/3m", env_options={"state": "agent"}, **SMALL)


@pytest.mark.parametrize(
    ("options", "said"), [({"buffer": 8}, "use buffer=64"), ({"episodes": 300}, "more than a buffer of 200")]
)
def test_sizes_that_do_not_fit_are_refused(options, said):
    with pytest.raises(PhalanxError, match=said):
        learner_of("vdn", **options)

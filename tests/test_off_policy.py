"""Actor-critics on replay: gradients and targets against closed forms and slow loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build
from test_ppo import CLOCK

from phalanx.data.step_replay import as_episodes
from phalanx.errors import PhalanxError
from phalanx.ops import distributions
from phalanx.types import Observation, Transition

SMALL = {"batch_steps": 16, "hidden": 8, "buffer": 256, "batch_size": 8, "gradient_steps": 2, "warm_up": 0}


def learner_of(name, env="debug/roles", env_options=None, **options):
    loop = build(name, env, env_options=env_options, **{**SMALL, "reward": "mean", **options})
    return loop.algorithm


def continuous(name, **options):
    """Two agents on one side, a third on the other, with continuous actions of five entries."""
    return learner_of(name, "mpe/simple_adversary", {"continuous_actions": True}, **options)


def steps_of(algorithm, length=1, count=5, seed=0):
    """Random sequences of steps (L, N, ...), some ended, some cut."""
    spec, rng = algorithm.spec, np.random.default_rng(seed)
    rows, n = (length, count), spec.n_agents

    def seen():
        avail = rng.random((*rows, n, spec.n_actions)) < 0.6
        avail[..., 0] = True
        own = np.arange(spec.n_actions) < np.array(spec.action_counts)[:, None]
        avail = np.broadcast_to(own, avail.shape) if spec.action_kind == "continuous" else avail & own
        return Observation(
            rng.normal(size=(*rows, n, spec.obs_size)).astype(np.float32),
            rng.normal(size=(*rows, spec.state_size)).astype(np.float32),
            avail,
            rng.random((*rows, n)) < 0.8,
        )

    observation, after = seen(), seen()
    if spec.action_kind == "continuous":
        low, high = spec.action_range
        action = rng.uniform(low, high, (*rows, n, spec.n_actions)).astype(np.float32)
    else:
        action = observation.avail.argmax(-1).astype(np.int32)
    over = rng.random(rows) < 0.3
    ended = over & (rng.random(rows) < 0.5)
    steps = Transition(
        observation=observation,
        first=np.zeros(rows, bool),
        memory=None,
        action=action,
        extras=None,
        reward=rng.normal(size=(*rows, n)).astype(np.float32),
        terminated=ended,
        truncated=over & ~ended,
        next_observation=after,
        info={},
        broken=np.zeros(rows, bool),
    )
    return jax.tree.map(jnp.asarray, steps)


def new_learner(algorithm, seed=0):
    """A learner whose target networks are not its networks."""

    @jax.jit
    def init():
        one, other = (algorithm.init(jax.random.key(i), 4) for i in (seed, seed + 1))
        return one._replace(target=other.weights)

    return init()


# Gradients


def test_the_gradient_of_a_draw_is_that_of_the_relaxed_one():
    """Forwards one-hot and available; backwards against finite differences of the softmax, masks included."""
    rng = np.random.default_rng(0)
    logits, weights = jnp.asarray(rng.normal(size=(2, 6, 4)), jnp.float32)
    avail = np.ones((6, 4), bool)
    avail[1, 2] = avail[3, 0] = avail[3, 1] = False
    key, temperature = jax.random.key(3), 0.7

    def objective(logits):
        return (weights * distributions.straight_through(key, logits, avail, temperature)).sum()

    noise = np.asarray(jax.random.gumbel(key, logits.shape), np.float64)

    def relaxed(logits):
        noisy = np.where(avail, (logits + noise) / temperature, -np.inf)
        soft = np.exp(noisy - noisy.max(-1, keepdims=True))
        return (np.asarray(weights) * soft / soft.sum(-1, keepdims=True)).sum()

    drawn = np.asarray(distributions.straight_through(key, logits, avail, temperature))
    hard = np.where(avail, np.asarray(logits) + noise, -np.inf).argmax(-1)
    np.testing.assert_allclose(drawn, np.eye(4)[hard], atol=1e-6)
    found = np.asarray(jax.grad(objective)(logits))
    step, at = 1e-5, np.asarray(logits, np.float64)
    for i in np.ndindex(*logits.shape):
        move = np.zeros(logits.shape)
        move[i] = step
        expected = (relaxed(at + move) - relaxed(at - move)) / (2 * step)
        np.testing.assert_allclose(found[i], expected, atol=2e-4)
    assert (found[~avail] == 0).all()


def test_the_deterministic_policy_gradient_of_a_quadratic_critic(monkeypatch):
    """Q = -(u - c)^2 / 2 gives (c - tanh x)(1 - tanh^2 x) for each output x; the optimum is tanh x = c."""
    algorithm = continuous("ddpg", output_penalty=0.0)
    batch = steps_of(algorithm)
    best = 0.3
    monkeypatch.setattr(
        algorithm, "q_values", lambda w, b, actions: -0.5 * jnp.square(actions - best).sum(-1)[None]
    )
    out = jax.random.normal(jax.random.key(0), (1, 5, 3, 5))
    monkeypatch.setattr(algorithm, "outputs", lambda params, batch: (params, None))
    loss = jax.grad(lambda out: algorithm.actor_loss(out, new_learner(algorithm), batch, None)[0].sum())
    x = np.asarray(out, np.float64)
    expected = -(best - np.tanh(x)) * (1 - np.tanh(x) ** 2)
    np.testing.assert_allclose(np.asarray(loss(out)), expected, atol=1e-5)


@pytest.mark.parametrize(("name", "others"), [("maddpg", False), ("masac", False), ("facmac", True)])
def test_whose_actions_a_policy_answers_for(name, others):
    """An agent's loss depends on its own output only; FACMAC's, a value of the team, on all."""
    algorithm = learner_of(name, "mpe/simple_spread", {"continuous_actions": True})
    batch, learner = steps_of(algorithm, count=2), new_learner(algorithm)
    out = 0.5 * jax.random.normal(jax.random.key(0), (1, 2, 3, algorithm.actor.network.network.outputs))
    algorithm.outputs = lambda params, batch: (params, None)

    @jax.jit
    def slopes(out):
        def loss(out):  # K is 1 for the team's value
            each, _ = algorithm.actor_loss(out, learner, batch, jax.random.key(1))
            return each.sum((0, 1))

        return jnp.abs(jax.jacrev(loss)(out)).sum((1, 2, 4))  # (A, A): of whose loss, by whose output

    found = np.asarray(slopes(out))
    assert (np.diag(found) > 0).all()
    apart = found[~np.eye(3, dtype=bool)]
    assert (apart > 0).all() if others else (apart == 0).all()


def test_a_critic_of_all_actions_does_not_see_the_agents_own():
    algorithm = learner_of("masac", "debug/two_step")
    batch, learner = steps_of(algorithm), new_learner(algorithm)

    @jax.jit
    def values(action):
        taken = algorithm.code.encode(action, batch.observation.avail)
        return algorithm.critic.values(learner.critic.params, batch.observation, taken, batch.first)[0]

    other = values(batch.action.at[..., 0].set(1 - batch.action[..., 0]))
    same = np.isclose(np.asarray(values(batch.action)), np.asarray(other)).all((0, 1, 2, 4))
    np.testing.assert_array_equal(same, [True, False])


# Targets


@pytest.mark.parametrize("name", ["ddpg", "td3", "matd3", "sac"])
def test_values_of_what_comes_next_by_hand(name):
    """The target policy's action, smoothed and clipped; the smaller of two critics; the entropy to come."""
    algorithm = continuous(name, **({"target_noise": 0.4} if "td3" in name else {}))
    batch, learner = steps_of(algorithm), new_learner(algorithm)
    key, then = jax.random.key(5), batch.next_observation
    found = np.asarray(jax.jit(algorithm.next_values)(learner, batch, key))
    never = jnp.zeros((1, 5), bool)
    params = learner.actor.params if name == "sac" else learner.target.actor
    out, _ = algorithm.actor.network.apply(params, then.obs, algorithm.actor.initial_memory(5), never)
    log_prob = 0.0
    if name == "sac":
        mean, log_std = jnp.split(out, 2, -1)
        drawn = mean + jnp.exp(log_std.clip(-5, 2)) * jax.random.normal(key, mean.shape)
        action = jnp.tanh(drawn)
        std = np.exp(np.asarray(log_std).clip(-5, 2))
        normal = -0.5 * ((np.asarray(drawn - mean)) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
        log_prob = (normal - np.log(1 - np.asarray(action, np.float64) ** 2)).sum(-1)
    else:
        action = jnp.tanh(out)
    if "td3" in name:
        noise = (0.4 * jax.random.normal(key, action.shape)).clip(-0.5, 0.5)
        action = (action + noise).clip(-1, 1)
    values = []
    for critic in range(algorithm.critics):
        own = jax.tree.map(lambda p, i=critic: p[:, i], learner.target.critic)
        shown = [then.obs, action]
        if name == "matd3":
            state = jnp.broadcast_to(then.state[..., None, :], (1, 5, 3, then.state.shape[-1]))
            everyones = jnp.broadcast_to(action.reshape(1, 5, 1, -1), (1, 5, 3, 15))
            shown = [state, then.obs, everyones]
        network = algorithm.critic.network
        value, _ = network.apply(own, jnp.concatenate(shown, -1), network.initial_memory(5), never)
        values.append(np.asarray(value[..., 0]))
    expected = (
        np.min(values, 0) - algorithm.config.temperature * log_prob if name == "sac" else np.min(values, 0)
    )
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize(("twin_value", "of_both"), [("min", np.min), ("mean", np.mean)])
def test_soft_values_of_discrete_actions_are_means_over_the_policy(twin_value, of_both):
    """Of a dead agent, which has no action, the value of the first."""
    algorithm = learner_of("sac", "debug/roles", twin_value=twin_value)
    batch, learner = steps_of(algorithm), new_learner(algorithm)
    after = batch.next_observation
    batch = batch._replace(next_observation=after._replace(avail=after.avail.at[0, 1, 1].set(False)))
    found = np.asarray(jax.jit(algorithm.next_values)(learner, batch, jax.random.key(0)))
    then, never = batch.next_observation, jnp.zeros((1, 5), bool)
    memory = algorithm.actor.initial_memory(5)
    out = np.asarray(algorithm.actor.network.apply(learner.actor.params, then.obs, memory, never)[0])
    q = of_both(
        [
            algorithm.critic.network.apply(
                jax.tree.map(lambda p, i=i: p[:, i], learner.target.critic), then.obs, memory, never
            )[0]
            for i in range(2)
        ],
        0,
    )
    for n, a in np.ndindex(5, 2):
        can = np.flatnonzero(then.avail[0, n, a]) if then.avail[0, n, a].any() else np.array([0])
        likely = np.exp(out[0, n, a, can] - out[0, n, a, can].max())
        likely /= likely.sum()
        expected = sum(p * (q[0, n, a, u] - 0.2 * np.log(p)) for p, u in zip(likely, can, strict=True))
        np.testing.assert_allclose(found[0, n, a], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["maddpg", "facmac"])
def test_targets_of_several_steps_equal_a_slow_loop(name):
    """From the first step of each sequence on, up to an end, a cut, or n steps."""
    algorithm = learner_of(name, "debug/identity", n_steps=4, gamma=0.9)
    assert algorithm.replay.length == 4
    batch, learner = steps_of(algorithm, length=4, count=40), new_learner(algorithm)
    key = jax.random.key(0)
    after = np.asarray(jax.jit(algorithm.next_values)(learner, batch, key))
    found = np.asarray(jax.jit(algorithm.targets)(learner, batch, key))[0]
    kinds = set()
    for n in range(40):
        expected, weight = 0.0, 1.0
        for t in range(4):
            expected = expected + weight * np.asarray(batch.reward)[t, n, : found.shape[-1]]
            weight *= 0.9
            if batch.terminated[t, n]:
                kinds.add(("end", t))
                break
            if batch.truncated[t, n] or t == 3:
                expected = expected + weight * after[t, n]
                kinds.add(("cut", t))
                break
        np.testing.assert_allclose(found[n], expected, rtol=1e-4, atol=1e-5)
    assert len(kinds) >= 6


def test_q_learning_from_steps_is_that_of_the_first_step():
    """DDQN with n steps: targets as in a slow loop, and only first steps count, of environments that work."""
    algorithm = build("ddqn", "debug/identity", target="n_step", n_steps=3, gamma=0.9, warm_up=0).algorithm
    steps = steps_of(algorithm, length=3, count=30)
    steps = steps._replace(broken=steps.broken.at[0, 4].set(True))
    batch, learner = as_episodes(steps), jax.jit(lambda: algorithm.init(jax.random.key(0), 4))()
    np.testing.assert_array_equal(batch.valid[0], np.arange(30) != 4)
    assert not batch.valid[1:].any()
    weights = learner.target
    q, after = jax.jit(algorithm.q_values)(weights.actor, weights.actor, batch)
    found = np.asarray(algorithm.targets(q, after, weights.mixer, batch))[0]
    best = np.where(batch.observation.avail, q, -np.inf).max(-1)
    for n in range(30):
        expected, weight = 0.0, 1.0
        for t in range(3):
            expected = expected + weight * np.asarray(steps.reward)[t, n]
            weight *= 0.9
            if steps.terminated[t, n]:
                break
            if steps.truncated[t, n] or t == 2:
                expected = expected + weight * best[t + 1, n]
                break
        np.testing.assert_allclose(found[n], expected, rtol=1e-4, atol=1e-5)


def test_dueling_values_have_the_state_value_as_their_mean():
    algorithm = build("ddqn", "debug/identity", dueling=True).algorithm
    params = algorithm.actor.network.init(jax.random.key(0))
    obs = jax.random.normal(jax.random.key(1), (1, 4, algorithm.spec.n_agents, algorithm.spec.obs_size))
    memory, never = algorithm.actor.initial_memory(4), jnp.zeros((1, 4), bool)
    raw, _ = algorithm.actor.network.apply(params, obs, memory, never)
    q, _ = algorithm.actor.outputs(params, obs, memory, never)
    assert q.shape[-1] == algorithm.spec.n_actions
    np.testing.assert_allclose(q.mean(-1), raw[..., 0], atol=1e-5)
    np.testing.assert_allclose(q[..., 0] - q[..., 1], raw[..., 1] - raw[..., 2], atol=1e-5)


# Updates


def entropies(algorithm, batch, steps):
    """The mean entropy of a policy at each of some gradient steps on one batch."""

    @jax.jit
    def learn(learner):
        def step(learner, key):
            learner, _, _ = algorithm.critic_step(learner, batch, jnp.ones(batch.first.shape[1]), key, CLOCK)
            learner, logged = algorithm.actor_step(learner, batch, key, CLOCK)
            return learner, logged["entropy"]

        return jax.lax.scan(step, learner, jax.random.split(jax.random.key(0), steps))

    return np.asarray(learn(new_learner(algorithm)._replace(replay=None))[1])


SOFT = {"lr": 3e-3, "critic_lr": 3e-3, "temperature_lr": 0.02, "temperature": 0.5, "hidden": 16}


def test_the_temperature_moves_the_entropy_to_its_target():
    """Where nothing is earned only the temperature decides how random the policy is."""
    algorithm = continuous("sac", **SOFT)
    batch = steps_of(algorithm, count=64)
    entropy = entropies(algorithm, batch._replace(reward=jnp.zeros_like(batch.reward)), 1500)
    np.testing.assert_allclose(entropy[-200:].mean(), -5.0, atol=0.5)  # -1 for each of 5 entries
    assert entropy[:20].mean() > 0.5


@pytest.mark.parametrize("share", ["type", "all"])
def test_the_temperature_moves_the_entropy_of_discrete_actions_to_its_target(share):
    """Episodes of one step in which later actions earn more. Unlike agents have unlike targets."""
    algorithm = learner_of("sac", reward="own", share=share, target_entropy=0.5, **SOFT)
    batch, rng = steps_of(algorithm, count=256), np.random.default_rng(1)
    own = np.arange(algorithm.spec.n_actions) < np.array(algorithm.spec.action_counts)[:, None]
    seen = batch.observation
    seen = seen._replace(avail=jnp.broadcast_to(own, seen.avail.shape), alive=jnp.ones_like(seen.alive))
    action = jnp.asarray(rng.integers(0, algorithm.spec.action_counts, seen.alive.shape), jnp.int32)
    batch = batch._replace(
        observation=seen,
        action=action,
        reward=action.astype(jnp.float32),
        terminated=jnp.ones_like(batch.terminated),
        truncated=jnp.zeros_like(batch.truncated),
    )
    entropy = entropies(algorithm, batch, 1500)
    most = np.log(algorithm.spec.action_counts) if share == "type" else np.log([2, 4]).mean(keepdims=True)
    np.testing.assert_allclose(entropy[-200:].mean(0), 0.5 * most, rtol=0.05)
    np.testing.assert_allclose(entropy[0], most, rtol=0.01)


@pytest.mark.parametrize(
    ("name", "share"), [("ddpg", "type"), ("td3", "agent"), ("sac", "type"), ("sac", "all")]
)
def test_gradients_of_a_group_are_of_its_agents_alone(name, share):
    """Noise in what one agent sees and earns changes the parameters of its own group only."""
    algorithm = learner_of(name, "debug/roles", share=share, critic_view="obs", reward="own")
    learner, batch = new_learner(algorithm), steps_of(algorithm)
    noisy = batch._replace(
        observation=batch.observation._replace(obs=batch.observation.obs.at[..., 1, :].add(1.0)),
        next_observation=batch.next_observation._replace(
            obs=batch.next_observation.obs.at[..., 1, :].add(1.0)
        ),
        reward=batch.reward.at[..., 1].add(1.0),
    )

    @jax.jit
    def learnt(batch):
        after, _, _ = algorithm.critic_step(learner, batch, jnp.ones(5), jax.random.key(0), CLOCK)
        after, _ = algorithm.actor_step(after, batch, jax.random.key(1), CLOCK)
        return after.actor.params, after.critic.params

    one, other = learnt(batch), learnt(noisy)
    groups = algorithm.actor_groups.count
    changed = np.zeros(groups, bool)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        changed |= np.abs(np.asarray(a - b)).reshape(groups, -1).max(1) > 1e-7
    np.testing.assert_array_equal(changed, [True] if share == "all" else [False, True])


@pytest.mark.parametrize("share", ["type", "all"])
def test_losses_of_a_group_are_means_over_its_agents(share):
    """Each agent's error is that of its own value and its own reward; unlike agents have their own line."""
    algorithm = learner_of("ddpg", share=share, reward="own")
    learner, batch, key = new_learner(algorithm), steps_of(algorithm), jax.random.key(0)
    batch = batch._replace(reward=batch.reward.at[..., 1].add(10.0))
    _, logged, _ = jax.jit(algorithm.critic_step)(learner, batch, jnp.ones(5), key, CLOCK)
    after = np.asarray(jax.jit(algorithm.next_values)(learner, batch, key))
    taken = algorithm.code.encode(batch.action, batch.observation.avail)
    value = np.asarray(algorithm.q_values(learner.weights, batch, taken))[0, 0]
    sizes = {"scout": [], "worker": []}
    for n, (agent, name) in itertools.product(range(5), enumerate(sizes)):
        bootstrap = 0.0 if batch.terminated[0, n] else algorithm.config.gamma * after[0, n, agent]
        sizes[name].append(abs(batch.reward[0, n, agent] + bootstrap - value[n, agent]))
    expected = {f"td_error/{name}": np.mean(each) for name, each in sizes.items()}
    if share == "all":
        expected = {"td_error": np.mean(list(expected.values()))}
    found = algorithm.loss_groups.named({"td_error": logged["loss"]["td_error"]})
    assert found.keys() == expected.keys()
    for name, mean in expected.items():
        np.testing.assert_allclose(found[name], mean, rtol=1e-5)


def test_what_failed_and_what_the_dead_did_is_not_learnt():
    algorithm = continuous("matd3")
    learner, batch = new_learner(algorithm), steps_of(algorithm)
    broken = batch._replace(broken=batch.broken.at[0, 2].set(True))
    alive = batch.observation.alive.at[..., 1].set(False)
    broken = broken._replace(observation=batch.observation._replace(alive=alive))

    @jax.jit
    def learnt(batch):
        after, _, error = algorithm.critic_step(learner, batch, jnp.ones(5), jax.random.key(0), CLOCK)
        return after.critic.params, error

    noisy = broken._replace(reward=broken.reward.at[0, 2].add(100.0))
    for a, b in zip(jax.tree.leaves(learnt(broken)), jax.tree.leaves(learnt(noisy)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)
    grads = jax.grad(
        lambda out: (
            jnp.where(
                algorithm.counted(broken) & alive,
                algorithm.actor_loss(learner.actor.params, learner, broken, jax.random.key(0))[0],
                0.0,
            ).sum()
            * out
        )
    )
    assert np.isfinite(grads(1.0))
    assert learnt(broken)[1][2] == 0


@pytest.mark.parametrize("name", ["ddqn", "td3"])
def test_an_update_sets_the_priorities_of_what_it_drew(name):
    """New steps have the highest so far; those that were drawn have their TD error."""
    size = {"episodes": 8} if name == "ddqn" else {"batch_size": 8}
    options = {key: value for key, value in SMALL.items() if key != "batch_size"}
    loop = build(name, "debug/identity", **{**options, "priority": 1.0, **size})
    before = jax.jit(loop.init)(jnp.int32(0))
    after = jax.jit(loop.advance)(before, jnp.int32(1), jnp.int32(1)).learner
    priority = np.asarray(after.replay.priority)
    assert (priority[4:] == 0).all()
    changed = priority[:4][priority[:4] != 1]
    assert 2 <= changed.size <= 16
    assert after.gradient_steps == 2


def test_the_warm_up_is_random_and_learns_nothing():
    """Uniform actions, gradient steps only after it, and then actions of the policy."""
    options = {**SMALL, "warm_up": 64, "batch_steps": 32}
    for name in ("sac", "ddpg"):
        loop = build(name, "classic/Pendulum-v1", **options)
        carry = jax.jit(loop.init)(jnp.int32(0))
        assert np.isinf(carry.learner.noise)
        advance = jax.jit(loop.advance)
        carry = advance(carry, jnp.int32(1), jnp.int32(1))
        assert carry.learner.gradient_steps == 0
        carry = advance(carry, jnp.int32(1), jnp.int32(1))
        assert carry.learner.gradient_steps == 2
        played = np.asarray(carry.learner.replay.kept.action)[:16].reshape(-1)
        assert 0.8 < np.abs(played).max() <= 1
        assert np.abs(played.mean()) < 0.25
        assert 0.4 < played.std() < 0.75  # 1 / sqrt(3) = 0.58
        assert np.isfinite(advance(carry, jnp.int32(1), jnp.int32(1)).learner.noise)


# What is refused


@pytest.mark.parametrize(
    ("name", "env", "options", "said"),
    [
        ("td3", "debug/identity", {"gradient_steps": 3}, "multiple of actor_every=2"),
        ("ddpg", "debug/identity", {"buffer": 10}, "too small for 4 environments: use buffer=16"),
        (
            "sac",
            "debug/identity",
            {"network": "gru", "chunk": 4, "burn_in": 4},
            "leaves nothing of sequences",
        ),
        ("facmac", "mpe/simple_tag", {}, "try maddpg"),
        ("facmac", "debug/leave", {"reward": "own"}, "choose reward=mean"),
        ("maddpg", "mpe/simple_tag", {"critic_view": "state"}, "cannot tell apart the agents. own rewards"),
        ("ddqn", "debug/identity", {"network": "gru"}, "without memory: use network=mlp"),
        ("ddqn", "debug/identity", {"target": "q_lambda"}, "needs whole episodes"),
        ("qmix", "debug/identity", {"priority": 0.5, "reward": "mean"}, "add replay=steps"),
    ],
)
def test_what_cannot_be_learnt_is_refused_in_a_line(name, env, options, said):
    known = {"ddqn": {"batch_steps", "hidden", "buffer"}, "qmix": {"batch_steps", "hidden"}}.get(name, SMALL)
    small = {key: value for key, value in SMALL.items() if key in known}
    with pytest.raises(PhalanxError, match=said):
        build(name, env, **{**small, **options})

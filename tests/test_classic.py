"""Classic control beside Gymnasium, step by step from the same states with the same actions.

Three comparisons, because Gymnasium computes with 64 bits and users of phalanx have 32:

- `one_by_one`: every step of whole episodes from Gymnasium's own state before it, with 32 bits and the time
  limit. Errors do not add up: the tolerance is some roundings of the largest numbers (angles of many turns).
- `free_running`: from Gymnasium's starts alone, with 64 bits. Motion is unstable: an error grows by up to
  1.08 a step in CartPole and 1.2 in a pendulum near its top. Compared are the steps for which roundings of 64
  bits stay below the tolerance, `STEADY`. Gymnasium's MountainCarContinuous rounds its state to 32 bits.
- `anywhere`: one step from random states up to all limits, with 64 bits. Every constant of the rules matters.
"""

import math
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import LONG

from phalanx import registry
from phalanx.envs.classic import NAMES, TASKS, acrobot, cart_pole, mountain_car, pendulum
from phalanx.envs.host.actions import Actions
from phalanx.envs.wrappers import Counted, TimeLimit
from phalanx.errors import PhalanxError
from phalanx.report import draw

EPISODES = 100 if LONG else 12
STATES = {
    "CartPole-v1": cart_pole.CartPoleState,
    "MountainCar-v0": mountain_car.Car,
    "MountainCarContinuous-v0": mountain_car.Car,
    "Acrobot-v1": acrobot.AcrobotState,
    "Pendulum-v1": pendulum.PendulumState,
}
# Steps for which 64 bits carry an error of rounding; see above.
STEADY = {
    "CartPole-v1": 200,
    "MountainCar-v0": 200,
    "MountainCarContinuous-v0": 200,
    "Acrobot-v1": 100,
    "Pendulum-v1": 80,
}
# Between these random states are drawn: a little beyond the limits that the rules know.
WIDE = {
    "CartPole-v1": ([-2.5, -3, -0.25, -3], [2.5, 3, 0.25, 3]),
    "MountainCar-v0": ([-1.2, -0.08], [0.6, 0.08]),
    "MountainCarContinuous-v0": ([-1.2, -0.08], [0.6, 0.08]),
    "Acrobot-v1": ([-3.2, -3.2, -13, -29], [3.2, 3.2, 13, 29]),
    "Pendulum-v1": ([-9, -9], [9, 9]),
}
# Options by which Gymnasium's constructor and ours are called.
VARIATIONS = [
    *((name, {}) for name in NAMES),
    ("CartPole-v1", {"sutton_barto_reward": True}),
    ("MountainCar-v0", {"goal_velocity": 0.02}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.03}),
    ("Pendulum-v1", {"g": 9.81}),
]


class Recorded(NamedTuple):
    """Episodes of Gymnasium: E episodes of at most T steps; the last state stands for all after it."""

    states: tuple
    """of arrays (T + 1, E)"""
    actions: np.ndarray
    """(T, E, 1) or (T, E, 1, U)"""
    obs: np.ndarray
    """(T + 1, E, O)"""
    reward: np.ndarray
    """(T, E)"""
    terminated: np.ndarray
    """(T, E)"""
    truncated: np.ndarray


def skilled(name, state):
    """Actions, from -1 to 1, of a simple controller: it balances, swings up, or climbs the hill."""
    if name == "CartPole-v1":
        x, velocity, angle, spin = state
        return 1.0 if angle + 0.3 * spin + 0.02 * x + 0.05 * velocity > 0 else -1.0
    if name == "Acrobot-v1":
        return math.copysign(1.0, state[3])
    if name == "Pendulum-v1":
        angle, spin = (state[0] + math.pi) % (2 * math.pi) - math.pi, state[1]
        return np.clip(-8 * angle - 2 * spin, -1, 1) if abs(angle) < 0.6 else math.copysign(1.0, spin)
    return math.copysign(1.0, state[1])


def record(name, options, episodes=EPISODES, seed=0) -> Recorded:
    """Play Gymnasium: random actions, some held for a while, and a controller, in four mixtures."""
    env = gymnasium.make(name, disable_env_checker=True, **options)
    spec = registry.make_env(f"classic/{name}", {}).spec
    limit, continuous = spec.time_limit, spec.action_kind == "continuous"
    decode = Actions(name, ("agent",), (env.action_space,)).decode
    rng = np.random.default_rng(seed)
    shape = (limit, episodes)
    actions = np.zeros((*shape, 1, 1), np.float32) if continuous else np.zeros((*shape, 1), np.int32)
    obs, reward = np.zeros((limit + 1, episodes, spec.obs_size)), np.zeros(shape)
    states = np.zeros((limit + 1, episodes, len(STATES[name]._fields)))
    terminated, truncated = np.zeros(shape, bool), np.zeros(shape, bool)
    for e in range(episodes):
        obs[0, e], _ = env.reset(seed=seed * episodes + e)
        states[:, e] = env.unwrapped.state
        skill, hold, last = e % 4 / 3, rng.random() * 0.9, 0.0
        for t in range(limit):
            if rng.random() < skill:
                chosen = skilled(name, states[t, e])
            else:  # beyond the range too: both clip
                chosen = last if rng.random() < hold else rng.uniform(-1.2, 1.2)
            # Gymnasium multiplies a torque with 32 bits, without rounding if it is short.
            last = chosen = round(chosen * 64) / 64
            actions[t, e, 0] = (
                chosen if continuous else round((np.clip(chosen, -1, 1) + 1) / 2 * (spec.n_actions - 1))
            )
            seen = env.step(decode(0, actions[t, e, 0]))
            obs[t + 1, e], reward[t, e], terminated[t, e], truncated[t, e], _ = seen
            states[t + 1 :, e] = env.unwrapped.state
            if terminated[t, e] or truncated[t, e]:
                break
    return Recorded(tuple(np.moveaxis(states, -1, 0)), actions, obs, reward, terminated, truncated)


@pytest.fixture(scope="module")
def played():
    """Recorded episodes, made once for each name and options."""
    made = {}

    def get(name, options):
        key = (name, *options.items())
        if key not in made:
            made[key] = record(name, options)
        return made[key]

    return get


def running(recorded: Recorded) -> np.ndarray:
    """(T, E): the episode had not ended before the step."""
    over = recorded.terminated | recorded.truncated
    return np.cumsum(over, axis=0) - over == 0


def states_of(name, arrays, dtype):
    return STATES[name](*(jnp.asarray(x, dtype) for x in arrays))


def free_running(name, options, recorded: Recorded) -> Recorded:
    """The same episodes in ours, from their starts, with 64 bits, as long as they are comparable."""
    env = registry.make_env(f"classic/{name}", options)
    with jax.enable_x64(True):
        begin = states_of(name, (x[0] for x in recorded.states), jnp.float64)

        def step(state, actions):
            return jax.vmap(env.step, (None, 0, 0))(jax.random.key(0), state, actions)

        scan = jax.jit(lambda begin, actions: jax.lax.scan(step, begin, actions)[1])
        now = jax.device_get(scan(begin, jnp.asarray(recorded.actions[: STEADY[name]])))
    return as_recorded(recorded, now)


def one_by_one(name, options, recorded: Recorded) -> Recorded:
    """Every recorded step by itself, from Gymnasium's state before it, with 32 bits and the time limit."""
    env = TimeLimit(registry.make_env(f"classic/{name}", options))
    steps, episodes = recorded.reward.shape
    begin = states_of(name, (x[:-1].reshape(-1) for x in recorded.states), jnp.float32)
    counted = Counted(begin, jnp.repeat(jnp.arange(steps), episodes))
    actions = jnp.asarray(recorded.actions.reshape(-1, *recorded.actions.shape[2:]))
    _, now = jax.device_get(jax.jit(jax.vmap(env.step, (None, 0, 0)))(jax.random.key(0), counted, actions))
    return as_recorded(recorded, jax.tree.map(lambda x: x.reshape(steps, episodes, *x.shape[1:]), now))


def as_recorded(recorded: Recorded, now) -> Recorded:
    return recorded._replace(
        obs=np.concatenate([recorded.obs[:1], now.observation.obs[:, :, 0]]),
        reward=now.reward[..., 0],
        terminated=now.terminated,
        truncated=now.truncated,
    )


def differences(
    ours: Recorded, recorded: Recorded, fields=("obs", "reward", "terminated", "truncated")
) -> dict[str, float]:
    """The largest difference of each kind, relative above 1, over all steps that were played."""
    steps = len(ours.reward)
    where = running(recorded)[:steps]
    found = {}
    for field in fields:
        skip = int(field == "obs")
        one, other = (
            np.asarray(getattr(each, field), np.float64)[skip : steps + skip][where]
            for each in (ours, recorded)
        )
        found[field] = float((np.abs(one - other) / np.maximum(1, np.abs(other))).max())
    return found


@pytest.mark.parametrize(("name", "options"), VARIATIONS, ids=str)
def test_step_for_step_as_gymnasium(name, options, played):
    recorded = played(name, options)
    # The one difference: a task that ends on its last step is also cut in Gymnasium, and has only ended here.
    recorded = recorded._replace(truncated=recorded.truncated & ~recorded.terminated)
    assert recorded.terminated.any() == (name != "Pendulum-v1")
    assert recorded.truncated[-1].any()
    found = differences(one_by_one(name, options, recorded), recorded)
    assert max(found.values()) <= 1e-5, found


@pytest.mark.parametrize("name", NAMES)
def test_episodes_from_the_same_start_stay_together(name, played):
    found = differences(
        free_running(name, {}, played(name, {})), played(name, {}), ("obs", "reward", "terminated")
    )
    assert max(found.values()) <= 1e-5, found


# Single steps from anywhere


def record_anywhere(name, count=2048) -> Recorded:
    """One step of Gymnasium from each of many random states."""
    env = gymnasium.make(name, disable_env_checker=True).unwrapped
    spec = registry.make_env(f"classic/{name}", {}).spec
    rng = np.random.default_rng(0)
    begin = rng.uniform(*WIDE[name], (count, len(STATES[name]._fields)))
    continuous = spec.action_kind == "continuous"
    decode = Actions(name, ("agent",), (env.action_space,)).decode
    actions = np.round(rng.uniform(-1.2, 1.2, (count, 1, 1)) * 64).astype(np.float32) / 64
    if not continuous:
        actions = rng.integers(spec.n_actions, size=(count, 1)).astype(np.int32)
    rows = []
    for state, action in zip(begin, actions, strict=True):
        env.reset()
        env.state = state
        rows.append(env.step(decode(0, action[0]))[:3])
    obs, reward, terminated = (np.array(each)[None] for each in zip(*rows, strict=True))
    obs = np.concatenate([np.zeros_like(obs), obs])
    return Recorded(
        tuple(begin.T[:, None]), actions[None], obs, reward, terminated, np.zeros_like(terminated)
    )


@pytest.fixture(scope="module", params=NAMES)
def anywhere(request):
    return request.param, record_anywhere(request.param)


# Every constant of the rules.
CONSTANTS = {
    "CartPole-v1": (cart_pole, "GRAVITY CART_MASS POLE_MASS HALF_POLE FORCE DT MAX_POSITION MAX_ANGLE"),
    "MountainCar-v0": (mountain_car, "MIN_POSITION MAX_POSITION MAX_SPEED GRAVITY FORCE goal"),
    "MountainCarContinuous-v0": (
        mountain_car,
        "MIN_POSITION MAX_POSITION MAX_SPEED GRAVITY POWER ACTION_COST GOAL_REWARD goal",
    ),
    "Acrobot-v1": (acrobot, "GRAVITY LENGTH CENTRE MASS INERTIA TORQUE DT MAX_SPIN_1 MAX_SPIN_2 GOAL"),
    "Pendulum-v1": (pendulum, "MASS LENGTH MAX_TORQUE MAX_SPIN DT SPIN_COST TORQUE_COST"),
}
EXACT = 1e-6  # above what MountainCarContinuous rounds


def test_every_constant_is_gymnasiums(anywhere, monkeypatch):
    """One step from anywhere is equal, and no longer with a hundredth more of any one constant."""
    name, recorded = anywhere

    def worst():
        return max(differences(free_running(name, {}, recorded), recorded).values())

    assert worst() <= EXACT
    module, constants = CONSTANTS[name]
    for constant in constants.split():
        with monkeypatch.context() as patched:
            owner = TASKS[name] if constant == "goal" else module
            patched.setattr(owner, constant, getattr(owner, constant) * 1.01)
            assert worst() > 2 * EXACT, constant


# Starts and options


@pytest.mark.parametrize(
    ("name", "options", "least", "most"),
    [
        ("CartPole-v1", {}, [-0.05] * 4, [0.05] * 4),
        ("CartPole-v1", {"low": 0.01, "high": 0.02}, [0.01] * 4, [0.02] * 4),
        ("MountainCar-v0", {}, [-0.6, 0], [-0.4, 0]),
        ("MountainCarContinuous-v0", {"low": -0.7}, [-0.7, 0], [-0.4, 0]),
        ("Acrobot-v1", {}, [-0.1] * 4, [0.1] * 4),
        ("Pendulum-v1", {}, [-math.pi, -1], [math.pi, 1]),
        ("Pendulum-v1", {"x_init": 0.5, "y_init": 0.0}, [-0.5, 0], [0.5, 0]),
    ],
    ids=str,
)
def test_starts_fill_gymnasiums_range_evenly(name, options, least, most):
    env = registry.build_env(f"classic/{name}", **options)
    states, now = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(3), 4096))
    states, least, most = np.stack(states, axis=1), np.array(least), np.array(most)
    theirs = gymnasium.make(name).unwrapped
    drawn = []
    for seed in range(50):
        seen, _ = theirs.reset(seed=seed, options=options or None)
        drawn.append(theirs.state)
    assert now.observation.obs.shape[2:] == seen.shape
    for each in (states, np.array(drawn)):
        assert (each >= least - 1e-7).all()
        assert (each <= most + 1e-7).all()
    wide = most - least
    quarters = np.quantile(states, [0, 0.25, 0.5, 0.75, 1], axis=0)
    even = least + np.array([0, 0.25, 0.5, 0.75, 1])[:, None] * wide
    assert (np.abs(quarters - even) <= 0.03 * wide + 1e-7).all()
    together = np.corrcoef(states[:, wide > 0], rowvar=False)
    assert np.abs(together - np.eye(sum(wide > 0))).max() < 0.06  # entries are drawn apart


def test_the_first_observation_is_of_the_start():
    env = registry.make_env("classic/Pendulum-v1", {})
    state, now = env.reset(jax.random.key(0))
    expected = [math.cos(state.angle), math.sin(state.angle), float(state.spin)]
    np.testing.assert_allclose(now.observation.obs[0], expected, atol=1e-6)
    env = registry.make_env("classic/CartPole-v1", {})
    state, now = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(now.observation.obs[0], state)


@pytest.mark.parametrize("name", ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"])
def test_bounds_of_starts_the_wrong_way_round_are_refused(name):
    with pytest.raises(PhalanxError, match=r"low must be at most high, but low is 1 and high is 0\.5"):
        registry.build_env(f"classic/{name}", low=1.0, high=0.5)


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_is_that_of_the_hosted_one(name):
    """The same settings of an algorithm mean the same for `classic/NAME` and `gym/NAME`."""
    ours, hosted = (registry.make_env(f"{family}/{name}", {}).spec for family in ("classic", "gym"))
    for field in (
        "agents",
        "agent_types",
        "action_counts",
        "time_limit",
        "action_kind",
        "action_range",
        "has_win",
    ):
        assert getattr(ours, field) == getattr(hosted, field), field
    assert (ours.obs_size, ours.state_size) == (hosted.obs_size, hosted.state_size)


# Drawing

# A state, where the agent must be drawn, and an end of a line with it.
DRAWN = {
    "CartPole-v1": ((0.5, 0.0, math.pi / 6, 0.0), (0.5, 0.0), (1.0, math.sqrt(0.75))),  # leans right
    "MountainCar-v0": ((-math.pi / 6, 0.0), (0.3 - math.pi / 6, -0.45), (-0.9, 0.45 * math.sin(-3.6))),
    "MountainCarContinuous-v0": (
        (-math.pi / 6, 0.0),
        (0.3 - math.pi / 6, -0.45),
        (0.9, 0.45 * math.sin(1.8)),
    ),
    "Acrobot-v1": (
        (math.pi / 6, math.pi / 2, 0.0, 0.0),
        (0.5 + math.sqrt(0.75), 0.5 - math.sqrt(0.75)),
        (0.5, -math.sqrt(0.75)),
    ),  # both links to the right, the second upwards
    "Pendulum-v1": ((math.pi / 6, 0.0), (-0.5, math.sqrt(0.75)), (0.0, 0.0)),  # leans left
}


@pytest.mark.parametrize("name", NAMES)
def test_a_frame_shows_where_everything_is(name):
    env = registry.make_env(f"classic/{name}", {})
    state, agent, end = DRAWN[name]
    frame = env.frame(STATES[name](*map(jnp.float32, state)))
    np.testing.assert_allclose(frame["position"][0], agent, atol=1e-6)
    ends = frame["lines"].reshape(-1, 2)
    assert np.linalg.norm(ends - end, axis=1).min() < 1e-6
    assert draw.image(frame, 64).std() > 0

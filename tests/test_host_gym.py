"""Gymnasium's environments: step for step what the package gives, and what is made of their spaces."""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten

from phalanx.envs.host import gym
from phalanx.envs.host.gym import Adapter, GymEnv
from phalanx.envs.host.observations import LARGEST_STATE
from phalanx.envs.host.packages import drawing
from phalanx.envs.host.seeds import seed32
from phalanx.envs.host.snapshots import random_actions, same
from phalanx.errors import PhalanxError

SEED = 2**40 + 7


class Toy(gymnasium.Env):
    """Observes whatever it is told to, and remembers what it was given."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, observation=None, action=None, info=None, value=None):
        self.observation_space = observation or spaces.Box(-1, 1, (2,))
        self.action_space = action or spaces.Discrete(3)
        self.value, self.info, self.taken = value, info or {}, None

    def _seen(self):
        return self.observation_space.sample() if self.value is None else self.value

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._seen(), self.info

    def step(self, action):
        assert self.action_space.contains(action), action
        self.taken = action
        return self._seen(), 1.0, False, False, self.info


def toy(time_limit=10, shrink=1, **options):
    return GymEnv(Toy(**options), "toy", time_limit, shrink)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "MountainCarContinuous-v0"])
def test_episodes_are_those_of_the_package(name):
    """Two episodes to their ends, the second after another one was played."""
    ours, theirs = Adapter(name), gymnasium.make(name)
    rng = np.random.default_rng(0)
    for seed in (SEED, 5):
        now = ours.reset(seed)
        obs, _ = theirs.reset(seed=seed32(seed))
        over = False
        while not over:
            np.testing.assert_array_equal(now.observation.obs[0], flatten(theirs.observation_space, obs))
            np.testing.assert_array_equal(now.observation.state, now.observation.obs[0])
            action = random_actions(ours, now, rng)
            if ours.spec.action_kind == "continuous":
                low, high = theirs.action_space.low, theirs.action_space.high
                taken = low + (action[0].astype(np.float64) + 1) / 2 * (high - low)
                obs, reward, terminated, truncated, _ = theirs.step(taken.astype(np.float32))
            else:
                obs, reward, terminated, truncated, _ = theirs.step(int(action[0]))
            now = ours.step(action)
            assert (now.reward[0], now.terminated, now.truncated) == (
                np.float32(reward),
                terminated,
                truncated,
            )
            over = terminated or truncated
        np.testing.assert_array_equal(now.observation.obs[0], flatten(theirs.observation_space, obs))


def test_what_the_spec_says():
    spec = Adapter("CartPole-v1").spec
    assert (spec.name, spec.agents, spec.time_limit) == ("gym/CartPole-v1", ("agent",), 500)
    assert (spec.action_counts, spec.action_kind, spec.obs_size, spec.state_size) == ((2,), "discrete", 4, 4)
    assert Adapter("Pendulum-v1").spec.action_kind == "continuous"


def test_the_time_limit_is_a_truncation():
    env = Adapter("CartPole-v1", time_limit=3)
    assert env.spec.time_limit == 3
    env.reset(0)
    steps = [env.step(np.array([i % 2])) for i in range(3)]
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False)] * 2 + [(False, True)]
    longer = Adapter("CartPole-v1", time_limit=1000)
    assert longer.spec.time_limit == 1000


def test_equal_seeds_give_equal_episodes_whatever_was_played_before():
    fresh, used = Adapter("FrozenLake-v1"), Adapter("FrozenLake-v1")
    used.reset(1)
    for action in range(3):
        used.step(np.array([action]))
    fresh.reset(SEED), used.reset(SEED)
    for action in [2, 2, 1, 1, 2]:
        for one, two in zip(fresh.step(np.array([action])), used.step(np.array([action])), strict=True):
            assert same(one, two)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_a_restored_environment_plays_on_as_the_original(name):
    env = Adapter(name)
    now = env.reset(SEED)
    rng = np.random.default_rng(1)
    for _ in range(3):
        now = env.step(random_actions(env, now, rng))
    state = env.get_state()
    assert state is not None
    other = env.copy()
    other.reset(3)
    seen = other.set_state(state)
    assert same(seen, now.observation)
    for _ in range(5):
        action = random_actions(env, now, rng)
        now = env.step(action)
        assert same(now, other.step(action))


class Forgetful(gymnasium.utils.EzPickle, Toy):
    """Pickled by its arguments, as gymnasium's Box2D environments are."""

    def __init__(self):
        gymnasium.utils.EzPickle.__init__(self)
        Toy.__init__(self)

    def close(self):
        raise AssertionError("no copy is needed to know it, and pygame is closed with one")


class Global(Toy):
    """Draws from numpy's global generator, of which no pickle knows."""

    def step(self, action):
        return np.random.rand(2).astype(np.float32), 0.0, False, False, {}


class Reborn(Toy):
    """Pickled as a new one, without EzPickle."""

    def __reduce__(self):
        return Reborn, ()


class Unpicklable(Toy):
    def __init__(self):
        super().__init__()
        self.hook = lambda: None


@pytest.mark.parametrize("kind", [Forgetful, Global, Reborn, Unpicklable])
def test_a_state_that_would_not_play_on_is_not_given(kind):
    env = GymEnv(kind(), f"toy/{kind.__name__}", 10)
    env.reset(0)
    assert env.get_state() is None


# Actions


@pytest.mark.parametrize(
    ("space", "count", "index", "value"),
    [
        (spaces.Discrete(3, start=5), 3, 2, 7),
        (spaces.MultiDiscrete([2, 3]), 6, 5, [1, 2]),
        (spaces.MultiDiscrete([2, 3]), 6, 1, [0, 1]),
        (spaces.MultiDiscrete([2, 3], start=[1, -1]), 6, 3, [2, -1]),
        (spaces.MultiDiscrete([[2, 2], [2, 2]]), 16, 9, [[1, 0], [0, 1]]),
        (spaces.MultiBinary(3), 8, 6, [1, 1, 0]),
    ],
)
def test_discrete_actions_are_mapped_to_one_index(space, count, index, value):
    env = toy(action=space)
    assert env.spec.action_counts == (count,)
    assert env.spec.action_kind == "discrete"
    env.reset(0)
    env.step(np.array([index]))
    np.testing.assert_array_equal(env.env.taken, value)


def test_every_index_is_another_action():
    env = toy(action=spaces.MultiDiscrete([3, 4, 2]))
    env.reset(0)
    seen = set()
    for index in range(24):
        env.step(np.array([index]))
        seen.add(tuple(env.env.taken))
    assert len(seen) == 24


def test_continuous_actions_are_rescaled_to_the_bounds_of_each_entry():
    low, high = np.array([0, -2, 10], np.float32), np.array([1, 2, 30], np.float32)
    env = toy(action=spaces.Box(low, high))
    assert env.spec.action_range == (-1.0, 1.0)
    env.reset(0)
    for action, taken in [([-1, -1, -1], low), ([1, 1, 1], high), ([0, 0.5, -0.5], [0.5, 1, 15])]:
        env.step(np.array([action], np.float32))
        np.testing.assert_allclose(env.env.taken, taken)
    env.step(np.array([[-9, 9, 0]], np.float32))  # beyond: clipped
    np.testing.assert_allclose(env.env.taken, [0, 2, 20])


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), "without bounds"),
        (spaces.Box(0, 5, (2,), np.int32), "MultiDiscrete would work"),
        (spaces.MultiDiscrete([17, 17, 17]), "4913 combinations"),
        (spaces.MultiBinary(70), f"{2**70} combinations"),
        (spaces.Dict(a=spaces.Discrete(2)), "a space Dict"),
        (spaces.Text(3), "a space Text"),
    ],
)
def test_other_actions_are_refused_in_a_line(space, said):
    with pytest.raises(PhalanxError, match=said) as caught:
        toy(action=space)
    assert "\n" not in str(caught.value)


def test_masks_come_from_infos_or_observations():
    assert toy(info={"action_mask": np.array([1, 0, 1], np.int8)}).reset(0).observation.avail.tolist() == [
        [True, False, True]
    ]
    observed = spaces.Dict(action_mask=spaces.MultiBinary(3), observation=spaces.Box(-1, 1, (2,)))
    value = {"observation": np.array([0.5, -0.5], np.float32), "action_mask": np.array([0, 1, 0], np.int8)}
    env = toy(observation=observed, value=value)
    seen = env.reset(0).observation
    assert seen.avail.tolist() == [[False, True, False]]
    assert seen.obs.tolist() == [[0.5, -0.5]]
    assert env.spec.obs_features == (("obs_0", "obs_1"),)


def test_a_mask_for_each_entry_of_a_multi_discrete():
    env = toy(
        action=spaces.MultiDiscrete([2, 3]), info={"action_mask": (np.array([0, 1]), np.array([1, 0, 1]))}
    )
    assert env.reset(0).observation.avail.tolist() == [[False, False, False, True, False, True]]


def test_a_mask_of_the_wrong_size_is_refused():
    with pytest.raises(PhalanxError, match=r"mask of shape \(2,\) for 3 actions"):
        toy(info={"action_mask": np.ones(2)}).reset(0)


# Observations


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=-1),
        spaces.MultiBinary(3),
        spaces.MultiDiscrete([2, 3]),
        spaces.Box(-1, 1, (2, 2, 2, 2), np.float64),
        spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (2,)))),
        spaces.Dict(b=spaces.Dict(c=spaces.Discrete(3)), a=spaces.Box(0, 1, (1,))),
    ],
)
def test_observations_are_flattened_as_gymnasium_does(space):
    value = space.sample()
    env = toy(observation=space, value=value)
    obs = env.reset(0).observation.obs
    assert obs.dtype == np.float32
    assert len(set(env.spec.obs_features[0])) == env.spec.obs_size == obs.shape[1]
    np.testing.assert_array_equal(obs[0], np.float32(flatten(space, value)))


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(0, 255, (6, 4, 3), np.uint8), (6, 4, 3), "uint8"),
        (spaces.Box(0, 255, (6, 4), np.uint8), (6, 4, 1), "uint8"),
        (spaces.Box(0, 255, (3, 6, 4), np.uint8), (6, 4, 3), "uint8"),  # channels first
        (spaces.Box(0, 1, (6, 4, 3), np.float64), (6, 4, 3), "float32"),
        (spaces.Box(0, 1, (6, 4, 3), np.int8), (6, 4, 3), "float32"),
    ],
)
def test_pictures_are_kept(space, shape, dtype):
    value = space.sample()
    env = toy(observation=space, value=value)
    spec, seen = env.spec, env.reset(0).observation
    assert (spec.obs_shape, spec.obs_dtype, spec.obs_features) == (shape, dtype, ())
    assert (seen.obs.shape, seen.obs.dtype) == ((1, *shape), dtype)
    expected = (
        value[..., None] if value.ndim == 2 else np.moveaxis(value, 0, -1) if len(value) == 3 else value
    )
    np.testing.assert_array_equal(seen.obs[0], expected.astype(dtype))
    scale = 255 if dtype == "uint8" else 1
    assert seen.state.dtype == np.float32
    np.testing.assert_allclose(seen.state, seen.obs.reshape(-1) / np.float32(scale))
    assert len(spec.state_features) == len(seen.state)


def test_pictures_can_be_shrunk():
    picture = np.arange(5 * 4, dtype=np.uint8).reshape(5, 4, 1)
    picture[1, 1] = 6
    env = toy(shrink=2, observation=spaces.Box(0, 255, (5, 4, 1), np.uint8), value=picture)
    assert env.spec.obs_shape == (2, 2, 1)
    # Means of 0, 1, 4, 6 and so on, rounded; the fifth row is left out.
    assert env.reset(0).observation.obs[0, ..., 0].tolist() == [[3, 4], [10, 12]]


def test_pictures_too_large_for_a_state_are_refused():
    space = spaces.Box(0, 255, (200, 200, 3), np.uint8)
    with pytest.raises(
        PhalanxError, match=f"{200 * 200 * 3} entries, more than {LARGEST_STATE}: --env.shrink"
    ):
        toy(observation=space)
    assert toy(observation=space, shrink=2).spec.state_size == 100 * 100 * 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"observation": spaces.Text(3)}, "observes a space Text"),
        ({"observation": spaces.Dict(a=spaces.Sequence(spaces.Discrete(2)))}, "observes a space Sequence"),
        ({"shrink": 2}, "no pictures: leave out --env.shrink"),
        ({"time_limit": None}, "no time limit of its own: give one with --env.time_limit N"),
        ({"observation": spaces.Box(0, 255, (2, 2), np.uint8), "shrink": 3}, "smaller than --env.shrink 3"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(options, said):
    with pytest.raises(PhalanxError, match=said):
        toy(**options)


@pytest.mark.parametrize(
    ("space", "value", "said"),
    [
        (spaces.Box(-1, 1, (2,)), np.zeros(3), r"shape \(3,\), and its space says \(2,\)"),
        (spaces.Box(-1, 1, (2,)), np.zeros(1), r"shape \(1,\), and its space says \(2,\)"),
        (
            spaces.Box(0, 255, (2, 2), np.uint8),
            np.zeros((2, 2)),
            "picture of float64, and its space says uint8",
        ),
    ],
)
def test_an_observation_outside_of_its_space_is_not_hidden(space, value, said):
    with pytest.raises(PhalanxError, match=said):
        toy(observation=space, value=value).reset(0)


def test_a_value_that_is_not_a_number_reaches_the_worker():
    assert np.isnan(toy(value=np.array([np.nan, 0])).reset(0).observation.obs).any()


# Making


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"variant": "CartPol-v1"}, "Did you mean: `CartPole`"),
        ({"variant": "CartPole-v1", "extra": {"colour": 1}}, "unexpected keyword argument 'colour'$"),
        ({"variant": "Blackjack-v1"}, "gym/Blackjack-v1 has no time limit of its own"),
        (
            {"variant": "CartPole-v1", "time_limit": 5, "extra": {"max_episode_steps": 9}},
            "--env.max_episode_steps and --env.time_limit mean the same",
        ),
    ],
)
def test_wrong_names_and_options(options, said):
    with pytest.raises(PhalanxError, match=said) as caught:
        Adapter(**options)
    assert "\n" not in str(caught.value)


def test_options_reach_the_constructor():
    slippery, firm = (Adapter("FrozenLake-v1", extra={"is_slippery": value}) for value in (True, False))
    assert firm.env.unwrapped.P[0][0][0] != slippery.env.unwrapped.P[0][0][0]
    assert Adapter("FrozenLake-v1", extra={"map_name": "8x8"}).spec.obs_size == 64


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(
        PhalanxError,
        match=r"^gym/CartPole-v1 needs the package gymnasium: pip install gymnasium \(or .* extra gym\)$",
    ):
        Adapter("CartPole-v1")


def test_rendering():
    env = drawing(lambda: Adapter("CartPole-v1"))()
    env.reset(0)
    picture = env.render()
    assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)
    plain = toy()
    plain.reset(0)
    assert plain.render() is None


def test_well_known_names_can_be_made():
    for name in gym.NAMES:
        if "box2d" not in gym.NAMES[name]:
            Adapter(name).close()


# gym before 0.26


class Old(Toy):
    """Seeds go to `seed()`, and steps return four things."""

    def seed(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.left = 3
        return self.rng.random(2)

    def step(self, action):
        self.left -= 1
        return (
            self.rng.random(2),
            1.0,
            self.left == 0,
            {"TimeLimit.truncated": True} if self.left == 0 else {},
        )


def test_the_old_interface_of_gym():
    env = GymEnv(Old(), "toy/old", 10)
    first = env.reset(SEED).observation.obs
    ends = [env.step(np.array([0])) for _ in range(3)]
    assert [(step.terminated, step.truncated) for step in ends] == [(False, False)] * 2 + [(False, True)]
    np.testing.assert_array_equal(first[0], np.float32(np.random.default_rng(seed32(SEED)).random(2)))
    np.testing.assert_array_equal(env.reset(SEED).observation.obs, first)


class Unseeded(Toy):
    def reset(self):
        return self._seen(), {}


def test_an_environment_that_takes_no_seed_is_refused():
    with pytest.raises(PhalanxError, match=r"reset\(\) takes no seed; write reset\(self, \*, seed=None"):
        GymEnv(Unseeded(), "toy/unseeded", 10)

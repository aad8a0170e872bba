"""The front for PettingZoo: its own tests, and what they leave out. Continuous actions in all fronts."""

import math
import sys
import warnings
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import LONG, OWN_ENVS
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.test.state_test import state_test
from pettingzoo.utils.conversions import parallel_to_aec

import phalanx
from phalanx import registry
from phalanx.report.draw import ALLY, ENEMY, OPEN
from phalanx.report.plots import COLOURS
from phalanx.types import EnvSpec

# Battles take long to compile, so most tests share these; `make test-long` looks at all.
BATTLES = ("battle/3m", "battle/v2_terran_5_vs_5")
STOP, NORTH = 1, 2

# What `api_test` says of every environment that it does not know by name.
KNOWN = (
    "observation space value is -infinity",
    "observation space value is infinity",
    "state space value is -infinity",
    "state space value is infinity",
    "Agents have different observation space sizes",
    "Observations are different shapes",
    "We recommend agents to be named in the format <descriptor>_<number>",
    "array is all zeros",  # the dead see nothing, and so do the silent
    "Observation space for each agent probably should be",  # masks in observations
    "Observation is not a NumPy array",
    "Action mask numpy array is all zeros",  # the dead of debug/death
    "From now on without further warning",  # our own word on illegal actions
)


def names() -> list[str]:
    return [each for each in OWN_ENVS if LONG or not each.startswith("battle/") or each in BATTLES]


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Every environment, and again with continuous actions where it has both."""
    plain: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in names()]
    both = [name for name in names() if "continuous_actions" in registry.env_options(name)]
    return plain + [(name, {"continuous_actions": True}) for name in both]


def identify(value: Any) -> str:
    return "-".join(value) if isinstance(value, dict) else str(value)


def legal(env: ParallelEnv, infos: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A random legal action of every agent."""

    def draw(agent: str) -> Any:
        space = env.action_space(agent)
        if isinstance(space, spaces.Box):
            return rng.uniform(space.low, space.high).astype(np.float32)
        mask = infos[agent]["action_mask"]
        return int((rng.random(len(mask)) * mask).argmax())

    return {agent: draw(agent) for agent in env.agents}


def assert_equal(one: Any, other: Any) -> None:
    """Trees of dictionaries, tuples, arrays and numbers, to the bit."""
    jax.tree.map(np.testing.assert_array_equal, one, other)
    assert jax.tree.structure(one) == jax.tree.structure(other)


# Toys


@dataclass(frozen=True)
class Steer(phalanx.Env):
    """Shows each agent the action that it played and pays its sum; 2 and 3 entries, from -2 to 3.

    The second agent dies in the second step. Each agent has its own state.
    """

    @cached_property
    def spec(self):
        return EnvSpec(
            name="steer",
            agents=("pilot_0", "gunner_0"),
            agent_types=("pilot", "gunner"),
            obs_features=(("x", "y"), ("x", "y", "z")),
            state_features=("x", "y", "z"),
            action_counts=(2, 3),
            time_limit=3,
            common_reward=False,
            agent_state=True,
            action_kind="continuous",
            action_range=(-2.0, 3.0),
        )

    def reset(self, key):
        return jnp.int32(0), self.timestep(jnp.zeros((2, 3)), state=jnp.zeros((2, 3)))

    def step(self, key, state, actions):
        alive = jnp.array([True, False]) | (state < 1)
        return state + 1, self.timestep(actions, state=actions, reward=actions.sum(1), alive=alive)


@dataclass
class Blank(phalanx.Env):
    """Describes no frame though it promises to, and cannot be hashed."""

    heavy: list[float] = field(default_factory=lambda: [1.0])

    @property
    def spec(self):
        return EnvSpec("blank", ("a_0",), ("a",), (("one",),), ("one",), (2,), time_limit=1)

    def reset(self, key):
        return jnp.int32(0), self.timestep(jnp.ones((1, 1)))

    def step(self, key, state, actions):
        return state, self.timestep(jnp.ones((1, 1)), reward=self.heavy[0])

    def frame(self, state):
        return None


# PettingZoo's own tests


@pytest.mark.parametrize(("name", "options"), variants(), ids=identify)
def test_passes_pettingzoos_own_tests(name, options, capsys):
    make = partial(phalanx.to_pettingzoo, name, options=options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        parallel_api_test(make(), num_cycles=150)
        parallel_seed_test(make)
    ours = {str(each.message) for each in said}
    assert all("From now on without further warning" in each for each in ours)
    assert not ours or name.startswith("battle/")  # elsewhere nothing that could be sampled is illegal
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        api_test(parallel_to_aec(make()), num_cycles=150)
        seed_test(lambda: parallel_to_aec(make()), num_cycles=50)
        state_test(parallel_to_aec(make()), make(), num_cycles=20)
    unknown = {str(each.message) for each in said if not any(line in str(each.message) for line in KNOWN)}
    assert not unknown


@pytest.mark.parametrize("name", ["switch/2", "debug/roles", "debug/death", "battle/3m"])
def test_passes_pettingzoos_own_tests_with_masks_in_observations(name, capsys):
    make = partial(phalanx.to_pettingzoo, name, mask_in_obs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it samples by the masks, so that nothing is illegal
        parallel_api_test(make(), num_cycles=150)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        api_test(parallel_to_aec(make()), num_cycles=150)
        seed_test(lambda: parallel_to_aec(make()), num_cycles=50)
    unknown = {str(each.message) for each in said if not any(line in str(each.message) for line in KNOWN)}
    assert not unknown


def test_passes_pettingzoos_own_tests_with_a_users_environment(capsys):
    for env in (Steer(), Blank()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parallel_api_test(phalanx.to_pettingzoo(env))
            parallel_seed_test(lambda env=env: phalanx.to_pettingzoo(env))


# What it plays


@pytest.mark.parametrize("name", [each for each in names() if not each.startswith("battle/v2")])
def test_plays_what_the_environment_plays(name):
    """Against the bare environment by hand: keys, cut padding, time limit, the end and the next episode."""
    bare, env = phalanx.make_env(name), phalanx.to_pettingzoo(name, illegal="raise")
    spec, rng = bare.spec, np.random.default_rng(0)
    discrete = spec.action_kind == "discrete"
    idle = 0 if discrete else np.zeros(spec.n_actions, np.float32)
    begin, play = jax.jit(bare.reset), jax.jit(bare.step)
    key = jax.random.key(5)

    def next_key():
        nonlocal key
        key, now = jax.random.split(key)
        return now

    def assert_seen(obs, infos, now, acted):
        seen = now.observation
        assert list(obs) == list(infos) == acted
        for agent in acted:
            i = spec.agents.index(agent)
            own = seen.obs[i] if spec.obs_shape else seen.obs[i, : len(spec.obs_features[i])]
            np.testing.assert_allclose(obs[agent], own, atol=1e-5)
            assert obs[agent].dtype == spec.obs_dtype
            assert obs[agent] in env.observation_space(agent)
            if discrete:
                mask = infos[agent]["action_mask"]
                np.testing.assert_array_equal(mask, seen.avail[i, : spec.action_counts[i]])
                assert mask.dtype == np.int8
                assert infos[agent]["illegal_action"] is False
            assert ("action_mask" in infos[agent]) == discrete
            assert infos[agent]["alive"] is bool(seen.alive[i])
            if spec.has_win:
                assert infos[agent]["won"] is bool(now.info["won"])
            assert ("won" in infos[agent]) == spec.has_win
        np.testing.assert_allclose(env.state(), seen.state, atol=1e-5)
        assert env.state() in env.state_space

    obs, infos = env.reset(seed=5)
    for _ in range(2):  # the stream of a seed goes on
        state, now = begin(next_key())
        steps, acted = 0, list(spec.agents)
        assert_seen(obs, infos, now, acted)
        while env.agents:
            actions = legal(env, infos, rng)
            obs, rewards, terminations, truncations, infos = env.step(actions)
            state, now = play(
                next_key(), state, jnp.array([actions.get(agent, idle) for agent in spec.agents])
            )
            steps += 1
            assert_seen(obs, infos, now, acted)
            paid = dict(zip(spec.agents, now.reward, strict=True))
            assert list(rewards) == acted
            np.testing.assert_allclose(list(rewards.values()), [paid[agent] for agent in acted], atol=1e-5)
            assert all(type(each) is float for each in rewards.values())
            cut = steps >= spec.time_limit and not now.terminated
            over = np.broadcast_to(now.terminated, spec.n_agents)  # where agents end one by one, their own
            ended = dict(
                zip(spec.agents, over if now.agent_terminated is None else now.agent_terminated, strict=True)
            )
            assert terminations == {agent: bool(ended[agent]) for agent in acted}
            assert truncations == dict.fromkeys(acted, bool(cut))
            acted = [] if cut else [agent for agent in acted if not ended[agent]]
            assert env.agents == acted
        with pytest.raises(phalanx.PhalanxError, match=r"call reset\(\) first"):
            env.step(actions)
        obs, infos = env.reset()


def test_spaces_are_each_agents_own():
    env = phalanx.to_pettingzoo("debug/roles")
    assert env.possible_agents == ["scout", "worker"]
    assert env.observation_space("scout") == spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert env.observation_space("worker") == spaces.Box(-np.inf, np.inf, (5,), np.float32)
    assert [env.action_space(agent) for agent in env.possible_agents] == [
        spaces.Discrete(2),
        spaces.Discrete(4),
    ]
    assert env.state_space == spaces.Box(-np.inf, np.inf, (10,), np.float32)
    assert env.observation_space("scout") is env.observation_space("scout")
    assert isinstance(env, ParallelEnv)
    assert (env.metadata["name"], str(env)) == ("debug/roles", "debug/roles")
    assert env.metadata["is_parallelizable"]
    masked = phalanx.to_pettingzoo("debug/roles", mask_in_obs=True)
    assert masked.observation_space("scout") == spaces.Dict(
        {"observation": env.observation_space("scout"), "action_mask": spaces.Box(0, 1, (2,), np.int8)}
    )
    obs, infos = masked.reset()
    assert obs["worker"] in masked.observation_space("worker")
    for agent in masked.agents:
        np.testing.assert_array_equal(obs[agent]["action_mask"], infos[agent]["action_mask"])


def test_seeds():
    def episode(env, seed=None):
        seen, rng = [env.reset(seed=seed)], np.random.default_rng(0)
        while env.agents:
            seen.append(env.step(legal(env, seen[-1][-1], rng)))
        return seen

    env, other = phalanx.to_pettingzoo("debug/identity"), phalanx.to_pettingzoo("debug/identity", seed=3)
    first, second, third = episode(env, 3), episode(env), episode(env)
    assert_equal(episode(other), first)
    assert_equal(episode(other, 3), first)
    assert_equal(episode(other), second)
    assert_equal(episode(other), third)
    different = [first, second, third, episode(other, 4), episode(phalanx.to_pettingzoo("debug/identity"))]
    targets = [np.array([[*step[0].values()] for step in each]).tobytes() for each in different]
    assert len(set(targets)) == 5
    assert_equal(episode(other, np.int64(3)), first)
    for wrong in (-1, 2**32, 0.5, "1", True):
        with pytest.raises(phalanx.PhalanxError, match="seed must be a whole number from 0 to 4294967295"):
            env.reset(seed=wrong)


def test_the_same_seed_plays_the_same_battle():
    """PettingZoo's own test of seeds looks at one step only."""
    env, other = (phalanx.to_pettingzoo("battle/3m") for _ in range(2))
    one, two = env.reset(seed=8), other.reset(seed=8)
    rng = np.random.default_rng(1)
    while env.agents:
        assert_equal(one, two)
        actions = legal(env, one[-1], rng)
        one, two = env.step(actions), other.step(actions)
    assert_equal(one, two)
    assert other.agents == []


def test_pay_of_the_last_step_arrives():
    """`debug/delayed` pays only at its end; agents are gone by then, and their reward must not be."""
    env = phalanx.to_pettingzoo("debug/delayed")
    obs, _ = env.reset(seed=0)
    actions = {agent: int(obs[agent][:2].argmax()) for agent in env.agents}
    pays = []
    while env.agents:
        obs, rewards, terminations, truncations, infos = env.step(actions)
        pays.append(rewards)
    assert pays == [{"agent_0": 0.0, "agent_1": 0.0}] * 6 + [{"agent_0": 1.0, "agent_1": 1.0}]
    assert terminations == {"agent_0": True, "agent_1": True}
    assert truncations == {"agent_0": False, "agent_1": False}
    assert obs["agent_0"][2] == 1.0  # the clock of the last step, not of a new episode
    assert infos["agent_0"]["won"]


def test_time_limit_truncates():
    env = phalanx.to_pettingzoo("debug/forever", options={"time_limit": 3})
    env.reset()
    for step in range(1, 4):
        obs, rewards, terminations, truncations, _ = env.step({"agent_0": 0, "agent_1": 0})
        assert rewards == {"agent_0": 1.0, "agent_1": 1.0}
        assert not any(terminations.values())
        assert truncations == dict.fromkeys(terminations, step == 3)
        assert obs["agent_1"][1] == pytest.approx(step / 3)
    assert env.agents == []


def test_the_dead_stay_and_earn():
    env = phalanx.to_pettingzoo("debug/death", illegal="raise")
    obs, infos = env.reset(seed=0)
    assert infos["opener"]["alive"]
    target = int(obs["worker"][:3].argmax())
    obs, _, _, _, infos = env.step({"opener": target, "worker": 0})  # opens, and dies of it
    for step in range(1, 8):
        assert env.agents == ["opener", "worker"]
        assert not infos["opener"]["alive"]
        assert infos["opener"]["action_mask"].tolist() == [0, 0, 0]
        # Whatever the dead choose is neither refused nor replaced.
        actions = {"opener": step % 3, "worker": int(obs["worker"][:3].argmax())}
        obs, rewards, _, truncations, infos = env.step(actions)
        assert rewards == {"opener": 1.0, "worker": 1.0}
        assert not infos["opener"]["illegal_action"]
    assert all(truncations.values())
    assert infos["worker"]["won"]


def test_the_dead_of_a_battle_stay():
    env = phalanx.to_pettingzoo("battle/3m", illegal="raise")
    _, infos = env.reset(seed=0)
    alive = [3]
    while env.agents:
        assert len(env.agents) == 3
        actions = {agent: STOP for agent in env.agents}  # which the dead may not choose: they have a no-op
        _, _, terminations, _, infos = env.step(actions)
        alive.append(sum(each["alive"] for each in infos.values()))
        assert not any(each["illegal_action"] for each in infos.values())
    assert {1, 2} & set(alive)  # some died before the others
    assert alive[-1] == 0
    assert all(terminations.values())
    assert not infos["agent_0"]["won"]


def test_what_is_given_is_the_callers():
    env = phalanx.to_pettingzoo("battle/3m", illegal="raise", mask_in_obs=True)
    obs, infos = env.reset(seed=0)
    given = [
        *(each[part] for each in obs.values() for part in each),
        *(each["action_mask"] for each in infos.values()),
        env.state(),
    ]
    for array in given:
        array[:] = 0
    assert env.state().any()
    obs, *_, infos = env.step({agent: STOP for agent in env.agents})  # still legal
    assert infos["agent_0"]["action_mask"].any()
    assert not any(np.shares_memory(a["action_mask"], infos[i]["action_mask"]) for i, a in obs.items())


# Actions


def test_an_illegal_action_is_replaced_and_said():
    env, twin = (phalanx.to_pettingzoo("battle/3m") for _ in range(2))
    env.reset(seed=0)
    twin.reset(seed=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            obs, *others, infos = env.step({"agent_0": 0, "agent_1": NORTH, "agent_2": 6})
            twin_obs, *twin_others, _ = twin.step({"agent_0": STOP, "agent_1": NORTH, "agent_2": STOP})
            assert_equal((obs, others), (twin_obs, twin_others))
            assert [each["illegal_action"] for each in infos.values()] == [True, False, True]
    (warning,) = said  # once
    assert "agent_0 cannot take action 0 now; available: 1, 2, 3, 4, 5" in str(warning.message)
    _, *_, infos = env.step({agent: STOP for agent in env.agents})
    assert not any(each["illegal_action"] for each in infos.values())


def test_an_illegal_action_is_refused_if_wanted():
    env = phalanx.to_pettingzoo("battle/3m", illegal="raise")
    env.reset(seed=0)
    with pytest.raises(phalanx.PhalanxError) as caught:
        env.step({"agent_0": STOP, "agent_1": 0, "agent_2": STOP})
    assert str(caught.value) == "agent_1 cannot take action 0 now; available: 1, 2, 3, 4, 5"
    assert len(env.step({agent: STOP for agent in env.agents})) == 5  # nothing was played


@pytest.mark.parametrize(
    ("actions", "line"),
    [
        ([0, 1], "actions must be a dictionary with one action for each agent, not list"),
        ({"scout": 0}, "actions lack worker: every agent needs one, also dead agents"),
        ({}, "actions lack scout, worker: "),
        ({"scout": 0, "worker": 0, "scuot": 1}, "there is no agent 'scuot'. Did you mean scout?"),
        ({"scout": 0, "worker": 4}, "worker has no action 4: there are 0 to 3"),
        ({"scout": 2, "worker": 0}, "scout has no action 2: there are 0 to 1"),
        ({"scout": -1, "worker": 0}, "scout has no action -1: there are 0 to 1"),
        (
            {"scout": 0.0, "worker": 0},
            "the action of scout must consist of whole numbers, such as int64, not float64",
        ),
        (
            {"scout": True, "worker": 0},
            "the action of scout must consist of whole numbers, such as int64, not bool",
        ),
        (
            {"scout": None, "worker": 0},
            "the action of scout must consist of whole numbers, such as int64, not object",
        ),
        ({"scout": [0], "worker": 0}, "the action of scout must be a single number, of shape (), not (1,)"),
        ({"scout": 0, "worker": [[0], []]}, "the action of worker cannot be read as a numpy array: "),
    ],
)
def test_refuses_actions_that_are_none(actions, line):
    env = phalanx.to_pettingzoo("debug/roles")
    env.reset(seed=0)
    with pytest.raises(phalanx.PhalanxError) as caught:
        env.step(actions)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
    for kind in (int, np.int8, np.uint64, np.array):
        env.reset(seed=0)
        env.step({"scout": kind(1), "worker": kind(3)})


# Continuous actions


def test_continuous_actions_are_clipped_and_padded():
    env = phalanx.to_pettingzoo(Steer())
    assert env.action_space("pilot_0") == spaces.Box(-2, 3, (2,), np.float32)
    assert env.action_space("gunner_0") == spaces.Box(-2, 3, (3,), np.float32)
    assert env.state_space == spaces.Box(-np.inf, np.inf, (2, 3), np.float32)
    _, infos = env.reset()
    assert infos == {"pilot_0": {"alive": True}, "gunner_0": {"alive": True}}
    obs, rewards, _, _, infos = env.step({"pilot_0": np.array([0.5, -9]), "gunner_0": [1, 1e300, 3]})
    assert obs["pilot_0"].tolist() == [0.5, -2.0]
    assert obs["gunner_0"].tolist() == [1.0, 3.0, 3.0]
    assert env.state().tolist() == [[0.5, -2.0, 0.0], [1.0, 3.0, 3.0]]
    assert rewards == {"pilot_0": -1.5, "gunner_0": 7.0}
    assert infos == {"pilot_0": {"alive": True}, "gunner_0": {"alive": True}}
    zero = {"pilot_0": np.zeros(2), "gunner_0": np.zeros(3)}
    *_, infos = env.step(zero)
    assert infos == {"pilot_0": {"alive": True}, "gunner_0": {"alive": False}}
    assert all(env.step(zero)[3].values())


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ([0.0, math.nan], "pilot_0 cannot take an action with nan in entry 1: it must be finite"),
        ([-math.inf, 0.0], "pilot_0 cannot take an action with -inf in entry 0: it must be finite"),
        ([0.0, 0.0, 0.0], "the action of pilot_0 must be (2,), one number for each entry, not (3,)"),
        (0.5, "the action of pilot_0 must be (2,), one number for each entry, not ()"),
        (["a", "b"], "the action of pilot_0 must consist of numbers, such as float32, not <U1"),
    ],
)
def test_refuses_continuous_actions_that_are_none(action, line):
    env = phalanx.to_pettingzoo(Steer())
    env.reset()
    with pytest.raises(phalanx.PhalanxError) as caught:
        env.step({"pilot_0": action, "gunner_0": np.zeros(3)})
    assert str(caught.value) == line


def test_what_the_dead_send_does_not_matter_even_if_it_is_no_number():
    env = phalanx.to_pettingzoo(Steer())
    env.reset()
    for _ in range(2):
        _, _, _, _, infos = env.step({"pilot_0": np.zeros(2), "gunner_0": np.ones(3)})
    assert not infos["gunner_0"]["alive"]
    _, rewards, _, _, _ = env.step({"pilot_0": np.zeros(2), "gunner_0": np.full(3, math.nan)})
    assert rewards["gunner_0"] == 0


def test_vector_takes_continuous_actions():
    vec = phalanx.make_vec(Steer(), 2)
    batch = vec.reset()
    assert batch.avail.tolist() == [[[True, True, False], [True, True, True]]] * 2
    actions = np.array([[[0.5, -9, math.nan], [1, 2, 3]], [[0, 0, 7], [-1, 5, 0]]])
    batch = vec.step(actions)
    played = [[[0.5, -2, 0], [1, 2, 3]], [[0, 0, 0], [-1, 3, 0]]]
    assert batch.obs.tolist() == batch.state.tolist() == played
    assert batch.reward.tolist() == np.sum(played, -1).tolist()
    batch = vec.step(np.zeros((2, 2, 3), int))
    batch = vec.step(np.ones((2, 2, 3), np.float16))
    assert batch.truncated.all()
    assert batch.final_state.tolist() == [[[1, 1, 0], [1, 1, 1]]] * 2
    assert not batch.obs.any()
    assert batch.info["return"].tolist() == [[0.5, 9], [2, 5]]
    for wrong, line in (
        (
            np.zeros((2, 2)),
            "actions must be (2, 2, 3), one for each environment, agent and entry, not (2, 2)",
        ),
        (np.zeros((2, 2, 3), bool), "actions must consist of numbers, such as float32, not bool"),
        (
            np.where(np.arange(12).reshape(2, 2, 3) == 11, np.inf, 0.0),
            "environment 1: gunner_0 cannot take an action with inf in entry 2: it must be finite",
        ),
    ):
        with pytest.raises(phalanx.PhalanxError) as caught:
            vec.step(wrong)
        assert str(caught.value) == line


# Pictures


def colour_places(picture: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """(P, 2): x and y of all pixels of a colour."""
    return np.argwhere((picture == np.array(colour)).all(-1))[:, ::-1]


def test_render_shows_where_agents_are():
    env = phalanx.to_pettingzoo("switch/2", render_mode="rgb_array")
    with pytest.raises(phalanx.PhalanxError, match=r"nothing to see yet: call reset\(\) first"):
        env.render()
    env.reset()
    before = env.render()
    env.step({"agent_0": 0, "agent_1": 4})  # down, and stay
    after = env.render()
    assert isinstance(before, np.ndarray)
    assert isinstance(after, np.ndarray)
    assert (before.shape, before.dtype) == ((274, 640, 3), np.uint8)
    cell = 640 / 7
    beside_its_number = int(1.28 * cell)
    colour = [int(COLOURS[0][i : i + 2], 16) for i in (1, 3, 5)]
    assert before[int(0.5 * cell), beside_its_number].tolist() == colour
    assert after[int(0.5 * cell), beside_its_number].tolist() == list(OPEN)
    assert after[int(1.5 * cell), beside_its_number].tolist() == colour


def test_render_shows_a_battle():
    env = phalanx.to_pettingzoo("battle/3m", render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step({agent: NORTH for agent in env.agents})
    after = env.render()
    ours, theirs = (colour_places(before, side).mean(0) for side in (ALLY, ENEMY))
    assert ours[0] < theirs[0] - 100  # west of them
    moved = colour_places(after, ALLY).mean(0) - ours
    assert moved[1] < -10
    assert abs(moved[0]) < 5


@pytest.mark.parametrize("name", [each for each in names() if each.startswith("mpe/")])
def test_render_shows_particles(name):
    env = phalanx.to_pettingzoo(name, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    assert before.shape == (640, 640, 3)
    bare = phalanx.make_env(name)
    frame: Any = bare.frame(bare.reset(jax.random.split(jax.random.key(0))[1])[0])
    on_top = frame["agents"] - 1
    x, y = 320 + np.array([1, -1]) * 288 * frame["position"][on_top]
    np.testing.assert_allclose(before[int(y), int(x)], 255 * frame["color"][on_top], atol=1)
    rng = np.random.default_rng(0)
    for _ in range(5):
        env.step({agent: rng.integers(env.action_space(agent).n) for agent in env.agents})
    assert (before != env.render()).any()


def test_render_says_when_there_is_nothing_to_draw():
    env = phalanx.to_pettingzoo(Blank(), render_mode="rgb_array")
    env.reset()
    with pytest.raises(phalanx.PhalanxError, match="blank has nothing to draw: leave out render_mode"):
        env.render()
    assert phalanx.to_pettingzoo("debug/roles").metadata["render_modes"] == []
    plain = phalanx.to_pettingzoo("switch/2")
    assert plain.metadata["render_modes"] == ["rgb_array"]
    plain.reset()
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert plain.render() is None
    plain.close()


# What it cannot build


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"env": "switch/22"}, "unknown environment 'switch/22'. Did you mean switch/2"),
        ({"env": "switch/2", "options": {"clok": 1}}, "switch/2 has no option 'clok'. Did you mean clock"),
        ({"env": Steer(), "options": {"clock": 1}}, "options are for an environment given by name"),
        ({"env": 3}, "env must be a name or a phalanx.Env, not int"),
        ({"env": "switch/2", "seed": -1}, "seed must be a whole number from 0 to 4294967295, not -1"),
        ({"env": "switch/2", "illegal": "ignore"}, "illegal must be 'replace' or 'raise', not 'ignore'"),
        (
            {"env": "switch/2", "render_mode": "human"},
            "render_mode must be None or 'rgb_array', not 'human'",
        ),
        (
            {"env": "debug/roles", "render_mode": "rgb_array"},
            "debug/roles has nothing to draw: leave out render_mode",
        ),
        (
            {"env": Steer(), "mask_in_obs": True},
            "steer has continuous actions, without masks: leave out mask_in_obs",
        ),
    ],
)
def test_refuses_what_it_cannot_build(arguments, line):
    with pytest.raises(phalanx.PhalanxError) as caught:
        phalanx.to_pettingzoo(**arguments)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("package", ["pettingzoo", "gymnasium"])
def test_names_the_extra_when_a_package_is_missing(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "phalanx.compat.parallel", raising=False)
    make = phalanx.to_pettingzoo  # having it needs neither
    with pytest.raises(phalanx.PhalanxError) as caught:
        make("switch/2")
    assert str(caught.value) == f"to_pettingzoo needs {package}: pip install '.[pettingzoo]'"


def test_programs_are_shared_by_equal_environments():
    one, other = (phalanx.to_pettingzoo("switch/2", options={"time_limit": 7}) for _ in range(2))
    longer = phalanx.to_pettingzoo("switch/2", options={"time_limit": 8})
    assert one._play is other._play
    assert one._play is not longer._play

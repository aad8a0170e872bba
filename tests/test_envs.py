"""Environments: the contract, parity with ma-gym, wrappers (pitfalls C2, C8, C16, C20, C23, C34)."""

import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import LONG, OWN_ENVS

import phalanx
from phalanx.envs import check
from phalanx.envs.base import Env
from phalanx.envs.battle.scenarios import RACES, SCENARIOS
from phalanx.envs.debug import Death, Identity
from phalanx.envs.switch import HOMES, MOVES, OPEN, STARTS, Switch
from phalanx.envs.wrappers import prepare
from phalanx.types import EnvSpec

TRACE = json.loads((Path(__file__).parent / "data" / "switch_trace.json").read_text())


# Battles to play: every type of unit on either side and every ground of SMAC, each race of SMACv2. The others
# differ from these in numbers of units, and so in shapes; `make test-long` plays them too.
SMAC = {
    *("27m_vs_30m", "MMM2", "1c3s5z", "3s_vs_5z", "2m_vs_1z", "corridor", "6h_vs_8z", "2s_vs_1sc"),
    *("so_many_baneling", "bane_vs_bane", "2c_vs_64zg"),
}
SMACV2 = {f"v2_{race}_10_vs_11" for race in RACES}


def is_played(name):
    family, _, battle = name.partition("/")
    return LONG or family != "battle" or battle in SMAC | SMACV2


@pytest.mark.parametrize("name", OWN_ENVS)
def test_every_environment_keeps_the_contract(name, monkeypatch):
    if not is_played(name):
        monkeypatch.setattr(check, "_play", lambda *_: ())
    assert phalanx.check_env(phalanx.make_env(name)) == []


def test_what_is_played_has_every_unit_and_every_ground():
    def parts(scenarios):
        for scenario in scenarios:
            yield scenario.terrain
            for side in ("allies", "enemies"):
                yield from ((side, kind) for kind in re.findall("[a-z_]{2,}", getattr(scenario, side)))

    assert set(parts(SCENARIOS.values())) == set(parts(SCENARIOS[name] for name in SMAC))


@pytest.mark.parametrize("trace", TRACE["traces"], ids=lambda trace: str(trace["setting"]))
def test_switch_equals_ma_gym(trace):
    """Every step of episodes recorded from ma-gym: observations, rewards, who is done, and how it ends."""
    env = Switch(**trace["setting"])
    step = jax.jit(prepare(env).env.step)
    reset = jax.jit(prepare(env).env.reset)
    for episode in trace["episodes"]:
        state, now = reset(jax.random.key(0))
        np.testing.assert_allclose(now.observation.obs, episode["obs"][0], atol=1e-6)
        for t, actions in enumerate(episode["actions"]):
            state, now = step(jax.random.key(t), state, jnp.array(actions))
            np.testing.assert_allclose(seen(now, env), episode["obs"][t + 1], atol=1e-6)
            np.testing.assert_allclose(now.reward, episode["rewards"][t], atol=1e-6)
            over = bool(now.terminated | now.truncated)
            # ma-gym marks everyone done at the limit, where ours says that the episode is cut.
            np.testing.assert_array_equal(~np.asarray(now.observation.alive) | over, episode["dones"][t])
            assert over == (t == len(episode["actions"]) - 1)
        at_limit = len(episode["actions"]) == trace["setting"]["time_limit"]
        assert bool(now.truncated) == (at_limit and not now.info["won"])
        np.testing.assert_allclose(now.info["return"], np.sum(episode["rewards"], axis=0), atol=1e-4)


def seen(now, env):
    """The observation before the wrapper blanked those who are home, from the state."""
    entries = 3 if env.clock else 2
    state = np.asarray(now.observation.state)
    rows = state[:-1].reshape(env.agents, 3)[:, :2]
    if env.clock:
        rows = np.hstack([rows, np.full((env.agents, 1), state[-1])])
    obs = np.asarray(now.observation.obs)
    own = np.tile(rows.reshape(-1), (env.agents, 1)) if env.full_observability else rows
    alive = np.asarray(now.observation.alive)
    np.testing.assert_allclose(obs[alive], own[alive], atol=1e-6)
    assert (obs[~alive] == 0).all()
    assert rows.shape[1] == entries
    return own


def test_the_optimum_of_switch_2_is_4_15():
    """Breadth-first over joint positions, in plain Python: the sum of what both can still earn."""

    def move(cells, home, agent, action):
        row, col = np.array(cells[agent]) + MOVES[action]
        free = 0 <= row < 3 and 0 <= col < 7 and OPEN[row, col] and (row, col) not in cells
        if home[agent] or not free:
            return cells
        return tuple((int(row), int(col)) if i == agent else cell for i, cell in enumerate(cells))

    homes = [tuple(map(int, cell)) for cell in HOMES[:2]]
    frontier = {(tuple(tuple(map(int, cell)) for cell in STARTS[:2]), (False, False)): 0.0}
    best = -np.inf
    for _ in range(50):
        after = {}
        for (cells, home), paid in frontier.items():
            for first in range(5):
                for second in range(5):
                    moved = move(move(cells, home, 0, first), home, 1, second)
                    arrived = tuple(moved[i] == homes[i] for i in range(2))
                    total = paid + sum(0.0 if home[i] else 5.0 if arrived[i] else -0.1 for i in range(2))
                    if all(arrived):
                        best = max(best, total)
                    elif total > after.get((moved, arrived), -np.inf):
                        after[moved, arrived] = total
        frontier = after
    assert best / 2 == pytest.approx(4.15)


def play(env, script):
    """Returns and last time step of an episode in which `script(observation)` acts."""
    state, now = env.reset(jax.random.key(0))
    total, t = np.zeros(env.spec.n_agents), 0
    step = jax.jit(env.step)
    while not (now.terminated or t >= env.spec.time_limit):
        state, now = step(jax.random.key(t + 1), state, jnp.array(script(now.observation, t)))
        total, t = total + np.asarray(now.reward), t + 1
    return total, now


def test_scripted_players_earn_what_they_must():
    """C34, C23: a hand-computed return for each toy."""

    def targets(seen, t):
        return np.asarray(seen.obs[:, :3]).argmax(1)

    assert play(Identity(), targets)[0].tolist() == [8, 8]
    assert play(phalanx.make_env("debug/forever"), lambda *_: [0, 1])[0].tolist() == [10, 10]
    two_step = phalanx.make_env("debug/two_step")
    for actions, paid in {(0, 1): 7, (1, 1): 8, (1, 0): 1}.items():
        assert play(two_step, lambda seen, t, a=actions: a)[0].tolist() == [paid, paid]
    total, now = play(phalanx.make_env("debug/delayed"), lambda s, t: np.asarray(s.obs[:, :2]).argmax(1))
    assert total.tolist() == [1, 1]
    assert now.info["won"]
    assert (
        play(phalanx.make_env("debug/delayed"), lambda s, t: np.asarray(s.obs[:, :2]).argmin(1))[0].sum() == 0
    )
    total, now = play(phalanx.make_env("debug/roles"), lambda s, t: np.asarray(s.obs[:, :4]).argmax(1))
    assert total.tolist() == [8, 8]
    assert now.info["won"]

    def hit(seen, t, miss=0):
        target = int(np.asarray(seen.obs[1, :3]).argmax())
        return [(target + miss) % 3, target]

    total, now = play(Death(), hit)
    assert total.tolist() == [7, 7]
    assert now.info["won"]
    assert now.observation.alive.tolist() == [False, True]
    assert play(Death(), lambda seen, t: hit(seen, t, miss=1))[0].tolist() == [0, 0]
    memory = phalanx.make_env("debug/memory", delay=3)
    shown = []

    def repeat(seen, t):
        shown.append(np.asarray(seen.obs).argmax(1))
        return shown[-4] if len(shown) > 3 else [0, 0]

    assert play(memory, repeat)[0].tolist() == [9, 9]


@dataclass(frozen=True)
class Trap(Env):
    """C2: three steps; the observation at reset is 1000, the last one 0."""

    @cached_property
    def spec(self):
        return EnvSpec("test/trap", ("a",), ("a",), (("x",),), ("x",), (2,), time_limit=3)

    def reset(self, key):
        return jnp.int32(0), self.timestep(jnp.full((1, 1), 1000.0))

    def step(self, key, state, actions):
        return state + 1, self.timestep(jnp.full((1, 1), 2.0 - state), reward=state + 1.0)


def test_auto_reset_keeps_the_true_final_observation():
    env = prepare(Trap())
    running = env.reset(jax.random.key(0))
    acted_on, came, firsts = [], [], []
    for t in range(6):
        acted_on.append(float(running.observation.obs[0, 0]))
        firsts.append(bool(running.first))
        running, now = env.step(jax.random.key(t), running, jnp.array([0]))
        came.append(float(now.observation.obs[0, 0]))
        assert bool(now.truncated) == (t % 3 == 2)
        assert not now.terminated
    assert acted_on == [1000, 2, 1] * 2
    assert came == [2, 1, 0] * 2
    assert firsts == [True, False, False] * 2
    assert now.info["return"].tolist() == [6.0]  # C8: the last reward is in it
    assert now.info["length"] == 3


def test_an_end_at_the_time_limit_is_an_end_and_not_a_cut():
    env = prepare(phalanx.make_env("debug/forever", ends=True, time_limit=2))
    running = env.reset(jax.random.key(0))
    for _ in range(2):
        running, now = env.step(jax.random.key(0), running, jnp.array([0, 0]))
    assert bool(now.terminated)
    assert not bool(now.truncated)


def test_networks_see_ids_and_last_actions_and_nothing_of_the_dead():
    env = prepare(Death(), agent_id=True, last_action=True)
    assert env.spec.obs_features[0][4:] == (
        *("is opener", "is worker"),
        *("last action 0", "last action 1", "last action 2"),
    )
    running = env.reset(jax.random.key(0))
    obs = np.asarray(running.observation.obs)
    assert obs.shape == (2, env.spec.obs_size)
    assert obs[:, 4:6].tolist() == [[1, 0], [0, 1]]
    assert (obs[:, 6:] == 0).all()
    running, _ = env.step(jax.random.key(1), running, jnp.array([1, 2]))
    obs = np.asarray(running.observation.obs)
    assert obs[0].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert obs[1, 6:].tolist() == [0, 0, 1]


def test_padding_and_masks_come_through_every_wrapper():
    """C16': nothing on the way changes the mask."""
    env = prepare(phalanx.make_env("debug/roles"), agent_id=True)
    seen = env.reset(jax.random.key(0)).observation
    assert seen.avail.tolist() == [[True, True, False, False], [True] * 4]
    assert (np.asarray(seen.obs)[0, 2:5] == 0).all()


class Broken(Identity):
    """A sound environment, to be broken in one way at a time."""

    def __init__(self, **changes):
        super().__init__()
        object.__setattr__(self, "changes", changes)

    @property
    def spec(self):
        return replace(Identity().spec, **self.changes.get("spec", {}))

    def _broken(self, what, result):
        change = self.changes.get(what)
        return change(*result) if change else result

    def reset(self, key):
        return self._broken("reset", super().reset(key))

    def step(self, key, state, actions):
        return self._broken("step", super().step(key, state, actions))


def observation(now, **changes):
    return now._replace(observation=now.observation._replace(**changes))


BREACHES = {
    "agent_types has 1 entries for 2 agents": {"spec": {"agent_types": ("a",)}},
    "at least one step": {"spec": {"time_limit": 0}},
    "have the same name": {"spec": {"agents": ("a", "a")}},
    "state_features is empty": {"spec": {"state_features": ()}},
    "the spec asks for float32": {"step": lambda s, n: (s, observation(n, obs=n.observation.obs[:, :2]))},
    "reset must return (state, TimeStep)": {"reset": lambda s, n: s},
    "gives reward as float32[]": {"step": lambda s, n: (s, n._replace(reward=jnp.float32(0)))},
    "another state structure": {"step": lambda s, n: ((s, s), n)},
    "state of other shapes or types": {"step": lambda s, n: (s.astype(jnp.float32), n)},
    'gives no info["won"]': {"spec": {"has_win": True}},
    "reward is not finite": {"step": lambda s, n: (s, n._replace(reward=n.reward * jnp.nan))},
    "has no available action": {"step": lambda s, n: (s, observation(n, avail=jnp.zeros((2, 3), bool)))},
    "padded actions are available": {
        "spec": {"action_counts": (2, 3)},
        "reset": lambda s, n: (s, observation(n, avail=jnp.ones((2, 3), bool))),
    },
    "padded observation entries of agent_0 are not zero": {
        "spec": {"obs_features": (("a", "b"), ("a", "b", "c"))},
        "reset": lambda s, n: (s, observation(n, obs=jnp.ones((2, 3)))),
    },
    "agents got different rewards": {"spec": {"common_reward": True}},
    "already over": {"reset": lambda s, n: (s, n._replace(terminated=jnp.bool_(True)))},
    "step cannot be compiled": {"step": lambda s, n: (s, n) if n.reward[0] > 0 else None},
    "spec.action_counts must be of type tuple": {"spec": {"action_counts": 2}},
    "spec.time_limit must be of type int": {"spec": {"time_limit": 4.0}},
    "spec.teams must be of type tuple": {"spec": {"teams": ["a", "b"]}},
    "spec.teams has 1 entries for 2 agents": {"spec": {"teams": ("a",)}},
    "spec.action_kind is 'continous'": {"spec": {"action_kind": "continous"}},
    "it must be two finite numbers": {
        "spec": {"action_kind": "continuous", "action_range": (0, float("inf"))}
    },
    "gives an observation that is not an Observation": {
        "reset": lambda s, n: (s, n._replace(observation=None))
    },
    "the dead must not act": {"step": lambda s, n: (s, observation(n, alive=jnp.array([False, True])))},
}


@pytest.mark.parametrize("sentence", BREACHES)
def test_each_breach_is_explained_in_one_sentence(sentence):
    breaches = phalanx.check_env(Broken(**BREACHES[sentence]))
    assert any(sentence in breach for breach in breaches), breaches
    assert all("\n" not in breach and breach.endswith(".") for breach in breaches)


@dataclass(frozen=True)
class Drift(phalanx.Env):
    """Two agents with continuous actions of unlike sizes; the second is dead, and may yet act."""

    dead_act: bool = False

    @property
    def spec(self):
        return EnvSpec(
            *("drift", ("a", "b"), ("t", "t"), (("x",), ("x",)), ("a:x", "b:x"), (1, 2)),
            time_limit=3,
            action_kind="continuous",
        )

    def _now(self, place):
        return place, self.timestep(jnp.full((2, 1), place), reward=place, alive=jnp.array([True, False]))

    def reset(self, key):
        return self._now(jnp.float32(0))

    def step(self, key, state, actions):
        return self._now(state + actions[0, 0] + (actions[1].sum() if self.dead_act else 0.0))


def test_continuous_environments_are_held_to_the_contract():
    assert phalanx.check_env(Drift()) == []
    assert "the dead must not act" in phalanx.check_env(Drift(dead_act=True))[0]


class Late(Trap):
    """Sound up to its last step, or cut by itself before what is wrong."""

    def __init__(self, bad_step, cut_step=99):
        object.__setattr__(self, "steps", (bad_step, cut_step))

    def step(self, key, state, actions):
        state, now = super().step(key, state, actions)
        bad, cut = self.steps
        reward = jnp.where(state == bad, jnp.nan, now.reward)
        return state, now._replace(reward=reward, truncated=state == cut)


def test_the_last_step_is_looked_at_and_nothing_behind_an_end():
    assert phalanx.check_env(Late(bad_step=3)) == ["reward is not finite at step 3."]
    assert phalanx.check_env(Late(bad_step=3, cut_step=2)) == []


def test_what_is_no_environment_is_said_so():
    assert phalanx.check_env(object())[0].startswith("object:object gives a object, which is none of these")

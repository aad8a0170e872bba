"""PettingZoo's environments, parallel and AEC: what the packages give, and agents that come and go."""

import sys

import numpy as np
import pytest
from gymnasium import spaces
from mpe2 import simple_spread_v3, simple_world_comm_v3
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.classic import rps_v2, tictactoe_v3

from phalanx.envs.host.packages import drawing
from phalanx.envs.host.pettingzoo import Adapter, PettingZooEnv
from phalanx.envs.host.seeds import seed32
from phalanx.envs.host.snapshots import random_actions, same
from phalanx.envs.host.turns import Turns
from phalanx.errors import PhalanxError

SEED = 2**40 + 7


class Crowd(ParallelEnv):
    """Agents leave and come by a timetable: {step: (who ends, how, who comes)}.

    `wolf_0` has other spaces than the sheep. An agent observes its number and the step, and earns its action.
    """

    metadata = {"name": "crowd", "render_modes": []}  # noqa: RUF012
    possible_agents = ["sheep_0", "sheep_1", "wolf_0"]  # noqa: RUF012
    max_cycles = 6

    def __init__(self, timetable=None, first=("sheep_0", "sheep_1", "wolf_0"), mask=None, spaces_of=None):
        self.timetable, self.first, self.mask = timetable or {}, first, mask
        self.spaces_of, self.given = spaces_of or {}, []

    def observation_space(self, agent):
        return self.spaces_of.get(agent, spaces.Box(0, 99, (3 if agent == "wolf_0" else 2,)))

    def action_space(self, agent):
        return spaces.Discrete(4 if agent == "wolf_0" else 2)

    def _seen(self, agents):
        now = {agent: np.full(self.observation_space(agent).shape, self.t + 1.0) for agent in agents}
        for agent, obs in now.items():
            obs.flat[0] = 10 + self.possible_agents.index(agent)
        infos = {agent: {} if self.mask is None else {"action_mask": self.mask[agent]} for agent in agents}
        return now, infos

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, list(self.first)
        return self._seen(self.agents)

    def step(self, actions):
        self.given.append(actions)
        self.t += 1
        acted = list(self.agents)
        who, how, coming = self.timetable.get(self.t, ((), "terminated", ()))
        if self.t == self.max_cycles:
            who, how, coming = self.agents, "truncated", ()
        ends = {agent: agent in who for agent in acted}
        never = dict.fromkeys(acted, False)
        self.agents = [agent for agent in acted if agent not in who] + list(coming)
        obs, infos = self._seen([*acted, *coming])
        terminations, truncations = (ends, never) if how == "terminated" else (never, ends)
        return obs, {agent: float(actions[agent]) for agent in acted}, terminations, truncations, infos


def crowd(time_limit=None, **options):
    return PettingZooEnv(Crowd(**options), "crowd", time_limit)


def play(env, count, action=1):
    return [env.step(np.full(len(env.spec.agents), action)) for _ in range(count)]


@pytest.mark.parametrize(
    ("module", "options"),
    [(simple_spread_v3, {}), (simple_world_comm_v3, {}), (simple_spread_v3, {"continuous_actions": True})],
)
def test_episodes_are_those_of_the_package(module, options):
    name = module.__name__.rpartition(".")[2]
    ours, theirs = Adapter(f"mpe2.{name}", extra=options), module.parallel_env(**options)
    rng = np.random.default_rng(0)
    for seed in (SEED, 5):
        now = ours.reset(seed)
        obs, _ = theirs.reset(seed=seed32(seed))
        while theirs.agents:
            for i, agent in enumerate(theirs.possible_agents):
                size = len(obs[agent])
                np.testing.assert_array_equal(now.observation.obs[i, :size], obs[agent].astype(np.float32))
                assert not now.observation.obs[i, size:].any()
                count = ours.spec.action_counts[i]
                assert now.observation.avail[i, :count].all()
                assert not now.observation.avail[i, count:].any()
            np.testing.assert_array_equal(now.observation.state, theirs.state().astype(np.float32))
            actions = random_actions(ours, now, rng)
            taken = actions if not options else ((actions.astype(np.float64) + 1) / 2).astype(np.float32)
            obs, rewards, terminations, truncations, _ = theirs.step(
                {agent: taken[i] for i, agent in enumerate(theirs.possible_agents)}
            )
            now = ours.step(actions)
            np.testing.assert_array_equal(now.reward, np.float32(list(rewards.values())))
            assert now.truncated == all(truncations.values())
            assert now.terminated == all(terminations.values())
        assert now.truncated
        assert now.observation.alive.all()


def test_what_the_spec_says():
    spec = Adapter("mpe2.simple_world_comm_v3").spec
    assert spec.agents[:2] == ("leadadversary_0", "adversary_0")
    assert spec.agent_types == ("leadadversary", "adversary", "adversary", "adversary", "agent", "agent")
    assert spec.action_counts == (20, 5, 5, 5, 5, 5)
    assert [len(names) for names in spec.obs_features] == [34, 34, 34, 34, 28, 28]
    assert (spec.time_limit, spec.common_reward, spec.agents_end, spec.state_size) == (25, False, True, 192)


def test_unlike_spaces_are_padded():
    env = crowd()
    assert (env.spec.action_counts, env.spec.obs_size, env.spec.n_actions) == ((2, 2, 4), 3, 4)
    seen = env.reset(0).observation
    assert seen.obs.tolist() == [[10, 1, 0], [11, 1, 0], [12, 1, 1]]
    assert seen.avail.sum(1).tolist() == [2, 2, 4]
    # Without a state of its own: all observations in a row.
    assert seen.state.tolist() == seen.obs.reshape(-1).tolist()
    assert env.spec.state_features[2] == "sheep_0:padding"


def test_agents_end_one_by_one():
    env = crowd(timetable={2: (["sheep_1"], "terminated", ()), 4: (["sheep_0", "wolf_0"], "terminated", ())})
    start = env.reset(0)
    assert start.observation.alive.all()
    assert not start.agent_terminated.any()
    steps = play(env, 4)
    assert [step.observation.alive.tolist() for step in steps] == [
        [True, True, True],
        [True, False, True],
        [True, False, True],
        [False, False, False],
    ]
    assert all((step.agent_terminated == ~step.observation.alive).all() for step in steps)
    assert [step.reward.tolist() for step in steps] == [[1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 0, 1]]
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False)] * 3 + [(True, False)]
    assert not steps[2].observation.obs[1].any()
    assert set(env.env.given[2]) == {"sheep_0", "wolf_0"}  # the dead are not asked


def test_agents_that_appear_later_are_dead_until_then():
    env = crowd(first=("sheep_0",), timetable={2: ([], "terminated", ["wolf_0"])})
    assert env.reset(0).observation.alive.tolist() == [True, False, False]
    steps = play(env, 3)
    assert [step.observation.alive.tolist() for step in steps[:2]] == [
        [True, False, False],
        [True, False, True],
    ]
    assert steps[1].observation.obs[2].tolist() == [12, 3, 3]
    assert steps[2].reward.tolist() == [1, 0, 1]


def test_an_end_by_the_time_limit_keeps_the_agents_alive_to_bootstrap():
    env = crowd(timetable={2: (["sheep_1"], "terminated", ())})
    env.reset(0)
    last = play(env, 6)[-1]
    assert (last.terminated, last.truncated) == (False, True)
    assert last.observation.alive.tolist() == [True, False, True]
    assert last.agent_terminated.tolist() == [False, True, False]
    assert last.observation.obs[0].tolist() == [10, 7, 0]


def test_an_agent_truncated_alone_has_ended():
    env = crowd(timetable={1: (["sheep_1"], "truncated", ())})
    env.reset(0)
    (step,) = play(env, 1)
    assert (step.terminated, step.truncated) == (False, False)
    assert step.agent_terminated.tolist() == [False, True, False]


def test_masks_from_infos():
    env = crowd(mask={"sheep_0": [1, 0], "sheep_1": [0, 1], "wolf_0": [0, 0, 1, 1]})
    env.reset(0)
    (step,) = play(env, 1)
    assert step.observation.avail.tolist() == [
        [True, False, False, False],
        [False, True, False, False],
        [False, False, True, True],
    ]


def test_a_mask_that_allows_nothing_is_not_hidden():
    env = crowd(mask={"sheep_0": [0, 0], "sheep_1": [0, 1], "wolf_0": [0, 0, 1, 1]})
    assert not env.reset(0).observation.avail[0].any()


def test_pictures_of_unlike_sizes_are_padded():
    shapes = {"sheep_0": (4, 3, 1), "sheep_1": (2, 3, 1), "wolf_0": (4, 2, 1)}
    env = crowd(spaces_of={agent: spaces.Box(0, 99, shape) for agent, shape in shapes.items()})
    assert env.spec.obs_shape == (4, 3, 1)
    obs = env.reset(0).observation.obs
    assert (obs[0] > 0).all()
    assert obs[1, :2].all()
    assert not obs[1, 2:].any()
    assert not obs[2, :, 2:].any()


def test_pictures_beside_vectors_are_flattened():
    env = crowd(spaces_of={"sheep_0": spaces.Box(0, 99, (2, 2, 1))})
    assert env.spec.obs_shape is None
    assert env.reset(0).observation.obs[0].tolist() == [10, 1, 1, 1]


def test_the_time_limit():
    assert crowd().spec.time_limit == 6
    assert crowd(time_limit=4).spec.time_limit == 4
    with pytest.raises(PhalanxError, match=r"itself ends after 6 steps.*unless --env.max_cycles is raised"):
        crowd(time_limit=7)
    assert Adapter("mpe2.simple_spread_v3", extra={"max_cycles": 40}).spec.time_limit == 40


# AEC


def test_tictactoe_is_played_turn_by_turn():
    """The same moves in the package's own loop: same boards, masks and rewards."""
    ours, theirs = Adapter("classic.tictactoe_v3", time_limit=9), tictactoe_v3.env()
    assert ours.spec.action_counts == (10, 10)  # the last is to wait
    rng = np.random.default_rng(3)
    outcomes = set()
    for seed in range(20):
        now, total = ours.reset(seed), np.zeros(2, np.float32)
        theirs.reset(seed=seed)
        for player in theirs.agent_iter():
            seen, _, terminated, truncated, _ = theirs.last()
            if terminated or truncated:
                theirs.step(None)
                continue
            i = theirs.possible_agents.index(player)
            np.testing.assert_array_equal(now.observation.obs[i], seen["observation"].astype(np.float32))
            assert now.observation.avail[i].tolist() == [*seen["action_mask"].astype(bool), False]
            assert now.observation.avail[1 - i].tolist() == [False] * 9 + [True]
            assert now.observation.alive.all()
            actions = random_actions(ours, now, rng)
            assert actions[1 - i] == 9
            now = ours.step(actions)
            total += now.reward
            theirs.step(int(actions[i]))
            won = theirs.rewards if theirs.agents else {}
            assert all(now.reward[k] == won.get(p, 0) for k, p in enumerate(theirs.possible_agents))
        assert now.terminated
        assert not now.observation.alive.any()
        outcomes.add(tuple(total))
    assert outcomes >= {(1, -1), (-1, 1)}


def test_a_parallelizable_aec_environment_is_stepped_by_cycles():
    aec, parallel = PettingZooEnv(simple_spread_v3.env(), "aec"), Adapter("mpe2.simple_spread_v3")
    assert aec.spec.time_limit == 25
    one, two = aec.reset(SEED), parallel.reset(SEED)
    rng = np.random.default_rng(0)
    while not one.truncated:
        actions = random_actions(aec, one, rng)
        one, two = aec.step(actions), parallel.step(actions)
        assert same(one, two)


def test_an_attribute_of_the_name_state_is_no_state():
    env = PettingZooEnv(rps_v2.env(), "rps")
    assert env.spec.state_size == 2 * env.spec.obs_size


class Queue(AECEnv):
    """Three agents act in turn, five moves; `b` leaves after its first, which earns 5 for all."""

    metadata = {"name": "queue", "render_modes": []}  # noqa: RUF012
    possible_agents = ["a", "b", "c"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Box(0, 99, (1,))

    def action_space(self, agent):
        return spaces.Discrete(3)

    def observe(self, agent):
        return np.array([self.moves], np.float32)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.moves, self.said = 0, []
        self.agent_selection = "a"

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self.said.append((agent, action))
        self._cumulative_rewards[agent] = 0
        self.moves += 1
        self._clear_rewards()
        self.rewards[agent] = 1
        if agent == "b":
            self.terminations["b"] = True
            self.rewards = dict.fromkeys(self.rewards, 5)
        if self.moves == 5:
            self.truncations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        order = [each for each in self.agents if not self.terminations[each]]
        self.agent_selection = order[(order.index(agent) + 1) % len(order)] if agent in order else "c"
        self._deads_step_first()


def test_turns_with_an_agent_that_leaves():
    env = PettingZooEnv(Queue(), "queue", time_limit=20)
    assert isinstance(env.env, Turns)
    limited = Queue()
    limited.max_cycles = 4  # pyright: ignore[reportAttributeAccessIssue]
    assert PettingZooEnv(limited, "queue").spec.time_limit == 12
    now, turns, rewards = env.reset(0), [], []
    while not (now.terminated or now.truncated):
        turns.append([i for i in range(3) if now.observation.alive[i] and not now.observation.avail[i, 3]])
        assert (now.observation.obs[now.observation.alive] == len(turns) - 1).all()
        now = env.step(random_actions(env, now, np.random.default_rng(0)))
        rewards.append(now.reward.tolist())
    assert turns == [[0], [1], [2], [0], [2]]
    assert rewards == [[1, 0, 0], [5, 5, 5], [0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert [agent for agent, _ in env.env.env.said] == ["a", "b", "c", "a", "c"]
    assert all(action < 3 for _, action in env.env.env.said)
    assert (now.truncated, now.terminated) == (True, False)
    assert now.observation.alive.tolist() == [True, False, True]
    assert now.observation.avail[now.observation.alive].any(1).all()


def test_a_restored_game_of_turns_plays_on():
    env = PettingZooEnv(Queue(), "queue", time_limit=20)
    now = env.reset(0)
    for _ in range(2):
        now = env.step(random_actions(env, now, np.random.default_rng(0)))
    state = env.get_state()
    assert state is not None
    other = env.copy()
    other.reset(9)
    assert same(other.set_state(state), now.observation)
    while not now.truncated:
        actions = random_actions(env, now, np.random.default_rng(0))
        now = env.step(actions)
        assert same(now, other.step(actions))


def test_who_lives_is_part_of_the_state():
    env = crowd(timetable={1: (["sheep_1"], "terminated", ())})
    env.reset(0)
    play(env, 1)
    state = env.get_state()
    assert state is not None
    other = env.copy()
    other.reset(0)
    other.set_state(state)
    assert same(tuple(play(env, 2)), tuple(play(other, 2)))
    assert set(other.env.given[1]) == {"sheep_0", "wolf_0"}  # the first actions after it


def test_an_environment_pickled_by_its_arguments_gives_no_state():
    env = Adapter("mpe2.simple_spread_v3")
    env.reset(0)
    assert env.get_state() is None


# States


class Stateful(Crowd):
    """Has a state, which cannot be asked once nobody is left."""

    def state(self):
        if not self.agents:
            raise RuntimeError("gone")
        return np.array([[self.t, 255], [0, 51]], np.uint8)


def test_a_state_of_its_own():
    env = PettingZooEnv(Stateful({2: (["sheep_0", "sheep_1", "wolf_0"], "terminated", ())}), "stateful")
    np.testing.assert_allclose(env.reset(0).observation.state, np.array([0, 255, 0, 51]) / 255)
    steps = play(env, 2)
    assert steps[-1].terminated
    np.testing.assert_allclose(
        steps[-1].observation.state, np.array([1, 255, 0, 51]) / 255
    )  # the last there was


def test_a_state_that_fails_before_the_end_is_not_hidden():
    env = PettingZooEnv(Stateful(), "stateful")
    env.reset(0)
    with pytest.raises(RuntimeError, match="gone"):  # truncated: its value would be bootstrapped
        play(env, 6)


# Making


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"variant": "mpe2.simple_sprad_v3"},
            "no module mpe2.simple_sprad_v3 .* Did you mean simple_spread_v3",
        ),
        ({"variant": "sisl.pursuit_v1"}, "Did you mean pursuit_v"),
        ({"variant": "nowhere.game_v0"}, "no module nowhere.game_v0 with a function parallel_env or env"),
        (
            {"variant": "mpe2.simple_spread_v3", "extra": {"colour": 1}},
            "unexpected keyword argument 'colour'",
        ),
        ({"variant": "classic.tictactoe_v3"}, "no time limit of its own: give one with --env.time_limit N"),
        ({"variant": "mpe2.simple_spread_v3", "shrink": 2}, "no pictures: leave out --env.shrink"),
    ],
)
def test_wrong_names_and_options(options, said):
    with pytest.raises(PhalanxError, match=said) as caught:
        Adapter(**options)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(
        PhalanxError,
        match=r"needs the package pettingzoo: pip install pettingzoo \(or .* extra pettingzoo\)$",
    ):
        Adapter("mpe2.simple_spread_v3")


def test_a_missing_package_of_an_environment_is_named(tmp_path, monkeypatch):
    (tmp_path / "lonely_v0.py").write_text("import lake_of_swans\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PhalanxError, match="pettingzoo/lonely_v0 needs the package lake_of_swans"):
        Adapter("lonely_v0")


def test_agents_with_actions_of_two_kinds_are_refused():
    class Mixed(Crowd):
        def action_space(self, agent):
            return spaces.Box(0, 1, (1,)) if agent == "wolf_0" else spaces.Discrete(2)

    with pytest.raises(PhalanxError, match="agents with discrete and agents with continuous actions"):
        PettingZooEnv(Mixed(), "mixed")


def test_rendering():
    env = drawing(lambda: Adapter("mpe2.simple_spread_v3"))()
    env.reset(0)
    picture = env.render()
    assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)

"""Adapters of SMAC-style environments, on stand-ins with the interfaces and quirks of the real classes."""

import random
import sys

import numpy as np
import pytest
from stand_ins import Game, StarCraft2Env, install_smac, install_smaclite, install_smacv2

from phalanx.envs.host import smac, smaclite, smacv2
from phalanx.envs.host.smac_like import SmacLike
from phalanx.errors import PhalanxError

STAY = np.ones(3, np.int32)
HIT = np.full(3, 6, np.int32)


@pytest.fixture
def game(monkeypatch):
    install_smac(monkeypatch)
    return monkeypatch


def play(env, seed, steps=4):
    """Health of all agents, through an episode of standing still."""
    seen = [env.reset(seed).observation.state]
    return np.array(
        seen + [env.step(np.ones(env.spec.n_agents, np.int32)).observation.state for _ in range(steps)]
    )


def test_the_spec_needs_no_game(game):
    spec = smac.Adapter("2s3z").spec
    assert spec.name == "smac/2s3z"
    assert spec.agent_types == ("stalker", "stalker", "zealot", "zealot", "zealot")
    assert (spec.obs_size, spec.state_size, spec.n_actions, spec.time_limit) == (2, 6, 11, 6)
    assert spec.common_reward
    assert spec.has_win
    assert spec.action_names[0][:2] + spec.action_names[0][-1:] == ("no-op", "stop", "target 4")
    assert smac.Adapter("3m").spec.agent_types == ("marine",) * 3
    assert Game.running == 0


def test_a_step_is_smacs_step(game):
    env, real = smac.Adapter("3m"), StarCraft2Env("3m", seed=12)
    real.reset()
    first = env.reset(12)
    np.testing.assert_array_equal(first.observation.obs, real.get_obs())
    now = env.step(STAY)
    reward, _, _ = real.step([1, 1, 1])
    np.testing.assert_array_equal(now.observation.obs, real.get_obs())
    np.testing.assert_array_equal(now.observation.state, real.get_state())
    np.testing.assert_array_equal(now.observation.avail, np.array(real.get_avail_actions(), bool))
    np.testing.assert_array_equal(now.reward, np.full(3, reward, np.float32))
    assert now.reward.dtype == now.observation.obs.dtype == now.observation.state.dtype == np.float32


def test_the_dead_are_not_alive(game):
    env = smac.Adapter("3m")
    env.reset(0)
    env.env.kill(1)
    now = env.step(np.array([1, 0, 1]))
    np.testing.assert_array_equal(now.observation.alive, [True, False, True])
    np.testing.assert_array_equal(now.observation.avail[1], [True] + [False] * 8)


def test_a_win_terminates(game):
    env = smac.Adapter("3m")
    env.reset(0)
    steps = [env.step(HIT) for _ in range(3)]
    assert [(bool(s.terminated), bool(s.truncated), bool(s.won)) for s in steps] == [
        (False, False, False),
        (False, False, False),
        (True, False, True),
    ]


@pytest.mark.parametrize(("continuing", "end"), [(True, (False, True)), (False, (True, False))])
def test_the_time_limit_truncates_unless_it_is_told_to_terminate(game, continuing, end):
    env = smac.Adapter("3m", continuing_episode=continuing)
    env.reset(0)
    steps = [env.step(STAY) for _ in range(6)]
    assert [(s.terminated, s.truncated) for s in steps] == [(False, False)] * 5 + [end]
    assert not steps[-1].won


def test_a_lost_game_truncates_and_leaves_no_second_game(game):
    env = smac.Adapter("3m")
    env.reset(0)
    game.setattr(StarCraft2Env, "crash_at", 2)
    steps = [env.step(STAY) for _ in range(3)]
    assert [(s.terminated, s.truncated) for s in steps] == [(False, False)] * 2 + [(False, True)]
    game.setattr(StarCraft2Env, "crash_at", None)
    env.reset(1)
    assert Game.running == 1
    env.close()
    assert Game.running == 0


def test_an_episode_that_is_begun_again_leaves_no_second_game(game):
    env = smac.Adapter("3m")
    for seed in range(3):
        env.reset(seed)
        env.step(STAY)
    assert Game.running == 1


def test_a_seed_decides_the_first_episode_of_a_game_and_every_relaunched_one(game):
    one, other = smac.Adapter("3m"), smac.Adapter("3m")
    np.testing.assert_array_equal(play(one, 2**40 + 7, 6), play(other, 2**40 + 7, 6))
    assert not np.array_equal(play(one, 8, 6), play(smac.Adapter("3m"), 8, 6)), "it cannot be reseeded"
    again = smac.Adapter("3m", relaunch=True)
    play(again, 3, 6)
    np.testing.assert_array_equal(play(again, 8, 6), play(smac.Adapter("3m"), 8, 6))
    again.close()


def test_copies_have_games_of_their_own(game):
    env = smac.Adapter("3m", relaunch=True, extra={"obs_last_action": True})
    copy = env.copy()
    np.testing.assert_array_equal(play(env, 1), play(copy, 1))
    assert Game.running == 2
    assert copy.extra == {"obs_last_action": True}


def test_wrong_maps_and_options_are_one_line(game):
    with pytest.raises(PhalanxError, match=r"smac has no map '3n'. Did you mean 3m\?"):
        smac.Adapter("3n")
    with pytest.raises(PhalanxError, match=r"smac/3m: .*unexpected keyword argument 'sight'"):
        smac.Adapter("3m", extra={"sight": 3})
    with pytest.raises(PhalanxError, match=r"smac/3m: .*multiple values.*'seed'"):
        smac.Adapter("3m", extra={"seed": 3})


@pytest.mark.parametrize(
    ("module", "variant"),
    [(smac, "3m"), (smacv2, "10gen_terran"), (smaclite, "2s3z")],
    ids=lambda x: str(x)[:20],
)
def test_a_missing_package_is_one_line(monkeypatch, module, variant):
    family = module.__name__.rpartition(".")[2]
    monkeypatch.setitem(sys.modules, family, None)
    with pytest.raises(PhalanxError, match=f"^{family}/{variant} needs .*docs/smac.md"):
        module.Adapter(variant)


def test_a_missing_game_is_one_line_at_the_first_launch_only(game):
    def missing(self):
        raise FileNotFoundError("no StarCraftII/Versions")

    env = smac.Adapter("3m")
    game.setattr(StarCraft2Env, "reset", missing)
    with pytest.raises(
        PhalanxError, match=r"smac/3m cannot launch StarCraft II: no StarCraftII.*docs/smac.md"
    ):
        env.reset(0)
    game.undo()
    install_smac(game)
    env.reset(0)
    game.setattr(StarCraft2Env, "reset", missing)
    with pytest.raises(FileNotFoundError):  # no mistake of the user: the game was there
        env.reset(1)


def test_smacv2_draws_teams_by_the_seed_of_the_episode(monkeypatch):
    install_smacv2(monkeypatch)
    env = smacv2.Adapter("10gen_zerg", n_units=5, n_enemies=6)
    spec = env.spec
    assert (spec.n_agents, spec.n_actions, set(spec.agent_types)) == (5, 12, {"unit"})
    config = env.env.config
    assert config["team_gen"]["unit_types"] == ["zergling", "baneling", "hydralisk"]
    assert config["team_gen"]["weights"] == [0.45, 0.1, 0.45]
    assert config["team_gen"]["exception_unit_types"] == ["baneling"]
    assert (config["n_units"], config["n_enemies"], config["start_positions"]["p"]) == (5, 6, 0.5)
    env.reset(3)
    drawn = env.env.drawn
    play(env, 4, 6)
    assert env.env.drawn != drawn
    random.random()
    env.reset(3)
    assert env.env.drawn == drawn
    copy = env.copy()
    copy.reset(3)
    assert copy.env.drawn == drawn
    assert smacv2.Adapter("10gen_terran").spec.n_actions == 11, "as many enemies as agents"
    with pytest.raises(PhalanxError, match="smacv2 has no map '3m'"):
        smacv2.Adapter("3m")


def test_the_global_random_numbers_of_others_are_left_alone(monkeypatch):
    install_smacv2(monkeypatch)
    env = smacv2.Adapter("10gen_zerg")
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.rand()
    random.seed(5)
    np.random.seed(5)
    env.reset(3)
    env.step(np.ones(5, np.int32))
    assert (random.random(), np.random.rand()) == expected


def test_smaclite(monkeypatch):
    install_smaclite(monkeypatch)
    env = smaclite.Adapter("2s3z")
    spec = env.spec
    assert spec.agent_types == ("stalker", "zealot", "zealot")
    assert (spec.time_limit, spec.obs_size, spec.state_size, spec.n_actions) == (120, 1, 21, 7)
    first = env.reset(7)
    now = env.step(np.array([1, 2, 3]))
    np.testing.assert_array_equal(now.observation.alive, [False, True, True])
    np.testing.assert_array_equal(now.reward, np.full(3, 1.5, np.float32))
    assert now.observation.state.sum() == 3
    again = env.reset(7)
    np.testing.assert_array_equal(again.observation.state, first.observation.state)  # last actions are gone
    np.testing.assert_array_equal(again.observation.obs, first.observation.obs)
    won = env.step(np.array([1, 2, 6]))
    assert (won.terminated, won.truncated, won.won) == (True, False, True)


def test_smaclite_without_a_time_limit_or_map(monkeypatch):
    install_smaclite(monkeypatch)
    with pytest.raises(
        PhalanxError, match=r"smaclite/unheard has no time limit of its own: .*--env.time_limit N"
    ):
        smaclite.Adapter("unheard")
    assert smaclite.Adapter("unheard", time_limit=9).spec.time_limit == 9
    with pytest.raises(PhalanxError, match="smaclite has no map '2s4z'"):
        smaclite.Adapter("2s4z")
    with pytest.raises(PhalanxError, match="must be given together"):
        smaclite.Adapter("custom", time_limit=9)


class Waiting:
    """A class of somebody's own with SMAC's methods, without units: draws from the global generators."""

    def get_env_info(self):
        return {"n_agents": 2, "n_actions": 3, "obs_shape": (2,), "state_shape": (1,), "episode_limit": 4}

    def reset(self):
        self.value = np.random.rand()

    def step(self, actions):
        self.value += random.random()
        return self.get_obs(), self.reward, False, {}

    reward = 1

    def get_obs(self):
        return np.full((2, 2), self.value)

    def get_state(self):
        return [self.value]

    def get_avail_actions(self):
        return [[1, 0, 0], [1, 0, 1]]


def test_an_environment_of_ones_own():
    env = SmacLike(Waiting())
    assert (env.spec.name, env.spec.time_limit, env.spec.agent_types) == ("Waiting", 4, ("unit", "unit"))
    other = env.copy()
    one = [env.reset(1), env.step(np.zeros(2, np.int32))]
    np.testing.assert_array_equal(one[0].observation.alive, [False, True])
    other.reset(2)
    other.step(np.zeros(2, np.int32))
    two = [env.reset(1), other.step(np.zeros(2, np.int32)), env.step(np.zeros(2, np.int32))]
    np.testing.assert_array_equal(
        one[1].observation.state, two[2].observation.state
    )  # not mixed with the other's
    env.env.reward = [1, 2]
    with pytest.raises(PhalanxError, match=r"rewards of shape \(2,\)"):
        env.step(np.zeros(2, np.int32))
    env.env.step = lambda actions: (1, 2)
    with pytest.raises(PhalanxError, match="step returned 2 values"):
        env.step(np.zeros(2, np.int32))

"""Stand-ins for packages that cannot be installed beside JAX: their interfaces and quirks, with toy rules.

`install` puts them into `sys.modules` under the names of the real packages.
"""

import random
import sys
import types

import numpy as np


def install(monkeypatch, modules):
    """Make `modules`, dotted name -> attributes, importable; parents are made where they are missing."""
    made = {}
    for name in modules:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            dotted = ".".join(parts[:end])
            if dotted not in made:
                made[dotted] = types.ModuleType(dotted)
                made[dotted].__path__ = []
                monkeypatch.setitem(sys.modules, dotted, made[dotted])
                if end > 1:
                    setattr(made[".".join(parts[: end - 1])], parts[end - 1], made[dotted])
        for attribute, value in modules[name].items():
            setattr(made[name], attribute, value)


class Unit:
    def __init__(self, health):
        self.health = health


class Game:
    """The game behind SMAC: takes a seed at its launch, and draws on for all episodes."""

    running = 0

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        type(self).running += 1

    def close(self):
        type(self).running -= 1


MAPS = {
    "3m": {"n_agents": 3, "n_enemies": 3, "limit": 6, "map_type": "marines"},
    "2s3z": {"n_agents": 5, "n_enemies": 5, "limit": 6, "map_type": "stalkers_and_zealots"},
}


class StarCraft2Env:
    """SMAC's class. Every agent loses a random part of its health in a step; target 0 thrice is a win."""

    crash_at = None  # a step at which the connection to the game is lost
    maps = MAPS

    def __init__(
        self,
        map_name="8m",
        difficulty="7",
        game_version=None,
        seed=None,
        continuing_episode=False,
        obs_last_action=False,
    ):
        params = self.maps[map_name]
        self.n_agents, self.n_enemies = params["n_agents"], params["n_enemies"]
        self.episode_limit, self.continuing_episode = params["limit"], continuing_episode
        self.n_actions = 6 + self.n_enemies
        self._seed, self._game = seed, None
        self._episode_count = self._steps = 0
        self.agents = {}

    def get_env_info(self):
        return {
            "state_shape": self.n_agents + 1,
            "obs_shape": 2,
            "n_actions": self.n_actions,
            "n_agents": self.n_agents,
            "episode_limit": self.episode_limit,
        }

    def reset(self):
        if self._episode_count == 0:
            self._game = Game(self._seed)  # whether or not another one is running
        self._steps = self._hits = 0
        start = self._game.rng.uniform(0.5, 1.0, self.n_agents)
        self.agents = {agent: Unit(health) for agent, health in enumerate(start)}
        return self.get_obs(), self.get_state()

    def step(self, actions):
        assert all(type(action) is int for action in actions)
        for agent, action in enumerate(actions):
            assert self.get_avail_actions()[agent][action] == 1
        if self._steps == self.crash_at:
            self._game.close()
            self._game = Game(self._seed)
            return 0, True, {}
        self._steps += 1
        self._hits += 6 in actions
        for unit in self.agents.values():
            unit.health = max(unit.health - self._game.rng.uniform(0.0, 0.05), 0.0)
        won, lost = self._hits == 3, all(unit.health == 0 for unit in self.agents.values())
        info = {"battle_won": won, "dead_allies": 0, "dead_enemies": 0}
        terminated = won or lost
        if not terminated and self._steps >= self.episode_limit:
            terminated = True
            if self.continuing_episode:
                info["episode_limit"] = True
        self._episode_count += terminated
        return 0.5 + won, terminated, info

    def kill(self, agent):
        self.agents[agent].health = 0

    def get_unit_by_id(self, agent):
        return self.agents[agent]

    def get_obs(self):
        return [np.array([unit.health, agent], np.float32) for agent, unit in self.agents.items()]

    def get_state(self):
        return np.array([*(unit.health for unit in self.agents.values()), self._steps], np.float32)

    def get_avail_actions(self):
        dead, alive = [1] + [0] * (self.n_actions - 1), [0] + [1] * (self.n_actions - 1)
        return [alive if unit.health > 0 else dead for unit in self.agents.values()]

    def seed(self):
        return self._seed

    def close(self):
        if self._game is not None:
            self._game.close()
            self._game = None


def install_smac(monkeypatch):
    monkeypatch.setattr(Game, "running", 0)
    install(
        monkeypatch,
        {
            "smac.env": {"StarCraft2Env": StarCraft2Env},
            "smac.env.starcraft2.maps.smac_maps": {"get_smac_map_registry": lambda: MAPS},
        },
    )


class Teams:
    """A distribution of SMACv2: an unseeded generator, Python's global shuffle, and others inside."""

    def __init__(self, inner=None):
        self.rng = np.random.default_rng()
        if inner is not None:
            self.inner = inner

    def generate(self):
        team = list(self.rng.integers(100, size=5))
        random.shuffle(team)
        return team + (self.inner.generate() if hasattr(self, "inner") else [])


class CapabilityWrapper:
    """SMACv2's class: draws a team in every reset, writes into its configuration, and may return None."""

    def __init__(self, **kwargs):
        config = kwargs.pop("capability_config")
        assert "env_key" not in config["team_gen"], "the configuration of another environment"
        config["team_gen"]["env_key"] = "team_gen"
        self.config = config
        for name in ("obs_own_pos", "use_unit_ranges"):
            kwargs.pop(name)
        self.env = type("Sized", (StarCraft2Env,), {"maps": {kwargs["map_name"]: self._sizes()}})(**kwargs)
        self.env_key_to_distribution_map = {"team_gen": Teams(), "start_positions": Teams(Teams())}

    def _sizes(self):
        return {"n_agents": self.config["n_units"], "n_enemies": self.config["n_enemies"], "limit": 6}

    def reset(self):
        self.drawn = [each.generate() for each in self.env_key_to_distribution_map.values()]
        self.env.reset()

    def __getattr__(self, name):
        return getattr(self.env, name)


def install_smacv2(monkeypatch):
    monkeypatch.setattr(Game, "running", 0)
    install(
        monkeypatch,
        {"smacv2.env.starcraft2.wrapper": {"StarCraftCapabilityEnvWrapper": CapabilityWrapper}},
    )


class Named:
    """What has a name and whatever else."""

    def __init__(self, name, **others):
        self.name = name
        vars(self).update(others)


def lite_map(name, *groups):
    factions = zip(("ALLY", "ENEMY"), groups, strict=True)
    made = [
        Named(
            "", faction=Named(faction), units=[(Named("", stats=Named(kind)), n) for kind, n in units.items()]
        )
        for faction, units in factions
    ]
    return Named(name, groups=made)


class SMACliteEnv:
    """SMAClite: gymnasium's reset and step, no time limit, last actions that outlive their episode."""

    n_agents, n_actions, obs_size, state_size = 3, 7, 1, 21

    def __init__(self, map_info=None, map_file=None, seed=None, use_cpp_rvo2=False, render_mode="human"):
        self.map_info = map_info
        self.last_actions = np.zeros(self.n_agents * self.n_actions)

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.agents = {agent: self.rng.uniform() for agent in range(self.n_agents)}
        return self.get_obs(), {}

    def step(self, actions):
        assert all(type(action) is int for action in actions)
        self.last_actions = np.eye(self.n_actions)[actions].flatten()
        self.agents.pop(min(self.agents))  # one dies in every step
        won = 6 in actions
        return self.get_obs(), 1.5, won or not self.agents, False, {"battle_won": won}

    def get_obs(self):
        return tuple(np.array([self.agents.get(agent, 0.0)], np.float32) for agent in range(self.n_agents))

    def get_state(self):
        return self.last_actions.astype(np.float32)

    def get_avail_actions(self):
        dead, alive = np.eye(self.n_actions)[0], 1 - np.eye(self.n_actions)[0]
        return [alive if agent in self.agents else dead for agent in range(self.n_agents)]

    def close(self):
        pass


def install_smaclite(monkeypatch):
    presets = [
        Named("", map_info=lite_map("2s3z", {"STALKER": 1, "ZEALOT": 2}, {"ZEALOT": 1})),
        Named("", map_info=lite_map("unheard", {"MARINE": 3}, {"MARINE": 1})),
    ]
    install(
        monkeypatch,
        {"smaclite.env": {"SMACliteEnv": SMACliteEnv}, "smaclite.env.maps.map": {"MapPreset": presets}},
    )

"""SMAC's `StarCraft2Env` without StarCraft: change the import and keep the program around it.

from phalanx.compat.smac import StarCraft2Env  # was: from smac.env import StarCraft2Env
"""

import json
import numbers
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import registry
from phalanx.compat import shared
from phalanx.config import convert
from phalanx.envs.battle import NAMES
from phalanx.envs.battle.env import Battle
from phalanx.envs.battle.observe import SIGHT
from phalanx.envs.battle.units import unit_types
from phalanx.errors import PhalanxError, suggest
from phalanx.training import device
from phalanx.types import PyTree, TimeStep

# SMAC's options as they are when not given; the last two are SMACv2's.
DEFAULTS: dict[str, Any] = {
    "step_mul": 8, "move_amount": 2, "difficulty": "7", "game_version": None,
    "continuing_episode": False,
    "obs_all_health": True, "obs_own_health": True, "obs_last_action": False, "obs_pathing_grid": False,
    "obs_terrain_height": False, "obs_instead_of_state": False, "obs_timestep_number": False,
    "state_last_action": True, "state_timestep_number": False,
    "reward_sparse": False, "reward_only_positive": True, "reward_death_value": 10, "reward_win": 200,
    "reward_defeat": 0, "reward_negative_scale": 0.5, "reward_scale": True, "reward_scale_rate": 20,
    "replay_dir": "", "replay_prefix": "", "window_size_x": 1920, "window_size_y": 1200,
    "heuristic_ai": False, "heuristic_rest": False, "debug": False,
    "conic_fov": False, "prob_obs_enemy": 1.0,
}  # fmt: skip

# What a battle calls those that it has too.
BATTLE_OPTIONS = {
    "obs_all_health": "obs_all_health",
    "obs_own_health": "obs_own_health",
    "obs_last_action": "obs_last_action",
    "obs_pathing_grid": "obs_pathing",
    "obs_terrain_height": "obs_height",
    "obs_timestep_number": "obs_timestep",
    "state_last_action": "state_last_action",
    "state_timestep_number": "state_timestep",
    "reward_death_value": "reward_death",
    "reward_win": "reward_win",
    "reward_defeat": "reward_defeat",
    "reward_negative_scale": "reward_negative_scale",
    "reward_scale": "reward_scale",
    "reward_scale_rate": "reward_scale_rate",
    "conic_fov": "conic_view",
    "prob_obs_enemy": "prob_obs_enemy",
}

# The only values that can be honoured of some others, and what to do about it.
FIXED = {
    "step_mul": ((8, None), "a step here is always 8 game loops"),
    "move_amount": ((2,), "a move here always points 2 cells ahead"),
    "heuristic_ai": ((False,), "`phalanx eval heuristic battle/MAP` plays SMAC's scripted team"),
}

# What the game calls the types of units.
TYPE_NUMBERS = {
    "colossus": 4, "baneling": 9, "marine": 48, "marauder": 51, "medivac": 54, "zealot": 73,
    "stalker": 74, "spine_crawler": 98, "zergling": 105, "hydralisk": 107,
}  # fmt: skip


class IllegalAction(PhalanxError, AssertionError):
    """An action that its agent may not take now; SMAC's own class asserts that there is none."""


class StarCraft2Env:
    """SMAC's environment class, played by `battle/MAP` instead of the game: one battle, one step a call.

    It takes SMAC's options by keyword. What only concerns the game's program has no effect:
    `difficulty` (SMAC's authors saw none on these maps either), `game_version`, `window_size_x`,
    `window_size_y`, `debug`, `heuristic_rest`. Of `step_mul`, `move_amount` and `heuristic_ai` only
    the default can be had. Maps of SMACv2 go by names like `v2_terran_5_vs_5` and take `conic_fov`
    and `prob_obs_enemy` too. With `obs_timestep_number` observations are as long as declared, where
    SMAC's are one longer.

    The same `seed` and actions give the same episodes; without one, one is drawn, and `seed()` tells it.
    """

    _state_kind = "global"

    def __init__(self, map_name: str = "8m", *, seed: int | None = None, **options: Any):
        if map_name not in NAMES:
            raise PhalanxError(f"unknown map {map_name!r}.{suggest(str(map_name), NAMES)}")
        settings = _settings(options)
        vars(self).update(settings)  # SMAC's callers read them as attributes
        self.map_name = map_name
        self.continuing_episode: bool = settings["continuing_episode"]
        self.obs_instead_of_state: bool = settings["obs_instead_of_state"]
        self.replay_dir: str = settings["replay_dir"] or ""
        self.replay_prefix: str = settings["replay_prefix"] or ""
        device.configure()
        self._battle = _battle(map_name, settings, self._state_kind)
        spec = self._battle.spec
        self.n_agents, self.n_actions = spec.n_agents, spec.n_actions
        self.n_enemies = self._battle.observer.world.enemies
        self.episode_limit = spec.time_limit
        self.battles_won = self.battles_game = self.timeouts = 0
        self.force_restarts = 0  # there is no game that could hang
        self.win_counted = False
        self.seed(_entropy() if seed is None else seed)
        self._begin, self._play = _programs(self._battle)
        self._now: TimeStep | None = None
        self._over = True
        self.ended = False  # by the battle itself, not by the time limit
        self._episode_steps = 0
        self._states: list[PyTree] = []

    # Playing

    def reset(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Begin an episode; returns observations, one (O,) an agent, and the state (X,)."""
        if self._key is None:
            self._key = jax.random.key(self._seed)
        self._key, self._state, now = self._begin(self._key)
        self._states.clear()
        self._arrive(now)
        self._over = self.win_counted = False
        self._episode_steps = 0
        return self.get_obs(), self.get_state()

    def step(self, actions: Iterable[Any]) -> tuple[float, bool, dict[str, Any]]:
        """Play one step; returns the team's reward, whether the episode ended, and info.

        A time-out ends the episode too; with `continuing_episode` info then has `episode_limit`.
        """
        if self._over:
            raise PhalanxError("no episode is under way: call reset() first")
        chosen = jnp.asarray(self._checked(actions), jnp.int32)
        self._key, self._state, now = self._play(self._key, self._state, chosen)
        now = self._arrive(now)
        self._episode_steps += 1
        self.ended = bool(now.terminated)
        timed_out = not self.ended and self._episode_steps >= self.episode_limit
        info: dict[str, Any] = {
            "battle_won": bool(now.info["won"]),
            "dead_allies": int(now.info["dead_allies"]),
            "dead_enemies": int(now.info["dead_enemies"]),
        }
        if timed_out and self.continuing_episode:
            info["episode_limit"] = True
        self._over = self.ended or timed_out
        self.win_counted = info["battle_won"]
        self.battles_game += self._over
        self.battles_won += self.win_counted
        self.timeouts += timed_out
        return float(now.reward[0]), self._over, info

    def _arrive(self, now: TimeStep) -> TimeStep:
        """Bring what a step says over to numpy, once for all who ask."""
        self._states.append(self._state)
        self._now = now = jax.device_get(now)
        return now

    def _checked(self, actions: Iterable[Any]) -> list[int]:
        try:
            chosen = [int(action) for action in actions]
        except (TypeError, ValueError):
            raise PhalanxError(f"actions must be {self.n_agents} whole numbers, one an agent") from None
        if len(chosen) != self.n_agents:
            raise PhalanxError(f"{self.map_name} has {self.n_agents} agents, and got {len(chosen)} actions")
        avail = self._seen.avail
        for agent, action in enumerate(chosen):
            if not 0 <= action < self.n_actions:
                raise IllegalAction(
                    f"agent {agent} cannot take action {action}: there are 0 to {self.n_actions - 1}"
                )
            if not avail[agent, action]:
                available = ", ".join(map(str, np.flatnonzero(avail[agent])))
                raise IllegalAction(
                    f"agent {agent} cannot take action {action} ({self._action_name(agent, action)}) now; "
                    f"available: {available}"
                )
        return chosen

    def _action_name(self, agent: int, action: int) -> str:
        heals = self._frame["types"][agent] == "medivac"
        return self._battle.observer.actions[action].replace(
            "target", "heal ally" if heals else "attack enemy"
        )

    # What is seen

    @property
    def _seen(self) -> Any:
        """The last `Observation`, of numpy arrays."""
        if self._now is None:
            raise PhalanxError("there is nothing to see yet: call reset() first")
        return self._now.observation

    def get_obs(self) -> list[np.ndarray]:
        """The observations of all agents, (O,) float32 each."""
        return list(self._seen.obs.copy())

    def get_obs_agent(self, agent_id: int) -> np.ndarray:
        """One agent's observation, (O,) float32."""
        return self._seen.obs[agent_id].copy()

    def get_obs_size(self) -> int:
        """O."""
        return self._battle.spec.obs_size

    def get_state(self) -> np.ndarray:
        """The state, (X,) float32; with `obs_instead_of_state` all observations in a row."""
        seen = self._seen
        return seen.obs.flatten() if self.obs_instead_of_state else seen.state.copy()

    def get_state_size(self) -> int:
        """X."""
        spec = self._battle.spec
        return spec.obs_size * spec.n_agents if self.obs_instead_of_state else spec.state_size

    def get_avail_actions(self) -> list[list[int]]:
        """For each agent and action, 1 where it may be taken now, else 0."""
        return self._seen.avail.astype(int).tolist()

    def get_avail_agent_actions(self, agent_id: int) -> list[int]:
        """For each action, 1 where this agent may take it now, else 0."""
        return self._seen.avail[agent_id].astype(int).tolist()

    def get_total_actions(self) -> int:
        """How many actions an agent has."""
        return self.n_actions

    def get_visibility_matrix(self) -> np.ndarray:
        """(A, A + E) bool: which living units each living agent has within sight; never itself."""
        frame, count = self._frame, self.n_agents
        x, y, alive = np.asarray(frame["x"]), np.asarray(frame["y"]), np.asarray(frame["health"]) > 0
        sight = np.full(count, SIGHT)
        if self._battle.observer.unit_ranges:
            types = unit_types(self._battle.stats)
            sight = np.array([types[name].sight for name in frame["types"][:count]])
        distance = np.hypot(x - x[:count, None], y - y[:count, None])
        sees = (distance < sight[:, None]) & alive & alive[:count, None]
        # Of two agents the one with the lower number is asked, for both: it matters where sight differs.
        asked = np.triu(sees[:, :count], 1)
        sees[:, :count] = asked | asked.T
        return sees

    @property
    def unit_type_bits(self) -> int:
        """How many entries tell a unit's type; 0 where all agents are alike."""
        return len(self._battle.observer.labels[0])

    @property
    def shield_bits_ally(self) -> int:
        """1 where agents show a shield."""
        return int(self._battle.observer.shields[0])

    @property
    def shield_bits_enemy(self) -> int:
        """1 where enemies show a shield."""
        return int(self._battle.observer.shields[1])

    def get_unit_types(self) -> list[int]:
        """The game's numbers of the agents' and then the enemies' types, such as 48 for a marine.

        In SMAC agents are of types of their own, whose numbers depend on the map.
        """
        return [TYPE_NUMBERS[name] for name in self._frame["types"]]

    @property
    def _frame(self) -> dict[str, Any]:
        if self._now is None:
            raise PhalanxError("there is nothing to see yet: call reset() first")
        return self._battle.frame(self._state)

    # What is told

    def get_env_info(self) -> dict[str, Any]:
        """Sizes, the time limit, and what the state says of each agent and each enemy."""
        observer = self._battle.observer
        types = [f"type_{bit}" for bit in range(len(observer.labels[0]))]
        shields = [["shield"] if has else [] for has in observer.shields]
        facing = ["fov_x", "fov_y"] if observer.cone else []
        return {
            "state_shape": self.get_state_size(),
            "obs_shape": self.get_obs_size(),
            "n_actions": self.n_actions,
            "n_agents": self.n_agents,
            "episode_limit": self.episode_limit,
            "agent_features": ["health", "energy/cooldown", "rel_x", "rel_y", *shields[0], *facing, *types],
            "enemy_features": ["health", "rel_x", "rel_y", *shields[1], *types],
        }

    def get_stats(self) -> dict[str, Any]:
        """Battles played and won since the beginning; SMAC's `battles_draw` are the time-outs."""
        return {
            "battles_won": self.battles_won,
            "battles_game": self.battles_game,
            "battles_draw": self.timeouts,
            "win_rate": self.battles_won / max(1, self.battles_game),
            "timeouts": self.timeouts,
            "restarts": self.force_restarts,
        }

    def seed(self, seed: int | None = None) -> int:
        """The seed. With an argument, which SMAC does not take, the next episode begins from that seed."""
        if seed is not None:
            if not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**32:
                raise PhalanxError(f"seed must be a whole number from 0 to 4294967295, not {seed!r}")
            self._seed, self._key = int(seed), None
        return self._seed

    def save_replay(self) -> str:
        """Write the frames of the current (or last) episode as JSON, and return the file's path.

        The file is `replay_dir/PREFIX_TIME.json`, with the map's name when there is no
        `replay_prefix`; without a `replay_dir` in the folder `replays`. It is no StarCraft replay: it
        has the `map`, the `seed` and `frames`, a list with what `Battle.frame` says before each step
        and at the end.
        """
        if not self._states:
            raise PhalanxError("there is nothing to save yet: call reset() first")
        frames = [
            {name: np.asarray(value).tolist() for name, value in self._battle.frame(state).items()}
            for state in self._states
        ]
        folder, time = Path(self.replay_dir or "replays"), datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.replay_prefix or self.map_name}_{time}.json"
        path.write_text(json.dumps({"map": self.map_name, "seed": self._seed, "frames": frames}), "utf-8")
        return str(path)

    def render(self, mode: str = "human") -> None:
        """There is no window."""
        raise PhalanxError("there is no window to render in: save_replay() writes an episode's frames")

    def close(self) -> None:
        """There is no game to be closed."""


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """All of SMAC's options; refuse what is unknown or cannot be honoured."""
    for name, value in options.items():
        if name not in DEFAULTS:
            raise PhalanxError(f"StarCraft2Env has no option {name!r}.{suggest(name, DEFAULTS)}")
        if isinstance(DEFAULTS[name], bool) and not isinstance(value, bool):
            raise PhalanxError(f"{name} must be True or False, not {value!r}")
        allowed, reason = FIXED.get(name, ((value,), ""))
        if value not in allowed:
            raise PhalanxError(f"{name}={value!r} cannot be had: {reason}")
    settings = {**DEFAULTS, **options}
    settings["obs_own_health"] = settings["obs_own_health"] or settings["obs_all_health"]  # as in SMAC
    return settings


def _battle(map_name: str, settings: dict[str, Any], state_kind: str) -> Battle:
    name = f"battle/{map_name}"
    known = registry.env_options(name)
    chosen: dict[str, Any] = {"state": state_kind}
    for smac_name, own_name in BATTLE_OPTIONS.items():
        if own_name in known:
            chosen[own_name] = convert(known[own_name], settings[smac_name], f"StarCraft2Env's {smac_name}")
        elif settings[smac_name] != DEFAULTS[smac_name]:
            raise PhalanxError(
                f"{map_name} has no {smac_name}: only SMACv2's maps do, such as v2_terran_5_vs_5"
            )
    # Without either, the battle's own way to keep rewards positive: SMAC and SMACv2 differ in it.
    if settings["reward_sparse"]:
        chosen["reward"] = "sparse"
    elif not settings["reward_only_positive"]:
        chosen["reward"] = "signed"
    battle = registry.make_env(name, chosen)
    assert isinstance(battle, Battle)
    return battle


def _entropy() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])


@cache
def _programs(battle: Battle) -> tuple[shared.Program, shared.Program]:
    """`reset` and `step`, compiled once for all environments that play the same battle."""
    return shared.programs(battle)

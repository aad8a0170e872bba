"""SMACv2's `StarCraft2Env` and `StarCraftCapabilityEnvWrapper` without StarCraft.

from phalanx.compat.smacv2 import StarCraftCapabilityEnvWrapper  # was: from smacv2.env import ...
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from phalanx.compat import options
from phalanx.compat.describe import MultiAgentEnv
from phalanx.compat.smac import StarCraft2Env as SMACEnv
from phalanx.envs.battle import NAMES
from phalanx.envs.battle.scenarios import EXCEPTIONS, RACES, TYPE_CHANCES
from phalanx.envs.battle.terrain import SIZE
from phalanx.errors import PhalanxError

__all__ = ["MultiAgentEnv", "StarCraft2Env", "StarCraftCapabilityEnvWrapper"]

COUNTS = ("n_units", "n_enemies", "env_key")  # that SMACv2's own wrapper writes into each part


class StarCraft2Env(SMACEnv):
    """SMACv2's environment class: SMAC's, with its own options and defaults.

    `map_name="10gen_terran"` and a `capability_config` select one of the battles `v2_RACE_N_vs_M`. All other
    settings of the configuration must be those of these battles: see `docs/battle.md`. Without a
    configuration it plays the maps of SMAC.
    """

    _defaults = options.SMACV2

    def _set_up(self, chosen: dict[str, Any]) -> None:
        config = chosen["capability_config"] or {}
        if config:
            chosen["map_name"] = battle_of(chosen["map_name"], config)
        elif str(chosen["map_name"]).startswith("10gen_"):
            raise PhalanxError(
                f"{chosen['map_name']} needs a capability_config with n_units, n_enemies and team_gen"
            )
        super()._set_up(chosen)

    def _battle_options(self, env: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
        # SMACv2 clamps rewards at 0, also on the maps of SMAC.
        return {"reward": "clamped", **super()._battle_options(env, chosen)}

    def reset(self, episode_config: Mapping[str, Any] | None = None) -> tuple[list[np.ndarray], np.ndarray]:
        """Start an episode; the battle samples teams and positions with its seed."""
        if episode_config:
            raise PhalanxError("teams and places are drawn by the battle itself: call reset() without any")
        return super().reset()

    def get_env_info(self) -> dict[str, Any]:
        """As SMAC's, with `cap_shape`: the number of entries that encode an agent's type."""
        return {**super().get_env_info(), "cap_shape": self.get_cap_size()}


class StarCraftCapabilityEnvWrapper(MultiAgentEnv):
    """SMACv2's wrapper: `env` is a `StarCraft2Env`, to which all calls are forwarded."""

    def __init__(self, **named: Any):
        if not named.get("capability_config"):
            raise PhalanxError("StarCraftCapabilityEnvWrapper needs a capability_config")
        self.distribution_config = named["capability_config"]
        self.env = StarCraft2Env(**named)

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # it is being read back by pickle
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Start an episode; returns one observation (O,) per agent, and the state (X,)."""
        return self.env.reset()

    def step(self, actions: Any) -> tuple[float, bool, dict[str, Any]]:
        """Play one step; returns the team's reward, whether the episode ended, and info."""
        return self.env.step(actions)


def battle_of(map_name: str, config: Mapping[str, Any]) -> str:
    """The battle that a `capability_config` describes; refuses configurations without a battle."""
    for part in config:
        if part not in ("n_units", "n_enemies", "team_gen", "start_positions"):
            raise PhalanxError(
                f"capability_config's {part!r} is not supported: battles draw types and places only"
            )
    if "team_gen" not in config:
        raise PhalanxError("capability_config needs team_gen: without it teams are those of SMAC's own maps")
    race = _race(map_name, config["team_gen"])
    _require_places(config.get("start_positions"))
    counts = [config.get(name) for name in ("n_units", "n_enemies")]
    name = "v2_{}_{}_vs_{}".format(race, *counts)
    if name not in NAMES:
        known = ", ".join(
            each.removeprefix(f"v2_{race}_") for each in NAMES if each.startswith(f"v2_{race}_")
        )
        raise PhalanxError(
            f"there is no battle of n_units={counts[0]} and n_enemies={counts[1]}; known: {known}"
        )
    return name


def _race(map_name: str, team: Mapping[str, Any]) -> str:
    race = str(map_name).removeprefix("10gen_")
    if race not in RACES:
        known = ", ".join(f"10gen_{each}" for each in RACES)
        raise PhalanxError(f"map {map_name!r} has no drawn teams; known: {known}")
    wanted = {
        "dist_type": "weighted_teams",
        "chances": dict(zip(RACES[race], TYPE_CHANCES, strict=True)),
        "observe": True,
    }
    given = {name: value for name, value in team.items() if name not in COUNTS}
    chances = dict(zip(given.pop("unit_types", ()), given.pop("weights", ()), strict=False))
    # Where no type is excepted, SMACv2 may draw a team that cannot fight, and ours never does.
    exception = list(given.pop("exception_unit_types", ()) or [EXCEPTIONS[race]])
    if {**given, "chances": chances} != wanted or exception != [EXCEPTIONS[race]]:
        raise PhalanxError(
            f"this team_gen is not supported: teams of {map_name} are weighted_teams of "
            f"{', '.join(RACES[race])} with weights {', '.join(map(str, TYPE_CHANCES))}, observed"
        )
    return race


def _require_places(places: Mapping[str, Any] | None) -> None:
    wanted = {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": SIZE, "map_y": SIZE}
    given = {name: value for name, value in (places or {}).items() if name not in COUNTS}
    if given != wanted:
        told = ", ".join(f"{name}={value}" for name, value in wanted.items())
        raise PhalanxError(f"these start_positions are not supported: battles always have {told}")

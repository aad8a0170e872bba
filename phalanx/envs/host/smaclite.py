"""SMAClite (Michalski et al. 2023): SMAC's maps in Python, without StarCraft II. See docs/smac.md."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx.config import option
from phalanx.envs.host.smac_like import SmacLike
from phalanx.envs.host.starcraft import action_names
from phalanx.errors import PhalanxError, suggest

NAMES = {
    "2s3z": "2 stalkers and 3 zealots against the same",
    "10m_vs_11m": "10 marines against 11 marines",
    "MMM2": "7 marines, 2 marauders and a medivac against a stronger team",
}
PACKAGE = "smaclite from source: see docs/smac.md"

# SMAClite has no time limits. These are SMAC's.
TIME_LIMITS = {
    "10m_vs_11m": 150,
    "27m_vs_30m": 180,
    "2c_vs_64zg": 400,
    "2s3z": 120,
    "2s_vs_1sc": 300,
    "3s5z": 150,
    "3s5z_vs_3s6z": 170,
    "3s_vs_5z": 250,
    "MMM": 150,
    "MMM2": 180,
    "bane_vs_bane": 200,
    "corridor": 400,
}


@dataclass
class Adapter(SmacLike):
    """A map of SMAClite."""

    variant: str
    time_limit: int | None = option(None, "steps of an episode; default: the limit of SMAC's map", at_least=1)
    map_file: str = option("", "for smaclite/custom: a map of your own, in SMAClite's JSON format")
    use_cpp_rvo2: bool = option(False, "collision avoidance in C++: needs the package SMAClite-Python-RVO2")

    def __post_init__(self) -> None:
        name = f"smaclite/{self.variant}"
        try:
            from smaclite.env import SMACliteEnv  # pyright: ignore[reportMissingImports]
            from smaclite.env.maps.map import MapPreset  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise PhalanxError(f"{name} needs {PACKAGE} ({error})") from None
        maps = {preset.map_info.name: preset.map_info for preset in MapPreset}
        if (self.variant == "custom") != bool(self.map_file):
            raise PhalanxError(f"{name}: smaclite/custom and --env.map_file FILE must be given together")
        if self.variant not in {*maps, "custom"}:
            raise PhalanxError(f"smaclite has no map {self.variant!r}.{suggest(self.variant, maps)}")
        where = {"map_file": self.map_file} if self.map_file else {"map_info": maps[self.variant]}
        try:
            env = SMACliteEnv(**where, seed=0, use_cpp_rvo2=self.use_cpp_rvo2, render_mode="rgb_array")
        except (ImportError, OSError, KeyError, ValueError) as error:
            raise PhalanxError(f"{name}: {type(error).__name__}: {error}") from None
        info = {
            "n_agents": env.n_agents,
            "n_actions": env.n_actions,
            "obs_shape": env.obs_size,
            "state_shape": env.state_size,
            "episode_limit": TIME_LIMITS.get(self.variant),
        }
        types = unit_types(env.map_info)
        super().__init__(env, name, info, self.time_limit, types, action_names(env.n_actions))

    def copy(self) -> Adapter:
        return dataclasses.replace(self)

    def _begin(self, seed: int) -> None:
        # SMAClite keeps the last actions of the episode before, which are a part of the state.
        self.env.last_actions = np.zeros_like(self.env.last_actions)
        super()._begin(seed)

    def render(self) -> Any:
        return self.env.render()


def unit_types(map_info: Any) -> tuple[str, ...]:
    """One unit type an agent, in SMAClite's order: group by group."""
    groups = [group.units for group in map_info.groups if group.faction.name == "ALLY"]
    return tuple(kind.stats.name.lower() for units in groups for kind, count in units for _ in range(count))

"""SMAC on StarCraft II (Samvelyan et al. 2019): the real game, which must be installed. See docs/smac.md."""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.envs.host.starcraft import StarCraft
from phalanx.errors import PhalanxError

NAMES = {
    "3m": "3 marines against 3 marines",
    "2s3z": "2 stalkers and 3 zealots against the same",
    "5m_vs_6m": "5 marines against 6 marines",
    "MMM2": "7 marines, 2 marauders and a medivac against a stronger team",
    "corridor": "6 zealots against 24 zerglings",
}
PACKAGE = "SMAC from source and StarCraft II: see docs/smac.md"

# Teams of several unit types, in the order of SMAC's agents: by the number that the game gives a type.
MIXED = {
    "2s3z": {"stalker": 2, "zealot": 3},
    "3s5z": {"stalker": 3, "zealot": 5},
    "3s5z_vs_3s6z": {"stalker": 3, "zealot": 5},
    "1c3s5z": {"colossus": 1, "stalker": 3, "zealot": 5},
    "MMM": {"marauder": 2, "marine": 7, "medivac": 1},
    "MMM2": {"marauder": 2, "marine": 7, "medivac": 1},
    "bane_vs_bane": {"baneling": 4, "zergling": 20},
}
# The unit type of the other teams, by SMAC's map_type.
UNIFORM = {
    "marines": "marine",
    "stalkers": "stalker",
    "zealots": "zealot",
    "hydralisks": "hydralisk",
    "colossus": "colossus",
}


@dataclass
class Adapter(StarCraft):
    """A map of SMAC. Further options are those of SMAC's class `StarCraft2Env`."""

    extra: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            from smac.env import StarCraft2Env  # pyright: ignore[reportMissingImports]
            from smac.env.starcraft2.maps import smac_maps  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise PhalanxError(f"smac/{self.variant} needs {PACKAGE} ({error})") from None
        maps = smac_maps.get_smac_map_registry()
        types = unit_types(self.variant, maps.get(self.variant, {}))
        self._prepare("smac", maps, StarCraft2Env, self.extra, types)


def unit_types(variant: str, params: dict) -> tuple[str, ...]:
    """One unit type an agent; none for a map that SMAC does not bring along."""
    if variant in MIXED:
        return tuple(kind for kind, count in MIXED[variant].items() for _ in range(count))
    kind = UNIFORM.get(params.get("map_type", ""))
    return (kind,) * params["n_agents"] if kind else ()

"""SMACv2 on StarCraft II (Ellis et al. 2023): random teams and starts in the real game. See docs/smac.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phalanx.config import option
from phalanx.envs.host.starcraft import StarCraft
from phalanx.errors import PhalanxError

NAMES = {
    "10gen_terran": "marines, marauders and medivacs",
    "10gen_protoss": "stalkers, zealots and colossi",
    "10gen_zerg": "zerglings, banelings and hydralisks",
}
PACKAGE = "SMACv2 from source and StarCraft II: see docs/smac.md"

# As in the configurations that SMACv2 publishes: unit types and their probabilities; a team never consists
# of the exceptions alone.
TEAMS = {
    "10gen_terran": {"marine": 0.45, "marauder": 0.45, "medivac": 0.1},
    "10gen_protoss": {"stalker": 0.45, "zealot": 0.45, "colossus": 0.1},
    "10gen_zerg": {"zergling": 0.45, "baneling": 0.1, "hydralisk": 0.45},
}
EXCEPTIONS = {"10gen_terran": ["medivac"], "10gen_protoss": [], "10gen_zerg": ["baneling"]}
MAP_SIZE = 32


@dataclass
class Adapter(StarCraft):
    """A map of SMACv2. Further options are those of SMACv2's class `StarCraft2Env`.

    The seed of an episode decides teams and starts. Fights follow the random numbers of the game.
    """

    n_units: int = option(5, "agents", at_least=1)
    n_enemies: int | None = option(None, "enemies; default: as many as agents", at_least=1)
    obs_own_pos: bool = option(True, "agents observe their own position")
    use_unit_ranges: bool = option(True, "sight and attack range depend on the unit type")
    extra: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            from smacv2.env.starcraft2 import wrapper  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise PhalanxError(f"smacv2/{self.variant} needs {PACKAGE} ({error})") from None

        def make(**options):
            # The wrapper writes into the configuration: every environment gets one of its own.
            return wrapper.StarCraftCapabilityEnvWrapper(capability_config=self._capabilities(), **options)

        options = {"obs_own_pos": self.obs_own_pos, "use_unit_ranges": self.use_unit_ranges, **self.extra}
        self._prepare("smacv2", TEAMS, make, options)

    def _capabilities(self) -> dict:
        """What is drawn in every episode, for SMACv2's wrapper."""
        chances = TEAMS[self.variant]
        return {
            "n_units": self.n_units,
            "n_enemies": self.n_enemies or self.n_units,
            "team_gen": {
                "dist_type": "weighted_teams",
                "unit_types": list(chances),
                "weights": list(chances.values()),
                "exception_unit_types": EXCEPTIONS[self.variant],
                "observe": True,
            },
            "start_positions": {
                "dist_type": "surrounded_and_reflect",
                "p": 0.5,
                "map_x": MAP_SIZE,
                "map_y": MAP_SIZE,
            },
        }

    def _reset_game(self, seed: int) -> None:
        seeds = np.random.default_rng(seed)
        for distribution in self.env.env_key_to_distribution_map.values():
            seed_distribution(distribution, seeds)
        super()._reset_game(seed)


def seed_distribution(distribution: Any, seeds: np.random.Generator) -> None:
    """Seed the generators of a distribution, and of those it consists of; SMACv2 leaves them unseeded."""
    for name, value in vars(distribution).items():
        if isinstance(value, np.random.Generator):
            setattr(distribution, name, np.random.default_rng(int(seeds.integers(2**63))))
        elif hasattr(value, "generate"):
            seed_distribution(value, seeds)

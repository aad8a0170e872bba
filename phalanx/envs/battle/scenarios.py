"""The scenarios: units, terrain and time limit, one line each.

Counts are in the order in which the map's script creates the units, which decides which units stand in the
middle; `@x,y` gives a squad its own place. Places, limits and orders are those of SMAC's map files.
`2m_vs_1m` has no map file: it takes the ground and places of `3m`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

March = tuple[float, float] | Literal["between", "hunt", "stay"]


class Squad(NamedTuple):
    """Units of one type that are created at one place."""

    kind: str
    count: int
    place: tuple[float, float]


@dataclass(frozen=True)
class Scenario:
    """A battle with the same units every time."""

    allies: str
    enemies: str
    limit: int
    terrain: str = "lane"
    ally_at: tuple[float, float] = (9, 16)
    enemy_at: tuple[float, float] = (23, 16)
    march: March = (9, 16)
    """Where the enemies attack-move to; or a random place between the allies, or straight at them."""

    @property
    def squads(self) -> tuple[list[Squad], list[Squad]]:
        """The squads of both sides."""
        return _squads(self.allies, self.ally_at), _squads(self.enemies, self.enemy_at)


def _squads(text: str, place: tuple[float, float]) -> list[Squad]:
    squads = []
    for part in text.split(" + "):
        count, kind, *at = part.split()
        x, y = map(float, at[0].removeprefix("@").split(",")) if at else place
        squads.append(Squad(kind, int(count), (x, y)))
    return squads


FAR_CORNER = (4.47, 4.33)

SCENARIOS = {
    "2m_vs_1m": Scenario("2 marine", "1 marine", 60),
    "3m": Scenario("3 marine", "3 marine", 60),
    "8m": Scenario("8 marine", "8 marine", 120),
    "25m": Scenario("25 marine", "25 marine", 150),
    "5m_vs_6m": Scenario("5 marine", "6 marine", 70),
    "8m_vs_9m": Scenario("8 marine", "9 marine", 120),
    "10m_vs_11m": Scenario("10 marine", "11 marine", 150),
    "27m_vs_30m": Scenario("27 marine", "30 marine", 180),
    "MMM": Scenario("7 marine + 2 marauder + 1 medivac", "7 marine + 2 marauder + 1 medivac", 150),
    "MMM2": Scenario("7 marine + 2 marauder + 1 medivac", "8 marine + 3 marauder + 1 medivac", 180),
    "2s3z": Scenario("2 stalker + 3 zealot", "2 stalker + 3 zealot", 120),
    "3s5z": Scenario("3 stalker + 5 zealot", "3 stalker + 5 zealot", 150),
    "3s5z_vs_3s6z": Scenario("3 stalker + 5 zealot", "3 stalker + 6 zealot", 170),
    "3s_vs_3z": Scenario("3 stalker", "3 zealot", 150, "open"),
    "3s_vs_4z": Scenario("3 stalker", "4 zealot", 200, "open"),
    "3s_vs_5z": Scenario("3 stalker", "5 zealot", 250, "open"),
    "1c3s5z": Scenario("1 colossus + 3 stalker + 5 zealot", "1 colossus + 3 stalker + 5 zealot", 180),
    "2m_vs_1z": Scenario(
        "1 marine @13,12 + 1 marine @19,12", "1 zealot @16,19", 150, "octagon", march="between"
    ),
    "corridor": Scenario(
        "6 zealot @19.04,19.12", "24 zergling @27.91,28.24", 400, "corridor", march=FAR_CORNER
    ),
    "6h_vs_8z": Scenario(
        "6 hydralisk @14.60,9.49", "8 zealot @14.41,16.76", 150, "room", march=(14.60, 9.49)
    ),
    "2s_vs_1sc": Scenario(
        "1 stalker @11.12,10.34 + 1 stalker @16.98,10.37",
        "1 spine_crawler @13.92,20.04",
        300,
        "pentagon",
        march="stay",
    ),
    "so_many_baneling": Scenario(
        "7 zealot @11.469,12.023", "32 baneling @27.91,28.24", 100, "pass", march=FAR_CORNER
    ),
    "bane_vs_bane": Scenario(
        "20 zergling @16,11 + 4 baneling @16,8",
        "20 zergling @16,21 + 4 baneling @16,24",
        200,
        "octagon",
        march=(16, 8),
    ),
    "2c_vs_64zg": Scenario("2 colossus @16,16", "64 zergling @16,9", 400, "ravine", march="hunt"),
}

# SMACv2: the types that are drawn, and how likely each is; a team of the exception alone is redrawn.
RACES = {
    "terran": ("marine", "marauder", "medivac"),
    "protoss": ("stalker", "zealot", "colossus"),
    "zerg": ("zergling", "hydralisk", "baneling"),
}
TYPE_CHANCES = (0.45, 0.45, 0.10)
EXCEPTIONS = {"terran": "medivac", "zerg": "baneling", "protoss": None}
V2_LIMIT = 200
V2_TEAMS = ((5, 5), (10, 10), (10, 11), (20, 20), (20, 23))

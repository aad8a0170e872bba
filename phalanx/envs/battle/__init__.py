"""Battles: every SMAC map without StarCraft, and SMACv2."""

from typing import Any

from phalanx.envs.base import Env

NAMES = {
    "2m_vs_1m": "2 marines against 1",
    "3m": "3 marines against 3",
    "8m": "8 marines against 8",
    "25m": "25 marines against 25",
    "5m_vs_6m": "5 marines against 6",
    "8m_vs_9m": "8 marines against 9",
    "10m_vs_11m": "10 marines against 11",
    "27m_vs_30m": "27 marines against 30",
    "MMM": "2 marauders, 7 marines and a medivac against the same",
    "MMM2": "2 marauders, 7 marines and a medivac against 3, 8 and 1",
    "2s3z": "2 stalkers and 3 zealots against the same",
    "3s5z": "3 stalkers and 5 zealots against the same",
    "3s5z_vs_3s6z": "3 stalkers and 5 zealots against 3 and 6",
    "3s_vs_3z": "3 stalkers against 3 zealots",
    "3s_vs_4z": "3 stalkers against 4 zealots",
    "3s_vs_5z": "3 stalkers against 5 zealots",
    "1c3s5z": "a colossus, 3 stalkers and 5 zealots against the same",
    "2m_vs_1z": "2 marines against a zealot",
    "corridor": "6 zealots against 24 zerglings, before a choke",
    "6h_vs_8z": "6 hydralisks against 8 zealots",
    "2s_vs_1sc": "2 stalkers against a spine crawler",
    "so_many_baneling": "7 zealots against 32 banelings",
    "bane_vs_bane": "20 zerglings and 4 banelings against the same",
    "2c_vs_64zg": "2 colossi on a cliff against 64 zerglings",
    "v2_terran_5_vs_5": "SMACv2: 5 random marines, marauders, medivacs against 5",
    "v2_terran_10_vs_10": "SMACv2: 10 random marines, marauders, medivacs against 10",
    "v2_terran_10_vs_11": "SMACv2: 10 random marines, marauders, medivacs against 11",
    "v2_terran_20_vs_20": "SMACv2: 20 random marines, marauders, medivacs against 20",
    "v2_terran_20_vs_23": "SMACv2: 20 random marines, marauders, medivacs against 23",
    "v2_protoss_5_vs_5": "SMACv2: 5 random stalkers, zealots, colossi against 5",
    "v2_protoss_10_vs_10": "SMACv2: 10 random stalkers, zealots, colossi against 10",
    "v2_protoss_10_vs_11": "SMACv2: 10 random stalkers, zealots, colossi against 11",
    "v2_protoss_20_vs_20": "SMACv2: 20 random stalkers, zealots, colossi against 20",
    "v2_protoss_20_vs_23": "SMACv2: 20 random stalkers, zealots, colossi against 23",
    "v2_zerg_5_vs_5": "SMACv2: 5 random zerglings, hydralisks, banelings against 5",
    "v2_zerg_10_vs_10": "SMACv2: 10 random zerglings, hydralisks, banelings against 10",
    "v2_zerg_10_vs_11": "SMACv2: 10 random zerglings, hydralisks, banelings against 11",
    "v2_zerg_20_vs_20": "SMACv2: 20 random zerglings, hydralisks, banelings against 20",
    "v2_zerg_20_vs_23": "SMACv2: 20 random zerglings, hydralisks, banelings against 23",
}


def entry(variant: str) -> tuple[type[Env], dict[str, Any]]:
    """The class behind `battle/VARIANT` and the fields that the name fixes."""
    if variant.startswith("v2_"):
        from phalanx.envs.battle.v2 import BattleV2

        race, allies, _, enemies = variant.removeprefix("v2_").split("_")
        return BattleV2, {"scenario": variant, "race": race, "allies": int(allies), "enemies": int(enemies)}
    from phalanx.envs.battle.env import Battle

    return Battle, {"scenario": variant}

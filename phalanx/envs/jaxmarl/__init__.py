"""JaxMARL: environments of the package jaxmarl, compiled into the training program."""

from typing import Any

from phalanx.envs.base import Env
from phalanx.errors import PhalanxError, suggest

NAMES = {
    "smax_3m": "JaxMARL: SMAX, 3 marines against 3",
    "smax_8m": "JaxMARL: SMAX, 8 marines against 8",
    "smax_25m": "JaxMARL: SMAX, 25 marines against 25",
    "smax_5m_vs_6m": "JaxMARL: SMAX, 5 marines against 6",
    "smax_10m_vs_11m": "JaxMARL: SMAX, 10 marines against 11",
    "smax_27m_vs_30m": "JaxMARL: SMAX, 27 marines against 30",
    "smax_2s3z": "JaxMARL: SMAX, 2 stalkers and 3 zealots on each side",
    "smax_3s5z": "JaxMARL: SMAX, 3 stalkers and 5 zealots on each side",
    "smax_3s5z_vs_3s6z": "JaxMARL: SMAX, the same against one zealot more",
    "smax_3s_vs_5z": "JaxMARL: SMAX, 3 stalkers against 5 zealots",
    "smax_6h_vs_8z": "JaxMARL: SMAX, 6 hydralisks against 8 zealots",
    "smax_smacv2_5_units": "JaxMARL: SMAX, 5 random units on each side",
    "smax_smacv2_10_units": "JaxMARL: SMAX, 10 random units on each side",
    "smax_smacv2_20_units": "JaxMARL: SMAX, 20 random units on each side",
    "overcooked": "JaxMARL: Overcooked, two cooks in a kitchen (--env.layout)",
    "overcooked_v2": "JaxMARL: OvercookedV2, with recipes and limited sight (--env.layout)",
    "hanabi": "JaxMARL: Hanabi, a card game of hints",
    "switch_riddle": "JaxMARL: prisoners, a bulb and a switch",
    "storm": "JaxMARL: STORM, matrix games in a grid",
    "storm_2p": "JaxMARL: STORM for two",
    "storm_np": "JaxMARL: STORM, observations are pictures",
    "coin_game": "JaxMARL: the coin game",
    "jaxnav": "JaxMARL: robots with lidar, continuous actions",
    "mpe_simple": "JaxMARL: particle worlds, one agent goes to a landmark",
    "mpe_simple_spread": "JaxMARL: particle worlds, agents cover all landmarks",
    "mpe_simple_tag": "JaxMARL: particle worlds, adversaries hunt prey",
    "mpe_simple_adversary": "JaxMARL: particle worlds, agents deceive an adversary",
    "mpe_simple_push": "JaxMARL: particle worlds, an adversary keeps an agent from its goal",
    "mpe_simple_speaker_listener": "JaxMARL: particle worlds, one speaks and one goes",
    "mpe_simple_reference": "JaxMARL: particle worlds, each tells the other its goal",
    "mpe_simple_crypto": "JaxMARL: particle worlds, a secret that an adversary overhears",
    "mpe_simple_world_comm": "JaxMARL: particle worlds, a leader directs a hunt (continuous actions)",
    "mpe_simple_facmac": "JaxMARL: particle worlds, FACMAC's hunt (continuous actions)",
    "mabrax_ant_4x2": "JaxMARL: MABrax, the legs of an ant (needs brax)",
    "mabrax_halfcheetah_6x1": "JaxMARL: MABrax, six joints of a cheetah (needs brax)",
    "mabrax_hopper_3x1": "JaxMARL: MABrax, three joints of a hopper (needs brax)",
    "mabrax_humanoid_9_8": "JaxMARL: MABrax, two halves of a humanoid (needs brax)",
    "mabrax_walker2d_2x3": "JaxMARL: MABrax, two legs of a walker (needs brax)",
}
# SMAX scenarios that are registered later, layouts, and ids of newer versions of JaxMARL.
OPEN = True


def entry(variant: str) -> tuple[type[Env], dict[str, Any]]:
    """The class behind `jaxmarl/VARIANT` and the fields that the name fixes."""
    from phalanx.envs.jaxmarl import games, overcooked, smax, world

    if variant.startswith("smax_"):
        return smax.Smax, {"scenario": variant.removeprefix("smax_")}
    kitchens = {"overcooked_v2": overcooked.OvercookedV2, "overcooked": overcooked.Overcooked}
    for id, kitchen in kitchens.items():
        if variant == id:
            return kitchen, {"id": id}
        if variant.startswith(f"{id}_"):
            return kitchen, {"id": id, "layout": variant.removeprefix(f"{id}_")}
    known = {
        "hanabi": games.Hanabi,
        "switch_riddle": games.SwitchRiddle,
        "storm": games.Matrix,
        "storm_2p": games.Matrix,
        "storm_np": games.Matrix,
        "coin_game": games.CoinGame,
        "jaxnav": games.Nav,
    }
    if variant in known:
        return known[variant], {"id": variant}
    ids = world.package("jaxmarl").registered_envs
    if variant.startswith("mpe_"):
        named = {games.short(id): (games.Mpe, id) for id in ids if id.startswith("MPE_")}
    elif variant.startswith("mabrax_"):
        named = {games.MaBrax(id=id).name: (games.MaBrax, id) for id in ids}
    else:
        named = {id: (world.World, id) for id in ids if not id.startswith("MPE_")}
    if variant not in named:
        raise PhalanxError(f"jaxmarl has no {variant!r}.{suggest(variant, {*named, *NAMES})}")
    cls, id = named[variant]
    return cls, {"id": id}

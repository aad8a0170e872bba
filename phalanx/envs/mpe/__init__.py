"""Particle worlds: MPE (Lowe et al. 2017), step for step those of the package mpe2 1.1."""

import importlib
from typing import Any

from phalanx.envs.base import Env

NAMES = {
    "simple": "particle worlds: one agent goes to a landmark",
    "simple_spread": "particle worlds: agents cover all landmarks and do not bump into each other",
    "simple_tag": "particle worlds: slow adversaries hunt fast prey among obstacles",
    "simple_adversary": "particle worlds: agents cover a goal that an adversary must not guess",
    "simple_push": "particle worlds: an adversary keeps an agent away from its goal",
    "simple_speaker_listener": "particle worlds: one sees the goal and speaks, the other hears and goes",
    "simple_reference": "particle worlds: each tells the other which landmark is its goal",
    "simple_crypto": "particle worlds: Alice tells Bob a secret that Eve overhears",
    "simple_world_comm": "particle worlds: a leader directs a hunt among food and forests",
}


def entry(variant: str) -> tuple[type[Env], dict[str, Any]]:
    """The class behind `mpe/VARIANT`, in the file of that name; the name fixes no field."""
    return importlib.import_module(f"phalanx.envs.mpe.{variant}").SCENARIO, {}

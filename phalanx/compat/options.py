"""The options of SMAC's, SMACv2's and on-policy's classes, translated to options of a battle, or an error."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import registry
from phalanx.config import convert
from phalanx.envs.battle.env import Battle
from phalanx.errors import PhalanxError, suggest

# In the order of SMAC's constructor, because some callers give them by position.
SMAC: dict[str, Any] = {
    "map_name": "8m", "step_mul": 8, "move_amount": 2, "difficulty": "7", "game_version": None, "seed": None,
    "continuing_episode": False,
    "obs_all_health": True, "obs_own_health": True, "obs_last_action": False, "obs_pathing_grid": False,
    "obs_terrain_height": False, "obs_instead_of_state": False, "obs_timestep_number": False,
    "state_last_action": True, "state_timestep_number": False,
    "reward_sparse": False, "reward_only_positive": True, "reward_death_value": 10, "reward_win": 200,
    "reward_defeat": 0, "reward_negative_scale": 0.5, "reward_scale": True, "reward_scale_rate": 20,
    "replay_dir": "", "replay_prefix": "", "window_size_x": 1920, "window_size_y": 1200,
    "heuristic_ai": False, "heuristic_rest": False, "debug": False,
    # SMAC has no more: these are SMACv2's, for its maps.
    "obs_own_pos": True, "use_unit_ranges": True, "conic_fov": False, "prob_obs_enemy": 1.0,
}  # fmt: skip

SMACV2: dict[str, Any] = {
    "map_name": "8m", "step_mul": 8, "move_amount": 2, "difficulty": "7", "game_version": None, "seed": None,
    "continuing_episode": False,
    "obs_all_health": True, "obs_own_health": True, "obs_last_action": False, "obs_pathing_grid": False,
    "obs_terrain_height": False, "obs_instead_of_state": False, "obs_timestep_number": False,
    "obs_own_pos": False, "obs_starcraft": True, "conic_fov": False, "num_fov_actions": 12,
    "state_last_action": True, "state_timestep_number": False,
    "reward_sparse": False, "reward_only_positive": True, "reward_death_value": 10, "reward_win": 200,
    "reward_defeat": 0, "reward_negative_scale": 0.5, "reward_scale": True, "reward_scale_rate": 20,
    "use_unit_ranges": False, "min_attack_range": 2, "kill_unit_step_mul": 2, "fully_observable": False,
    "capability_config": {}, "replay_dir": "", "replay_prefix": "", "window_size_x": 1920,
    "window_size_y": 1200, "heuristic_ai": False, "heuristic_rest": False, "debug": False,
    "prob_obs_enemy": 1.0, "action_mask": True,
}  # fmt: skip

# on-policy's constructor takes its `args` first, and from them the map's name and what follows `debug`.
ON_POLICY: dict[str, Any] = {
    "step_mul": 8, "move_amount": 2, "difficulty": "7", "game_version": None, "seed": None,
    "continuing_episode": False,
    "obs_all_health": True, "obs_own_health": True, "obs_last_action": True, "obs_pathing_grid": False,
    "obs_terrain_height": False, "obs_instead_of_state": False, "obs_timestep_number": False,
    "obs_agent_id": True, "state_pathing_grid": False, "state_terrain_height": False,
    "state_last_action": True, "state_timestep_number": False, "state_agent_id": True,
    "reward_sparse": False, "reward_only_positive": True, "reward_death_value": 10, "reward_win": 200,
    "reward_defeat": 0, "reward_negative_scale": 0.5, "reward_scale": True, "reward_scale_rate": 20,
    "replay_dir": "", "replay_prefix": "", "window_size_x": 1920, "window_size_y": 1200,
    "heuristic_ai": False, "heuristic_rest": False, "debug": False,
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
    "obs_own_pos": "obs_position",
    "use_unit_ranges": "unit_ranges",
    "conic_fov": "conic_view",
    "prob_obs_enemy": "prob_obs_enemy",
}

# The only values that can be honoured of some others, and why.
FIXED = {
    "step_mul": ((8, None), "a step here is always 8 game loops"),
    "move_amount": ((2,), "a move here always points 2 cells ahead"),
    "heuristic_ai": ((False,), "`phalanx eval heuristic battle/MAP` plays SMAC's scripted team"),
    "obs_starcraft": ((True,), "observations here always show the units"),
    "num_fov_actions": ((12,), "agents with a cone of view here always have 12 directions to look in"),
    "min_attack_range": ((2,), "the attack mask here always reaches at least 2 cells"),
    "fully_observable": ((False,), "agents here see no further than their sight"),
    "action_mask": ((True,), "agents here never take an action that is not available"),
}


def settings(table: Mapping[str, Any], given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a class: its defaults, those given by position, and those given by name."""
    if len(given) > len(table):
        raise PhalanxError(f"StarCraft2Env takes {len(table)} options, and got {len(given)}")
    options = dict(zip(table, given, strict=False))
    for name in named:
        if name in options:
            raise PhalanxError(f"StarCraft2Env got {name} twice, by position and by name")
    options |= named
    for name, value in options.items():
        if name not in table:
            raise PhalanxError(f"StarCraft2Env has no option {name!r}.{suggest(name, table)}")
        if isinstance(table[name], bool):
            options[name] = value = yes_or_no(name, value)
        allowed, reason = FIXED.get(name, ((value,), ""))
        if value not in allowed:
            raise PhalanxError(f"{name}={value!r} is not supported: {reason}")
    chosen = {**table, **options}
    chosen["obs_own_health"] = chosen["obs_own_health"] or chosen["obs_all_health"]  # as in SMAC
    return chosen


def yes_or_no(name: str, value: Any) -> bool:
    """A yes-or-no option; 0 and 1 are accepted too."""
    if isinstance(value, (bool, np.bool_, int, np.integer)) and value in (0, 1):
        return bool(value)
    raise PhalanxError(f"{name} must be True or False, not {value!r}")


def battle_options(env: str, chosen: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a battle for the chosen ones; refuses options that only SMACv2's maps have."""
    known = registry.env_options(env)
    options: dict[str, Any] = {}
    for name, own_name in BATTLE_OPTIONS.items():
        if name not in chosen:
            continue
        if own_name in known:
            options[own_name] = convert(known[own_name], chosen[name], f"StarCraft2Env's {name}")
        elif chosen[name] != defaults[name]:
            map_name = env.removeprefix("battle/")
            raise PhalanxError(f"{map_name} has no {name}: only SMACv2's maps do, such as v2_terran_5_vs_5")
    # Without either, the battle's own way to keep rewards positive: SMAC and SMACv2 differ in it.
    if chosen["reward_sparse"]:
        options["reward"] = "sparse"
    elif not chosen["reward_only_positive"]:
        options["reward"] = "signed"
    return options


def build(env: str, options: Mapping[str, Any]) -> Battle:
    """Create the battle of this name with its options."""
    battle = registry.make_env(env, options)
    assert isinstance(battle, Battle)
    return battle

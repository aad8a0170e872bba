"""The environment class of on-policy (the repository of MAPPO's authors) without StarCraft.

In its `train_smac.py`, import `StarCraft2Env` from `phalanx.compat.on_policy`. Or change nothing, and put the
folder that `python -m phalanx.compat.shim` writes on PYTHONPATH.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from phalanx.compat import options
from phalanx.compat.on_policy_views import Views
from phalanx.compat.smac import StarCraft2Env as SMACEnv
from phalanx.errors import PhalanxError

__all__ = ["Discrete", "StarCraft2Env"]

# What its `train_smac.py` sets in `args`, as it is when not set.
ARGUMENTS = {
    "add_local_obs": False, "add_move_state": False, "add_visible_state": False, "add_distance_state": False,
    "add_xy_state": False, "add_enemy_action_state": False, "add_agent_id": False, "use_state_agent": True,
    "use_mustalive": True, "add_center_xy": True, "use_stacked_frames": False,
    "use_obs_instead_of_state": False,
}  # fmt: skip


class Discrete:
    """The part of an action space that on-policy's runners use."""

    def __init__(self, n: int):
        self.n = n


class StarCraft2Env(SMACEnv):
    """on-policy's environment class: it takes the same `args` and has the same observations and states.

    Options of its constructor follow `args`, by position or keyword. It reads `map_name`, the `add_...` and
    `use_...` options of `train_smac.py`, and `stacked_frames` from `args`. Missing options have the defaults
    of `train_smac.py`. Frames are stacked in its order: see `docs/battle.md`.
    """

    _defaults = options.ON_POLICY

    def __init__(self, args: Any, *given: Any, **named: Any):
        chosen = options.settings(self._defaults, given, named)
        flags = {name: options.yes_or_no(name, getattr(args, name, ARGUMENTS[name])) for name in ARGUMENTS}
        frames = getattr(args, "stacked_frames", 1)
        _require_sense(flags, frames, chosen)
        chosen["obs_instead_of_state"] = flags.pop("use_obs_instead_of_state")
        vars(self).update(flags)
        self.stacked_frames = int(frames)
        self._frames = self.stacked_frames if flags["use_stacked_frames"] else 1
        self._set_up({"map_name": args.map_name, **chosen})
        self._views = Views(self._battle, {**chosen, **flags})
        sizes = self.get_obs_size()[0], self.get_state_size()[0]
        self.stacked_local_obs, self.stacked_global_state = (
            np.zeros((self.n_agents, self._frames, size // self._frames), np.float32) for size in sizes
        )
        self.observation_space = [self.get_obs_size()] * self.n_agents
        self.share_observation_space = [self.get_state_size()] * self.n_agents
        self.action_space = [Discrete(self.n_actions)] * self.n_agents

    def _battle_options(self, env: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
        # Observations and states are made by `Views`: the battle's own are not looked at.
        shown = ("obs_", "state_")
        rest = {name: value for name, value in chosen.items() if not name.startswith(shown)}
        return super()._battle_options(env, rest)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_views"}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        super().__setstate__(kept)
        self._views = Views(self._battle, vars(self))

    # Playing

    def reset(self) -> Any:  # type: ignore[override]
        """Start an episode: observations (A, O), shared observations (A, X), available actions (A, U)."""
        self._start()
        return *self._stacked(), np.array(self.get_avail_actions())

    def step(self, actions: Any) -> Any:  # type: ignore[override]
        """Play one step.

        Returns observations, shared observations, rewards (A, 1), dones (A,), infos and available actions.
        Dead agents are done. At a time-out `bad_transition` is set in the infos.
        """
        reward, over, info = super().step(np.ravel(actions))
        info |= self.get_stats()
        info |= {"won": self.win_counted, "bad_transition": over and not self.ended}
        obs, state = self._stacked()
        return (
            obs,
            state,
            np.full((self.n_agents, 1), reward),
            ~self._seen.alive | over,
            [dict(info) for _ in range(self.n_agents)],
            np.array(self.get_avail_actions()),
        )

    def _stacked(self) -> tuple[np.ndarray, np.ndarray]:
        """Observations (A, O) and states (A, X); with `use_stacked_frames` preceded by earlier frames.

        The order is on-policy's: the current frame is last, and the earlier ones before it run from newest to
        oldest. A new episode does not clear them.
        """
        stacks = []
        for name, now in (
            ("stacked_local_obs", self._observations()),
            ("stacked_global_state", self._states()),
        ):
            stack = np.roll(getattr(self, name), 1, axis=1)
            stack[:, -1] = now
            setattr(self, name, stack)
            stacks.append(stack.reshape(self.n_agents, -1).copy())
        return stacks[0], stacks[1]

    # What is seen

    def _time(self) -> float:
        return self._episode_steps / self.episode_limit

    def _observations(self) -> np.ndarray:
        """(A, O) float32, without stacked frames."""
        return self._views.observations(self._units, self._seen.avail, self.last_action, self._time())

    def _states(self) -> np.ndarray:
        """(A, X) float32, without stacked frames."""
        now = self._units, self._seen.avail, self.last_action, self._time()
        if self.obs_instead_of_state:
            return np.tile(self._views.observations(*now).reshape(-1), (self.n_agents, 1))
        return self._views.agent_states(*now) if vars(self)["use_state_agent"] else self._views.states(*now)

    def get_obs(self) -> list[np.ndarray]:
        """The observations of all agents, without stacked frames."""
        return list(self._observations())

    def get_obs_agent(self, agent_id: int) -> np.ndarray:
        """One agent's observation, without stacked frames."""
        return self._observations()[agent_id]

    def get_state(self, agent_id: int = -1) -> np.ndarray:
        """The global state; some of its entries are relative to one agent."""
        if self.obs_instead_of_state:
            return self._observations().reshape(-1)
        if not 0 <= agent_id < self.n_agents:
            raise PhalanxError(
                f"get_state must be given an agent from 0 to {self.n_agents - 1}, not {agent_id}"
            )
        return self._views.states(self._units, self._seen.avail, self.last_action, self._time())[agent_id]

    def get_state_agent(self, agent_id: int) -> np.ndarray:
        """An agent-specific state."""
        if self.obs_instead_of_state:
            return self._observations().reshape(-1)
        return self._views.agent_states(self._units, self._seen.avail, self.last_action, self._time())[
            agent_id
        ]

    def get_obs_size(self) -> Any:  # type: ignore[override]
        """The size O of an observation and of its parts: other agents, enemies, moves, itself."""
        parts = self._views.obs_parts
        return [self._frames * _total(parts), *parts]

    def get_state_size(self) -> Any:  # type: ignore[override]
        """The size X of a state and of its parts."""
        if self.obs_instead_of_state:
            size = self.get_obs_size()[0]
            return [size * self.n_agents, [self.n_agents, size]]
        views = self._views
        parts = views.agent_state_parts if vars(self)["use_state_agent"] else views.state_parts
        return [self._frames * _total(parts), *parts]

    def get_obs_move_feats_size(self) -> int:
        """The number of observation entries about where the agent can move."""
        return self._views.obs_parts[2][1]

    def get_obs_enemy_feats_size(self) -> tuple[int, int]:
        """The number of enemies in an observation, and of entries for each."""
        count, size = self._views.obs_parts[1]
        return count, size

    def get_obs_ally_feats_size(self) -> tuple[int, int]:
        """The number of other agents in an observation, and of entries for each."""
        count, size = self._views.obs_parts[0]
        return count, size

    def get_obs_own_feats_size(self) -> int:
        """The number of observation entries about the agent itself, without its id and the time."""
        return self._views.own_size


def _total(parts: list[list[int]]) -> int:
    return sum(count * size for count, size in parts)


def _require_sense(flags: Mapping[str, bool], frames: Any, chosen: Mapping[str, Any]) -> None:
    """Refuse combinations on which on-policy's class fails, and options without effect there."""
    if isinstance(frames, bool) or not isinstance(frames, (int, np.integer)) or frames < 1:
        raise PhalanxError(f"stacked_frames must be a whole number of at least 1, not {frames!r}")
    if chosen["obs_instead_of_state"]:
        raise PhalanxError("obs_instead_of_state has no effect in on-policy: use --use_obs_instead_of_state")
    if flags["use_stacked_frames"] and flags["add_local_obs"]:
        raise PhalanxError(
            "add_local_obs is not supported with use_stacked_frames: on-policy's own class fails"
        )
    grids = ("pathing_grid", "terrain_height")
    seen, told = ([chosen[f"{what}_{grid}"] for grid in grids] for what in ("obs", "state"))
    if flags["use_state_agent"] and any(told) and told != seen:
        raise PhalanxError(
            "state_pathing_grid and state_terrain_height must be as obs_pathing_grid and obs_terrain_height "
            "where agents have their own states (--use_state_agent switches that off)"
        )

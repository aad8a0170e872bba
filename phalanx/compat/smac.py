"""SMAC's `StarCraft2Env` without StarCraft: change the import and keep the program around it.

from phalanx.compat.smac import StarCraft2Env  # was: from smac.env import StarCraft2Env

Programs that cannot be changed find it as `smac` in the folder that `python -m phalanx.compat.shim` writes.
"""

import numbers
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import device
from phalanx.compat import options, replays, shared
from phalanx.compat.describe import NOTHING_YET, Described, MultiAgentEnv
from phalanx.envs.battle import NAMES
from phalanx.envs.battle.env import Battle
from phalanx.errors import PhalanxError, suggest
from phalanx.types import TimeStep

__all__ = ["IllegalAction", "MultiAgentEnv", "StarCraft2Env"]

RENDER_MODES = ("human", "rgb_array")


class IllegalAction(PhalanxError, AssertionError):
    """An action that is not available to its agent now; SMAC's own class fails an assertion there."""


class StarCraft2Env(Described):
    """SMAC's environment class, played by `battle/MAP` instead of the game: one battle, one step a call.

    It takes SMAC's options, by position or by keyword. Options that concern only the game's program have no
    effect: `difficulty` (SMAC's authors saw none on these maps either), `game_version`, `window_size_x`,
    `window_size_y`, `debug`, `heuristic_rest`. For `step_mul`, `move_amount` and `heuristic_ai` only the
    default is supported. Maps of SMACv2 have names like `v2_terran_5_vs_5` and also accept `obs_own_pos`,
    `use_unit_ranges`, `conic_fov` and `prob_obs_enemy`. With `obs_timestep_number` observations are as
    long as declared, where SMAC's are one longer.

    The same `seed` and actions give the same episodes; without a seed one is drawn, and `seed()` returns it.
    Nothing is computed before the first `reset()`, so that objects can be created first and passed to other
    processes, by fork or by pickle.
    """

    _defaults: Mapping[str, Any] = options.SMAC

    def __init__(self, *given: Any, **named: Any):
        self._set_up(options.settings(self._defaults, given, named))

    def _set_up(self, chosen: dict[str, Any]) -> None:
        map_name, seed = chosen.pop("map_name"), chosen.pop("seed")
        if map_name not in NAMES:
            raise PhalanxError(f"unknown map {map_name!r}.{suggest(str(map_name), NAMES)}")
        vars(self).update(chosen)  # SMAC's callers read them as attributes
        self.map_name: str = map_name
        self.continuing_episode: bool = chosen["continuing_episode"]
        self.obs_instead_of_state: bool = chosen["obs_instead_of_state"]
        self.replay_dir: str = chosen["replay_dir"] or ""
        self.replay_prefix: str = chosen["replay_prefix"] or ""
        self.window_size = (chosen["window_size_x"], chosen["window_size_y"])
        self._options = self._battle_options(f"battle/{map_name}", chosen)
        self._battle = options.build(f"battle/{map_name}", self._options)
        spec = self._battle.spec
        self.n_agents, self.n_actions = spec.n_agents, spec.n_actions
        self.n_enemies = self._battle.observer.world.enemies
        self.episode_limit = spec.time_limit
        self.battles_won = self.battles_game = self.timeouts = 0
        self.force_restarts = 0
        self.win_counted = self.defeat_counted = False
        self.reward = 0.0
        self.seed(_entropy() if seed is None else seed)
        self._now: TimeStep | None = None
        self._over = True
        self.ended = False  # by the battle itself, not by the time limit
        self._episode_count = self._episode_steps = self._total_steps = 0
        self._played: list[replays.Moment] = []

    def _battle_options(self, env: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
        return options.battle_options(env, chosen, self._defaults)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: numpy arrays instead of JAX arrays, so that unpickling does not start JAX."""
        kept = {name: value for name, value in vars(self).items() if name not in ("_battle", "_key", "_read")}
        if self._key is not None:
            kept["_key_data"] = np.asarray(jax.random.key_data(self._key))
        return jax.device_get(kept)

    def __setstate__(self, kept: dict[str, Any]) -> None:
        vars(self).update(kept, _key=None)
        self._battle = options.build(f"battle/{self.map_name}", self._options)

    # Playing

    def reset(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Start an episode; returns one observation (O,) per agent, and the state (X,)."""
        self._start()
        return self.get_obs(), self.get_state()

    def _start(self) -> None:
        device.configure()
        if self._key is None:
            self._key = self._first_key()
        self._key, self._state, now = _programs(self._battle)[0](self._key)
        self._played.clear()
        self._arrive(now, None)
        self._over = self.win_counted = self.defeat_counted = False
        self._episode_steps = 0

    def _first_key(self) -> Any:
        """The saved key of an unpickled object, otherwise the key of the seed."""
        if self._key_data is not None:
            return jax.random.wrap_key_data(jnp.asarray(self._key_data))
        low, high = self._seed % 2**32, self._seed >> 32
        key = jax.random.key(low)
        while high:
            key, high = jax.random.fold_in(key, high % 2**32), high >> 32
        return key

    def step(self, actions: Iterable[Any]) -> tuple[float, bool, dict[str, Any]]:
        """Play one step; returns the team's reward, whether the episode ended, and info.

        A time-out ends the episode too; with `continuing_episode` info then has `episode_limit`.
        """
        if self._over:
            raise PhalanxError("there is no running episode: call reset() first")
        device.require_own_process()
        if self._key is None:  # it came by pickle, in the middle of an episode
            device.configure()
            self._key = self._first_key()
        chosen = self._checked(actions)
        play = _programs(self._battle)[1]
        self._key, self._state, now = play(self._key, self._state, jnp.asarray(chosen, jnp.int32))
        now = self._arrive(now, chosen)
        self._episode_steps += 1
        self._total_steps += 1
        self.ended = bool(now.terminated)
        timed_out = not self.ended and self._episode_steps >= self.episode_limit
        info: dict[str, Any] = {
            "battle_won": bool(now.info["won"]),
            "dead_allies": int(now.info["dead_allies"]),
            "dead_enemies": int(now.info["dead_enemies"]),
        }
        if timed_out and self.continuing_episode:
            info["episode_limit"] = True
        self._over = self.ended or timed_out
        self.win_counted = info["battle_won"]
        self.defeat_counted = self.ended and not self.win_counted
        self.battles_game += self._over
        self._episode_count += self._over
        self.battles_won += self.win_counted
        self.timeouts += timed_out
        self.reward = float(now.reward[0])
        return self.reward, self._over, info

    def _arrive(self, now: TimeStep, actions: list[int] | None) -> TimeStep:
        """Convert the result of a step to numpy, once."""
        self._now = now = jax.device_get(now)
        self._played.append(replays.Moment(self._state, now, actions))
        return now

    def _checked(self, actions: Iterable[Any]) -> list[int]:
        try:
            chosen = [int(action) for action in actions]
        except (TypeError, ValueError):
            raise PhalanxError(f"actions must be {self.n_agents} whole numbers, one for each agent") from None
        if len(chosen) != self.n_agents:
            raise PhalanxError(f"{self.map_name} has {self.n_agents} agents, and got {len(chosen)} actions")
        for agent, action in enumerate(chosen):
            self._require_available(agent, action)
        return chosen

    def _require_available(self, agent: int, action: int) -> None:
        avail = self._seen.avail[agent]
        if not 0 <= action < self.n_actions:
            raise IllegalAction(
                f"agent {agent} cannot take action {action}: there are 0 to {self.n_actions - 1}"
            )
        if not avail[action]:
            available = ", ".join(map(str, np.flatnonzero(avail)))
            raise IllegalAction(
                f"agent {agent} cannot take action {action} ({self._action_name(agent, action)}) now; "
                f"available: {available}"
            )

    def _action_name(self, agent: int, action: int) -> str:
        heals = self._units.types[agent] == "medivac"
        return self._battle.observer.actions[action].replace(
            "target", "heal ally" if heals else "attack enemy"
        )

    def get_agent_action(self, a_id: int, action: int) -> str | None:
        """The name of an action that is available to an agent now; None for dead agents."""
        self._require_available(a_id, int(action))
        return self._action_name(a_id, int(action)) if action else None

    def full_restart(self) -> None:
        """Abort the episode. There is no game to restart; restarts are counted, as in SMAC."""
        self._over = True
        self.force_restarts += 1

    # What is seen

    def get_obs(self) -> list[np.ndarray]:
        """The observations of all agents, (O,) float32 each."""
        return list(self._seen.obs.copy())

    def get_obs_agent(self, agent_id: int) -> np.ndarray:
        """One agent's observation, (O,) float32."""
        return self._seen.obs[agent_id].copy()

    def get_obs_size(self) -> int:
        """The size O of an observation."""
        return self._battle.spec.obs_size

    def get_state(self) -> np.ndarray:
        """The state, (X,) float32; with `obs_instead_of_state` the concatenated observations."""
        seen = self._seen
        return seen.obs.flatten() if self.obs_instead_of_state else seen.state.copy()

    def get_state_size(self) -> int:
        """The size X of the state."""
        spec = self._battle.spec
        return spec.obs_size * spec.n_agents if self.obs_instead_of_state else spec.state_size

    # What is told

    def get_env_info(self) -> dict[str, Any]:
        """Sizes, the time limit, and the names of the state's entries for each agent and each enemy."""
        return {
            "state_shape": self.get_state_size(),
            "obs_shape": self.get_obs_size(),
            "n_actions": self.n_actions,
            "n_agents": self.n_agents,
            "episode_limit": self.episode_limit,
            "agent_features": self.ally_state_attr_names,
            "enemy_features": self.enemy_state_attr_names,
        }

    def get_stats(self) -> dict[str, Any]:
        """The numbers of battles played and won; SMAC's `battles_draw` counts time-outs."""
        return {
            "battles_won": self.battles_won,
            "battles_game": self.battles_game,
            "battles_draw": self.timeouts,
            "win_rate": self.battles_won / max(1, self.battles_game),
            "timeouts": self.timeouts,
            "restarts": self.force_restarts,
        }

    def seed(self, seed: int | None = None) -> int:
        """The seed. With an argument, which SMAC does not have, the next episode starts from that seed."""
        if seed is not None:
            if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
                raise PhalanxError(f"seed must be a whole number of at least 0, not {seed!r}")
            self._seed, self._key, self._key_data = int(seed), None, None
        return self._seed

    def save_replay(self) -> str:
        """Write the current (or last) episode as JSON, and return the file's path: `phalanx watch` plays it.

        The file is `replay_dir/PREFIX_TIME.json`, with the map's name when there is no
        `replay_prefix`; without a `replay_dir` in the folder `replays`. It is no StarCraft replay: see
        `docs/watching.md` for what is in it.
        """
        if not self._played:
            raise PhalanxError("there is nothing to save yet: call reset() first")
        folder = Path(self.replay_dir or "replays")
        head = {"map": self.map_name, "seed": self._seed, "options": self._options}
        return replays.write(folder, self.replay_prefix or self.map_name, head, self._battle, self._played)

    def render(self, mode: str = "human") -> np.ndarray:
        """A picture of the battle, (H, W, 3) uint8. There is no window: both of SMAC's modes give it."""
        from phalanx.report.draw import image

        if mode not in RENDER_MODES:
            raise PhalanxError(f"mode must be one of {', '.join(RENDER_MODES)}, not {mode!r}")
        if self._now is None:
            raise PhalanxError(NOTHING_YET)
        return image(self._battle.frame(self._state))

    def close(self) -> None:
        """Do nothing: there is no game to close."""


def _entropy() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])


@cache
def _programs(battle: Battle) -> tuple[shared.Program, shared.Program]:
    """`reset` and `step`, compiled once for all environments that play the same battle."""
    return shared.programs(battle)

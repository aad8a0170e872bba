"""The class behind `to_pettingzoo`, apart from it because it cannot be imported without PettingZoo."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import logger, spaces  # its logger is the one that programs on PettingZoo set the level of
from pettingzoo import ParallelEnv

from phalanx import device
from phalanx.compat import shared
from phalanx.envs.base import Env
from phalanx.envs.wrappers import TimeLimit
from phalanx.errors import PhalanxError, suggest
from phalanx.types import EnvSpec, PyTree, TimeStep

FRAMES_PER_SECOND = 10
NOTHING_YET = "there is nothing to see yet: call reset() first"


class Parallel(ParallelEnv[str, Any, Any]):
    """One environment, one step a call, dictionaries by agent: see `to_pettingzoo`."""

    def __init__(self, env: Env, render_mode: str | None, mask_in_obs: bool, illegal: str, seed: int):
        spec = env.spec
        self.metadata = {
            "name": spec.name,
            "render_modes": [] if type(env).frame is Env.frame else ["rgb_array"],
            "render_fps": FRAMES_PER_SECOND,
            "is_parallelizable": True,
        }
        self.render_mode = render_mode
        self.possible_agents = list(spec.agents)
        self.agents = []
        self.observation_spaces = dict(zip(spec.agents, _observation_spaces(spec, mask_in_obs), strict=True))
        self.action_spaces = dict(zip(spec.agents, _action_spaces(spec), strict=True))
        state_shape = (spec.n_agents, spec.state_size) if spec.agent_state else (spec.state_size,)
        self.state_space = _anything(state_shape)
        self._env, self._spec = env, spec
        self._mask_in_obs, self._illegal, self._warned = mask_in_obs, illegal, False
        self._begin, self._play = _programs(env)
        self._key = jax.random.key(seed)
        self._state: PyTree = None
        self._now: TimeStep | None = None

    def observation_space(self, agent: str) -> spaces.Space:
        """The observation space of `agent`, without padding: always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """The action space of `agent`, without padding: always the same object."""
        return self.action_spaces[agent]

    # Playing

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Start an episode: the first of `seed`, or the next one. PettingZoo's `options` have no effect."""
        device.require_own_process()
        if seed is not None:
            self._key = jax.random.key(shared.checked_seed(seed))
        self._key, self._state, now = self._begin(self._key)
        self._now = jax.device_get(now)
        self.agents = list(self.possible_agents)
        return self._observations(), self._infos(np.zeros(self._spec.n_agents, bool))

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Play one step with an action for every agent in `agents`, including dead agents.

        At the last step of an episode all agents are done, and observations are those of the final state.
        If agents end separately (`EnvSpec.agents_end`), each leaves `agents` at its own end.
        """
        if not self.agents:
            raise PhalanxError("there is no running episode: call reset() first")
        device.require_own_process()
        chosen, replaced = self._checked(actions)
        self._key, self._state, now = self._play(self._key, self._state, jnp.asarray(chosen))
        self._now = now = jax.device_get(now)
        acted, spec = self.agents, self._spec
        ended = np.broadcast_to(now.terminated, spec.n_agents)
        if now.agent_terminated is not None:
            ended = ended | now.agent_terminated
        told = {
            "reward": map(float, now.reward),
            "ended": map(bool, ended),
            "cut": [bool(now.truncated)] * spec.n_agents,
        }
        by_name = {what: dict(zip(spec.agents, values, strict=True)) for what, values in told.items()}
        self.agents = [] if now.truncated else [name for name in acted if not by_name["ended"][name]]
        parts = (self._observations(), *by_name.values(), self._infos(replaced))
        return tuple({name: part[name] for name in acted} for part in parts)  # pyright: ignore[reportReturnType]

    def _checked(self, actions: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """The actions to play, (A,) or (A, U), and (A,) bool: which of them replace an unavailable action."""
        spec, seen = self._spec, self._seen.observation
        chosen = _read(spec, actions, self.agents)
        if spec.action_kind == "continuous":
            chosen = np.where(seen.alive[:, None], chosen, 0.0)
        playable, wrong = shared.judge(spec, seen.avail, chosen)
        wrong &= seen.alive
        if wrong.any():
            agent = int(np.flatnonzero(wrong)[0])
            why = shared.refusal(spec, agent, seen.avail[agent], chosen[agent])
            if spec.action_kind == "continuous" or self._illegal == "raise":
                raise PhalanxError(why)
            self._warn(why)
            playable = np.where(wrong, seen.avail.argmax(-1), playable).astype(np.int32)
        return playable, wrong

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            hint = (
                "such actions are replaced by the first available one, and marked as illegal_action in infos"
            )
            logger.warn("%s", f"{why}. From now on without further warning: {hint}")

    # What is seen

    @property
    def _seen(self) -> Any:
        """The last `TimeStep`, of numpy arrays."""
        if self._now is None:
            raise PhalanxError(NOTHING_YET)
        return self._now

    def _observations(self) -> dict[str, Any]:
        """What each agent sees, (own O,) float32 or a picture, or that and its mask.

        All arrays are the caller's own.
        """
        spec, obs = self._spec, self._seen.observation.obs
        if spec.obs_shape is None:
            own = [np.array(row[: len(names)]) for row, names in zip(obs, spec.obs_features, strict=True)]
        else:
            own = [np.array(picture) for picture in obs]
        if self._mask_in_obs:
            own = [{"observation": row, "action_mask": self._mask(agent)} for agent, row in enumerate(own)]
        return dict(zip(spec.agents, own, strict=True))

    def _infos(self, replaced: np.ndarray) -> dict[str, dict[str, Any]]:
        """The info of each agent; `replaced` (A,) bool: whose action was replaced."""
        spec, seen = self._spec, self._seen
        infos: dict[str, dict[str, Any]] = {}
        for agent, name in enumerate(spec.agents):
            info = infos[name] = {"alive": bool(seen.observation.alive[agent])}
            if spec.action_kind == "discrete":
                info |= {"action_mask": self._mask(agent), "illegal_action": bool(replaced[agent])}
            if spec.has_win:
                info["won"] = bool(seen.info["won"])
        return infos

    def _mask(self, agent: int) -> np.ndarray:
        """(own U,) int8: 1 for each action that is available to the agent now."""
        return self._seen.observation.avail[agent, : self._spec.action_counts[agent]].astype(np.int8)

    def state(self) -> np.ndarray:
        """The state, (X,) float32, or (A, X) where each agent has its own."""
        return np.array(self._seen.observation.state)

    def render(self) -> np.ndarray | None:
        """A picture of the state, (H, W, 3) uint8."""
        if self.render_mode is None:
            logger.warn("there is no picture without to_pettingzoo(..., render_mode='rgb_array')")
            return None
        if self._now is None:
            raise PhalanxError(NOTHING_YET)
        from phalanx.report.draw import image

        frame = self._env.frame(self._state.inner)
        if frame is None:
            raise PhalanxError(f"{self._spec.name} has nothing to draw: leave out render_mode")
        return image(frame)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _anything(shape: tuple[int, ...]) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def _pictures(shape: tuple[int, ...], dtype: str) -> spaces.Box:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return spaces.Box(-np.inf, np.inf, shape, kind.type)
    return spaces.Box(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind.type)


def _observation_spaces(spec: EnvSpec, mask_in_obs: bool) -> list[spaces.Space]:
    """The observation space of each agent."""
    if spec.obs_shape is None:
        own: list[spaces.Space] = [_anything((len(names),)) for names in spec.obs_features]
    else:
        own = [_pictures(spec.obs_shape, spec.obs_dtype) for _ in spec.agents]
    if not mask_in_obs:
        return own
    masks = [spaces.Box(0, 1, (count,), np.int8) for count in spec.action_counts]
    return [
        spaces.Dict({"observation": seen, "action_mask": mask}) for seen, mask in zip(own, masks, strict=True)
    ]


def _action_spaces(spec: EnvSpec) -> list[spaces.Space]:
    """The action space of each agent."""
    if spec.action_kind == "discrete":
        return [spaces.Discrete(count) for count in spec.action_counts]
    low, high = spec.action_range
    return [spaces.Box(low, high, (count,), np.float32) for count in spec.action_counts]


def _read(spec: EnvSpec, actions: Any, acting: Sequence[str]) -> np.ndarray:
    """A dictionary of actions as (A,) whole numbers, or (A, U) numbers; zeros where there are none."""
    if not isinstance(actions, Mapping):
        raise PhalanxError(
            f"actions must be a dictionary with one action for each agent, not {type(actions).__name__}"
        )
    for name in actions:
        if name not in spec.agents:
            raise PhalanxError(f"there is no agent {name!r}.{suggest(str(name), spec.agents)}")
    missing = [name for name in acting if name not in actions]
    if missing:
        raise PhalanxError(f"actions lack {', '.join(missing)}: every agent needs one, also dead agents")
    if spec.action_kind == "continuous":
        chosen = np.zeros((spec.n_agents, spec.n_actions))
        for agent, (name, count) in enumerate(zip(spec.agents, spec.action_counts, strict=True)):
            wanted = f"({count},), one number for each entry"
            if name in acting:
                chosen[agent, :count] = shared.read(
                    actions[name], (count,), spec, f"the action of {name}", wanted
                )
        return chosen
    chosen = np.zeros(spec.n_agents, np.int64)
    for agent, (name, count) in enumerate(zip(spec.agents, spec.action_counts, strict=True)):
        if name not in acting:
            continue
        what, wanted = f"the action of {name}", "a single number, of shape ()"
        chosen[agent] = shared.read(actions[name], (), spec, what, wanted)
        if not 0 <= chosen[agent] < count:
            raise PhalanxError(f"{name} has no action {chosen[agent]}: there are 0 to {count - 1}")
    return chosen


def _programs(env: Env) -> tuple[shared.Program, shared.Program]:
    """`reset` and `step` of an environment with its time limit, compiled."""
    try:
        return _shared_programs(env)
    except TypeError:  # it cannot be hashed: nobody else can have the same one
        return _shared_programs.__wrapped__(env)


@lru_cache(maxsize=32)
def _shared_programs(env: Env) -> tuple[shared.Program, shared.Program]:
    """The same, shared by all objects with equal environments."""
    return shared.programs(TimeLimit(env))

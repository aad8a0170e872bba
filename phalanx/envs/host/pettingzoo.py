"""PettingZoo's environments, parallel or AEC, by PACKAGE.MODULE. Needs pettingzoo and the package."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx.envs.host.actions import RANGE, Actions
from phalanx.envs.host.base import HostObservation, HostStep
from phalanx.envs.host.observations import Observations, as_picture, check_state_size, scaled
from phalanx.envs.host.packages import cause, limited, made_to_draw, needed, picture
from phalanx.envs.host.seeds import seed32
from phalanx.envs.host.snapshots import Snapshots
from phalanx.envs.host.spaces import MASK
from phalanx.envs.host.turns import Turns, parallel
from phalanx.envs.host.variant import TeamsVariant
from phalanx.errors import PhalanxError, suggest
from phalanx.spec import EnvSpec

NAMES = {
    "mpe2.simple_spread_v3": "three particles cover three landmarks (pip install mpe2)",
    "mpe2.simple_tag_v3": "three hunters and a faster prey (pip install mpe2)",
    "sisl.pursuit_v5": "eight pursuers surround thirty evaders (pip install 'pettingzoo[sisl]')",
    "sisl.multiwalker_v9": "three walkers carry a package (pip install 'pettingzoo[sisl]')",
    "butterfly.pistonball_v6": "twenty pistons, from pictures (pip install 'pettingzoo[butterfly]')",
    "classic.tictactoe_v3": "two players take turns (pip install 'pettingzoo[classic]')",
}
PACKAGE = "pettingzoo"
ADVERSARIES = ("adversary", "leadadversary", "eve")  # types of MPE's worlds
LIMITS = ("max_cycles", "max_steps", "max_episode_steps")


class PettingZooEnv(Snapshots):
    """An environment with PettingZoo's parallel or AEC interface.

    - The agents are `possible_agents`; their types are their names without the number.
    - Agents that are not there, because they have ended or have not yet come, are dead: their row is zero.
    - An episode ends when no agent is left: `truncated` if one of the last was truncated, else `terminated`.
    - Each agent has its own rewards.
    - The state is `state()` where that is implemented, else all observations in a row.
    - In a game of turns (see `turns.py`) who waits has one action, the last, which does nothing.
    """

    HELD = ("env", "seen", "living")

    def __init__(self, env: Any, name: str, time_limit: int | None = None, shrink: int = 1, teams: str = ""):
        self.env = parallel(env) if hasattr(env, "agent_iter") else env
        self.turns = isinstance(self.env, Turns)
        self.ids = list(getattr(env, "possible_agents", None) or ())
        if not self.ids:
            raise PhalanxError(
                f"{name} has no possible_agents, so it is not known how many agents there may be"
            )
        agents = [str(agent) for agent in self.ids]
        self._observations = Observations(
            name, agents, [self.env.observation_space(agent) for agent in self.ids], shrink
        )
        self._actions = Actions(
            name, agents, [self.env.action_space(agent) for agent in self.ids], wait=self.turns
        )
        self.living: list[Any] = []
        state = self._first_state()
        own = _own_limit(env)
        types = tuple(re.sub(r"_?\d+$", "", agent) or agent for agent in agents)
        self._spec = EnvSpec(
            name=name,
            agents=tuple(agents),
            agent_types=types,
            obs_features=self._observations.features,
            state_features=(
                self._observations.state_features
                if state is None
                else tuple(f"state_{i}" for i in range(len(state)))
            ),
            action_counts=self._actions.counts,
            time_limit=limited(
                name,
                own if own is None or not self.turns else own * len(self.ids),
                time_limit,
                longer=", unless --env.max_cycles is raised",
            ),
            common_reward=len(agents) == 1,
            action_kind=self._actions.kind,
            action_range=RANGE,
            teams=teams_of(name, agents, types, teams),
            agents_end=len(agents) > 1,
            obs_shape=self._observations.shape,
            obs_dtype=self._observations.dtype,
        )

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    def _first_state(self) -> np.ndarray | None:
        """The environment's own state at a first reset; None if it has none."""
        self.env.reset(seed=0)
        # Some, such as PettingZoo's rock, paper, scissors, keep something else under this name.
        self.own_state = callable(getattr(self.env.unwrapped, "state", None))
        if not self.own_state:
            return None
        try:
            state = self._state(np.zeros(0))
        except NotImplementedError:
            self.own_state = False
            return None
        check_state_size(self._observations.name, len(state))
        return state

    def _state(self, obs: np.ndarray) -> np.ndarray:
        if not self.own_state:
            return self._observations.joint(obs)
        state = np.asarray(self.env.state())
        return scaled(as_picture(state, self._observations.shrink) if state.ndim in (2, 3) else state)

    def _last_state(self, obs: np.ndarray) -> np.ndarray:
        """The state after a terminal step, or the one before where there is none any more.

        No value depends on it, and multiwalker, for example, takes its world apart before it could be asked.
        """
        try:
            state = self._state(obs)
        except Exception:
            return self.seen.state
        return state if state.shape == self.seen.state.shape else self.seen.state

    def reset(self, seed: int) -> HostStep:
        observations, infos = self.env.reset(seed=seed32(seed))
        self.living = list(self.env.agents)
        self._see(observations, infos, self.living)
        return self._step({}, False, False)

    def step(self, actions: np.ndarray) -> HostStep:
        chosen = {
            agent: self._actions.decode(i, actions[i])
            for i, agent in enumerate(self.ids)
            if agent in self.living and (not self.turns or agent == self.env.turn)
        }
        observations, rewards, terminations, truncations, infos = self.env.step(chosen)
        acted = self.living
        over = {agent for agent in acted if terminations.get(agent) or truncations.get(agent)}
        self.living = [agent for agent in self.env.agents if agent not in over]
        cut = [agent for agent in acted if truncations.get(agent) and not terminations.get(agent)]
        truncated = not self.living and bool(cut)
        # Who is cut off with the whole episode could have gone on: its last observation is bootstrapped from.
        terminated = not self.living and not cut
        self._see(observations, infos, cut if truncated else self.living, terminated)
        return self._step(rewards, terminated, truncated)

    def _see(self, observations: Any, infos: Any, alive: list[Any], terminated: bool = False) -> None:
        """Keep what the agents see now; dead ones see nothing."""
        obs, masks = self._observations.read(
            [observations.get(agent) if agent in alive else None for agent in self.ids]
        )
        for i, agent in enumerate(self.ids):
            if masks[i] is None and agent in alive:
                masks[i] = infos.get(agent, {}).get(MASK)
        turn = self.env.turn if self.turns else None
        for i, agent in enumerate(self.ids):
            if self.turns and agent != turn:
                masks[i] = None  # PettingZoo's games mask all actions of those who wait
        self.seen = HostObservation(
            obs=obs,
            state=self._last_state(obs) if terminated else self._state(obs),
            avail=self._actions.avail(masks, [agent != turn for agent in self.ids]),
            alive=np.array([agent in alive for agent in self.ids]),
        )

    def _step(self, rewards: Any, terminated: bool, truncated: bool) -> HostStep:
        return HostStep(
            observation=self.seen,
            reward=np.array([rewards.get(agent, 0.0) for agent in self.ids], np.float32),
            terminated=terminated,
            truncated=truncated,
            agent_terminated=~self.seen.alive if self._spec.agents_end else None,
        )

    def render(self) -> Any:
        return picture(self.env)

    def close(self) -> None:
        self.env.close()


def teams_of(name: str, agents: Sequence[str], types: Sequence[str], wanted: str) -> tuple[str, ...]:
    """The team of each agent; none where all are one team, or it is not known who plays against whom.

    `wanted` says it: `agent`, everyone for itself; `type`, a team for each type; `none`; or teams between
    commas, each of types or agents joined by +, named after the first. Without it those that MPE's worlds
    call adversaries play against the others.
    """
    if wanted in ("agent", "type"):
        teams = tuple(agents if wanted == "agent" else types)
    elif wanted:
        teams = () if wanted == "none" else _listed_teams(name, agents, types, wanted)
    else:
        good = {kind for kind in types if kind not in ADVERSARIES}
        label = good.pop() if len(good) == 1 else "good"
        teams = tuple(ADVERSARIES[0] if kind in ADVERSARIES else label for kind in types)
    return teams if len(set(teams)) > 1 else ()


def _listed_teams(name: str, agents: Sequence[str], types: Sequence[str], wanted: str) -> tuple[str, ...]:
    team_of: dict[str, str] = {}
    for members in wanted.split(","):
        words = [word.strip() for word in members.split("+")]
        for word in words:
            if word not in agents and word not in types:
                known = dict.fromkeys([*types, *agents])
                raise PhalanxError(f"--env.teams {wanted}: {name} has no {word!r}, but {', '.join(known)}")
            if word in team_of:
                raise PhalanxError(f"--env.teams {wanted}: {word} is in two teams")
            team_of[word] = words[0]
    teams = [team_of.get(agent, team_of.get(kind)) for agent, kind in zip(agents, types)]
    if None in teams:
        raise PhalanxError(f"--env.teams {wanted}: {agents[teams.index(None)]} of {name} is in no team")
    return tuple(team for team in teams if team)


def _own_limit(env: Any) -> int | None:
    """How many cycles an environment plays at most, where it says so."""
    inner = getattr(env, "unwrapped", env)
    for place in (env, inner, getattr(inner, "env", None)):
        for word in LIMITS:
            limit = getattr(place, word, None)
            if isinstance(limit, (int, np.integer)) and limit > 0:
                return int(limit)
    return None


@dataclass(eq=False)
class Adapter(TeamsVariant, PettingZooEnv):
    """The environment of a module with `parallel_env` or, without it, `env`."""

    def __post_init__(self):
        name = f"pettingzoo/{self.variant}"
        needed("pettingzoo", name)
        module = _module(self.variant, name)
        make = getattr(module, "parallel_env", None) or module.env
        env = made_to_draw(name, make, self.extra)
        PettingZooEnv.__init__(self, env, name, self.time_limit, self.shrink, self.teams)

    def copy(self) -> Adapter:
        return dataclasses.replace(self)


def _module(variant: str, name: str) -> Any:
    """The module `variant`, or else `pettingzoo.variant`."""
    for path in (variant, f"pettingzoo.{variant}"):
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            missing = error.name or path
            if not f"{path}.".startswith(f"{missing}."):
                raise PhalanxError(f"{name} needs the package {missing}: pip install {missing}") from None
            continue
        except Exception as error:  # a module may raise anything when it is imported
            raise PhalanxError(f"{name} cannot import {path}: {cause(error)}") from None
        if hasattr(module, "parallel_env") or hasattr(module, "env"):
            return module
    raise PhalanxError(
        f"{name}: there is no module {variant} with a function parallel_env or env, in PettingZoo or outside."
        f"{_nearest(variant)}"
    )


def _nearest(variant: str) -> str:
    """The modules that stand where a misspelt one was looked for."""
    package, _, module = variant.rpartition(".")
    for path in (package, f"pettingzoo.{package}"):
        try:
            found = importlib.import_module(path)
        except Exception:  # there is none to look in
            continue
        names = [each.name for each in pkgutil.iter_modules(getattr(found, "__path__", ()))]
        return suggest(module, [each for each in names if re.search(r"_v\d+$", each)])
    return ""

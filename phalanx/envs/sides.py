"""Environments with several sides (teams), each with its own spec, observations and rewards.

`sides_of(env)` returns the sides of an environment. `one_side(env, side)` is the environment that a learner
sees if it plays one side and opponents play the others: an `Env` (`OneSide`), or for a Python environment a
source of host environments (`HostedSide`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from phalanx.envs.base import Env
from phalanx.envs.host.base import HostSource
from phalanx.envs.host.pool import Pool
from phalanx.envs.wrappers import Running, bare_state, with_bare_state
from phalanx.errors import PhalanxError
from phalanx.types import Array, EnvSpec, Observation, PyTree, TimeStep


class Sides(ABC):
    """The sides of a world."""

    sides: tuple[str, ...]

    @abstractmethod
    def spec(self, side: str) -> EnvSpec:
        """What the environment is for the agents of one side."""


class SidedWorld(Sides):
    """A compiled world in which every side acts at once. Time steps and actions are given by side."""

    @abstractmethod
    def reset(self, key: Array) -> tuple[PyTree, dict[str, TimeStep]]:
        """Begin an episode."""

    @abstractmethod
    def step(
        self, key: Array, state: PyTree, actions: Mapping[str, Array]
    ) -> tuple[PyTree, dict[str, TimeStep]]:
        """Play one step with the actions of every side, (A,) or continuous (A, U)."""

    def frame(self, state: PyTree, side: str) -> dict[str, Any] | None:
        """Describe `state` for a viewer, as one side sees it; None when there is nothing to draw."""
        return None


class Teams(Sides):
    """The teams that a spec names. The global state is the same for all."""

    def __init__(self, whole: EnvSpec):
        self.whole = whole
        self.sides = tuple(dict.fromkeys(whole.teams))
        self._members = {side: np.flatnonzero([team == side for team in whole.teams]) for side in self.sides}

    def spec(self, side: str) -> EnvSpec:
        whole, members = self.whole, self._members[side]

        def of(entries: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(entries[i] for i in members) if entries else ()

        return replace(
            whole,
            agents=of(whole.agents),
            agent_types=of(whole.agent_types),
            obs_features=of(whole.obs_features),
            action_counts=of(whole.action_counts),
            action_names=of(whole.action_names),
            teams=(),
            script=None,
        )

    def joint(self, actions: Mapping[str, Array]) -> Array:
        """The actions of all agents, (..., A) or (..., A, U), from those of each side."""
        whole, discrete = self.whole, self.whole.action_kind == "discrete"
        first = actions[self.sides[0]]
        rows = first.shape[:-1] if discrete else first.shape[:-2]
        shape = (whole.n_agents,) if discrete else (whole.n_agents, whole.n_actions)
        joint = jnp.zeros((*rows, *shape), first.dtype)
        for side, chosen in actions.items():
            members = self._members[side]
            where = (..., members) if discrete else (..., members, slice(chosen.shape[-1]))
            joint = joint.at[where].set(chosen)
        return joint

    def agents(self, side: str, values: Array) -> Array:
        """The entries of one side's agents, of those of all, (..., A)."""
        return values[..., self._members[side]]

    def seen(self, side: str, seen: Observation) -> Observation:
        """What one side sees, (..., A, ...) of its agents, without the padding for those of others."""
        members, spec = self._members[side], self.spec(side)
        picture = (slice(None),) * len(spec.obs_shape or ())
        return Observation(
            obs=seen.obs[(..., members, *picture)] if picture else seen.obs[..., members, : spec.obs_size],
            state=seen.state[..., members, :] if spec.agent_state else seen.state,
            avail=seen.avail[..., members, : spec.n_actions],
            alive=seen.alive[..., members],
        )

    def of(self, side: str, step: TimeStep) -> TimeStep:
        """The time step of one side, of that of all agents."""
        ended = step.agent_terminated
        return step._replace(
            observation=self.seen(side, step.observation),
            reward=self.agents(side, step.reward),
            agent_terminated=None if ended is None else self.agents(side, ended),
        )


class TeamSides(Teams, SidedWorld):
    """The teams of a compiled environment."""

    def __init__(self, env: Env):
        super().__init__(env.spec)
        self.env = env

    def reset(self, key: Array) -> tuple[PyTree, dict[str, TimeStep]]:
        state, step = self.env.reset(key)
        return state, self._parted(step)

    def step(
        self, key: Array, state: PyTree, actions: Mapping[str, Array]
    ) -> tuple[PyTree, dict[str, TimeStep]]:
        state, step = self.env.step(key, state, self.joint(actions))
        return state, self._parted(step)

    def frame(self, state: PyTree, side: str) -> dict[str, Any] | None:
        return self.env.frame(state)

    def _parted(self, step: TimeStep) -> dict[str, TimeStep]:
        return {side: self.of(side, step) for side in self.sides}


def sides_of(env: Env | HostSource) -> Sides:
    """The sides of an environment; an error if it has only one."""
    from phalanx.envs.battle.duel import Duel
    from phalanx.envs.battle.env import Battle

    if isinstance(env, Battle):
        return Duel(env)
    if len(set(env.spec.teams)) > 1:
        return TeamSides(env) if isinstance(env, Env) else Teams(env.spec)
    hint = (
        "" if isinstance(env, Env) else "; PettingZoo's have teams with --env.teams, as in --env.teams agent"
    )
    raise PhalanxError(
        f"{env.spec.name} has no other side: opponents play in battles and in worlds with teams, such as "
        f"battle/3m or mpe/simple_tag{hint}"
    )


class Side:
    """One side of a world, for a learner who plays it while somebody else plays the others.

    If it `tells`, the others' time steps are in `info["others"]`, for opponents that learn.
    """

    def __init__(self, sides: Sides, side: str, tells: bool = False):
        if side not in sides.sides:
            raise PhalanxError(f"there is no side {side!r}: choose one of {', '.join(sides.sides)}")
        self.sides, self.side, self.tells = sides, side, tells
        self.others = tuple(each for each in sides.sides if each != side)

    @property
    def spec(self) -> EnvSpec:
        return self.sides.spec(self.side)


def one_side(env: Env | HostSource, side: str = "", tells: bool = False) -> "OneSide | HostedSide":
    """One side of a world, the first unless it is named."""
    sides = sides_of(env)
    side = side or sides.sides[0]
    if isinstance(sides, SidedWorld):
        return OneSide(sides, side, tells)
    assert isinstance(sides, Teams)
    assert isinstance(env, HostSource)
    return HostedSide(env, sides, side, tells)


class HostedSide(Side, HostSource):
    """One side of a world that is a Python program. Its pools step the whole world."""

    sides: Teams

    def __init__(self, world: HostSource, sides: Teams, side: str, tells: bool = False):
        super().__init__(sides, side, tells)
        self.world = world

    def pool(self, count: int) -> Pool:
        return self.world.pool(count)

    def film_pool(self, count: int) -> Pool:
        return self.world.film_pool(count)


class Facing(NamedTuple):
    """What `OneSide` keeps: the world, what the others see, and what they have chosen to do next."""

    world: PyTree
    seen: dict[str, Observation]
    chosen: dict[str, Array]
    returned: Array
    """() what an agent of the others has earned in this episode, on average"""


class OneSide(Side, Env):
    """One side of a compiled world. Who plays the others says so before each step: see `told`."""

    sides: SidedWorld

    def reset(self, key: Array) -> tuple[Facing, TimeStep]:
        world, steps = self.sides.reset(key)
        chosen = {other: _nothing(self.sides.spec(other)) for other in self.others}
        return Facing(world, self._seen(steps), chosen, jnp.float32(0)), steps[self.side]

    def step(self, key: Array, state: Facing, actions: Array) -> tuple[Facing, TimeStep]:
        world, steps = self.sides.step(key, state.world, {self.side: actions, **state.chosen})
        earned = jnp.concatenate([steps[other].reward for other in self.others]).mean()
        returned, mine = state.returned + earned, steps[self.side]
        info = {**mine.info, "other_return": returned}
        if self.tells:
            info["others"] = {other: steps[other]._replace(info={}) for other in self.others}
        return Facing(world, self._seen(steps), state.chosen, returned), mine._replace(info=info)

    def frame(self, state: Facing) -> dict[str, Any] | None:
        return self.sides.frame(state.world, self.side)

    def _seen(self, steps: Mapping[str, TimeStep]) -> dict[str, Observation]:
        return {other: steps[other].observation for other in self.others}


def facing(running: Running) -> Facing:
    """What `OneSide` keeps of environments between two steps."""
    found = bare_state(running.state)
    assert isinstance(found, Facing)
    return found


def told(running: Running, side: str, actions: Array) -> Running:
    """The environments, with the actions (..., A) or (..., A, U) that a side takes next."""
    choice = facing(running)._replace(chosen={side: actions})
    return running._replace(state=with_bare_state(running.state, choice))


def _nothing(spec: EnvSpec) -> Array:
    """A placeholder for the actions of a side."""
    if spec.action_kind == "discrete":
        return jnp.zeros(spec.n_agents, jnp.int32)
    return jnp.zeros((spec.n_agents, spec.n_actions))

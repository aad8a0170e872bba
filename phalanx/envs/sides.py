"""Environments with several sides (teams), each with its own spec, observations and rewards.

`sides_of(env)` returns the sides of an environment. `OneSide` is the environment that a learner sees if it
plays one side and opponents play the others.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from phalanx.envs.base import Env
from phalanx.errors import PhalanxError
from phalanx.types import Array, EnvSpec, Observation, PyTree, TimeStep


class Sides(ABC):
    """An environment in which all sides act simultaneously, with time steps and actions for each side."""

    sides: tuple[str, ...]

    @abstractmethod
    def spec(self, side: str) -> EnvSpec:
        """What the environment is for the agents of one side."""

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


class TeamSides(Sides):
    """The teams of an environment whose spec names them. The global state is the same for all."""

    def __init__(self, env: Env):
        self.env = env
        self.sides = tuple(dict.fromkeys(env.spec.teams))
        self._members = {
            side: np.flatnonzero([team == side for team in env.spec.teams]) for side in self.sides
        }

    def spec(self, side: str) -> EnvSpec:
        whole, members = self.env.spec, self._members[side]

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

    def reset(self, key: Array) -> tuple[PyTree, dict[str, TimeStep]]:
        state, step = self.env.reset(key)
        return state, self._parted(step)

    def step(
        self, key: Array, state: PyTree, actions: Mapping[str, Array]
    ) -> tuple[PyTree, dict[str, TimeStep]]:
        whole = self.env.spec
        shape = (whole.n_agents,) if whole.action_kind == "discrete" else (whole.n_agents, whole.n_actions)
        joint = jnp.zeros(shape, actions[self.sides[0]].dtype)
        for side, chosen in actions.items():
            members = self._members[side]
            joint = (
                joint.at[members, : chosen.shape[-1]].set(chosen)
                if chosen.ndim > 1
                else joint.at[members].set(chosen)
            )
        state, step = self.env.step(key, state, joint)
        return state, self._parted(step)

    def frame(self, state: PyTree, side: str) -> dict[str, Any] | None:
        return self.env.frame(state)

    def _parted(self, step: TimeStep) -> dict[str, TimeStep]:
        return {side: self._of(side, step) for side in self.sides}

    def _of(self, side: str, step: TimeStep) -> TimeStep:
        members, spec, seen = self._members[side], self.spec(side), step.observation
        obs = seen.obs[members] if spec.obs_shape else seen.obs[members, : spec.obs_size]
        observation = Observation(
            obs=obs,
            state=seen.state[members] if spec.agent_state else seen.state,
            avail=seen.avail[members, : spec.n_actions],
            alive=seen.alive[members],
        )
        ended = step.agent_terminated
        return step._replace(
            observation=observation,
            reward=step.reward[members],
            agent_terminated=None if ended is None else ended[members],
        )


def sides_of(env: Env) -> Sides:
    """The sides of an environment; an error if it has only one."""
    from phalanx.envs.battle.duel import Duel
    from phalanx.envs.battle.env import Battle

    if isinstance(env, Battle):
        return Duel(env)
    if len(set(env.spec.teams)) > 1:
        return TeamSides(env)
    raise PhalanxError(
        f"{env.spec.name} has no other side: opponents play in battles and in worlds with teams, such as "
        f"battle/3m or mpe/simple_tag"
    )


class Facing(NamedTuple):
    """What `OneSide` keeps: the world, what the others see, and what they have chosen to do next."""

    world: PyTree
    seen: dict[str, Observation]
    chosen: dict[str, Array]
    returned: Array
    """() what an agent of the others has earned in this episode, on average"""


class OneSide(Env):
    """One side of an environment. The opponents' actions are set in `Facing.chosen` before each step.

    With `tells`, their time steps are in `info["others"]`, for opponents that learn.
    """

    def __init__(self, sides: Sides, side: str, tells: bool = False):
        if side not in sides.sides:
            raise PhalanxError(f"there is no side {side!r}: choose one of {', '.join(sides.sides)}")
        self.sides, self.side, self.tells = sides, side, tells
        self.others = tuple(each for each in sides.sides if each != side)

    @property
    def spec(self) -> EnvSpec:
        return self.sides.spec(self.side)

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


def _nothing(spec: EnvSpec) -> Array:
    """A placeholder for the actions of a side."""
    if spec.action_kind == "discrete":
        return jnp.zeros(spec.n_agents, jnp.int32)
    return jnp.zeros((spec.n_agents, spec.n_actions))

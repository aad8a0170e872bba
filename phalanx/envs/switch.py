"""Switch: agents on opposite sides of a one-cell corridor must let each other pass.

The rules, rewards and observations are those of Switch in ma-gym 0.0.14 (Koul, 2019,
https://github.com/koulanurag/ma-gym); `tests/data/switch_trace.json` was recorded from it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from phalanx.config import option
from phalanx.envs.base import Env, numbered
from phalanx.types import Array, EnvSpec, TimeStep

NAMES = ("2", "3", "4")

ROWS, COLS = 3, 7
# Two open rooms, two columns each, joined by the middle row.
OPEN = np.ones((ROWS, COLS), bool)
OPEN[[0, 2], 2:5] = False
STARTS = np.array([[0, 1], [0, 5], [2, 1], [2, 5]], np.int32)
HOMES = np.array([[0, 6], [0, 0], [2, 6], [2, 0]], np.int32)
MOVE_NAMES = ("down", "left", "up", "right", "no-op")
MOVES = np.array([[1, 0], [0, -1], [-1, 0], [0, 1], [0, 0]], np.int32)
# ma-gym rounds coordinates to two digits.
ROW_SEEN = np.round(np.arange(ROWS) / (ROWS - 1), 2).astype(np.float32)
COL_SEEN = np.round(np.arange(COLS) / (COLS - 1), 2).astype(np.float32)

STEP_COST = -0.1
HOME_REWARD = 5.0


class SwitchState(NamedTuple):
    """Where the agents are, who is home, and how long it has taken."""

    position: Array
    """(A, 2) int32: row and column"""
    home: Array
    """(A,) bool"""
    steps: Array


@dataclass(frozen=True)
class Switch(Env):
    """A 3 x 7 grid; each agent must cross a corridor that only one can pass at a time.

    Actions: down, left, up, right, no-op; agents move one after another in their order, and a move
    into a wall or another agent does nothing. Reward: -0.1 a step, +5 on the step that reaches
    home, 0 after it. An agent that is home acts no more (it is not `alive`) but still fills its
    cell. The episode terminates when all are home. Starts are always the same.
    """

    agents: int = option(2, "number of agents", at_least=2, at_most=4)
    clock: bool = option(False, "add the time (step / time limit) to each observation")
    full_observability: bool = option(False, "each agent sees the observations of all agents")
    time_limit: int = option(50, "steps after which an episode is truncated", at_least=1)

    @cached_property
    def spec(self) -> EnvSpec:
        names = numbered("agent", self.agents)
        own = ("row", "column") + (("clock",) if self.clock else ())
        joint = tuple(f"{agent}:{feature}" for agent in names for feature in own)
        return EnvSpec(
            name=f"switch/{self.agents}",
            agents=names,
            agent_types=("walker",) * self.agents,
            obs_features=(joint if self.full_observability else own,) * self.agents,
            state_features=(
                *(f"{agent}:{feature}" for agent in names for feature in ("row", "column", "home")),
                "clock",
            ),
            action_counts=(len(MOVES),) * self.agents,
            time_limit=self.time_limit,
            common_reward=False,
            has_win=True,
            action_names=(MOVE_NAMES,) * self.agents,
        )

    def reset(self, key: Array) -> tuple[SwitchState, TimeStep]:
        state = SwitchState(
            position=jnp.asarray(STARTS[: self.agents]),
            home=jnp.zeros(self.agents, bool),
            steps=jnp.int32(0),
        )
        return state, self._observe(state, reward=0.0)

    def step(self, key: Array, state: SwitchState, actions: Array) -> tuple[SwitchState, TimeStep]:
        position = state.position
        for agent in range(self.agents):
            target = position[agent] + jnp.asarray(MOVES)[actions[agent]]
            row, col = target
            inside = (row >= 0) & (row < ROWS) & (col >= 0) & (col < COLS)
            wall = ~jnp.asarray(OPEN)[row.clip(0, ROWS - 1), col.clip(0, COLS - 1)]
            taken = jnp.all(position == target, axis=1).any()
            moves = inside & ~wall & ~taken & ~state.home[agent]
            position = position.at[agent].set(jnp.where(moves, target, position[agent]))
        at_home = jnp.all(position == jnp.asarray(HOMES[: self.agents]), axis=1)
        reward = jnp.where(state.home, 0.0, jnp.where(at_home, HOME_REWARD, STEP_COST))
        state = SwitchState(position, at_home, state.steps + 1)
        return state, self._observe(state, reward)

    def _observe(self, state: SwitchState, reward: Array | float) -> TimeStep:
        row, col = state.position.T
        clock = state.steps / self.time_limit
        seen = [jnp.asarray(ROW_SEEN)[row], jnp.asarray(COL_SEEN)[col]]
        positions_and_home = jnp.stack([*seen, state.home.astype(jnp.float32)], axis=1)
        if self.clock:
            seen.append(jnp.broadcast_to(clock, (self.agents,)))
        obs = jnp.stack(seen, axis=1)
        if self.full_observability:
            obs = jnp.broadcast_to(obs.reshape(-1), (self.agents, obs.size))
        all_home = state.home.all()
        return self.timestep(
            obs,
            state=jnp.append(positions_and_home.reshape(-1), clock),
            reward=reward,
            terminated=all_home,
            alive=~state.home,
            won=all_home,
        )

    def frame(self, state: SwitchState) -> dict[str, Any]:
        return {
            "kind": "grid",
            "open": OPEN,
            "position": state.position,
            "target": HOMES[: self.agents],
            "home": state.home,
        }


def entry(variant: str) -> tuple[type[Env], dict[str, Any]]:
    """The class behind `switch/VARIANT` and the fields that the name fixes."""
    return Switch, {"agents": int(variant)}

"""Battles with two controlled sides: the enemies have SMAC's interface too.

The battle itself is the same. `Commanded` replaces the game's script and turns actions into orders. `Duel`
shows the units to the enemies as if they were the allies: they come first and are numbered like allies, and
if the terrain is symmetric the map is reflected, so that they too start in the west. One policy can then play
either side.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.batching import batch_last
from phalanx.envs.battle.env import GOES_ON, WON, Battle, BattleState
from phalanx.envs.battle.layout import Extra
from phalanx.envs.battle.observe import Observer, View
from phalanx.envs.battle.orders import ally_orders
from phalanx.envs.battle.terrain import SIZE, Terrain
from phalanx.envs.battle.v2 import BattleV2
from phalanx.envs.battle.world import NOBODY, Orders, Params, Units, World, pick
from phalanx.envs.sides import SidedWorld
from phalanx.errors import PhalanxError
from phalanx.types import Array, EnvSpec, Observation, TimeStep

ALLIES, ENEMIES = "allies", "enemies"


class Told(NamedTuple):
    """What `Commanded` has in place of a memory."""

    actions: Array
    """(E, B) int32: of the enemies, as they number themselves; -1 before the first"""
    order: Array
    """(N, B) int32: how the enemies number all units, themselves first"""


@dataclass(frozen=True)
class Commanded:
    """An opponent whose units are controlled by actions."""

    observer: Observer
    """how the enemies see the battle"""
    flip: tuple[bool, bool]
    """whether they see it with x and with y reflected"""

    acquires = False

    def start(self, world: World, goal: Array) -> Told:
        order = np.roll(np.arange(world.n, dtype=np.int32), -world.allies)
        actions = jnp.full((world.enemies, goal.shape[-1]), -1, jnp.int32)
        return Told(actions, jnp.broadcast_to(order[:, None], (world.n, goal.shape[-1])))

    def orders(self, world: World, p: Params, units: Units, memory: Told) -> tuple[Orders, Told]:
        seen = from_the_other_side(units, memory.order, self.flip)
        given = ally_orders(self.observer, reordered(p, memory.order), seen, memory.actions)
        # Back to our numbers and places.
        row = jnp.argsort(memory.order, axis=0)[world.sides[1]]
        aim, goal_x, goal_y, walks, keep = (jnp.take_along_axis(part, row, 0) for part in given)
        flip_x, flip_y = self.flip
        back = Orders(
            aim=jnp.where(aim == NOBODY, NOBODY, pick(memory.order, aim)),
            goal_x=SIZE - goal_x if flip_x else goal_x,
            goal_y=SIZE - goal_y if flip_y else goal_y,
            walks=walks,
            keep=keep,
        )
        return back, memory


def reordered(p: Params, order: Array) -> Params:
    """The stats of units in another order, (N, B); constants that all units share stay as they are."""

    def taken(values: Any) -> Any:
        if values.shape[0] == 1 or (isinstance(values, np.ndarray) and (values == values[0]).all()):
            return values
        wide = jnp.broadcast_to(values, (values.shape[0], order.shape[1]))
        return jnp.take_along_axis(wide, order, axis=0)

    return Params(*map(taken, p))


def from_the_other_side(units: Units, order: Array, flip: tuple[bool, bool]) -> Units:
    """The units (N, B) as the other side numbers them, on the map as it sees it."""

    def taken(values: Array | None) -> Any:
        return None if values is None else jnp.take_along_axis(values, order, axis=0)

    def renamed(index: Array | None) -> Any:
        if index is None:
            return None
        place = jnp.argsort(order, axis=0).astype(jnp.int32)
        return jnp.where(index == NOBODY, NOBODY, jnp.take_along_axis(place, jnp.maximum(index, 0), axis=0))

    flip_x, flip_y = flip
    beam = units.beam
    if beam is not None:
        beam = jnp.take_along_axis(beam, order[None], axis=1)
        x, y, dx, dy = beam
        beam = jnp.stack(
            [
                SIZE - x if flip_x else x,
                SIZE - y if flip_y else y,
                -dx if flip_x else dx,
                -dy if flip_y else dy,
            ]
        )
    moved = units._replace(
        x=SIZE - units.x if flip_x else units.x,
        y=SIZE - units.y if flip_y else units.y,
        blocked=-units.blocked if flip_x != flip_y else units.blocked,
        aim=renamed(units.aim),
        flight_at=renamed(units.flight_at),
        beam=None,
    )
    return jax.tree.map(taken, moved)._replace(beam=beam)


def _reflection(battle: Battle) -> tuple[bool, bool]:
    """Whether x and y are reflected for the enemies: along the way between the sides, on symmetric ground."""
    if isinstance(battle, BattleV2):
        return True, False
    ours, theirs = (squads[0].place for squads in battle._scenario.squads)
    walkable = Terrain(battle._scenario.terrain).walkable
    if ours[1] == theirs[1] and ours[0] + theirs[0] == SIZE and (walkable == walkable[::-1]).all():
        return True, False
    if ours[0] == theirs[0] and ours[1] + theirs[1] == SIZE and (walkable == walkable[:, ::-1]).all():
        return False, True
    return False, False


class _Swapped(Battle):
    """A battle in which the enemies are the allies: for its observer, its rewards and its spec."""

    @cached_property
    def _scenario(self):
        as_given = super()._scenario
        return replace(
            as_given,
            allies=as_given.enemies,
            enemies=as_given.allies,
            ally_at=as_given.enemy_at,
            enemy_at=as_given.ally_at,
        )


def _swapped(battle: Battle) -> Battle:
    if isinstance(battle, BattleV2):
        return replace(battle, allies=battle.enemies, enemies=battle.allies, opponent=_NOBODY_ACTS)
    fields = {name: getattr(battle, name) for name in battle.__dataclass_fields__}
    return _Swapped(**{**fields, "opponent": _NOBODY_ACTS})


class _Idle(NamedTuple):
    """Stands for an opponent where only the view of a battle is wanted."""

    acquires = False


_NOBODY_ACTS: Any = _Idle()


class Duel(SidedWorld):
    """A battle whose sides are both commanded."""

    sides = (ALLIES, ENEMIES)

    def __init__(self, battle: Battle):
        if isinstance(battle, BattleV2) and (battle.conic_view or battle.prob_obs_enemy < 1):
            raise PhalanxError(
                f"{battle.spec.name} cannot have two commanded sides with conic_view or prob_obs_enemy: "
                f"leave these options out"
            )
        self.theirs = _swapped(battle)
        self.flip = _reflection(battle)
        self.ours = replace(battle, opponent=Commanded(self.theirs.observer, self.flip))

    def spec(self, side: str) -> EnvSpec:
        return self.ours.spec if side == ALLIES else self.theirs.spec

    def reset(self, key: Array) -> tuple[BattleState, dict[str, TimeStep]]:
        state, step = self.ours.reset(key)
        created = self.ours.created(key)
        state = batch_last(self._numbered)(state, created)
        view = batch_last(self._view)(state)
        no = jnp.bool_(False)
        return state, self._both(step, view, jnp.float32(0), no)

    def step(
        self, key: Array, state: BattleState, actions: Mapping[str, Array]
    ) -> tuple[BattleState, dict[str, TimeStep]]:
        told = batch_last(self._tell)(state, actions[ENEMIES])
        after, step = self.ours.step(key, told, actions[ALLIES])
        view, reward, won = batch_last(self._for_them)(state, after)
        return after, self._both(step, view, reward, won)

    def frame(self, state: BattleState, side: str) -> dict[str, Any] | None:
        if side == ALLIES:
            return self.ours.frame(state)
        _, kinds, units = self._seen(jax.tree.map(lambda x: jnp.asarray(x)[..., None], state))
        kinds, units = jax.tree.map(lambda x: np.asarray(x)[..., 0], (kinds, units))
        return self.theirs.frame(state._replace(kinds=kinds, units=units))

    def _both(self, step: TimeStep, view: View, reward: Array, won: Array) -> dict[str, TimeStep]:
        """The time steps of both sides, from that of the allies and what the enemies see and get."""
        info = step.info
        theirs = TimeStep(
            observation=Observation(*view),
            reward=jnp.broadcast_to(reward, (self.theirs._world.allies,)),
            terminated=step.terminated,
            truncated=step.truncated,
            info={
                "won": won,
                "lost": info["won"],
                "dead_allies": info["dead_enemies"],
                "dead_enemies": info["dead_allies"],
            },
        )
        return {ALLIES: step._replace(info={**info, "lost": won}), ENEMIES: theirs}

    # With the environments last

    def _numbered(self, state: BattleState, created: Array) -> BattleState:
        """Let the enemies number the units: themselves by type and place, the allies as they were created."""
        world, units = self.ours._world, state.units
        enemies = world.sides[1]
        kind = state.kinds if state.kinds is not None else jnp.asarray(world.kinds, jnp.int32)[:, None]
        kind = jnp.broadcast_to(kind, units.x.shape)[enemies]
        x, y = units.x[enemies], units.y[enemies]
        x, y = SIZE - x if self.flip[0] else x, SIZE - y if self.flip[1] else y
        own = world.allies + jnp.lexsort((y, x, kind), axis=0).astype(jnp.int32)
        return state._replace(memory=state.memory._replace(order=jnp.concatenate([own, created])))

    def _tell(self, state: BattleState, actions: Array) -> BattleState:
        alive = jnp.take_along_axis(state.units.health > 0, state.memory.order, axis=0)
        actions = jnp.where(alive[: actions.shape[0]], actions, 0).astype(jnp.int32)
        return state._replace(memory=state.memory._replace(actions=actions))

    def _seen(self, state: BattleState) -> tuple[Params, Array | None, Units]:
        order = state.memory.order
        kinds = None if state.kinds is None else jnp.take_along_axis(state.kinds, order, axis=0)
        return self.theirs._world.params(kinds), kinds, from_the_other_side(state.units, order, self.flip)

    def _view(self, state: BattleState) -> View:
        params, kinds, units = self._seen(state)
        extra = Extra(
            last_action=state.memory.actions,
            time=state.steps / np.float32(self.ours.time_limit),
            facing=None,
            known=None,
        )
        return self.theirs.observer.look(params, kinds, units, extra)

    def _for_them(self, before: BattleState, after: BattleState) -> tuple[View, Array, Array]:
        """What the enemies see after a step, earn by it, and whether they have won."""
        ours = self.ours._outcome(self.ours._world.params(after.kinds), after.units)
        outcome = jnp.where(ours == GOES_ON, GOES_ON, -ours)
        params, _, units = self._seen(after)
        had = from_the_other_side(before.units, after.memory.order, self.flip)
        reward = self.theirs._reward(params, had, units, outcome)
        return self._view(after), reward, outcome == WON

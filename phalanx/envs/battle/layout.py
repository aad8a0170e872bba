"""What the arrays of a battle hold: the actions, which entries there are, and what they are made of.

Arrays have the environments last: units (N, B), observations (A, O, B), state (X, B), masks (A, U, B).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from phalanx.envs.battle.world import World
from phalanx.types import Array

NO_OP, STOP, NORTH, SOUTH, EAST, WEST, FIRST_TARGET = range(7)
DIRECTIONS = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]], np.float32)  # north, south, east, west
DIRECTION_NAMES = ("north", "south", "east", "west")
LOOKS = 12  # directions that a SMACv2 agent with a cone of view can look in


class Extra(NamedTuple):
    """What observations show besides the units."""

    last_action: Array
    """(A, B) int32, -1 before the first"""
    time: Array
    """(B,) the fraction of the time limit that is over"""
    facing: Array | None
    """(A, B) int32: which of the directions each agent looks in"""
    known: Array | None
    """(A, E, B) bool: which enemies each agent may see at all"""


class Parts(NamedTuple):
    """What observations and state are put together from."""

    health: Array
    """(N, B) of the unit's most"""
    shield: Array | None
    """(N, B) of the unit's most"""
    bits: tuple[list[Array], list[Array]]
    """for allies and enemies: [(units, bits, B)] of their types, or []"""
    did: Array
    """(A, U, B) one-hot: what each agent did last"""
    place: tuple[Array, Array, Array]
    """distance, dx and dy from each agent to each unit, (A, N, B)"""
    visible: Array
    """(A, N, B) bool"""
    avail: Array
    """(A, U, B) bool"""


@dataclass(frozen=True)
class Layout:
    """Which entries a battle shows."""

    world: World
    labels: tuple[tuple[str, ...], tuple[str, ...]]
    """for allies and enemies: the type names in the order of their one-hot bits; empty without bits"""
    shields: tuple[bool, bool]
    """whether allies and enemies show a shield"""
    unit_ranges: bool = False
    """SMACv2: sight and attack mask by unit type"""
    own_position: bool = False
    """SMACv2: own position in the observation"""
    cone: bool = False
    last_action: bool = False
    timestep: bool = False
    open_loop: bool = False
    """the time is all that agents observe"""
    pathing: bool = False
    height: bool = False
    all_health: bool = True
    own_health: bool = True
    state_last_action: bool = True
    state_timestep: bool = False
    state: Literal["global", "agent"] = "global"

    @cached_property
    def n_actions(self) -> int:
        world = self.world
        targets = world.enemies
        if world.can.heal:  # a medivac's targets are its friends
            targets = max(world.allies, world.enemies)
        return self.first_target + targets

    @property
    def first_target(self) -> int:
        return FIRST_TARGET + (LOOKS if self.cone else 0)

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions; a medivac's `target` is an ally, all others' an enemy."""
        looks = tuple(f"look {360 * k // LOOKS} degrees" for k in range(LOOKS)) if self.cone else ()
        moves = tuple(f"move {name}" for name in DIRECTION_NAMES)
        targets = tuple(f"target {j}" for j in range(self.n_actions - self.first_target))
        return ("no-op", "stop", *moves, *looks, *targets)

    def action_names(self, kind: str) -> tuple[str, ...]:
        """The same as an agent of this unit type would say them; as they are where types are drawn."""
        if self.world.drawn:
            return self.actions
        prefixes = ("target ", "heal agent_" if kind == "medivac" else "attack enemy ")
        return tuple(name.replace(*prefixes) for name in self.actions)

    # Names of entries that observations and state share

    def type_names(self, side: int) -> tuple[str, ...]:
        return tuple(f"is {label}" for label in self.labels[side])

    def shield_name(self, side: int) -> tuple[str, ...]:
        return ("shield",) if self.shields[side] else ()

    def did_names(self) -> tuple[str, ...]:
        return tuple(f"did {action}" for action in self.actions)

    # Entries that observations and state share

    def type_bits(self, side: int, kinds: Array | None, batch: int) -> list[Array]:
        """[(units, bits, B)] or [] without bits."""
        labels = self.labels[side]
        if not labels:
            return []
        part, world = self.world.sides[side], self.world
        order = np.array([labels.index(unit.name) for unit in world.types])
        if kinds is None:
            bit = order[list(world.kinds)][part]
            rows = np.eye(len(labels), dtype=np.float32)[bit]
            return [jnp.broadcast_to(rows[..., None], (*rows.shape, batch))]
        bit = jnp.asarray(order)[kinds[part]]
        return [(bit[:, None] == np.arange(len(labels))[:, None]).astype(jnp.float32)]


def pad(x: Array, count: int, axis: int = 1) -> Array:
    """Append zeros (False) until an axis has `count` entries."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, max(0, count - x.shape[axis]))
    return jnp.pad(x, widths)


def others(x: Array) -> Array:
    """(A, A, ...) -> (A, A - 1, ...): what each agent sees of the others, itself left out.

    In the flattened square the diagonal stands at every (A + 1)th place.
    """
    count, rest = x.shape[0], x.shape[2:]
    flat = x.reshape(count * count, *rest)[1:]
    return flat.reshape(count - 1, count + 1, *rest)[:, :-1].reshape(count, count - 1, *rest)

"""The state of a battle, whole or as each agent sees it. Entries stand beside their names, in one order."""

import jax.numpy as jnp
import numpy as np

from phalanx.envs.battle.layout import DIRECTION_NAMES, FIRST_TARGET, NORTH, Extra, Layout, Parts, others, pad
from phalanx.envs.battle.sight import SIGHT, direction, of_type
from phalanx.envs.battle.terrain import SIZE
from phalanx.envs.battle.units import ENERGY_MAX
from phalanx.envs.battle.world import Params, Units, of_side
from phalanx.types import Array


def features(layout: Layout, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the entries of the state (of an agent's state, with `state="agent"`)."""
    return _agent_features(layout, names) if layout.state == "agent" else _global_features(layout, names)


def values(layout: Layout, p: Params, kinds: Array | None, u: Units, extra: Extra, parts: Parts) -> Array:
    """(X, B), or (A, X, B) with `state="agent"`."""
    if layout.state == "agent":
        return _agent_state(layout, p, kinds, u, parts)
    return _global_state(layout, p, kinds, u, extra, parts)


# Of the whole


def _global_features(layout: Layout, names: tuple[str, ...]) -> tuple[str, ...]:
    cone = ("facing x", "facing y") if layout.cone else ()
    ally = ("health", "cooldown or energy", "x", "y", *layout.shield_name(0), *cone, *layout.type_names(0))
    enemy = ("health", "x", "y", *layout.shield_name(1), *layout.type_names(1))
    did = layout.did_names() if layout.state_last_action else ()
    return (
        *(f"{name}: {entry}" for name in names for entry in ally),
        *(f"enemy {j}: {entry}" for j in range(layout.world.enemies) for entry in enemy),
        *(f"{name}: {entry}" for name in names for entry in did),
        *(("time",) if layout.state_timestep else ()),
    )


def _global_state(
    layout: Layout, p: Params, kinds: Array | None, u: Units, extra: Extra, parts: Parts
) -> Array:
    allies, enemies = layout.world.sides
    alive, health, shield = (u.health > 0)[:, None], parts.health, parts.shield
    x, y = (u.x - SIZE / 2) / SIZE, (u.y - SIZE / 2) / SIZE
    planes = [health[allies], _readiness(layout, p, kinds, u), x[allies], y[allies]]
    planes += [shield[allies]] if layout.shields[0] and shield is not None else []
    planes += list(direction(extra.facing)) if extra.facing is not None else []
    ours = jnp.concatenate([jnp.stack(planes, axis=1), *parts.bits[0]], axis=1)
    planes = [health[enemies], x[enemies], y[enemies]]
    planes += [shield[enemies]] if layout.shields[1] and shield is not None else []
    theirs = jnp.concatenate([jnp.stack(planes, axis=1), *parts.bits[1]], axis=1)
    batch = u.x.shape[1]
    rows = [
        jnp.where(alive[allies], ours, 0.0).reshape(-1, batch),
        jnp.where(alive[enemies], theirs, 0.0).reshape(-1, batch),
    ]
    if layout.state_last_action:
        rows.append(parts.did.reshape(-1, batch))
    if layout.state_timestep:
        rows.append(extra.time[None])
    return jnp.concatenate(rows)


def _readiness(layout: Layout, p: Params, kinds: Array | None, u: Units) -> Array:
    """(A, B): the weapon's cooldown over SMAC's scale of it, or a medivac's energy."""
    allies = layout.world.sides[0]
    scale = of_type(layout.world, kinds, [unit.cooldown_scale for unit in layout.world.types])
    ready = jnp.maximum(u.cooldown[allies], 0.0) / scale
    if u.energy is None:
        return ready
    return jnp.where(of_side(p.heal, allies), u.energy[allies] / ENERGY_MAX, ready)


# As each agent sees it


def _agent_features(layout: Layout, names: tuple[str, ...]) -> tuple[str, ...]:
    did, bits = layout.did_names(), layout.type_names
    place = ("distance", "dx", "dy")
    ally = ("visible", *place, "cooldown or energy", "health")
    ally += (*layout.shield_name(0), "x", "y", *bits(0), *did)
    enemy = ("can attack", *place, "visible", "health", *layout.shield_name(1), *bits(1), "x", "y")
    own = ("present", "nothing 1", "nothing 2", "nothing 3", "health", *layout.shield_name(0), "x", "y")
    return (
        *(f"other ally {i}: {entry}" for i in range(layout.world.allies - 1) for entry in ally),
        *(f"enemy {j}: {entry}" for j in range(layout.world.enemies) for entry in enemy),
        *(f"can move {name}" for name in DIRECTION_NAMES),
        *(f"own {entry}" for entry in (*own, *bits(0), *did)),
        *(f"is {name}" for name in names),
    )


def _agent_state(layout: Layout, p: Params, kinds: Array | None, u: Units, parts: Parts) -> Array:
    """(A, X, B): the state as one agent sees it, in the layout of MAPPO's authors' environment.

    Everything is told however far it is, and whether it is within sight.
    """
    world, avail, bits = layout.world, parts.avail, parts.bits
    allies, enemies = world.sides
    alive, batch = u.health > 0, u.x.shape[1]
    count = world.allies
    x, y = (u.x - SIZE / 2) / SIZE, (u.y - SIZE / 2) / SIZE
    shields = [[parts.shield] if shown and parts.shield is not None else [] for shown in layout.shields]
    present = (alive[None] & alive[allies, None])[:, :, None]

    def spread(each: Array, part: slice) -> Array:
        return jnp.broadcast_to(each[part][None], (count, *each[part].shape))

    place = [each / SIGHT for each in parts.place]
    sees = parts.visible.astype(jnp.float32)
    whose = pad(_readiness(layout, p, kinds, u), world.n, axis=0)
    ours = [sees[:, allies], *(each[:, allies] for each in place)]
    ours += [spread(each, allies) for each in (whose, parts.health, *shields[0], x, y)]
    lead = avail[:, layout.first_target :][:, : world.enemies].astype(jnp.float32)
    theirs = [lead, *(each[:, enemies] for each in place), sees[:, enemies]]
    theirs += [spread(each, enemies) for each in (parts.health, *shields[1])]
    where = jnp.stack([spread(x, enemies), spread(y, enemies)], 2)
    friend_bits = [jnp.broadcast_to(each[None], (count, *each.shape)) for each in (*bits[0], parts.did)]
    foe_bits = [jnp.broadcast_to(each[None], (count, *each.shape)) for each in bits[1]]
    friends = jnp.where(present[:, allies], jnp.concatenate([jnp.stack(ours, 2), *friend_bits], 2), 0.0)
    foes = jnp.where(present[:, enemies], jnp.concatenate([jnp.stack(theirs, 2), *foe_bits, where], 2), 0.0)
    one, nothing = jnp.ones((count, batch)), jnp.zeros((count, batch))
    own = [one, nothing, nothing, nothing]
    own += [each[allies] for each in (parts.health, *shields[0], x, y)]
    ids = jnp.broadcast_to(np.eye(count, dtype=np.float32)[..., None], (count, count, batch))
    seen = [
        others(friends).reshape(count, -1, batch),
        foes.reshape(count, -1, batch),
        avail[:, NORTH:FIRST_TARGET].astype(jnp.float32),
        jnp.concatenate([jnp.stack(own, 1), *bits[0], parts.did], axis=1),
    ]
    seen = jnp.where(alive[allies, None], jnp.concatenate(seen, axis=1), 0.0)
    return jnp.concatenate([seen, ids], axis=1)

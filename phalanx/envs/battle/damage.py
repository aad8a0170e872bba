"""Damage and healing: what was fired arrives, shields and armour take their part, wounds close."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from phalanx.envs.batching import fold
from phalanx.envs.battle import units as data
from phalanx.envs.battle.terrain import SIZE, Terrain
from phalanx.envs.battle.units import LOOPS_PER_SECOND
from phalanx.envs.battle.world import Params, Seen, Units, World, of_side, pick
from phalanx.types import Array


class Hits(NamedTuple):
    """What strikes each unit in a loop, (N, B): damage before shields and armour, and how many hits it is."""

    raw: Array
    count: Array


def strike(world: World, p: Params, u: Units, seen: Seen, fires: Array, alive: Array) -> Units:
    """Let what was fired arrive; `fires` and `alive` are those of the loop's beginning."""
    lands, at = fires & (p.instant | p.double), u.aim
    sweeps = None
    if world.can.delay:
        u, arrives = _send(world, p, u, seen, fires, alive)
        lands, at = lands | (arrives & ~p.beam), jnp.where(arrives, u.flight_at, u.aim)
        sweeps = arrives & p.beam
    hits = _blows(world, p, lands, at)
    if world.can.beam and sweeps is not None:
        swept = _beams(world, p, u, sweeps, alive)
        hits = Hits(hits.raw + swept.raw, hits.count + swept.count)
    if not world.can.burst:
        return _hurt(world, p, u, hits)
    u = _hurt(world, p, u, hits)
    u = u._replace(health=jnp.where(fires & p.burst, 0.0, u.health))
    explodes = (alive & (u.health <= 0) & p.burst) | u.burst
    after = _hurt(world, p, u, _bursts(world, p, u, explodes))
    return after._replace(burst=(u.health > 0) & (after.health <= 0) & p.burst)


def _send(world: World, p: Params, u: Units, seen: Seen, fires: Array, alive: Array) -> tuple[Units, Array]:
    """Send off what does not hit at once: missiles, second blades, beams. Also whose has arrived, (N, B)."""
    left = u.flight - 1
    # A missile flies on when its sender dies; a blade or a beam does not.
    arrives = (u.flight > 0) & (left <= 0) & (p.missile | alive)
    delay = jnp.where(
        p.missile,
        jnp.maximum(seen.distance - p.radius, 0.0) / data.MISSILE_SPEED,
        jnp.where(p.double, data.SECOND_STRIKE, data.BEAM_DELAY),
    )
    sends = fires & ~p.instant & ~p.burst
    sent = u._replace(
        flight=jnp.where(sends, jnp.maximum(delay * LOOPS_PER_SECOND, 1.0), jnp.maximum(left, 0.0)),
        flight_at=jnp.where(sends, u.aim, u.flight_at),
    )
    if world.can.beam:
        shot = jnp.stack([seen.x, seen.y, seen.dx / seen.distance, seen.dy / seen.distance])
        sent = sent._replace(beam=jnp.where(sends & p.beam, shot, u.beam))
    # What arrives was sent before this loop: nobody fires again before that.
    return sent, arrives


def _from_enemies(
    world: World, batch: int, flag: str | None, strikes: Callable[[slice, np.ndarray], tuple[Array, ...]]
) -> Hits:
    """Ask for each side what the enemies that can be of a type with `flag` (or all) do to it."""
    parts = []
    for defenders, attackers in (world.sides, world.sides[::-1]):
        members = world.members(attackers, flag)
        nothing = jnp.zeros((defenders.stop - defenders.start, batch))
        parts.append(strikes(defenders, members) if len(members) else (nothing, nothing))
    raw, count = zip(*parts, strict=True)
    return Hits(jnp.concatenate(raw), jnp.concatenate(count))


def _strength(p: Params, members: np.ndarray, defenders: slice) -> Any:
    """(K, D, 1 or B): one hit of each attacker on each defender, before shields and armour."""

    def attacker(values: Any) -> Any:
        return (values[members] if values.shape[0] > 1 else values)[:, None]

    full = (
        attacker(p.damage)
        + attacker(p.bonus_light) * of_side(p.light, defenders)[None]
        + attacker(p.bonus_armored) * of_side(p.armored, defenders)[None]
    )
    xp = np if isinstance(full, np.ndarray) else jnp
    return xp.broadcast_to(full, (len(members), *full.shape[1:])).astype(np.float32)


def _blows(world: World, p: Params, lands: Array, at: Array) -> Hits:
    """Every unit that `lands` a hit hits the one unit `at`."""

    def strikes(defenders: slice, members: np.ndarray) -> tuple[Array, ...]:
        target = jnp.arange(defenders.start, defenders.stop)[:, None]

        def blow(attack):
            lands, at, strength = attack
            here = lands & (at == target)
            return jnp.where(here, strength, 0.0), here.astype(jnp.float32)

        attackers = slice(members[0], members[-1] + 1)
        return fold(blow, ("sum", "sum"), (lands[attackers], at[attackers], _strength(p, members, defenders)))

    return _from_enemies(world, lands.shape[1], None, strikes)


def _bursts(world: World, p: Params, u: Units, explodes: Array) -> Hits:
    """Every unit that explodes hits all enemies on the ground around it."""

    def strikes(defenders: slice, members: np.ndarray) -> tuple[Array, ...]:
        x, y = u.x[defenders], u.y[defenders]
        reach = data.BURST_RADIUS + of_side(p.radius, defenders)
        hittable = (u.health[defenders] > 0) & ~of_side(p.flying, defenders)

        def burst(source):
            explodes, sx, sy, strength = source
            dx, dy = x - sx, y - sy
            here = explodes & hittable & (dx * dx + dy * dy <= reach * reach)
            return jnp.where(here, strength, 0.0), here.astype(jnp.float32)

        strength = _strength(p, members, defenders)
        return fold(burst, ("sum", "sum"), (explodes[members], u.x[members], u.y[members], strength))

    return _from_enemies(world, u.x.shape[1], "burst", strikes)


def _beams(world: World, p: Params, u: Units, sweeps: Array, alive: Array) -> Hits:
    """Every beam hits its target, and all enemies on the ground that its line touches on the same level."""
    hits = 2.0  # one sweep each way

    def strikes(defenders: slice, members: np.ndarray) -> tuple[Array, ...]:
        x, y = u.x[defenders], u.y[defenders]
        radius = of_side(p.radius, defenders)
        hittable = alive[defenders] & ~of_side(p.flying, defenders)
        level = _level(world.terrain, x, y)
        target = jnp.arange(defenders.start, defenders.stop)[:, None]

        def beam(source):
            sweeps, at, line, line_level, strength = source
            dx, dy = x - line[0], y - line[1]
            along, across = dx * line[2] + dy * line[3], dy * line[2] - dx * line[3]
            touched = (jnp.abs(across) <= data.BEAM_HALF_LENGTH + radius) & (
                jnp.abs(along) <= data.BEAM_HALF_WIDTH + radius
            )
            here = sweeps & hittable & ((at == target) | (touched & (level == line_level)))
            return jnp.where(here, hits * strength, 0.0), jnp.where(here, hits, 0.0)

        line = jnp.moveaxis(u.beam[:, members], 0, 1)
        line_level = _level(world.terrain, line[:, 0], line[:, 1])
        strength = _strength(p, members, defenders)
        return fold(beam, ("sum", "sum"), (sweeps[members], u.flight_at[members], line, line_level, strength))

    return _from_enemies(world, u.x.shape[1], "beam", strikes)


def _level(terrain: Terrain, x: Array, y: Array) -> Array:
    """The cliff level of places (...)."""
    if (terrain.level[terrain.stridable] == 1).all():
        return jnp.ones_like(x)
    cell = jnp.floor(x).astype(jnp.int32) * SIZE + jnp.floor(y).astype(jnp.int32)
    return jnp.asarray(terrain.level.reshape(-1))[cell]


def _hurt(world: World, p: Params, u: Units, hits: Hits) -> Units:
    """Take a loop's hits: first from the shield, then, less armour for each, from health.

    Exact when the hits of one loop are equally strong; else the hits that pierce the shield are
    counted as if they were.
    """
    raw, count = hits
    if not world.can.shield:
        loss = raw
        if world.can.armour:
            loss = jnp.maximum(raw - p.armour * count, data.LEAST_DAMAGE * count)
        return u._replace(health=jnp.maximum(u.health - loss, 0.0))
    past = jnp.maximum(raw - u.shield, 0.0)
    absorbed = jnp.floor(u.shield * count / jnp.maximum(raw, 1e-6) + 1e-4)
    piercing = count - jnp.minimum(absorbed, count)
    loss = jnp.where(past > 0, jnp.maximum(past - p.armour * piercing, data.LEAST_DAMAGE * piercing), 0.0)
    return u._replace(
        health=jnp.maximum(u.health - loss, 0.0),
        shield=jnp.maximum(u.shield - raw, 0.0),
        calm=jnp.where(raw > 0, 0.0, u.calm),
    )


def mend(world: World, p: Params, u: Units, reach: Array) -> Units:
    """Regenerate and heal the living; `reach` (N, B) says whose target is within range."""
    alive = u.health > 0
    if world.can.shield:
        rests = alive & (u.calm >= data.SHIELD_DELAY * LOOPS_PER_SECOND)
        shield = jnp.where(rests, u.shield + data.SHIELD_RATE / LOOPS_PER_SECOND, u.shield)
        u = u._replace(shield=jnp.minimum(shield, p.shield), calm=u.calm + 1)
    if world.can.regenerate:
        u = u._replace(health=jnp.where(alive, jnp.minimum(u.health + p.regeneration, p.health), u.health))
    return _heal(world, p, u, reach, alive) if world.can.heal else u


def _heal(world: World, p: Params, u: Units, reach: Array, alive: Array) -> Units:
    """Medivacs turn energy into their target's health."""
    heal = data.HEAL_RATE / LOOPS_PER_SECOND
    cost = heal * data.ENERGY_PER_HEALTH
    hurt = pick(u.health, u.aim) < pick(p.health, u.aim)
    heals = p.heal & alive & reach & hurt & (u.energy >= cost)
    given = []
    for side in world.sides:
        members = world.members(side, "heal")
        target = jnp.arange(side.start, side.stop)[:, None]

        def give(medic, target=target):
            heals, at = medic
            return (jnp.where(heals & (at == target), heal, 0.0),)

        if len(members):
            given += fold(give, ("sum",), (heals[members], u.aim[members]))
        else:
            given.append(jnp.zeros((side.stop - side.start, u.x.shape[1])))
    health = jnp.minimum(u.health + jnp.concatenate(given), p.health)
    energy = u.energy - jnp.where(heals, cost, 0.0) + data.ENERGY_RATE / LOOPS_PER_SECOND
    return u._replace(
        health=jnp.where(alive, health, u.health),
        energy=jnp.where(p.heal & alive, jnp.minimum(energy, data.ENERGY_MAX), 0.0),
    )

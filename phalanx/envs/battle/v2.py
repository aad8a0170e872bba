"""SMACv2: battles with random teams and starts (Ellis et al. 2023, https://arxiv.org/abs/2212.07489)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.config import option, with_default
from phalanx.envs.batching import batch_last
from phalanx.envs.battle import spawn
from phalanx.envs.battle.env import Battle, BattleState
from phalanx.envs.battle.layout import FIRST_TARGET, LOOKS
from phalanx.envs.battle.observe import Observer, View
from phalanx.envs.battle.opponent import Opponent, Script
from phalanx.envs.battle.scenarios import EXCEPTIONS, RACES, TYPE_CHANCES, V2_LIMIT, Squad
from phalanx.envs.battle.terrain import SIZE, Terrain
from phalanx.envs.battle.units import unit_types
from phalanx.envs.battle.world import Params, World
from phalanx.types import Array, TimeStep

CENTRE = SIZE / 2
CORNERS = np.array([[0, 0], [0, SIZE], [SIZE, 0], [SIZE, SIZE]], np.float32)
INNER = 2.0  # how far from the centre, on each axis, surrounding groups come at most
MARGIN = 0.5


@dataclass(frozen=True)
class BattleV2(Battle):
    """A battle with random teams and initial positions.

    Both teams have the same types (extra enemies are drawn like the others). Half of the time the teams start
    anywhere on their own halves, as mirror images; else the allies start in the middle, surrounded by one to
    four groups. Sight range and attack mask depend on the unit type, agents observe their own position, and
    enemies always attack the nearest ally. With `conic_view` agents see and aim only within 30 degrees, and
    have twelve more actions to look around.
    """

    race: str = "terran"
    allies: int = 5
    enemies: int = 5
    reward: Literal["absolute", "clamped", "signed", "sparse"] = with_default(Battle, "reward", "clamped")
    starts: int = 0  # they are drawn anew in each battle
    start_seed: int = 0
    unit_ranges: bool = option(True, "sight and attack range depend on the unit type; else 9 and 6 cells")
    obs_position: bool = option(True, "add the agent's position to its observation")
    conic_view: bool = option(False, "agents see and aim only within a cone, whose direction they choose")
    prob_obs_enemy: float = option(
        1.0,
        "probability that an agent may see an enemy that another saw first; 0 is the EPO variant, in which "
        "each enemy is seen by one agent only",
        at_least=0,
        at_most=1,
    )

    @cached_property
    def _kinds(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return RACES[self.race], RACES[self.race]

    @property
    def time_limit(self) -> int:
        return V2_LIMIT

    @cached_property
    def _opponent(self) -> Opponent:
        return self.opponent if self.opponent is not None else Script(march=False, hunt=True)

    @cached_property
    def _world(self) -> World:
        types = unit_types(self.stats)
        return World(
            allies=self.allies,
            types=tuple(types[name] for name in RACES[self.race]),
            kinds=(0,) * (self.allies + self.enemies),
            drawn=True,
            terrain=Terrain("open"),
            enemies_acquire=self._opponent.acquires,
        )

    @cached_property
    def observer(self) -> Observer:
        return self._observer(
            (RACES[self.race], RACES[self.race]),
            unit_ranges=self.unit_ranges,
            own_position=self.obs_position,
            cone=self.conic_view,
        )

    @property
    def _agent_types(self) -> tuple[str, ...]:
        # An agent's unit type changes from episode to episode.
        return (self.race,) * self.allies

    # Starts

    @cached_property
    def _spots(self) -> np.ndarray:
        """(n, 2): where the members of a squad stand around its place, the nearest first."""
        types = unit_types(self.stats)
        ground = [name for name in RACES[self.race] if not (types[name].flying or types[name].strides)]
        widest = max(ground, key=lambda name: types[name].body)
        squad = Squad(widest, max(self.allies, self.enemies), (CENTRE, CENTRE))
        return spawn.pack([squad], types, Terrain("open"), np.random.default_rng(0)) - CENTRE

    def reset(self, key: Array) -> tuple[BattleState, TimeStep]:
        team_key, place_key, see_key = jax.random.split(key, 3)
        kinds = self._draw_teams(team_key)
        x, y = self._draw_places(place_key)
        # Agents are numbered by type, then from the west; enemies as they were drawn.
        rank = (kinds * SIZE + x)[: self.allies]
        earlier = np.tril(np.ones((self.allies, self.allies), bool), -1)
        place = ((rank[:, None] > rank[None]) | ((rank[:, None] == rank[None]) & earlier)).sum(1)
        order = jnp.argmax(place[None] == jnp.arange(self.allies)[:, None], axis=1)
        order = jnp.concatenate([order, jnp.arange(self.allies, self._world.n)])
        drawn = jax.random.uniform(see_key, (self.allies, self.enemies + 1))
        state, view = batch_last(self._begin_drawn)(kinds[order], x[order], y[order], drawn)
        return state, self._timestep(view, *self._nothing_yet())

    def created(self, key: Array) -> Array:
        # They are drawn independently of each other: any order that knows nothing of them is as good.
        return jax.random.permutation(jax.random.fold_in(key, 1), self.allies).astype(jnp.int32)

    def _draw_teams(self, key: Array) -> Array:
        """(N,) int32: random types; the enemies' are the allies', and those of extra ones are drawn."""
        draw, other = jax.random.uniform(key, (2, max(self.allies, self.enemies)))
        bounds = np.cumsum(TYPE_CHANCES)
        kinds = (draw >= bounds[0]).astype(jnp.int32) + (draw >= bounds[1])
        exception = EXCEPTIONS[self.race]
        parts = (slice(0, self.allies), slice(self.allies, self.enemies))
        if exception is not None:
            bad = RACES[self.race].index(exception)
            for part in parts:
                if part.stop > part.start:  # where all are of the excepted type, the first is not
                    instead = jnp.where(other[part][0] < 0.5, 0, 1)
                    first = jnp.where((kinds[part] == bad).all(), instead, kinds[part.start])
                    kinds = kinds.at[part.start].set(first)
        return jnp.concatenate([kinds[: self.allies], kinds[: self.enemies]])

    def _draw_places(self, key: Array) -> tuple[Array, Array]:
        """(N,), (N,): mirrored halves or a surrounded centre, half of the time each."""
        which_key, half_key, ring_key = jax.random.split(key, 3)
        u = jax.random.uniform(half_key, (2, max(self.allies, self.enemies)))
        x, y = u[0] * (CENTRE - 1), u[1] * SIZE
        mirrored = SIZE - x[: self.enemies]
        extra = jnp.arange(self.enemies) >= self.allies
        mirrored = jnp.where(extra, CENTRE + u[0, : self.enemies] * CENTRE, mirrored)
        halves = (
            jnp.concatenate([x[: self.allies], mirrored]),
            jnp.concatenate([y[: self.allies], y[: self.enemies]]),
        )
        surround = jax.random.bernoulli(which_key)
        ring = self._draw_ring(ring_key)
        return tuple(  # type: ignore[return-value]
            jnp.where(surround, a, b).clip(MARGIN, SIZE - MARGIN) for a, b in zip(ring, halves, strict=True)
        )

    def _draw_ring(self, key: Array) -> tuple[Array, Array]:
        """Allies in the middle; each enemy in one of one to four groups, each on a diagonal of its own."""
        count_key, group_key, corner_key, depth_key = jax.random.split(key, 4)
        groups = jax.random.randint(count_key, (), 1, 5)
        group = (jax.random.uniform(group_key, (self.enemies,)) * groups).astype(jnp.int32)
        order = jax.random.uniform(corner_key, (4,))
        rank = (order[:, None] > order[None]).sum(1)  # a random permutation of the corners
        corner = jnp.argmax(rank[None] == group[:, None], axis=1)
        depth = jax.random.uniform(depth_key, (4,))[corner]
        outer = jnp.asarray(CORNERS)[corner]
        inner = CENTRE + INNER * jnp.sign(outer - CENTRE)
        place = depth[:, None] * inner + (1 - depth[:, None]) * outer
        earlier = np.tril(np.ones((self.enemies, self.enemies), bool), -1)
        spot = ((group[:, None] == group[None]) & earlier).sum(1)
        theirs = place + jnp.asarray(self._spots, jnp.float32)[spot]
        ours = CENTRE + jnp.asarray(self._spots[: self.allies], jnp.float32)
        x, y = jnp.concatenate([ours, theirs]).T
        return x, y

    def _begin_drawn(self, kinds: Array, x: Array, y: Array, drawn: Array) -> tuple[BattleState, View]:
        batch = x.shape[1]
        sight: dict[str, Any] = {}
        if self.conic_view:
            sight["facing"] = jnp.zeros((self.allies, batch), jnp.int32)
        if self.prob_obs_enemy < 1:
            lucky = drawn[:, 1:] < self.prob_obs_enemy
            sight |= {"lucky": lucky, "known": jnp.zeros_like(lucky)}
        return self._begin(kinds, x, y, jnp.full((2, batch), CENTRE), drawn[:, 0], **sight)

    # Seeing

    @property
    def _noise(self) -> int:
        """One number a unit, and one an agent: the order in which agents look."""
        return self._world.n + self.allies

    def _sighted(self, state: BattleState, order: Array | None) -> BattleState:
        if state.facing is not None:
            look = state.last_action - FIRST_TARGET
            turns = (look >= 0) & (look < LOOKS)
            state = state._replace(facing=jnp.where(turns, look, state.facing))
        if state.known is None or state.lucky is None or order is None:
            return state
        ours, theirs = self._world.sides
        *_, visible = self.observer.in_sight(state.kinds, state.units, state.facing)
        sees = visible[:, theirs]
        turn = jnp.where(sees, order[:, None], -1.0)
        first = sees & (turn == turn.max(0))
        # Who dies no longer owns what it saw first.
        known = state.known & (state.units.health[ours, None] > 0)
        new = sees.any(0) & ~known.any(0)
        return state._replace(known=known | (new & (first | state.lucky)))

    # Rewards and endings

    def _only_medics_left(self, alive: Array, fights: Array) -> Array:
        return ~fights.any(0)

    def _scale(self, params: Params) -> Any:
        if not self.reward_scale:
            return 1.0
        theirs = self._world.sides[1]
        shape = (self._world.n, params.health.shape[-1])
        vigour = jnp.broadcast_to(params.health, shape) + params.shield
        best = vigour[theirs].sum(0) + self.reward_death * self.enemies + self.reward_win
        return best / self.reward_scale_rate

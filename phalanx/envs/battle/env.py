"""Battles as environments: actions to orders, eight game loops, then reward, endings and observations."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.config import option
from phalanx.envs import draws
from phalanx.envs.base import Env, numbered
from phalanx.envs.batching import batch_last
from phalanx.envs.battle import combat, scenarios, spawn
from phalanx.envs.battle.frames import frame
from phalanx.envs.battle.heuristic import NearestEnemy
from phalanx.envs.battle.layout import Extra
from phalanx.envs.battle.observe import Observer, View
from phalanx.envs.battle.opponent import Opponent, Script
from phalanx.envs.battle.orders import ally_orders
from phalanx.envs.battle.terrain import Terrain
from phalanx.envs.battle.units import INDEX_ORDER, Stats, unit_types
from phalanx.envs.battle.world import BattleState, Params, Units, World, start
from phalanx.errors import PhalanxError
from phalanx.types import Array, EnvSpec, Observation, PyTree, TimeStep

# Raised when battles go another way: 2, enemies keep targets in reach; 3, other starts; 4, one start a map.
RULES = 4


@dataclass(frozen=True)
class Battle(Env):
    """One of SMAC's battles: the same units every time.

    Actions: no-op (only the dead), stop, move north, south, east, west, then one for each enemy to
    attack (for a medivac: each ally to heal). An attack pursues its target. One reward for the whole
    team. See `docs/battle.md`.
    """

    scenario: str
    stats: Stats = option(
        "liberty",
        "unit statistics: liberty: the game data that SMAC uses; lotv: changes of Legacy of the Void",
    )
    reward: Literal["absolute", "clamped", "signed", "sparse"] = option(
        "absolute",
        "absolute: damage and kills as in SMAC (absolute change, so enemy regeneration is rewarded too); "
        "clamped: at least 0, as in SMACv2; signed: enemy regeneration and own losses are subtracted; "
        "sparse: only the outcome",
    )
    reward_death: float = option(10.0, "reward for each enemy killed")
    reward_win: float = option(200.0, "reward for a victory")
    reward_defeat: float = option(0.0, "reward for a defeat")
    reward_negative_scale: float = option(0.5, "weight of own losses, with reward=signed")
    reward_scale: bool = option(True, "scale rewards so that a clean victory sums to reward_scale_rate")
    reward_scale_rate: float = option(20.0, "scaled return of a clean victory", above=0)
    obs_last_action: bool = option(False, "observe the last actions of visible allies")
    obs_timestep: bool = option(False, "observe the time (step / time limit)")
    open_loop: bool = option(False, "observe only the time (step / time limit); action masks stay")
    obs_pathing: bool = option(False, "observe which of 8 surrounding cells are walkable")
    obs_height: bool = option(False, "observe the height of 9 cells around the agent")
    obs_all_health: bool = option(True, "observe the health and shields of others")
    obs_own_health: bool = option(True, "observe the agent's own health and shield")
    state_last_action: bool = option(True, "add all last actions to the state")
    state_timestep: bool = option(False, "add the time (step / time limit) to the state")
    state: Literal["global", "agent"] = option(
        "global", "global: SMAC's state; agent: agent-specific states, as in MAPPO's paper"
    )
    starts: int = option(
        1, "number of initial states: the map's own, the rest random", at_least=1, at_most=4096
    )
    start_seed: int = option(0, "seed of the random initial states", at_least=0)
    kernel: bool = option(
        False,
        "step a battle of few units (2m_vs_1m, 3m, 3s_vs_3z, 3s_vs_4z, 3s_vs_5z) in one kernel, on one GPU: "
        "faster, but slower to compile",
    )
    opponent: Opponent | None = None
    """who commands the enemies; the game's script when None"""

    def __post_init__(self) -> None:
        if self.starts == 1 and self.start_seed:
            raise PhalanxError("start_seed is for random initial states: set --env.starts to 2 or more")

    # What stays the same

    @cached_property
    def _scenario(self) -> scenarios.Scenario:
        return scenarios.SCENARIOS[self.scenario]

    @cached_property
    def _kinds(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The type of each ally, in the order of their numbers, and of each enemy."""
        allies, enemies = self._scenario.squads
        ours = sorted((s.kind for s in allies for _ in range(s.count)), key=INDEX_ORDER.index)
        return tuple(ours), tuple(s.kind for s in enemies for _ in range(s.count))

    @property
    def time_limit(self) -> int:
        return self._scenario.limit

    @cached_property
    def _opponent(self) -> Opponent:
        if self.opponent is not None:
            return self.opponent
        march = self._scenario.march
        return Script(march=isinstance(march, tuple) or march == "between", hunt=march == "hunt")

    @cached_property
    def _world(self) -> World:
        types, kinds = unit_types(self.stats), sum(self._kinds, ())
        used = sorted(set(kinds), key=INDEX_ORDER.index)
        return World(
            allies=len(self._kinds[0]),
            types=tuple(types[name] for name in used),
            kinds=tuple(used.index(kind) for kind in kinds),
            drawn=False,
            terrain=Terrain(self._scenario.terrain),
            enemies_acquire=self._opponent.acquires,
        )

    @cached_property
    def observer(self) -> Observer:
        """How this battle is shown: the layout of observations and state."""
        ours, _ = self._kinds
        labels = tuple(dict.fromkeys(ours)) if len(set(ours)) > 1 else ()
        # SMAC numbers the enemies' types the other way round on its stalker and zealot maps.
        enemy_labels = labels[::-1] if labels == ("stalker", "zealot") else labels
        return self._observer((labels, enemy_labels))

    def _observer(self, labels: tuple[tuple[str, ...], tuple[str, ...]], **more: Any) -> Observer:
        types = unit_types(self.stats)
        return Observer(
            world=self._world,
            labels=labels,
            shields=tuple(any(types[kind].shield for kind in side) for side in self._kinds),  # type: ignore[arg-type]
            last_action=self.obs_last_action,
            timestep=self.obs_timestep,
            open_loop=self.open_loop,
            pathing=self.obs_pathing,
            height=self.obs_height,
            all_health=self.obs_all_health,
            own_health=self.obs_own_health,
            state_last_action=self.state_last_action,
            state_timestep=self.state_timestep,
            state=self.state,
            **more,
        )

    @property
    def _name(self) -> str:
        return f"battle/{self.scenario}"

    @property
    def _agent_types(self) -> tuple[str, ...]:
        return self._kinds[0]

    @cached_property
    def spec(self) -> EnvSpec:
        observer, count = self.observer, self._world.allies
        names = numbered("agent", count)
        return EnvSpec(
            name=self._name,
            agents=names,
            agent_types=self._agent_types,
            obs_features=tuple(observer.obs_features(names, i) for i in range(count)),
            state_features=observer.state_features(names),
            action_counts=(observer.n_actions,) * count,
            time_limit=self.time_limit,
            has_win=True,
            agent_state=self.state == "agent",
            script=NearestEnemy(observer) if self.state == "global" else None,
            version=RULES,
            action_names=tuple(observer.action_names(kind) for kind in self._agent_types),
        )

    # Playing

    @cached_property
    def _starts(self) -> spawn.Starts:
        types, terrain = unit_types(self.stats), self._world.terrain
        return spawn.starts(self._scenario, types, terrain, self.starts, self.start_seed)

    @cached_property
    def _first(self) -> tuple[BattleState, View]:
        """All initial states and their first observations, (P, ...), computed once.

        This runs in a separate thread, because the caller may be tracing a program; in the thread it is
        compiled and run at once.
        """

        def make() -> tuple[BattleState, View]:
            begin = jax.jit(jax.vmap(batch_last(lambda *at: self._begin(None, *at))))
            return jax.tree.map(np.asarray, begin(*self._starts[:3]))

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(make).result()

    def _begin(
        self, kinds: Array | None, x: Array, y: Array, goal: Array, order: Array | None = None, **sight: Any
    ) -> tuple[BattleState, View]:
        """The state of B battles that begin, and its view; `order` and `sight` are SMACv2's."""
        world = self._world
        params = world.params(kinds)
        state = BattleState(
            units=start(world, params, x, y),
            kinds=kinds,
            memory=self._opponent.start(world, goal),
            last_action=jnp.full((world.allies, x.shape[1]), -1, jnp.int32),
            steps=jnp.zeros(x.shape[1], jnp.int32),
            **sight,
        )
        state = self._sighted(state, order)
        return state, self._look(params, state)

    def reset(self, key: Array) -> tuple[BattleState, TimeStep]:
        which = self._which(key)
        state, view = jax.tree.map(lambda x: jnp.asarray(x)[which], self._first)
        return state, self._timestep(view, *self._nothing_yet())

    def _which(self, key: Array) -> Array:
        """The index of the initial state with which a battle begins."""
        return jax.random.randint(key, (), 0, n) if (n := len(self._starts.x)) > 1 else jnp.int32(0)

    def created(self, key: Array) -> Array:
        """(A,) int32: the allies of `reset(key)` in the order in which they were created, as enemies are."""
        return jnp.asarray(self._starts.created)[self._which(key)]

    def _nothing_yet(self) -> tuple[Array, Array, dict[str, Array]]:
        none = jnp.int32(0)
        info = {"won": jnp.bool_(False), "dead_allies": none, "dead_enemies": none}
        return jnp.float32(0), jnp.bool_(False), info

    def step(self, key: Array, state: BattleState, actions: Array) -> tuple[BattleState, TimeStep]:
        noise = draws.uniform(key, self._noise)
        play = batch_last(self._play_in_kernel if self.kernel else self._play)
        state, view, reward, terminated, info = play(state, actions, noise)
        return state, self._timestep(view, reward, terminated, info)

    @cached_property
    def _play_in_kernel(self) -> Callable[..., Any]:
        """`_play` in one kernel, refused where it cannot be one."""
        from phalanx.ops import kernels

        in_kernel = kernels.on_gpu(self._play)

        def play(*args: PyTree) -> Any:
            try:
                return in_kernel(*args)
            except kernels.Unsupported as error:
                raise PhalanxError(
                    f"a step of {self._name} cannot be one GPU kernel, as it has {error}: leave --env.kernel "
                    f"out (it is for few units on open ground against the script, as on 3m)"
                ) from None

        return play

    @property
    def _noise(self) -> int:
        """How many random numbers a step takes: one cooldown each."""
        return self._world.n

    def _timestep(self, view: View, reward: Array, terminated: Array, info: dict[str, Array]) -> TimeStep:
        return TimeStep(
            observation=Observation(*view),
            reward=jnp.broadcast_to(reward, (self._world.allies,)),
            terminated=terminated,
            truncated=jnp.bool_(False),
            info=info,
        )

    def _play(self, state: BattleState, actions: Array, noise: Array):
        """One step of B battles: everything (..., B)."""
        world = self._world
        params = world.params(state.kinds)
        actions = jnp.where(state.units.health[world.sides[0]] > 0, actions, 0).astype(jnp.int32)
        ours = ally_orders(self.observer, params, state.units, actions)
        theirs, memory = self._opponent.orders(world, params, state.units, state.memory)
        orders = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), ours, theirs)
        low, high = combat.JITTER
        units = combat.advance(world, params, state.units, orders, low + (high - low) * noise[: world.n])
        after = state._replace(units=units, memory=memory, last_action=actions, steps=state.steps + 1)
        after = self._sighted(after, noise[world.n :])
        outcome = self._outcome(params, units)
        reward = self._reward(params, state.units, units, outcome)
        alive = units.health > 0
        info = {
            "won": outcome == WON,
            "dead_allies": (~alive[world.sides[0]]).sum(0, dtype=jnp.int32),
            "dead_enemies": (~alive[world.sides[1]]).sum(0, dtype=jnp.int32),
        }
        return after, self._look(params, after), reward, outcome != GOES_ON, info

    def _sighted(self, state: BattleState, order: Array | None) -> BattleState:
        """A hook for what SMACv2's agents look at, in an order (A, B) drawn at random."""
        return state

    def _look(self, params: Params, state: BattleState) -> View:
        extra = Extra(
            last_action=state.last_action,
            time=state.steps / np.float32(self.time_limit),
            facing=state.facing,
            known=state.known,
        )
        return self.observer.look(params, state.kinds, state.units, extra)

    # Rewards and endings

    def _outcome(self, params: Params, units: Units) -> Array:
        """(B,) int32: how the battle stands. A side with only medivacs left has lost."""
        allies, enemies = self._world.sides
        alive = units.health > 0
        fights = alive & ~params.heal
        no_ally, no_enemy = ~fights[allies].any(0), ~alive[enemies].any(0)
        if self._world.can.heal:
            no_enemy |= self._only_medics_left(alive[enemies], fights[enemies])
        drawn = no_ally & no_enemy & (not (self._world.can.heal and self._opponent.acquires))  # SMAC: lost
        return jnp.where(drawn, DRAWN, jnp.where(no_ally, LOST, jnp.where(no_enemy, WON, GOES_ON)))

    def _only_medics_left(self, alive: Array, fights: Array) -> Array:
        """SMAC ends the battle when one medivac is all that is left."""
        return (alive.sum(0) == 1) & ~fights.any(0)

    @cached_property
    def max_reward(self) -> float:
        """What a clean victory earns before scaling."""
        types = unit_types(self.stats)
        total = sum(types[kind].health + types[kind].shield for kind in self._kinds[1])
        return total + self.reward_death * self._world.enemies + self.reward_win

    def _scale(self, params: Params) -> Any:
        return self.max_reward / self.reward_scale_rate if self.reward_scale else 1.0

    def _reward(self, params: Params, before: Units, after: Units, outcome: Array) -> Array:
        allies, enemies = self._world.sides
        bonus = jnp.where(outcome == WON, self.reward_win, 0.0)
        bonus += jnp.where(outcome == LOST, self.reward_defeat, 0.0)
        if self.reward == "sparse":
            ends = jnp.where(outcome == WON, 1.0, jnp.where(outcome == LOST, -1.0, 0.0))
            return ends / self._scale(params)
        had, has = _vigour(before), _vigour(after)
        lived, dies = before.health > 0, (before.health > 0) & (after.health <= 0)
        lost = jnp.where(lived, had - jnp.where(dies, 0.0, has), 0.0)
        earned = lost[enemies].sum(0) + self.reward_death * dies[enemies].sum(0)
        if self.reward == "signed":
            deaths = self.reward_death * dies[allies].sum(0)
            earned -= self.reward_negative_scale * (lost[allies].sum(0) + deaths)
        elif self.reward == "clamped":
            earned = jnp.maximum(earned, 0.0)
        else:
            earned = jnp.abs(earned)
        return (earned + bonus) / self._scale(params)

    def frame(self, state: BattleState) -> dict[str, Any]:
        return frame(self._world, self.observer, state)


LOST, DRAWN, WON, GOES_ON = -1, 0, 1, 2


def _vigour(units: Units) -> Array:
    """Health and shield together."""
    return units.health if units.shield is None else units.health + units.shield

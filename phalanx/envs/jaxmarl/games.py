"""JaxMARL's smaller worlds: Hanabi, the switch riddle, STORM, the coin game, MPE, MABrax, JaxNav."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax.numpy as jnp

from phalanx.config import option
from phalanx.envs.foreign import package
from phalanx.envs.jaxmarl.world import World
from phalanx.types import Array, PyTree

TELL = 2


@dataclass(frozen=True)
class Hanabi(World):
    """Hanabi: each sees all cards but its own. Agents take turns; those that wait have one action, the last.

    A game ends by itself: it has fewer than 120 moves, one for each card and each hint.
    """

    common_reward: ClassVar[bool] = True

    agents: int = option(2, "number of players", at_least=2, at_most=5)
    time_limit: int = option(120, "steps after which an episode is truncated", at_least=1)

    def build(self) -> Any:
        return package("jaxmarl").make(self.id, num_agents=self.agents)

    def details(self) -> dict[str, Any]:
        moves = tuple(self.world.action_encoding.values())
        return {"agent_types": ("player",) * self.agents, "action_names": (moves,) * self.agents}

    def avail(self, state: PyTree) -> list[Array]:
        legal = self.world.get_legal_moves(state)
        return [legal[a] for a in self.world.agents]


@dataclass(frozen=True)
class SwitchRiddle(World):
    """The switch riddle: one prisoner at a time sees a bulb; the team must say when all have been there.

    JaxMARL fixes the time limit at 4 x agents - 6 steps.
    """

    common_reward: ClassVar[bool] = True

    agents: int = option(3, "number of prisoners", at_least=3)
    time_limit: int | None = option(
        None, "steps after which an episode is truncated (default: 4 x agents - 6)", at_least=1
    )

    def build(self) -> Any:
        return package("jaxmarl").make(self.id, num_agents=self.agents)

    def details(self) -> dict[str, Any]:
        return {
            "agent_types": ("prisoner",) * self.agents,
            "obs_features": (("in the room", "bulb is on"),) * self.agents,
            "action_names": (("nothing", "switch light", "tell"),) * self.agents,
            "time_limit": self.time_limit or self.world.max_steps,
        }

    def terminated(self, before: PyTree, actions: dict[Any, Array], after: PyTree, done: Array) -> Array:
        chosen = jnp.stack([actions[a] for a in self.world.agents])
        return chosen[before.agent_in_room] == TELL


@dataclass(frozen=True)
class Mpe(World):
    """A particle world of JaxMARL. Its `max_steps=25` allows 26 steps, and so does the default here."""

    time_limit: int = option(26, "steps after which an episode is truncated", at_least=1)
    continuous_actions: bool = option(
        False, "accelerations instead of directions (some environments have no other actions)"
    )

    @property
    def name(self) -> str:
        return short(self.id)

    def build(self) -> Any:
        # Worlds that have only continuous actions do not take the argument.
        kind = {} if "facmac" in self.id or "world_comm" in self.id else {"action_type": self._kind}
        return package("jaxmarl").make(self.id, max_steps=self.time_limit, **kind)

    @property
    def _kind(self) -> str:
        return "Continuous" if self.continuous_actions else "Discrete"

    def details(self) -> dict[str, Any]:
        classes = self.world.classes
        kind = {
            agent: name for name, of in classes.items() for agent in ([of] if isinstance(of, str) else of)
        }
        types = tuple(kind[a] for a in self.world.agents)
        teams = tuple("agents" if each == "agents" else "adversaries" for each in types)
        return {"agent_types": types, "teams": teams if len(classes) > 1 else ()}


@dataclass(frozen=True)
class Matrix(World):
    """STORM: agents meet in a grid and play a matrix game with what they have collected.

    JaxMARL begins a new game within the step that ends one, so the last observation is lost. Here it has one
    step more than the time limit, and is never asked for that.
    """

    time_limit: int = option(152, "steps after which an episode is truncated", at_least=1)

    def build(self) -> Any:
        return package("jaxmarl").make(self.id, num_inner_steps=self.time_limit + 1)

    def observations(self, raw: PyTree) -> list[PyTree]:
        if isinstance(raw, dict):  # `storm`: pictures (A, ...), and inventories (5, A)
            return list(zip(raw["observations"], raw["inventory"].T, strict=True))
        return list(raw)

    def rewards(self, rewards: PyTree, info: PyTree) -> Array:
        return jnp.stack([jnp.asarray(each, jnp.float32) for each in rewards])


@dataclass(frozen=True)
class CoinGame(World):
    """The coin game: an agent that takes a coin of the other's colour costs the other 2."""

    games: int = option(10, "games in an episode; each has new random positions", at_least=1)
    steps: int = option(10, "steps of a game", at_least=1)
    time_limit: int | None = option(
        None, "steps after which an episode is truncated (default: games x steps)", at_least=1
    )

    def build(self) -> Any:
        # One game more than is played: its start is what the last step sees.
        return package("jaxmarl").make(self.id, num_inner_steps=self.steps, num_outer_steps=self.games + 1)

    def details(self) -> dict[str, Any]:
        moves = ("right", "left", "up", "down", "stay")
        return {"time_limit": self.time_limit or self.games * self.steps, "action_names": (moves,) * 2}


@dataclass(frozen=True)
class MaBrax(World):
    """A robot whose joints belong to several agents. Needs brax: pip install 'jaxmarl[mabrax]'."""

    common_reward: ClassVar[bool] = True

    time_limit: int = option(1000, "steps after which an episode is truncated", at_least=1)
    backend: Literal["positional", "spring", "generalized"] = option("positional", "brax's physics")

    @property
    def name(self) -> str:
        return f"mabrax_{self.id.replace('|', '_')}"

    def build(self) -> Any:
        package("brax", install="jaxmarl[mabrax]")
        return package("jaxmarl").make(
            self.id, episode_length=self.time_limit + 1, auto_reset=False, backend=self.backend
        )


@dataclass(frozen=True)
class Nav(World):
    """JaxNav: robots with lidar drive to their goals. An episode ends when all have arrived or crashed."""

    agents: int = option(2, "number of robots", at_least=1)
    time_limit: int = option(500, "steps after which an episode is truncated", at_least=1)

    def build(self) -> Any:
        return package("jaxmarl").make(self.id, num_agents=self.agents, max_steps=self.time_limit + 1)


def short(id: str) -> str:
    """`mpe_simple_tag` for `MPE_simple_tag_v3`."""
    stem, _, version = id.lower().rpartition("_v")
    return stem if version.isdigit() else id.lower()

"""Overcooked: two cooks in a kitchen, JaxMARL's first version and its second."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from phalanx.config import option
from phalanx.envs.foreign import package
from phalanx.envs.jaxmarl.world import World
from phalanx.errors import PhalanxError, suggest
from phalanx.types import Array, PyTree

MOVES = {
    "overcooked": ("up", "down", "right", "left", "stay", "interact"),
    "overcooked_v2": ("right", "down", "left", "up", "stay", "interact"),
}


@dataclass(frozen=True)
class Overcooked(World):
    """A kitchen of Overcooked. Every agent sees a picture; all get 20 for a soup that is delivered.

    An episode never ends but by its time limit. The picture of the first version shows when fewer than 40
    steps are left.
    """

    counts: ClassVar[bool] = True

    layout: str = option("cramped_room", "the kitchen: a layout of JaxMARL")
    time_limit: int = option(400, "steps after which an episode is truncated", at_least=1)
    shaped: float = option(
        0.0, "weight of JaxMARL's shaped reward, which each agent gets for its own steps towards a soup"
    )

    @property
    def name(self) -> str:
        return f"{self.id}_{self.layout}"

    def build(self) -> Any:
        jaxmarl = package("jaxmarl")
        module = getattr(jaxmarl.environments, self.id)
        known = getattr(module, f"{self.id}_layouts")
        if self.layout not in known:
            raise PhalanxError(
                f"jaxmarl/{self.id} has no layout {self.layout!r}.{suggest(self.layout, known)}"
            )
        return jaxmarl.make(self.id, layout=known[self.layout], max_steps=self.time_limit, **self.more())

    def more(self) -> dict[str, Any]:
        """Arguments of one version alone."""
        return {}

    def details(self) -> dict[str, Any]:
        return {
            "agent_types": ("cook",) * len(self.names),
            "action_names": (MOVES[self.id],) * len(self.names),
            "common_reward": self.shaped == 0,
        }

    def rewards(self, rewards: PyTree, info: PyTree) -> Array:
        plain = super().rewards(rewards, info)
        if self.shaped == 0:
            return plain
        return plain + self.shaped * jnp.stack([info["shaped_reward"][a] for a in self.world.agents])

    def terminated(self, before: PyTree, actions: dict[Any, Array], after: PyTree, done: Array) -> bool:
        return False


@dataclass(frozen=True)
class OvercookedV2(Overcooked):
    """A kitchen of OvercookedV2 (Gessler et al. 2025), with recipes and limited sight."""

    view: int | None = option(
        None, "cells that an agent sees in each direction (default: the whole kitchen)", at_least=1
    )
    random_reset: bool = option(False, "begin with random positions, hands and pots")
    negative_rewards: bool = option(False, "a wrong soup costs as much as a correct one earns")

    def more(self) -> dict[str, Any]:
        return {
            "agent_view_size": self.view,
            "random_reset": self.random_reset,
            "negative_rewards": self.negative_rewards,
        }

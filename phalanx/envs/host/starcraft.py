"""What SMAC and SMACv2 share: a game that is launched once and plays episode after episode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from phalanx.config import option
from phalanx.envs.host.smac_like import SmacLike
from phalanx.errors import PhalanxError, suggest

DIRECTIONS = ("north", "south", "east", "west")


@dataclass
class StarCraft(SmacLike):
    """A map of StarCraft II. The game is launched by the first reset, and takes a seed only then."""

    variant: str
    difficulty: Literal["1", "2", "3", "4", "5", "6", "7", "8", "9", "A"] = option(
        "7", "difficulty of the game's AI, the opponent: 1 is the easiest, 7 is very hard, 8 to A cheat"
    )
    game_version: str = option(
        "", "version of StarCraft II, such as 4.10; empty: the latest that is installed"
    )
    continuing_episode: bool = option(
        True,
        "the time limit truncates an episode, so that its last value is bootstrapped; "
        "false: the time limit terminates it, as SMAC does by default",
    )
    relaunch: bool = option(
        False,
        "launch the game for every episode, so that an episode depends only on its seed; slow. Otherwise "
        "episodes after the first one also depend on what was played before",
    )

    def _prepare(
        self,
        family: str,
        maps: Iterable[str],
        cls: Callable[..., Any],
        options: dict,
        agent_types: tuple[str, ...] = (),
    ) -> None:
        """Make `cls` without launching the game, and say what is wrong with the map or an option."""
        name = f"{family}/{self.variant}"
        if self.variant not in maps:
            raise PhalanxError(f"{family} has no map {self.variant!r}.{suggest(self.variant, maps)}")

        def make(seed: int | None) -> Any:
            return cls(
                map_name=self.variant,
                difficulty=self.difficulty,
                game_version=self.game_version or None,
                continuing_episode=self.continuing_episode,
                seed=seed,
                **options,
            )

        try:
            env = make(None)
        except TypeError as error:  # an option that the class does not have
            raise PhalanxError(f"{name}: {error}") from None
        self._make = make
        self._launched = False
        self._restarts = False  # whether `reset` of the environment restarts the running game
        names = action_names(env.get_env_info()["n_actions"], getattr(env, "n_fov_actions", 0))
        super().__init__(env, name, agent_types=agent_types, action_names=names)

    def copy(self) -> StarCraft:
        return dataclasses.replace(self)

    def _begin(self, seed: int) -> None:
        if self.relaunch or not self._restarts:
            self.env.close()
            self.env, self._restarts = self._make(seed), False
        try:
            self._reset_game(seed)
        except Exception as error:
            if self._launched or not _says_why(error):
                raise
            raise PhalanxError(
                f"{self.spec.name} cannot launch StarCraft II: {error}. See docs/smac.md"
            ) from None
        self._launched = True

    def _reset_game(self, seed: int) -> None:
        self.env.reset()

    def _was_cut(self, info: dict) -> bool:
        # When SMAC loses its connection to the game, it launches another one and ends the episode with an
        # empty info, without counting it. Until an episode counts, every reset of SMAC launches the game and
        # leaves the running one open, so the next reset makes the environment anew.
        self._restarts = "battle_won" in info
        return not self._restarts or super()._was_cut(info)


def _says_why(error: Exception) -> bool:
    """Whether pysc2 raised it because the game, its version or a map is not there."""
    return isinstance(error, (OSError, ValueError)) or type(error).__name__ == "SC2LaunchError"


def action_names(count: int, looks: int = 0) -> tuple[str, ...]:
    """The names of `count` actions; a medivac's `target` is an ally, all others' an enemy."""
    names = ["no-op", "stop", *(f"move {name}" for name in DIRECTIONS)]
    names += [f"look {360 * look // looks} degrees" for look in range(looks)]
    return (*names, *(f"target {target}" for target in range(count - len(names))))

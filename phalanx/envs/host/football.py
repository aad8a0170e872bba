"""Google Research Football (Kurach et al. 2020): academy scenarios and full games. See docs/football.md."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from phalanx.config import option
from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
from phalanx.envs.host.randomness import OwnRandomness
from phalanx.envs.host.seeds import seed32
from phalanx.errors import PhalanxError, suggest
from phalanx.spec import EnvSpec

NAMES = {
    "academy_empty_goal_close": "one player near an empty goal",
    "academy_3_vs_1_with_keeper": "three attackers against a defender and the goalkeeper",
    "academy_counterattack_easy": "ten against two and the goalkeeper",
    "academy_corner": "a corner kick",
    "5_vs_5": "a game of four players and a goalkeeper on each side",
    "11_vs_11_easy_stochastic": "a whole game against a weak team",
}
PACKAGE = "the package gfootball, in a Python of its own: see docs/football.md"

ROLES = (
    "goalkeeper",
    "centre_back",
    "left_back",
    "right_back",
    "defence_midfield",
    "central_midfield",
    "left_midfield",
    "right_midfield",
    "attack_midfield",
    "central_front",
)
GAME_MODES = ("normal", "kick_off", "goal_kick", "free_kick", "corner", "throw_in", "penalty")
OPPONENTS_GOAL = np.array([1.0, 0.0])
LOST_BALL = 0.01


def shaped(raw: dict, reward: float, player: int) -> float:
    """Goals, progress of the ball towards the opponents' goal, and a cost while the opponents have it.

    `raw` is the player's raw observation of gfootball after the step. The field is 2 long: the way of the
    ball from the middle to the goal is worth 1, as a goal is. A step in which the opponents have the ball
    costs 0.01.
    """
    ball, moved = np.asarray(raw["ball"])[:2], np.asarray(raw["ball_direction"])[:2]
    progress = np.linalg.norm(OPPONENTS_GOAL - (ball - moved)) - np.linalg.norm(OPPONENTS_GOAL - ball)
    return float(reward + progress - LOST_BALL * (raw["ball_owned_team"] == 1))


@dataclass
class Adapter(HostEnv):
    """Players of the left team. A win is more goals than the opponents at the end of an episode.

    The state is gfootball's vector of 115 entries as the first player sees it, whatever agents observe.
    """

    variant: str
    players: int | None = option(
        None,
        "controlled players of the left team; default: all. With fewer, the game chooses at every step "
        "which ones, nearest to the ball first",
        at_least=1,
        at_most=11,
    )
    representation: Literal["simple115v2", "extracted", "pixels", "pixels_gray"] = option(
        "simple115v2", "what agents observe: 115 numbers, planes of a small map, or the rendered field"
    )
    stacked: bool = option(False, "observe the last 4 pictures; not for simple115v2")
    reward: str = option(
        "scoring",
        "scoring: 1 a goal, -1 a goal against; checkpoints: gfootball's; shaped: goals, progress and "
        "possession of the ball; or a function of your own, my_module:function",
    )

    def __post_init__(self) -> None:
        name = f"football/{self.variant}"
        try:
            from gfootball import env as football  # pyright: ignore[reportMissingImports]
            from gfootball.env import (  # pyright: ignore[reportMissingImports]
                config,
                football_action_set,
                scenario_builder,
                wrappers,
            )
        except ImportError as error:
            raise PhalanxError(f"{name} needs {PACKAGE} ({error})") from None
        scenarios = [name for name in scenario_builder.all_scenarios() if not name.startswith("test")]
        if self.variant not in scenarios:  # gfootball would end the process
            raise PhalanxError(
                f"football has no scenario {self.variant!r}.{suggest(self.variant, scenarios)}"
            )
        if self.stacked and self.representation == "simple115v2":
            raise PhalanxError(f"{name}: only pictures can be stacked, not simple115v2")
        self._shape = reward_function(self.reward)
        self._random = OwnRandomness(python=True)
        self._vector = wrappers.Simple115StateWrapper.convert_observation
        with self._random:
            scenario = config.Config({"level": self.variant}).ScenarioConfig()
            self._agents = self._count_players(name, scenario)
            self._env = self._made(football.create_environment, name)
        actions = football_action_set.action_set_dict["default"]
        self._spec = self._describe(name, scenario, tuple(str(action) for action in actions))

    def _made(self, create: Callable[..., Any], name: str) -> Any:
        try:
            return create(
                env_name=self.variant,
                stacked=self.stacked,
                representation=self.representation,
                rewards="scoring,checkpoints" if self.reward == "checkpoints" else "scoring",
                render=self.representation.startswith("pixels"),
                number_of_left_players_agent_controls=self._agents,
                # gfootball draws it once for an environment; episodes must not depend on that.
                other_config_options={"reverse_team_processing": False},
            )
        except AssertionError as error:
            if "rendering instances" not in str(error):
                raise
            raise PhalanxError(
                f"{name}: gfootball renders one environment a process: use as many workers as environments, "
                "or --env.representation extracted"
            ) from None

    def _count_players(self, name: str, scenario: Any) -> int:
        able = int(scenario.controllable_left_players)
        if self.players is not None and self.players > able:
            raise PhalanxError(f"{name} has {able} players that can be controlled, not {self.players}")
        return self.players or able

    def _describe(self, name: str, scenario: Any, actions: tuple[str, ...]) -> EnvSpec:
        types = ("player",) * self._agents  # the game lends them other bodies from step to step
        if self._agents == scenario.controllable_left_players:
            raw = self._raw()
            types = tuple(ROLES[int(raw[0]["left_team_roles"][each["active"]])] for each in raw)
        pictures = self.representation != "simple115v2"
        shape = tuple(self._env.observation_space.shape)[-3:] if pictures else None
        return EnvSpec(
            name=name,
            agents=tuple(f"player_{player}" for player in range(self._agents)),
            agent_types=types,
            obs_features=(() if pictures else feature_names(),) * self._agents,
            state_features=feature_names(),
            action_counts=(len(actions),) * self._agents,
            time_limit=int(scenario.game_duration),
            common_reward=self.reward == "scoring",
            has_win=True,
            action_names=(actions,) * self._agents,
            obs_shape=shape,
            obs_dtype="uint8" if pictures else "float32",
        )

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    def copy(self) -> Adapter:
        return dataclasses.replace(self)

    def reset(self, seed: int) -> HostStep:
        self._random.seed(seed32(seed))
        with self._random:  # gfootball draws the seed of an episode from Python's global generator
            seen = self._env.reset()
        return HostStep(self._observation(seen), np.zeros(self._agents, np.float32), False, False)

    def step(self, actions: np.ndarray) -> HostStep:
        seen, rewards, done, info = self._env.step([int(action) for action in actions])
        rewards = np.reshape(np.asarray(rewards, np.float32), self._agents)
        raw = self._raw()
        if self._shape is not None:
            made = [self._shape(raw[i], float(rewards[i]), i) for i in range(self._agents)]
            rewards = np.array(made, np.float32)
        ours, theirs = raw[0]["score"]
        limit = raw[0]["steps_left"] <= 0 and info["score_reward"] == 0
        return HostStep(
            observation=self._observation(seen),
            reward=rewards,
            terminated=bool(done) and not limit,
            truncated=bool(done) and limit,
            won=bool(done) and ours > theirs,
        )

    def _raw(self) -> list[dict]:
        """One raw observation for each controlled player."""
        return self._env.unwrapped.observation()

    def _observation(self, seen: Any) -> HostObservation:
        raw = self._raw()
        active = [each["active"] for each in raw]
        playing = raw[0]["left_team_active"]
        return HostObservation(
            obs=np.reshape(np.asarray(seen, self._spec.obs_dtype), (self._agents, *self._spec.obs_array)),
            state=self._vector(raw[:1], True)[0],
            avail=np.ones((self._agents, self._spec.n_actions), bool),
            alive=np.array(
                [player < 0 or bool(playing[player]) for player in active]
            ),  # a red card ends a game
        )

    def get_state(self) -> Any:
        """The engine's state; None for pictures, whose stacks and frames are not in it."""
        return None if self._spec.obs_shape else self._env.get_state()

    def set_state(self, state: Any) -> HostObservation:
        self._env.set_state(state)
        return self._observation(self._vector(self._raw(), True))

    def close(self) -> None:
        self._env.close()


def reward_function(name: str) -> Callable[[dict, float, int], float] | None:
    """What makes a player's reward of its raw observation and gfootball's reward; None: the latter."""
    if name in ("scoring", "checkpoints"):
        return None
    if name == "shaped":
        return shaped
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise PhalanxError(
            f"reward must be scoring, checkpoints, shaped or a function, my_module:function, not {name!r}"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module of the user's may raise anything
        raise PhalanxError(f"cannot import the reward {name!r}: {type(error).__name__}: {error}") from None
    if callable(found):
        return found  # pyright: ignore[reportReturnType]  (what it returns is seen at the first step)
    raise PhalanxError(f"the reward {name!r} is not a function")


def feature_names() -> tuple[str, ...]:
    """The 115 entries of simple115v2."""
    names = []
    for team in ("left", "right"):
        for what in ("", "_move"):
            names += [f"{team}_{player}{what}_{axis}" for player in range(11) for axis in "xy"]
    names += [f"ball_{axis}" for axis in "xyz"] + [f"ball_move_{axis}" for axis in "xyz"]
    names += ["ball_free", "ball_left", "ball_right"]
    return (*names, *(f"active_{player}" for player in range(11)), *GAME_MODES)

"""What the classic control tasks share: the spec of one agent, and how they are drawn.

Constants, limits and starts are those of Gymnasium (https://gymnasium.farama.org/environments/classic_control/);
each file names the paper of its equations, and `tests/test_classic.py` plays both side by side.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.envs.base import joint_features
from phalanx.errors import PhalanxError
from phalanx.types import Array, EnvSpec

AGENT = ("agent",)
BLUE, GREEN = (0.0, 0.45, 0.7), (0.0, 0.62, 0.45)

Point = tuple[Any, Any]


def spec_of_one(
    name: str, features: tuple[str, ...], actions: tuple[str, ...], time_limit: int, continuous: bool = False
) -> EnvSpec:
    """One agent, whose observation is also the state.

    Continuous actions lie in [-1, 1] and are scaled to the task's own bounds, as for `gym/NAME`.
    """
    return EnvSpec(
        name=f"classic/{name}",
        agents=AGENT,
        agent_types=AGENT,
        obs_features=(features,),
        state_features=joint_features(AGENT, (features,)),
        action_counts=(len(actions),),
        time_limit=time_limit,
        action_kind="continuous" if continuous else "discrete",
        action_names=(actions,),
    )


def require_range(low: float, high: float) -> None:
    """Refuse bounds of the starts that are the wrong way round."""
    if low > high:
        raise PhalanxError(f"low must be at most high, but low is {low:g} and high is {high:g}")


def wrapped(angle: Array) -> Array:
    """The same angle between minus and plus pi."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


def drawing(
    agent: Point, lines: Sequence[tuple[Point, Point]], radius: float, goal: Point | None = None
) -> dict[str, Any]:
    """A frame for the viewer: the agent as a disc, straight lines, and a goal where there is one."""
    places = [agent] if goal is None else [agent, goal]
    return {
        "kind": "particles",
        "position": np.array(places, float),
        "radius": np.array([radius, radius / 2][: len(places)]),
        "color": np.array([BLUE, GREEN][: len(places)]),
        "names": ["agent", "goal"][: len(places)],
        "agents": 1,
        "said": [],
        "rescale": True,
        "lines": np.array([(*start, *end) for start, end in lines], float),
    }

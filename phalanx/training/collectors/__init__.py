"""Collectors play a policy in environments and return rollouts.

Training, evaluation, watching and recording all use a collector; nothing else depends on whether an
environment is compiled (`compiled.py`) or a Python environment (`hosted.py`).
"""

from phalanx.algorithms.base import Algorithm
from phalanx.envs.base import Env
from phalanx.envs.host.base import HostSource
from phalanx.envs.sides import Side
from phalanx.opponents.base import Opponents
from phalanx.opponents.make import yardstick
from phalanx.training.collectors.base import Collector
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.collectors.hosted import Hosted


def collector_for(
    env: Env | HostSource,
    algorithm: Algorithm,
    envs: int,
    seeds: int = 1,
    with_states: bool = False,
    opponents: Opponents | None = None,
) -> Collector:
    """Collect from B copies of an environment for each of S seeds.

    `with_states` puts the environment's own state into `info`, for drawing; Python environments render images
    instead. In environments with several sides `opponents` play the other side, or else random actions do.
    """
    if opponents is None and isinstance(env, Side):
        opponents = yardstick(env, envs)
    if isinstance(env, HostSource):
        return Hosted(env, algorithm, envs, seeds, with_states, opponents)
    return Compiled(env, algorithm, envs, seeds, with_states, opponents)

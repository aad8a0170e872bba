"""Where steps come from: a collector plays a policy in environments and returns what happened.

Training, evaluation, watching and recording all take a collector; nothing else knows whether an environment
is compiled (`compiled.py`) or a Python program (`hosted.py`).
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

    `with_states` puts the environment's own state into `info`, for whoever draws it; an environment that is
    a Python program draws itself then. The other side of a world with sides is played by `opponents`, or else
    at random.
    """
    if opponents is None and isinstance(env, Side):
        opponents = yardstick(env, envs)
    if isinstance(env, HostSource):
        return Hosted(env, algorithm, envs, seeds, with_states, opponents)
    return Compiled(env, algorithm, envs, seeds, with_states, opponents)

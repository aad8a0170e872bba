"""DDQN: double Q-learning on a replay of steps, for one agent or independent ones.

Van Hasselt et al. 2016, "Deep Reinforcement Learning with Double Q-learning",
https://arxiv.org/abs/1509.06461. It is IQL with defaults for one agent; `--dueling`, `--target n_step` and
`--priority 0.6` add parts of Rainbow (https://arxiv.org/abs/1710.02298).
"""

from dataclasses import dataclass
from typing import Literal

from phalanx.algorithms.shared.value_based import ValueBased, ValueBasedConfig
from phalanx.config import with_default
from phalanx.types import Array, PyTree


@dataclass(frozen=True)
class DDQNConfig(ValueBasedConfig):
    """Every option of DDQN."""

    network: str = with_default(ValueBasedConfig, "network", "mlp")
    layers: int = with_default(ValueBasedConfig, "layers", 2)
    last_action: bool = with_default(ValueBasedConfig, "last_action", False)
    batch_steps: int = with_default(ValueBasedConfig, "batch_steps", 64)
    gradient_steps: int = with_default(ValueBasedConfig, "gradient_steps", 16)
    replay: Literal["episodes", "steps"] = with_default(ValueBasedConfig, "replay", "steps")
    buffer: int = with_default(ValueBasedConfig, "buffer", 100_000)
    episodes: int = with_default(ValueBasedConfig, "episodes", 128)
    warm_up: int = with_default(ValueBasedConfig, "warm_up", 1000)


class DDQN(ValueBased):
    """Each agent learns the values of its own actions, from single steps."""

    Config = DDQNConfig
    config: DDQNConfig

    def mix(self, params: PyTree, chosen: Array, best: Array, action: Array, state: Array):
        return chosen


ALGORITHM = DDQN

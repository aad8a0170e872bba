"""Our battles behind the interface of on-policy (the repository of MAPPO's authors).

In its `train_smac.py`, `from phalanx.compat.on_policy import StarCraft2Env` takes the place of its own.
Share observations are agent-specific states in its layout; observations are SMAC's, without its
reordering and its extra entries (its policies have an `agent id` of their own to add).
"""

from typing import Any

import numpy as np

from phalanx.compat.smac import StarCraft2Env as SMACEnv


class Discrete:
    """What its runners ask of an action space."""

    def __init__(self, n: int):
        self.n = n


class StarCraft2Env(SMACEnv):
    """Made from on-policy's arguments; only `map_name` is read from them."""

    _state_kind = "agent"

    def __init__(self, args: Any, **options: Any):
        super().__init__(args.map_name, **options)
        self.observation_space = [[self.get_obs_size()]] * self.n_agents
        self.share_observation_space = [[self.get_state_size()]] * self.n_agents
        self.action_space = [Discrete(self.n_actions)] * self.n_agents

    def reset(self):  # type: ignore[override]
        """Observations (A, O), share observations (A, X), available actions (A, U)."""
        obs, state = super().reset()
        return np.array(obs), state, np.array(self.get_avail_actions())

    def step(self, actions: Any):  # type: ignore[override]
        """The same three, and between them rewards (A, 1), who is done (A,) and a dictionary an agent.

        The dead are done; a time-out is a `bad_transition`.
        """
        reward, over, info = super().step(np.ravel(actions))
        info |= self.get_stats()
        info |= {
            "won": self.win_counted,
            "bad_transition": over and not self.ended,
        }
        return (
            np.array(self.get_obs()),
            self.get_state(),
            np.full((self.n_agents, 1), reward),
            ~self._seen.alive | over,
            [info] * self.n_agents,
            np.array(self.get_avail_actions()),
        )

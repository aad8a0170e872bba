"""PettingZoo's AEC environments, in which agents act one after the other, behind its parallel interface."""

from __future__ import annotations

from typing import Any


def parallel(env: Any) -> Any:
    """An AEC environment with PettingZoo's parallel interface.

    If the environment says that all agents of a cycle could act at once (`is_parallelizable`), PettingZoo's
    own conversion is used: a step is a cycle. Everywhere else later agents must see what earlier ones did, so
    a step is the move of one agent: see `Turns`.
    """
    if env.metadata.get("is_parallelizable", False):
        from pettingzoo.utils.conversions import aec_to_parallel

        return aec_to_parallel(env)
    return Turns(env)


class Turns:
    """One step is the move of the agent whose turn it is; what the others choose is not used."""

    def __init__(self, env: Any):
        self.env = env
        self.possible_agents = list(env.possible_agents)
        self.metadata = env.metadata
        self.agents: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def turn(self) -> Any:
        """The agent that acts next; None when all are gone."""
        return self.env.agent_selection if self.agents else None

    def reset(self, seed: int | None = None) -> tuple[dict, dict]:
        self.env.reset(seed=seed)
        self.agents = list(self.env.agents)
        return self._observations(), dict(self.env.infos)

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        env = self.env
        env.step(actions[env.agent_selection])
        result = (
            self._observations(),
            dict(env.rewards),
            dict(env.terminations),
            dict(env.truncations),
            dict(env.infos),
        )
        # Who is over must be stepped once more, with None, before it leaves.
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        self.agents = list(env.agents)
        return result

    def _observations(self) -> dict:
        return {agent: self.env.observe(agent) for agent in self.env.agents}

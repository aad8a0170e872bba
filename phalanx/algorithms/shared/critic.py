"""State-value critics: their options, their inputs, and the normalisation of their values."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from phalanx.algorithms.shared.optimiser import TrainState
from phalanx.algorithms.shared.policy import PolicyConfig
from phalanx.algorithms.shared.team import Rewards, TeamConfig, joined, shared_network
from phalanx.config import option
from phalanx.data.normalise import RunningNorm
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.networks.sharing import Groups
from phalanx.ops import losses, masks
from phalanx.types import Array, EnvSpec, Observation, PyTree

CriticView = Literal["obs", "state", "state+obs"]


@dataclass(frozen=True)
class CriticConfig(PolicyConfig):
    """The options of every critic of state values."""

    critic_share: str = option("same", "which agents share a critic: as share, or same (as share is set)")
    critic_view: CriticView = option("obs", "input of the critic: own observation, global state, or both")
    critic_lr: float = option(5e-4, "learning rate of the critic", above=0)
    critic_group_lr: str = option("", "learning rates of single critics by group, as in group_lr")
    value_loss: Literal["huber", "squared"] = option("huber", "loss of the critic")
    huber_delta: float = option(10.0, "where the Huber loss becomes linear", above=0)
    value_norm: Literal["none", "running", "popart"] = option(
        "running", "normalise value targets by running statistics; popart also preserves the critic's outputs"
    )
    value_norm_decay: float = option(0.99, "decay of those statistics, for each update", at_least=0, below=1)
    target_every: int = option(
        0,
        "updates between updates of a target critic, which gives the bootstrap values; 0: no target critic",
        at_least=0,
    )
    target_rate: float = option(
        1.0, "step size of an update of the target critic; 1 copies the critic", above=0, at_most=1
    )


class TargetCritic(NamedTuple):
    """An older critic, which gives the bootstrap values."""

    params: PyTree
    memory: Array
    """(B, V, H)"""
    updates: Array
    """() int32: rollouts learnt from so far"""


def view_shapes(config: TeamConfig, view: CriticView, spec: EnvSpec) -> tuple[int, dict[str, Any]]:
    """The entries that a critic with this view sees, and the `picture` and `kind` of its network."""
    size = {"obs": spec.obs_size, "state": spec.state_size, "state+obs": spec.state_size + spec.obs_size}
    # Beside pictures the state is a vector, for which a cnn or a torso for pictures is not made.
    picture = None if view == "state" else spec.obs_shape
    only_vector = spec.obs_shape is not None and picture is None and config.network != "gru"
    return size[view], {"picture": picture, "kind": "mlp" if only_vector else None}


def require_one_value(groups: Groups, view: CriticView, rewards: Rewards, spec: EnvSpec) -> None:
    """Raise an error if a critic has one value for agents that learn from different rewards."""
    if view != "state" or spec.agent_state or spec.common_reward:
        return
    if rewards.reward == "own" and groups.count < spec.n_agents:
        raise PhalanxError(
            f"a shared critic that sees only the state cannot tell apart the agents' own rewards of "
            f"{spec.name}: choose reward=mean, critic_view=state+obs or critic_share=agent"
        )
    team_of = rewards.teams.of_agent
    if any(len({team_of[i] for i in groups.members(g)}) > 1 for g in range(groups.count)):
        raise PhalanxError(
            f"a critic that sees only the state cannot be shared by the teams of {spec.name}: "
            f"choose share=team, critic_share=team or critic_view=state+obs"
        )


class Critic:
    """Estimates state values, with its own parameter sharing."""

    def __init__(self, config: CriticConfig, spec: EnvSpec, rewards: Rewards):
        self.config, self.spec, self.rewards = config, spec, rewards
        if config.target_rate != 1 and not config.target_every:
            raise PhalanxError(
                f"target_rate={config.target_rate:g} needs a target critic: add target_every=1 or omit it"
            )
        share = config.share if config.critic_share == "same" else config.critic_share
        self.groups = sharing.groups(share, spec, "critic_share")
        # A critic that sees only the global state has the same value for all agents of its group.
        self.common_view = config.critic_view == "state" and not spec.agent_state
        require_one_value(self.groups, config.critic_view, rewards, spec)
        owners = self.groups.one_each if self.common_view else self.groups
        size, shapes = view_shapes(config, config.critic_view, spec)
        self.network = shared_network(config, owners, size, 1, head_gain=1.0, **shapes)

    def view(self, observation: Observation) -> Any:
        """The critic's input, (..., V, F) or a `Picture`: V is the number of values in an environment."""
        if self.config.critic_view == "obs":
            return observation.obs
        state = observation.state if self.spec.agent_state else observation.state[..., None, :]
        if self.common_view:
            return jnp.broadcast_to(state, (*state.shape[:-2], self.groups.count, state.shape[-1]))
        if self.config.critic_view == "state":
            return state
        state = jnp.broadcast_to(state, (*observation.alive.shape, state.shape[-1]))
        return joined([state], observation.obs, [])

    def values(self, params: PyTree, observation: Observation, memory: Array, first: Array):
        """(T, B, ...) -> normalised values, (T, B, A), and memories, (T, B, V, H)."""
        out, memories = self.network.apply(params, self.view(observation), memory, first)
        return self._to_agents(out[..., 0]), memories

    def next_values(self, params: PyTree, observation: Observation, memories: Array) -> Array:
        """Values of the true next observations, each from the memory at its own step: (T, B, A)."""
        out = self.network.apply_each(params, self.view(observation), memories)
        return self._to_agents(out[..., 0])

    def _to_agents(self, value: Array) -> Array:
        return sharing.to_agents(self.groups, value) if self.common_view else value

    def rescale(
        self, critic: TrainState, norm: RunningNorm, target: Array, counted: Array
    ) -> tuple[TrainState, RunningNorm]:
        """Update the value statistics with the targets (T, B, A) that are `counted`."""
        if self.config.value_norm == "none":
            return critic, norm
        moments = masks.grouped_moments(target, counted, self.groups.membership)
        new = norm.update(*moments, self.config.value_norm_decay)
        return critic._replace(params=self.on_scale(critic.params, norm, new)), new

    def on_scale(self, params: PyTree, old: RunningNorm, new: RunningNorm) -> PyTree:
        """Parameters for the statistics `new`: with popart, rescaled so that values do not change."""
        if self.config.value_norm != "popart":
            return params
        # PopArt (van Hasselt et al. 2016): change the head.
        head = params["head"]
        kernel = head["kernel"] * (old.std / new.std)[:, None, None]
        bias = (old.std[:, None] * head["bias"] + (old.mean - new.mean)[:, None]) / new.std[:, None]
        return {**params, "head": {"kernel": kernel, "bias": bias}}

    def error(self, difference: Array) -> Array:
        """The loss of a difference between a value and its target."""
        if self.config.value_loss == "huber":
            return losses.huber(difference, self.config.huber_delta)
        return losses.squared(difference)


def value_metrics(groups: Groups, values: Array, target: Array, counted: Array) -> dict[str, Array]:
    """How well critics predict their targets, both (T, B, A), where `counted`."""
    mean, var = masks.grouped_moments(target, counted, groups.membership)
    return groups.named(
        {
            "explained_variance": losses.explained_variance(values, target, counted, groups.membership),
            "value_target": mean,
            "value_target_std": jnp.sqrt(var),
        }
    )

"""What all learners with networks share: their options, networks, optimisers and rewards."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from phalanx.algorithms.base import Actor, AlgorithmConfig, NetworkSummary
from phalanx.algorithms.shared.noise import NoisyPolicy
from phalanx.algorithms.shared.optimiser import Optimiser, make_rates
from phalanx.config import option
from phalanx.data.replay import Episodes
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.networks.sharing import Groups, SharedNetwork
from phalanx.networks.torsos import TORSOS, Network
from phalanx.types import Array, EnvSpec, Picture, PyTree, Transition

Reward = Literal["own", "mean", "sum"]


@dataclass(frozen=True)
class TeamConfig(AlgorithmConfig):
    """The options of every learner with networks."""

    network: str = option(
        "mlp",
        f"torso of the networks: {', '.join(TORSOS)}, or your own, module:Class; gru is recurrent, cnn is "
        "for image observations",
    )
    hidden: int = option(64, "width of every layer", at_least=1, at_most=65_536)
    layers: int = option(2, "linear layers before the head (before the gru)", at_least=1, at_most=64)
    channels: str = option("16,32", "channels of each convolution of a cnn: 3 x 3 pixels, stride 2")
    activation: Literal["relu", "tanh"] = option("tanh", "activation function between layers")
    feature_norm: bool = option(
        False,
        "layer normalisation of the inputs; it removes their common scale and offset, which can be "
        "information if there are very few inputs",
    )
    precision: Literal["float32", "bfloat16"] = option(
        "float32",
        "of the networks' products and activations; bfloat16 halves the memory that they move on a GPU, and "
        "is slow on most CPUs",
    )
    agent_id: bool = option(True, "add a one-hot agent id to the observation")
    last_action: bool = option(False, "add the agent's last action to the observation")

    normalise_obs: bool = option(
        False,
        "normalise each entry of observations and state by its running mean and standard deviation, and "
        "clip it at 10; agent ids, last actions and action masks are not normalised",
    )
    normalise_reward: bool = option(
        False,
        "divide rewards by the running standard deviation of the discounted return, for learning only: "
        "logged returns are unscaled (value_norm normalises a critic's targets instead; reward_norm "
        "divides by the standard deviation of single rewards)",
    )

    share: str = option(
        "all", "which agents share a network: all, team, type, agent (none), or groups such as 0,1;2"
    )
    reward: Reward = option(
        "own", "the reward each agent learns from: its own, or the mean or sum over its team"
    )

    icm: bool = option(
        False, "curiosity by ICM: a bonus for steps whose outcome a forward model predicts badly"
    )
    rnd: bool = option(
        False, "curiosity by RND: a bonus for observations whose random features a network predicts badly"
    )
    curiosity_weight: float | None = option(
        None,
        "weight of the curiosity bonus relative to the reward (default: 0.01 with icm, 1 with rnd)",
        above=0,
    )
    curiosity_lr: float = option(1e-3, "learning rate of the curiosity models", above=0)
    curiosity_share: str = option(
        "same", "which agents share a curiosity model: as share, or same (as share is set)"
    )

    gamma: float = option(0.99, "discount factor", at_least=0, at_most=1)
    lr: float = option(5e-4, "learning rate of the actor (and of a mixer)", above=0)
    lr_decay: bool = option(False, "decay all learning rates linearly to zero over lr_horizon")
    lr_horizon: int | None = option(
        None, "env steps over which learning rates decay (default: the budget, steps)", at_least=1
    )
    group_lr: str = option(
        "",
        "learning rates of single groups by name, START or START:END, as in marine=1e-3:1e-4,medivac=3e-4",
    )
    max_grad_norm: float = option(10.0, "clip each group's gradient to this norm", above=0)

    @property
    def inputs(self) -> dict[str, bool]:
        return {"agent_id": self.agent_id, "last_action": self.last_action}

    @property
    def is_builtin(self) -> bool:
        return ":" not in self.network


def shared_network(
    config: TeamConfig,
    groups: Groups,
    inputs: int,
    outputs: int,
    head_gain: float,
    picture: tuple[int, ...] | None = None,
    kind: str | None = None,
) -> SharedNetwork:
    """A network for each group, as the config says; `kind` overrules `config.network`.

    It sees vectors of `inputs` entries, or pictures of the shape `picture` with such a vector beside each.
    """
    c = config
    network = Network(
        kind=kind or c.network,
        inputs=inputs,
        outputs=outputs,
        hidden=c.hidden,
        layers=c.layers,
        activation=c.activation,
        input_norm=c.feature_norm,
        head_gain=head_gain,
        picture=picture,
        channels=_channels(c.channels),
        precision=c.precision,
    )
    return SharedNetwork(groups, network)


def _channels(text: str) -> tuple[int, ...]:
    """Read `16,32`."""
    try:
        channels = tuple(int(each) for each in text.split(","))
    except ValueError:
        channels = ()
    if not channels or min(channels) < 1:
        raise PhalanxError(f"channels must be whole numbers of at least 1, as 16,32, not {text!r}")
    return channels


def joined(before: list[Array], obs: Any, after: list[Array]) -> Any:
    """An observation with more entries (..., A, F) before and after its own: those beside a picture."""
    own = obs.features if isinstance(obs, Picture) else obs
    entries = jnp.concatenate([*before, own, *after], axis=-1)
    return obs._replace(features=entries) if isinstance(obs, Picture) else entries


def make_optimiser(
    config: TeamConfig,
    groups: Groups,
    lr: float,
    by_name: str = "",
    option: str = "group_lr",
    scale: optax.GradientTransformation | None = None,
) -> Optimiser:
    """Clip each group's gradient, then Adam (or `scale`), at the learning rates of the config."""
    clip = optax.clip_by_global_norm(config.max_grad_norm)
    transform = optax.chain(clip, scale or optax.scale_by_adam(eps=1e-5))
    return Optimiser(transform, make_rates(lr, groups, config.lr_decay, by_name, option, config.lr_horizon))


class NetworkActor(Actor):
    """A team that acts by networks on its observations."""

    def __init__(self, network: SharedNetwork):
        self.network = network

    @property
    def acts_on(self) -> frozenset[str]:
        return frozenset({"observation", "memory"} if self.network.memory_size else {"observation"})

    def initial_memory(self, batch: int) -> Array:
        return self.network.initial_memory(batch)

    def ready(self, policy: PyTree) -> PyTree:
        if isinstance(policy, ExploringPolicy | NoisyPolicy):
            return policy._replace(params=self.ready(policy.params))
        # Only the parameters of a network are a dictionary; what else an actor may need stays as it is.
        return self.network.network.in_precision(policy) if isinstance(policy, dict) else policy

    def outputs(self, params: PyTree, obs: Any, memory: Array, first: Array) -> tuple[Array, Array]:
        """Run the network: (T, B, A, O), (B, A, H), (T, B) -> (T, B, A, F) and memories (T, B, A, H)."""
        return self.network.apply(params, obs, memory, first)

    def one_step(self, params: PyTree, obs: Any, memory: Array, first: Array) -> tuple[Array, Array]:
        """Run the network for one step: (B, A, O), (B, A, H), (B,) -> (B, A, F), (B, A, H)."""
        now = jax.tree.map(lambda x: x[None], obs)
        out, memories = self.outputs(params, now, memory, first[None])
        return out[0], memories[0]


class ExploringPolicy(NamedTuple):
    """What acting needs where the share of random actions is a schedule."""

    params: PyTree
    epsilon: Array


class Rewards:
    """Which reward each agent learns from, and when its episode ends."""

    def __init__(self, reward: Reward, spec: EnvSpec):
        self.reward, self.teams = reward, sharing.teams(spec)
        self.agents_end = spec.agents_end and reward == "own"
        """whether agents learn from rewards that end when they themselves do"""

    def of(self, reward: Array) -> Array:
        """The reward each agent learns from: (..., A) -> (..., A)."""
        if self.reward == "own":
            return reward
        members = self.teams.membership
        sums = (reward[..., None, :] * members).sum(-1)
        return sharing.to_agents(self.teams, sums / members.sum(-1) if self.reward == "mean" else sums)

    def terminated(self, steps: Transition | Episodes) -> Array:
        """After which steps there is no more reward: for each agent, (..., A), or for the team, (..., 1)."""
        team = steps.terminated[..., None]
        if not self.agents_end:
            return team
        assert steps.agent_terminated is not None
        return team | steps.agent_terminated

    def valued(self, alive: Array) -> Array:
        """Whose values are learnt, (..., A): of all agents, or of those that have not ended.

        Dead agents count if their team can still earn rewards: the value of a sacrifice is learnt through the
        value of the states after it.
        """
        return alive if self.agents_end else jnp.ones_like(alive)


def require_one_team(name: str, rewards: Rewards, spec: EnvSpec, needs_state: bool, instead: str) -> None:
    """Raise an error if an algorithm learns a team's value, but there is not one team with one reward."""
    if not spec.common_reward and rewards.reward == "own":
        raise PhalanxError(
            f"{name} learns one value for the team, but agents of {spec.name} have individual rewards: "
            "choose reward=mean or reward=sum"
        )
    if rewards.teams.count > 1:
        raise PhalanxError(
            f"{name} is for one team, and {spec.name} has {rewards.teams.count}: try {instead}"
        )
    if spec.agent_state and needs_state:
        raise PhalanxError(f"{name} needs one state for all, and {spec.name} has one for each agent")


def summary(role: str, network: SharedNetwork, groups: Groups, spec: EnvSpec, sees: str) -> NetworkSummary:
    """A line of the table of networks."""
    members = tuple(
        (name, tuple(spec.agents[agent] for agent in groups.members(g)))
        for g, name in enumerate(groups.names)
    )
    kind, hidden = network.network.kind, network.network.hidden
    return NetworkSummary(f"{role} ({kind} {hidden})", members, network.parameters_each, sees)


Loss = Callable[..., tuple[Array, dict[str, Array]]]
"""From parameters and data to a scalar, and values to log by group, (G,)"""

"""What all learners share whose agents act by networks: who acts with which, and how each group learns.

Everything that is learnt is learnt a group at a time: gradient clipping and the optimiser are each group's
own, so that with one group an agent the agents learn independently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from phalanx.algorithms.base import Algorithm, Networks
from phalanx.algorithms.shared.rates import Rates, rates
from phalanx.config import option
from phalanx.data.replay import Episodes
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.networks.torsos import Network
from phalanx.ops import masks
from phalanx.types import Array, PyTree, Transition

Reward = Literal["own", "mean", "sum"]


@dataclass(frozen=True)
class AgentsConfig:
    """What every learner with networks can be told."""

    network: Literal["mlp", "gru"] = option("mlp", "torso of the networks; gru remembers")
    hidden: int = option(64, "width of every layer", at_least=1, at_most=65_536)
    layers: int = option(2, "linear layers before the head (before the gru)", at_least=1, at_most=64)
    activation: Literal["relu", "tanh"] = option("tanh", "what stands between layers")
    feature_norm: bool = option(
        False,
        "layer-normalise the inputs; it discards their common scale and offset, which in observations "
        "of very few entries is information",
    )
    agent_id: bool = option(True, "show each agent a one-hot of who it is")
    last_action: bool = option(False, "show each agent its last action")

    share: str = option("all", "who shares a network: all, team, type, agent, or groups of agents as 0,1;2")
    reward: Reward = option(
        "own", "what each agent learns from: its own reward, or the mean or sum over its team"
    )

    batch_steps: int = option(2048, "env steps a rollout holds, over all environments", at_least=1)

    gamma: float = option(0.99, "discount", at_least=0, at_most=1)
    lr: float = option(5e-4, "learning rate of the networks that act (and of a mixer)", above=0)
    lr_decay: bool = option(False, "let all learning rates fall to zero linearly over lr_horizon")
    lr_horizon: int | None = option(
        None, "env steps over which learning rates fall (default: the budget, steps)", at_least=1
    )
    group_lr: str = option(
        "",
        "learning rates of single groups by name, START or START:END, as in marine=1e-3:1e-4,medivac=3e-4",
    )
    max_grad_norm: float = option(10.0, "clip each group's gradient to this norm", above=0)


class Half(NamedTuple):
    """Parameters and optimiser of all groups of one network, each (G, ...)."""

    params: PyTree
    optimiser: PyTree


class Agents(Algorithm):
    """A team that acts by networks, each shared by a group of agents. Subclasses make `self.actor`."""

    Config = AgentsConfig
    config: AgentsConfig
    actor: Network
    action_kinds = frozenset({"discrete"})

    def __init__(self, config: AgentsConfig, spec):
        super().__init__(config, spec)
        self.actor_groups = sharing.groups(config.share, spec)
        self.actor_rates = self._rates(config.lr, self.actor_groups, config.group_lr)
        self.teams = sharing.teams(spec)
        self.optimiser = optax.chain(optax.clip_by_global_norm(config.max_grad_norm), self._scale())

    def _rates(self, lr: float, groups: sharing.Groups, by_name: str = "", option: str = "group_lr") -> Rates:
        return rates(lr, groups, self.config.lr_decay, by_name, option, self.config.lr_horizon)

    @property
    def schedules(self) -> tuple[Rates, ...]:
        """The learning rates of all its networks."""
        return (self.actor_rates,)

    @property
    def uses_budget(self) -> bool:
        return self.config.lr_horizon is None and any(each.fall for each in self.schedules)

    @property
    def rates_end_at_zero(self) -> bool:
        """Whether nothing is learnt any more once all learning rates have fallen."""
        return not any(each.ends.any() for each in self.schedules)

    def check_budget(self, steps: int) -> None:
        horizon = self.config.lr_horizon
        if horizon is not None and horizon < steps and self.rates_end_at_zero:
            raise PhalanxError(
                f"all learning rates are 0 after lr_horizon={horizon} env steps, and steps={steps}: nothing "
                f"would be learnt in the rest; use an lr_horizon of at least {steps}"
            )

    def check(self, envs: int) -> None:
        if self.config.lr_horizon is not None and not any(each.fall for each in self.schedules):
            raise PhalanxError(
                "lr_horizon is set and no learning rate falls: add lr_decay, or group_lr with START:END"
            )

    def _scale(self) -> optax.GradientTransformation:
        """What becomes of a clipped gradient before the learning rate."""
        return optax.scale_by_adam(eps=1e-5)

    def _network(self, inputs: int, outputs: int, head_gain: float, kind: str | None = None) -> Network:
        c = self.config
        return Network(
            kind or c.network, inputs, outputs, c.hidden, c.layers, c.activation, c.feature_norm, head_gain
        )

    @staticmethod
    def inputs(config: AgentsConfig) -> dict[str, bool]:
        return {"agent_id": config.agent_id, "last_action": config.last_action}

    @property
    def steps_per_update(self) -> int:
        return self.config.batch_steps

    @property
    def acts_on(self) -> frozenset[str]:
        return frozenset({"observation", "memory"} if self.actor.memory_size else {"observation"})

    def memory(self, batch: int) -> Array:
        return jnp.zeros((batch, self.spec.n_agents, self.actor.memory_size))

    def outputs(self, params: PyTree, obs: Array, memory: Array, first: Array) -> tuple[Array, Array]:
        """obs (T, B, A, O), memory (B, A, H), first (T, B) -> outputs (T, B, A, F), memories (T, B, A, H)."""
        begins = jnp.broadcast_to(first[..., None, None], (*obs.shape[:-1], 1))
        return sharing.apply(self.actor_groups, self.actor.apply, params, obs, memory, begins)

    def _half(self, groups: sharing.Groups, init: Callable[[Array], PyTree], key: Array) -> Half:
        params = sharing.init(groups, init, key)
        return Half(params, jax.vmap(self.optimiser.init, axis_size=groups.count)(params))

    def team_reward(self, reward: Array) -> Array:
        """(..., A) -> what each agent learns from, (..., A)."""
        if self.config.reward == "own":
            return reward
        members = self.teams.membership
        sums = (reward[..., None, :] * members).sum(-1)
        return sharing.to_agents(self.teams, sums / members.sum(-1) if self.config.reward == "mean" else sums)

    @property
    def _own_ends(self) -> bool:
        """Whether agents learn from rewards that are over when they themselves are."""
        return self.spec.agents_end and self.config.reward == "own"

    def ends(self, steps: Transition | Episodes) -> Array:
        """After which steps nothing is worth anything: to each agent, (..., A), or to the team, (..., 1)."""
        team = steps.terminated[..., None]
        if not self._own_ends:
            return team
        assert steps.agent_terminated is not None
        return team | steps.agent_terminated

    def valued(self, alive: Array) -> Array:
        """Whose values are learnt, (..., A): of all, or of those that have not ended.

        The dead count where their team goes on to earn: what comes after an agent's death, which it may have
        chosen for its team, is still what its last actions are worth.
        """
        return alive if self._own_ends else jnp.ones_like(alive)

    def descend(self, half: Half, grads: PyTree, lr: Array) -> tuple[Half, Array]:
        """Each group takes its own clipped Adam step at its own rate (G,); also its gradient's norm, (G,)."""

        def step(p, u):
            return p - lr.reshape(-1, *[1] * (p.ndim - 1)) * u

        def each_group(fn):  # there may be no parameters at all
            return jax.vmap(fn, axis_size=len(lr))

        updates, optimiser = each_group(self.optimiser.update)(grads, half.optimiser)
        norms = each_group(lambda g: jnp.float32(optax.global_norm(g)))(grads)
        return Half(jax.tree.map(step, half.params, updates), optimiser), norms

    @staticmethod
    def group_means(groups: sharing.Groups, values: Mapping[str, Array], mask: Array) -> dict[str, Array]:
        """The mean of each of `values` (..., A) over the agents of each group, where `mask`: (G,)."""
        return {name: masks.grouped_mean(x, mask, groups.membership) for name, x in values.items()}

    @staticmethod
    def by_group(groups: sharing.Groups, values: Mapping[str, Array]) -> dict[str, Array]:
        """The scalars to log of values (G,): `NAME`, or `NAME/GROUP` where there are several groups.

        Losses return (G,) and this comes last, because inside a scan every scalar costs an operation a step.
        """
        if groups.count == 1:
            return {name: x[0] for name, x in values.items()}
        return {f"{name}/{group}": x[g] for name, x in values.items() for g, group in enumerate(groups.names)}

    def _describe(self, role: str, groups: sharing.Groups, network: Network, sees: str) -> Networks:
        shapes = jax.eval_shape(network.init, jax.random.key(0))
        size = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        members = tuple(
            (name, tuple(self.spec.agents[agent] for agent in groups.members(g)))
            for g, name in enumerate(groups.names)
        )
        return Networks(f"{role} ({network.kind} {network.hidden})", members, size, sees)

"""Proximal policy optimisation for teams: the learner that IPPO and MAPPO are two settings of.

Actor and critic are separate networks, each with its own sharing. Everything that is learnt is
learnt a group at a time: losses, advantage statistics, gradient clipping, Adam and the value
normaliser are each group's own, so that with one group an agent the agents learn independently.

Rollouts are cut into chunks of `chunk` steps (1 without recurrence), each with the memory that was
held when it was played. Agents stay together in a chunk, which is what lets a critic with a common
view be computed once an environment.
"""

from dataclasses import dataclass
from math import gcd
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from phalanx.algorithms.base import Algorithm, Networks
from phalanx.config import option
from phalanx.data.normalise import RunningNorm
from phalanx.errors import PhalanxError
from phalanx.networks import sharing
from phalanx.networks.torsos import Network
from phalanx.ops import distributions, losses, masks, returns
from phalanx.types import Array, Clock, Observation, PyTree, Transition

CriticView = Literal["obs", "state", "state+obs"]
Reward = Literal["own", "mean", "sum"]


@dataclass(frozen=True)
class PPOConfig:
    """Every setting of IPPO and MAPPO."""

    network: Literal["mlp", "gru"] = option("mlp", "torso of actor and critic; gru remembers")
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

    share: str = option("all", "who shares an actor: all, team, type, agent, or groups of agents as 0,1;2")
    critic_share: str = option("same", "who shares a critic: as share, or same")
    critic_view: CriticView = option(
        "obs", "what the critic sees: own observation, the global state, or both"
    )
    reward: Reward = option(
        "own", "what each agent learns from: its own reward, or the mean or sum over its team"
    )

    batch_steps: int = option(2048, "env steps a rollout holds, over all environments", at_least=1)
    epochs: int = option(4, "passes over each rollout", at_least=1)
    minibatches: int = option(4, "parts that each pass is cut into", at_least=1)
    chunk: int = option(16, "steps that the gru is unrolled for when learning", at_least=1)

    gamma: float = option(0.99, "discount", at_least=0, at_most=1)
    gae_lambda: float = option(
        0.95, "how far advantages look ahead; 1 gives plain discounted returns", at_least=0, at_most=1
    )
    lr: float = option(5e-4, "learning rate of the actor", above=0)
    critic_lr: float = option(5e-4, "learning rate of the critic", above=0)
    lr_decay: bool = option(False, "let both learning rates fall to zero linearly over the budget")
    clip: float = option(0.2, "how far the policy ratio may move", above=0)
    entropy: float = option(0.01, "weight of the entropy bonus", at_least=0)
    value_loss: Literal["huber", "squared"] = option("huber", "the critic's loss")
    huber_delta: float = option(10.0, "where the Huber loss becomes linear", above=0)
    value_clip: bool = option(True, "keep a new value within `clip` of the old one")
    value_norm: Literal["none", "running", "popart"] = option(
        "running", "learn values on a running scale of their targets; popart also keeps outputs in place"
    )
    value_norm_decay: float = option(0.99, "memory of that scale, for each update", at_least=0, at_most=1)
    max_grad_norm: float = option(10.0, "clip each group's gradient to this norm", above=0)


class Half(NamedTuple):
    """Parameters and optimiser of all groups of the actor or of the critic, each (G, ...)."""

    params: PyTree
    optimiser: PyTree


class PPOLearner(NamedTuple):
    """What PPO keeps from one update to the next."""

    actor: Half
    critic: Half
    critic_memory: Array
    """(B, V, H), V being how many values are computed an environment"""
    value_norm: RunningNorm
    gradient_steps: Array


class Batch(NamedTuple):
    """A rollout as the losses see it: (L, N, ...), N chunks of L steps."""

    observation: Observation
    first: Array
    action: Array
    old_log_prob: Array
    advantage: Array
    old_value: Array
    target: Array


class Starts(NamedTuple):
    """The memories that each chunk begins with: (N, A, H), (N, V, H)."""

    actor: Array
    critic: Array


class PPO(Algorithm):
    """The clipped surrogate over a team."""

    Config = PPOConfig
    config: PPOConfig
    action_kinds = frozenset({"discrete"})

    def __init__(self, config: PPOConfig, spec):
        super().__init__(config, spec)
        self.actor_groups = sharing.groups(config.share, spec)
        critic_share = config.share if config.critic_share == "same" else config.critic_share
        self.critic_groups = sharing.groups(critic_share, spec, "critic_share")
        # A critic that sees only the common state says the same for all agents of its group.
        self.common_view = config.critic_view == "state" and not spec.agent_state
        self.value_groups = self.critic_groups.one_each if self.common_view else self.critic_groups
        self.teams = sharing.teams(spec)
        self._require_one_value_a_group()
        view_size = {
            "obs": spec.obs_size,
            "state": spec.state_size,
            "state+obs": spec.state_size + spec.obs_size,
        }[config.critic_view]
        self.actor = self._network(spec.obs_size, spec.n_actions, head_gain=0.01)
        self.critic = self._network(view_size, 1, head_gain=1.0)
        self.optimiser = optax.chain(
            optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5)
        )

    def _require_one_value_a_group(self) -> None:
        """Refuse a critic that says the same of agents that learn from different rewards."""
        groups, spec = self.critic_groups, self.spec
        if not self.common_view or spec.common_reward:
            return
        if self.config.reward == "own" and groups.count < spec.n_agents:
            raise PhalanxError(
                f"a shared critic that sees only the state cannot tell apart the agents' own rewards of "
                f"{spec.name}: choose reward=mean, critic_view=state+obs or critic_share=agent"
            )
        if any(len({self.teams.of_agent[i] for i in groups.members(g)}) > 1 for g in range(groups.count)):
            raise PhalanxError(
                f"a critic that sees only the state cannot be shared by the teams of {spec.name}: "
                f"choose share=team, critic_share=team or critic_view=state+obs"
            )

    def _network(self, inputs: int, outputs: int, head_gain: float) -> Network:
        c = self.config
        return Network(
            c.network, inputs, outputs, c.hidden, c.layers, c.activation, c.feature_norm, head_gain
        )

    @staticmethod
    def inputs(config: PPOConfig) -> dict[str, bool]:
        return {"agent_id": config.agent_id, "last_action": config.last_action}

    @property
    def steps_per_update(self) -> int:
        return self.config.batch_steps

    @property
    def chunk(self) -> int:
        return self.config.chunk if self.config.network == "gru" else 1

    def check(self, envs: int) -> None:
        batch, parts = self.config.batch_steps, self.config.minibatches
        if batch % (envs * self.chunk) or (batch // self.chunk) % parts:
            unit = envs * self.chunk
            unit = unit * parts // gcd(unit // self.chunk, parts)
            fitting = max(unit, round(batch / unit) * unit)
            raise PhalanxError(
                f"batch_steps={batch} cannot be cut into {envs} environments x chunks of {self.chunk} x "
                f"{parts} minibatches: use batch_steps={fitting}, or other envs, chunk or minibatches"
            )

    # Acting

    def init(self, key: Array, envs: int) -> PPOLearner:
        actor_key, critic_key = jax.random.split(key)
        return PPOLearner(
            actor=self._half(self.actor_groups, self.actor, actor_key),
            critic=self._half(self.critic_groups, self.critic, critic_key),
            critic_memory=jnp.zeros((envs, len(self.value_groups.of_agent), self.critic.memory_size)),
            value_norm=RunningNorm.start(self.critic_groups.count),
            gradient_steps=jnp.int32(0),
        )

    def _half(self, groups: sharing.Groups, network: Network, key: Array) -> Half:
        params = sharing.init(groups, network.init, key)
        return Half(params, jax.vmap(self.optimiser.init)(params))

    def policy(self, learner: PPOLearner) -> PyTree:
        return learner.actor.params

    def memory(self, batch: int) -> Array:
        return jnp.zeros((batch, self.spec.n_agents, self.actor.memory_size))

    def logits(self, params: PyTree, obs: Array, memory: Array, first: Array) -> tuple[Array, Array]:
        """obs (T, B, A, O), memory (B, A, H), first (T, B) -> logits (T, B, A, U), memories (T, B, A, H)."""
        begins = jnp.broadcast_to(first[..., None, None], (*obs.shape[:-1], 1))
        return sharing.apply(self.actor_groups, self.actor.apply, params, obs, memory, begins)

    def act(self, policy, observation, first, memory, key, greedy):
        logits, memories = self.logits(policy, observation.obs[None], memory, first[None])
        logits, avail = logits[0], observation.avail
        action = distributions.mode(logits, avail) if greedy else distributions.sample(key, logits, avail)
        log_prob = distributions.chosen(distributions.log_probs(logits, avail), action)
        return action, memories[0], {"log_prob": log_prob}

    # Values

    def view(self, observation: Observation) -> Array:
        """What the critic sees: (..., V, F)."""
        if self.config.critic_view == "obs":
            return observation.obs
        state = observation.state if self.spec.agent_state else observation.state[..., None, :]
        if self.common_view:
            return jnp.broadcast_to(
                state, (*state.shape[:-2], len(self.value_groups.of_agent), state.shape[-1])
            )
        if self.config.critic_view == "state":
            return state
        state = jnp.broadcast_to(state, (*observation.obs.shape[:-1], state.shape[-1]))
        return jnp.concatenate([state, observation.obs], axis=-1)

    def values(self, params: PyTree, observation: Observation, memory: Array, first: Array):
        """(T, B, ...) -> values on the critic's own scale, (T, B, A), and memories, (T, B, V, H)."""
        seen = self.view(observation)
        begins = jnp.broadcast_to(first[..., None, None], (*seen.shape[:-1], 1))
        out, memories = sharing.apply(self.value_groups, self.critic.apply, params, seen, memory, begins)
        value = out[..., 0]
        return (sharing.to_agents(self.critic_groups, value) if self.common_view else value), memories

    def next_values(self, params: PyTree, observation: Observation, memories: Array) -> Array:
        """Values of what truly came next, each from the memory at its own step: (T, B, A).

        No step waits for another, so time joins the batch: a sequence of length 1.
        """
        time, batch = memories.shape[:2]
        flat = jax.tree.map(lambda x: x.reshape(1, time * batch, *x.shape[2:]), observation)
        memory = memories.reshape(time * batch, *memories.shape[2:])
        never = jnp.zeros((1, time * batch), bool)
        value, _ = self.values(params, flat, memory, never)
        return value.reshape(time, batch, -1)

    # Learning

    def update(self, learner: PPOLearner, rollout: Transition, key: Array, clock: Clock):
        learner, batch, starts, metrics = self.digest(learner, rollout)
        rate = 1.0 - clock.progress if self.config.lr_decay else 1.0

        def minibatch(learner, indices):
            part = jax.tree.map(lambda x: x[:, indices], batch)
            begin = jax.tree.map(lambda x: x[indices], starts)
            return self.step(learner, part, begin, rate)

        def epoch(learner, key):
            order = jax.random.permutation(key, batch.action.shape[1])
            return jax.lax.scan(minibatch, learner, order.reshape(self.config.minibatches, -1))

        learner, logged = jax.lax.scan(epoch, learner, jax.random.split(key, self.config.epochs))
        return learner, {**metrics, **jax.tree.map(jnp.mean, logged)}

    def digest(self, learner: PPOLearner, rollout: Transition):
        """From a rollout make what the losses need; also move the value scale and the critic's memory on."""
        params, norm, groups = learner.critic.params, learner.value_norm, self.critic_groups
        scaled, memories = self.values(params, rollout.observation, learner.critic_memory, rollout.first)
        after = self.next_values(params, rollout.next_observation, memories)
        values = norm.denormalise(scaled, groups.of_agent)
        next_values = norm.denormalise(after, groups.of_agent)
        advantage, target = returns.gae(
            self.team_reward(rollout.reward),
            values,
            next_values,
            rollout.terminated[..., None],
            rollout.truncated[..., None],
            self.config.gamma,
            self.config.gae_lambda,
        )
        alive = rollout.observation.alive
        advantage = masks.standardise(advantage, alive, self.actor_groups.membership)
        critic, norm = self.rescale(learner.critic, norm, target)
        batch = Batch(
            observation=rollout.observation,
            first=rollout.first,
            action=rollout.action,
            old_log_prob=rollout.extras["log_prob"],
            advantage=advantage,
            # What the network said, on its own scale; PopArt has moved the network to the new scale.
            old_value=norm.normalise(values, groups.of_agent)
            if self.config.value_norm == "popart"
            else scaled,
            target=norm.normalise(target, groups.of_agent),
        )
        before = jnp.concatenate([learner.critic_memory[None], memories[:-1]])
        starts = Starts(self._starts(rollout.memory), self._starts(before))
        learner = learner._replace(critic=critic, value_norm=norm, critic_memory=memories[-1])
        metrics = {
            "explained_variance": losses.explained_variance(values, target),
            "value_target": target.mean(),
            "alive": alive.mean(),
        }
        return learner, jax.tree.map(self._chunks, batch), starts, metrics

    def team_reward(self, reward: Array) -> Array:
        """(..., A) -> what each agent learns from, (..., A)."""
        if self.config.reward == "own":
            return reward
        members = self.teams.membership
        sums = (reward[..., None, :] * members).sum(-1)
        return sharing.to_agents(self.teams, sums / members.sum(-1) if self.config.reward == "mean" else sums)

    def rescale(self, critic: Half, norm: RunningNorm, target: Array) -> tuple[Half, RunningNorm]:
        """Move the value scale towards the targets (T, B, A).

        The dead count here and in the critic's loss: what comes after an agent's death, which the
        agent may have chosen for its team, is still what its last actions are worth.
        """
        if self.config.value_norm == "none":
            return critic, norm
        moments = masks.grouped_moments(target, jnp.ones_like(target, bool), self.critic_groups.membership)
        new = norm.update(*moments, self.config.value_norm_decay)
        if self.config.value_norm == "running":
            return critic, new
        # PopArt (van Hasselt et al. 2016): change the head so that its values stay where they were.
        head = critic.params["head"]
        kernel = head["kernel"] * (norm.std / new.std)[:, None, None]
        bias = (norm.std[:, None] * head["bias"] + (norm.mean - new.mean)[:, None]) / new.std[:, None]
        return critic._replace(params={**critic.params, "head": {"kernel": kernel, "bias": bias}}), new

    def _chunks(self, x: Array) -> Array:
        """(T, B, ...) -> (L, N, ...), N = T/L x B."""
        time, batch, *rest = x.shape
        parts = x.reshape(time // self.chunk, self.chunk, batch, *rest)
        return parts.swapaxes(0, 1).reshape(self.chunk, -1, *rest)

    def _starts(self, memory: Array) -> Array:
        """The memory before each step, (T, B, ...) -> that before each chunk, (N, ...)."""
        kept = memory[:: self.chunk]
        return kept.reshape(kept.shape[0] * kept.shape[1], *kept.shape[2:])

    def step(self, learner: PPOLearner, batch: Batch, starts: Starts, rate: Array | float):
        """One gradient step of actor and critic on a minibatch (L, N, ...)."""
        actor_grads, actor_metrics = jax.grad(self.actor_loss, has_aux=True)(
            learner.actor.params, batch, starts.actor
        )
        critic_grads, critic_metrics = jax.grad(self.critic_loss, has_aux=True)(
            learner.critic.params, batch, starts.critic
        )
        actor, actor_norm = self.descend(learner.actor, actor_grads, rate * self.config.lr)
        critic, critic_norm = self.descend(learner.critic, critic_grads, rate * self.config.critic_lr)
        learner = learner._replace(actor=actor, critic=critic, gradient_steps=learner.gradient_steps + 1)
        norms = {"actor_grad_norm": actor_norm, "critic_grad_norm": critic_norm}
        return learner, {**actor_metrics, **critic_metrics, **norms}

    def descend(self, half: Half, grads: PyTree, lr: Array | float) -> tuple[Half, Array]:
        """Each group takes its own clipped Adam step; also the mean gradient norm before clipping."""
        updates, optimiser = jax.vmap(self.optimiser.update)(grads, half.optimiser)
        params = jax.tree.map(lambda p, u: p - lr * u, half.params, updates)
        return Half(params, optimiser), jax.vmap(optax.global_norm)(grads).mean()

    def actor_loss(self, params: PyTree, batch: Batch, memory: Array) -> tuple[Array, dict[str, Array]]:
        """The clipped surrogate and the entropy bonus, over living agents; each group's mean, summed."""
        seen = batch.observation
        logits, _ = self.logits(params, seen.obs, memory, batch.first)
        log_prob = distributions.chosen(distributions.log_probs(logits, seen.avail), batch.action)
        # The dead have no ratio; 0 keeps what they would have from becoming infinite.
        log_ratio = jnp.where(seen.alive, log_prob - batch.old_log_prob, 0.0)
        ratio = jnp.exp(log_ratio)
        surrogate = losses.clipped_surrogate(ratio, batch.advantage, self.config.clip)
        entropy = distributions.entropy(logits, seen.avail)
        loss = surrogate - self.config.entropy * entropy
        metrics = {
            "policy_loss": masks.masked_mean(surrogate, seen.alive),
            "entropy": masks.masked_mean(entropy, seen.alive),
            "kl": masks.masked_mean(ratio - 1 - log_ratio, seen.alive),
            "clip_fraction": masks.masked_mean(jnp.abs(ratio - 1) > self.config.clip, seen.alive),
        }
        return masks.grouped_mean(loss, seen.alive, self.actor_groups.membership).sum(), metrics

    def critic_loss(self, params: PyTree, batch: Batch, memory: Array) -> tuple[Array, dict[str, Array]]:
        """The value loss on the normalised scale; each group's mean, summed."""
        value, _ = self.values(params, batch.observation, memory, batch.first)
        if self.config.value_loss == "huber":
            loss_of = lambda error: losses.huber(error, self.config.huber_delta)  # noqa: E731
        else:
            loss_of = losses.squared
        if self.config.value_clip:
            loss = losses.clipped_value_loss(loss_of, value, batch.old_value, batch.target, self.config.clip)
        else:
            loss = loss_of(value - batch.target)
        means = masks.grouped_mean(loss, jnp.ones_like(loss, bool), self.critic_groups.membership)
        return means.sum(), {"value_loss": means.mean()}

    def networks(self) -> list[Networks]:
        sees = {
            "obs": "own observation",
            "state": "global state",
            "state+obs": "global state and own observation",
        }[self.config.critic_view]
        return [
            self._describe("actor", self.actor_groups, self.actor, "own observation"),
            self._describe("critic", self.critic_groups, self.critic, sees),
        ]

    def _describe(self, role: str, groups: sharing.Groups, network: Network, sees: str) -> Networks:
        shapes = jax.eval_shape(network.init, jax.random.key(0))
        size = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        members = tuple(
            (name, tuple(self.spec.agents[agent] for agent in groups.members(g)))
            for g, name in enumerate(groups.names)
        )
        return Networks(f"{role} ({network.kind} {network.hidden})", members, size, sees)

"""Novelty of steps: models whose prediction error is the curiosity bonus.

ICM: Pathak et al. 2017, "Curiosity-driven Exploration by Self-supervised Prediction",
https://arxiv.org/abs/1705.05363. RND: Burda et al. 2018, "Exploration by Random Network Distillation",
https://arxiv.org/abs/1810.12894.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.shared.optimiser import TrainState
from phalanx.algorithms.shared.q_critic import ActionCode
from phalanx.algorithms.shared.team import TeamConfig, make_optimiser, shared_network
from phalanx.data.normalise import Moments, ReturnStatistics
from phalanx.networks import dense, sharing
from phalanx.networks.torsos import flattened, leading
from phalanx.ops import distributions, losses, masks
from phalanx.types import Array, Clock, EnvSpec, Picture, PyTree

# On the whole of each rollout, once it was rewarded. With a single one the bonus of what is well known by now
# falls slowly; many would fit a model to the last rollout, and forget the others.
GRADIENT_STEPS = 4
FORWARD_SHARE = 0.2  # beta of ICM: the share of the forward model in the loss
MOST_DEVIATIONS = 5.0  # from the mean, of what RND sees


class Experience(NamedTuple):
    """Steps as models see them, (T, B, ...): a rollout, or a sample of a replay buffer."""

    obs: Any
    """(T, B, A, O), or a `Picture`; without the last action, which an inverse model would just read off"""
    action: Array
    """(T, B, A) int32, or (T, B, A, U) float32"""
    avail: Array
    """(T, B, A, U)"""
    next_obs: Any
    counted: Array
    """(T, B, A) bool: the step was taken, by an agent that lives before and after it"""


class Novelty(ABC):
    """A model for each group of agents. Its state is a pytree, and a part of the learner."""

    def __init__(self, config: TeamConfig, spec: EnvSpec, inputs: int):
        """`inputs` is the number of entries O in `Experience.obs`, beside a picture if there is one."""
        self.config, self.spec, self.inputs = config, spec, inputs
        share = config.share if config.curiosity_share == "same" else config.curiosity_share
        self.groups = sharing.groups(share, spec, "curiosity_share")
        self.code = ActionCode(spec)
        self.optimiser = make_optimiser(config, self.groups, config.curiosity_lr)
        # A single observation is judged, without memory.
        kind = "cnn" if config.network == "cnn" else "mlp"
        self.network = shared_network(
            config, self.groups, inputs, config.hidden, head_gain=1.0, kind=kind, picture=spec.obs_shape
        )

    @abstractmethod
    def init(self, key: Array, envs: int) -> Any:
        """The state before anything was seen."""

    @abstractmethod
    def parameters(self, state: Any) -> PyTree:
        """The parameters of all networks, (G, ...)."""

    def observe(self, state: Any, first: Array, seen: Experience) -> Any:
        """Update running statistics with a rollout; `first` (T, B) says where episodes begin."""
        return state

    @abstractmethod
    def bonus(self, state: Any, seen: Experience) -> Array:
        """How new each step is, (T, B, A); 0 where it does not count."""

    @abstractmethod
    def train(self, state: Any, seen: Experience, clock: Clock) -> tuple[Any, dict[str, Array]]:
        """Learn from a rollout. Also returns losses by group, (G,)."""

    def encode(self, params: PyTree, obs: Any) -> Array:
        """Features (T, B, A, F) of observations."""
        time, batch = leading(obs)[:2]
        never = jnp.zeros((time, batch), bool)
        return self.network.apply(params, obs, self.network.initial_memory(batch), never)[0]

    def init_dense(self, key: Array, *sizes: int) -> PyTree:
        """Linear layers for each group, (G, ...)."""
        return sharing.init(self.groups, lambda key: dense.init(key, sizes), key)

    def dense(self, params: PyTree, *x: Array) -> Array:
        """Apply them to inputs (..., A, F), side by side."""
        return sharing.apply(self.groups, dense.apply, params, jnp.concatenate(x, axis=-1))

    def descend(
        self, trained: TrainState, loss: Callable[[PyTree], tuple[Array, dict[str, Array]]], clock: Clock
    ) -> tuple[TrainState, dict[str, Array]]:
        """Take the gradient steps of a rollout. Also returns what the first of them logs.

        That is the error on steps that the model has not learnt from yet.
        """

        def step(trained: TrainState, _: None) -> tuple[TrainState, dict[str, Array]]:
            grads, logged = jax.grad(loss, has_aux=True)(trained.params)
            return self.optimiser.apply_gradients(trained, grads, clock)[0], logged

        trained, logged = jax.lax.scan(step, trained, None, length=GRADIENT_STEPS)
        return trained, jax.tree.map(lambda x: x[0], logged)


class ICM(Novelty):
    """The error of a forward model, in features that tell which action was taken.

    Features are trained only by the inverse model: the forward model would collapse them to a constant.
    """

    def init(self, key: Array, envs: int) -> TrainState:
        keys = jax.random.split(key, 3)
        hidden, actions = self.config.hidden, self.spec.n_actions
        params = {
            "encoder": self.network.init(keys[0]),
            "inverse": self.init_dense(keys[1], 2 * hidden, hidden, actions),
            "forward": self.init_dense(keys[2], hidden + actions, hidden, hidden),
        }
        return self.optimiser.init(params)

    def parameters(self, state: TrainState) -> PyTree:
        return state.params

    def bonus(self, state: TrainState, seen: Experience) -> Array:
        encoder = state.params["encoder"]
        before, after = (self.encode(encoder, obs) for obs in (seen.obs, seen.next_obs))
        return jnp.where(seen.counted, self.forward_error(state.params, seen, before, after), 0.0)

    def train(self, state: TrainState, seen: Experience, clock: Clock):
        def loss(params: PyTree) -> tuple[Array, dict[str, Array]]:
            before, after = (self.encode(params["encoder"], obs) for obs in (seen.obs, seen.next_obs))
            inverse = self.inverse_error(params, seen, before, after)
            forward = self.forward_error(params, seen, *jax.lax.stop_gradient((before, after)))
            total = (1 - FORWARD_SHARE) * inverse + FORWARD_SHARE * forward
            logged = self.groups.mean(
                {"icm_inverse_loss": inverse, "icm_forward_loss": forward}, seen.counted
            )
            return masks.grouped_mean(total, seen.counted, self.groups.membership).sum(), logged

        return self.descend(state, loss, clock)

    def inverse_error(self, params: PyTree, seen: Experience, before: Array, after: Array) -> Array:
        """Of the action between two features: (T, B, A)."""
        out = self.dense(params["inverse"], before, after)
        if self.code.discrete:
            return -distributions.chosen(distributions.log_probs(out, seen.avail), seen.action)
        return jnp.where(
            seen.avail, losses.squared(out - self.code.encode(seen.action, seen.avail)), 0.0
        ).sum(-1)

    def forward_error(self, params: PyTree, seen: Experience, before: Array, after: Array) -> Array:
        """Of the features after an action, half their squared distance: (T, B, A)."""
        expected = self.dense(params["forward"], before, self.code.encode(seen.action, seen.avail))
        return losses.squared(expected - after).sum(-1)


class RNDState(NamedTuple):
    """What RND keeps."""

    predictor: TrainState
    target: PyTree
    """parameters (G, ...) that never change"""
    inputs: Moments
    """(G, O), of observations; pixels come first"""
    errors: ReturnStatistics
    """of errors, as if they were rewards"""


class RND(Novelty):
    """The error of a network that predicts the output of a fixed random network for the next observation."""

    def init(self, key: Array, envs: int) -> RNDState:
        target_key, own_key, tail_key = jax.random.split(key, 3)
        hidden, groups = self.config.hidden, self.groups.count
        # As in the paper, the predictor has two more layers, so that it can become what the target is.
        tail = self.init_dense(tail_key, hidden, hidden, hidden)
        predictor = {"encoder": self.network.init(own_key), "tail": tail}
        pixels = prod(self.spec.obs_shape) if self.spec.obs_shape else 0
        return RNDState(
            predictor=self.optimiser.init(predictor),
            target=self.network.init(target_key),
            inputs=Moments.start(groups, pixels + self.inputs),
            errors=ReturnStatistics.start(groups, envs, self.spec.n_agents),
        )

    def parameters(self, state: RNDState) -> PyTree:
        return state.predictor.params, state.target

    def observe(self, state: RNDState, first: Array, seen: Experience) -> RNDState:
        obs, counted = flattened(seen.next_obs), seen.counted
        state = state._replace(inputs=state.inputs.update(obs, counted[..., None], self.groups.membership))
        error = self.error(state, state.predictor.params, seen)
        gamma, members = self.config.gamma, self.groups.membership
        return state._replace(errors=state.errors.update(first, error, counted, gamma, members))

    def bonus(self, state: RNDState, seen: Experience) -> Array:
        return state.errors.scaled(self.error(state, state.predictor.params, seen), self.groups.of_agent)

    def train(self, state: RNDState, seen: Experience, clock: Clock):
        def loss(params: PyTree) -> tuple[Array, dict[str, Array]]:
            logged = self.groups.mean({"rnd_loss": self.error(state, params, seen)}, seen.counted)
            return logged["rnd_loss"].sum(), logged

        predictor, logged = self.descend(state.predictor, loss, clock)
        return state._replace(predictor=predictor), logged

    def error(self, state: RNDState, params: PyTree, seen: Experience) -> Array:
        """The mean squared error of features, (T, B, A), with `params` of the predictor."""
        obs = self._normalised(state.inputs, seen.next_obs)
        known = self.dense(params["tail"], jax.nn.relu(self.encode(params["encoder"], obs)))
        error = jnp.square(known - self.encode(state.target, obs)).mean(-1)
        return jnp.where(seen.counted, error, 0.0)

    def _normalised(self, inputs: Moments, obs: Any) -> Any:
        normal = inputs.normalise(flattened(obs), self.groups.of_agent, MOST_DEVIATIONS)
        if not isinstance(obs, Picture):
            return normal
        pixels = normal.shape[-1] - self.inputs
        return Picture(normal[..., :pixels].reshape(obs.pixels.shape), normal[..., pixels:])

"""Check that an environment implements the interface, and explain each violation in one sentence."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.base import Env, no_action, own_actions
from phalanx.types import EnvSpec, Observation, TimeStep, is_key

Program = Callable[..., Any]
EPISODES, MOST_STEPS = 8, 100
PICTURE_DTYPES = ("float32", "uint8", "int8", "int16", "int32")
KINDS = {
    **dict.fromkeys(("agents", "agent_types", "obs_features", "state_features", "action_counts"), tuple),
    **{"teams": tuple, "action_range": tuple, "name": str, "time_limit": int},
}


def check(env: Any) -> list[str]:
    """List every violation of the interface that can be found; an empty list means none.

    Later checks build on earlier ones, so the list ends with the first kind of check that fails.
    """
    programs = (
        jax.jit(lambda key: env.reset(key)),
        jax.jit(lambda *args: env.step(*args)),
    )  # each is traced once
    for part in (_spec, partial(_shapes, *programs), partial(_play, *programs)):
        try:
            breaches = list(part(env))
        except Exception as error:  # an author's code may raise anything, at any moment
            breaches = [f"playing it raises {_first_line(error)}."]
        if breaches:
            return breaches
    return []


def _spec(env: Any) -> Iterator[str]:
    if not isinstance(env, Env):
        yield f"{type(env).__name__} is not a subclass of phalanx.Env."
        return
    try:
        spec = env.spec
    except Exception as error:
        yield f"spec raises {type(error).__name__}: {error}."
        return
    if not isinstance(spec, EnvSpec):
        yield f"spec is a {type(spec).__name__}, not an EnvSpec."
        return
    wrong = [name for name, kind in KINDS.items() if not isinstance(getattr(spec, name), kind)]
    if wrong:
        yield from (f"spec.{name} must be of type {KINDS[name].__name__}." for name in wrong)
        return
    yield from spec_entries(spec)


def spec_entries(spec: EnvSpec) -> Iterator[str]:
    """What is wrong with a spec, whose entries have the right types."""
    n = len(spec.agents)
    if n == 0:
        yield "spec.agents is empty: there must be at least one agent."
        return
    yield from _spec_agents(spec, n)
    if spec.time_limit < 1:
        yield f"spec.time_limit is {spec.time_limit}: an episode must have at least one step."
    if spec.action_kind not in ("discrete", "continuous"):
        yield f"spec.action_kind is {spec.action_kind!r}: it must be discrete or continuous."
    if len(spec.action_range) != 2 or not -np.inf < spec.action_range[0] < spec.action_range[1] < np.inf:
        yield f"spec.action_range is {spec.action_range}: it must be two finite numbers, the lower one first."
    if spec.agents_end and spec.common_reward:
        yield "spec.agents_end and common_reward are set: agents that end separately need individual rewards."
    if not spec.state_features:
        yield "spec.state_features is empty: name the entries of the global state."


def _spec_agents(spec: EnvSpec, n: int) -> Iterator[str]:
    if len(set(spec.agents)) < n:
        yield "two agents in spec.agents have the same name."
    for name in ("agent_types", "action_counts"):
        if len(getattr(spec, name)) != n:
            yield f"spec.{name} has {len(getattr(spec, name))} entries for {n} agents."
    yield from _spec_observations(spec, n)
    if any(count < 1 for count in spec.action_counts):
        yield "spec.action_counts gives an agent no action: each must have at least one."
    if spec.teams and len(spec.teams) != n:
        yield f"spec.teams has {len(spec.teams)} entries for {n} agents."


def _spec_observations(spec: EnvSpec, n: int) -> Iterator[str]:
    if spec.obs_shape is None:
        if len(spec.obs_features) != n:
            yield f"spec.obs_features has {len(spec.obs_features)} entries for {n} agents."
        if any(len(names) == 0 for names in spec.obs_features):
            yield "spec.obs_features gives an agent no features: each must see at least one number."
        if spec.obs_dtype != "float32":
            yield f"spec.obs_dtype is {spec.obs_dtype!r}: observations without an obs_shape are float32."
        return
    sizes = spec.obs_shape if isinstance(spec.obs_shape, tuple) else ()
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        yield f"spec.obs_shape is {spec.obs_shape}: it must be sizes, as (height, width, channels)."
    if spec.obs_features:
        yield "spec.obs_features and obs_shape are both set: a picture has no named features."
    if spec.obs_dtype not in PICTURE_DTYPES:
        yield f"spec.obs_dtype is {spec.obs_dtype!r}: it must be one of {', '.join(PICTURE_DTYPES)}."


def _shapes(reset: Program, step: Program, env: Env) -> Iterator[str]:
    spec = env.spec
    key = jax.random.key(0)
    start = _trace("reset", reset, key)
    if isinstance(start, str):
        yield start
        return
    yield from _timestep_shapes("reset", start[1], spec)
    actions = jax.eval_shape(lambda: no_action(spec))
    after = _trace("step", step, key, start[0], actions)
    if isinstance(after, str):
        yield after
        return
    yield from _timestep_shapes("step", after[1], spec)
    for what, before, now in (("state", start[0], after[0]), ("info", start[1].info, after[1].info)):
        if jax.tree.structure(before) != jax.tree.structure(now):
            yield f"step returns another {what} structure than reset: the two must be the same."
        elif list(map(_kind, jax.tree.leaves(before))) != list(map(_kind, jax.tree.leaves(now))):
            yield f"step returns a {what} of other shapes or types than reset: the two must be the same."


def _trace(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """The shapes that `reset` or `step` returns, or the sentence that says why there are none."""
    try:
        result = jax.eval_shape(function, *args)
    except Exception as error:  # an author's code may raise anything
        return f"{name} cannot be compiled: {_first_line(error)}."
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], TimeStep):
        return result
    return f"{name} must return (state, TimeStep); Env.timestep builds the second."


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(".")


def _kind(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}"


def _timestep_shapes(where: str, step: TimeStep, spec: EnvSpec) -> Iterator[str]:
    n = spec.n_agents
    state = f"{n}, {spec.state_size}" if spec.agent_state else f"{spec.state_size}"
    if not isinstance(step.observation, Observation):
        yield f"{where} gives an observation that is not an Observation; Env.timestep builds one."
        return
    wanted = {
        "obs": (step.observation.obs, f"{spec.obs_dtype}{[n, *spec.obs_array]}"),
        "state": (step.observation.state, f"float32[{state}]"),
        "avail": (step.observation.avail, f"bool[{n}, {spec.n_actions}]"),
        "alive": (step.observation.alive, f"bool[{n}]"),
        "reward": (step.reward, f"float32[{n}]"),
        "terminated": (step.terminated, "bool[]"),
        "truncated": (step.truncated, "bool[]"),
    }
    if spec.agents_end != (step.agent_terminated is not None):
        should = "must" if spec.agents_end else "must not"
        yield f"{where} {should} give agent_terminated: spec.agents_end is {spec.agents_end}."
    elif step.agent_terminated is not None:
        wanted["agent_terminated"] = (step.agent_terminated, f"bool[{n}]")
    for name, (value, shape) in wanted.items():
        if _kind(value) != shape:
            yield f"{where} gives {name} as {_kind(value)}, but the spec asks for {shape}."
    if spec.has_win and ("won" not in step.info or _kind(step.info["won"]) != "bool[]"):
        yield f'spec.has_win is set, but {where} gives no info["won"] that is a bool[].'


def _play(reset: Program, step: Program, env: Env) -> Iterator[str]:
    """Play random episodes in several environments and look at what comes."""
    spec = env.spec
    reset, step = jax.jit(jax.vmap(reset)), jax.jit(jax.vmap(step))
    keys = jax.random.split(jax.random.key(1), EPISODES)
    state, now = reset(keys)
    if not _equal((state, now), reset(keys), np.ones(EPISODES, bool)):
        yield "reset is not a pure function: the same key gave two different starts."
        return
    if np.asarray(now.terminated).any() or np.asarray(now.truncated).any():
        yield "reset begins an episode that is already over."
    running = np.ones(EPISODES, bool)  # whose episode is not over before this time step
    ended = np.zeros((EPISODES, spec.n_agents), bool)  # which agents had ended before it
    rng = np.random.default_rng(0)
    for t in range(min(spec.time_limit, MOST_STEPS) + 1):
        found = list(dict.fromkeys(_look(jax.device_get(now), running, spec, t)))
        found += _after_ends(ended, now, running, spec, t)
        running &= ~np.asarray(now.terminated | now.truncated)
        if not found and running.any() and t < spec.time_limit:
            seen = now.observation
            actions = random_actions(rng, np.asarray(seen.avail), spec)
            keys = jax.random.split(jax.random.key(t + 2), EPISODES)
            after = step(keys, state, jnp.asarray(actions))
            if not _equal(after, step(keys, state, jnp.asarray(actions)), running):
                found.append("step is not a pure function: the same key, state and actions gave two results.")
            dead = ~np.asarray(seen.alive)
            others = random_actions(rng, np.ones_like(seen.avail), spec)
            other = np.where(dead.reshape(*dead.shape, *[1] * (actions.ndim - 2)), others, actions)
            if dead.any() and not _equal(after, step(keys, state, jnp.asarray(other)), running):
                found.append(
                    f"what a dead agent chose at step {t} changed the result: the dead must not act."
                )
            ended |= np.asarray(now.agent_terminated) if spec.agents_end else False
            state, now = after
        yield from found
        if found or not running.any():
            return


def _after_ends(
    ended: np.ndarray, now: TimeStep, running: np.ndarray, spec: EnvSpec, t: int
) -> Iterator[str]:
    """What is wrong with agents that had `ended` (B, A) before this time step."""
    gone = ended & running[:, None]
    if spec.agents_end and (gone & ~np.asarray(now.agent_terminated)).any():
        yield f"agent_terminated is unset at step {t} for an agent that had ended: it must stay set."
    if np.asarray(now.reward)[gone].any():
        yield f"an agent that had ended got a reward at step {t}."


def random_actions(rng: np.random.Generator, avail: np.ndarray, spec: EnvSpec) -> np.ndarray:
    """(B, A) available ones, or (B, A, U) within the range."""
    noise = rng.random(avail.shape, np.float32)
    if spec.action_kind == "continuous":
        low, high = spec.action_range
        return low + noise * np.float32(high - low)
    return np.where(avail, noise, -1).argmax(-1).astype(np.int32)


def _equal(a: Any, b: Any, rows: np.ndarray) -> bool:
    def data(x):
        return np.asarray(jax.random.key_data(x) if is_key(x) else x)[rows]

    same = jax.tree.map(
        lambda x, y: np.array_equal(data(x), data(y), equal_nan=data(x).dtype.kind == "f"), a, b
    )
    return all(jax.tree.leaves(same))


def _look(now: TimeStep, running: np.ndarray, spec: EnvSpec, t: int) -> Iterator[str]:
    """What is wrong with one time step of B environments, among those still running."""
    seen, reward = now.observation, now.reward[running]
    alive = seen.alive & running[:, None]
    for name, values in (("state", seen.state[running]), ("obs", seen.obs[alive]), ("reward", reward)):
        if not np.isfinite(values).all():
            yield f"{name} is not finite at step {t}."
    if now.agent_terminated is not None and (seen.alive & now.agent_terminated)[running].any():
        yield f"an agent has ended by step {t} and still lives: mark it dead at the step that ends it."
    over = now.terminated | now.truncated
    if now.agent_terminated is not None:
        waits = ~seen.alive & ~now.agent_terminated & ~over[:, None]
        if waits[running].any():
            yield f"an agent is dead at step {t} but has not ended, as spec.agents_end demands."
    no_action_available = alive & ~seen.avail.any(-1) & ~over[:, None]
    if no_action_available.any():
        agent = spec.agents[int(np.argwhere(no_action_available)[0][1])]
        yield f"{agent} lives at step {t} but has no available action: give it one, or mark it dead."
    if (seen.avail & alive[..., None] & ~own_actions(spec)).any():
        yield f"padded actions are available at step {t}: mask them by spec.action_counts."
    for agent, names in enumerate(spec.obs_features):
        if seen.obs[:, agent][alive[:, agent]][:, len(names) :].any():
            yield f"the padded observation entries of {spec.agents[agent]} are not zero at step {t}."
    if spec.common_reward and np.isfinite(reward).all() and (reward != reward[:, :1]).any():
        yield f"spec.common_reward is set, but agents got different rewards at step {t}."

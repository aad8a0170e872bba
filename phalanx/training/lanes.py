"""Many settings in one program. A lane is one seed of one setting; lanes are mapped over like seeds.

A setting is a choice of some options of an algorithm, such as learning rate and discount. These numbers are
arguments of the compiled programs: inside them the algorithm is built from a config that contains the traced
numbers. So algorithms need no special code, and a hundred settings are compiled once. The carry of a lane is
that of a run.

Only options that are used as numbers can be arguments. An option that determines shapes or Python control
flow, such as the width of a network, cannot be traced: `own_program` finds it, and each of its values is
compiled separately.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm, AlgorithmConfig, Learner
from phalanx.algorithms.shared.normalised import build
from phalanx.config import options_of
from phalanx.envs.base import Env
from phalanx.envs.wrappers import policy_spec
from phalanx.training.collectors import collector_for
from phalanx.training.collectors.base import Collector
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.devices import Layout, over_lanes
from phalanx.training.evaluate import Played, play
from phalanx.training.keys import Purpose
from phalanx.training.loop import Carry, Loop
from phalanx.training.programs import bytes_needed, seed_keys
from phalanx.types import Array

Numbers = Mapping[str, Array]
"""of one lane, () each, or of L lanes, (L,) each, by option"""


class Lane:
    """Training of one algorithm in one environment, as pure functions of the numbers of one lane."""

    def __init__(
        self, cls: type[Algorithm], config: AlgorithmConfig, env: Env, envs: int, eval_episodes: int
    ):
        """`config` holds the options that all lanes have in common."""
        self.cls, self.config, self.env = cls, config, env
        self.envs, self.eval_episodes = envs, eval_episodes

    def _algorithm(self, numbers: Numbers) -> Algorithm:
        config = dataclasses.replace(self.config, **numbers)
        return build(self.cls, config, policy_spec(self.env.spec, **config.inputs))

    def loop(self, numbers: Numbers) -> Loop:
        """The training loop of a lane."""
        return Loop(Compiled(self.env, self._algorithm(numbers), self.envs))

    def evaluation(self, numbers: Numbers) -> Collector:
        """Plays the episodes of an evaluation."""
        return collector_for(self.env, self._algorithm(numbers), self.eval_episodes)

    def init(self, seed: Array, numbers: Numbers) -> Carry:
        """The carry before the first step."""
        return self.loop(numbers).init(seed)

    def advance(self, carry: Carry, numbers: Numbers, updates: Array, budget: Array) -> Carry:
        """Make `updates` updates of a run with a `budget` of env steps."""
        return self.loop(numbers).advance(carry, updates, budget)

    def track_best(self, carry: Carry, numbers: Numbers, score: Array) -> Carry:
        """After an evaluation: keep the best policy, and begin a new tally."""
        return self.loop(numbers).track_best(carry, score)

    def play(self, learner: Learner, numbers: Numbers, key: Array) -> Played:
        """Play greedy episodes: (E, ...)."""
        evaluation = self.evaluation(numbers)
        policy = jax.tree.map(lambda x: x[None], evaluation.algorithm.policy(learner))
        return jax.tree.map(lambda x: x[0], play(evaluation, policy, key[None]))

    def run(self, seed: Array, numbers: Numbers, updates: Array, key: Array) -> tuple[Carry, Played]:
        """Everything that a lane does, one after the other."""
        carry = self.init(seed, numbers)
        carry = self.track_best(carry, numbers, jnp.float32(0))
        carry = self.advance(carry, numbers, updates, jnp.float32(1))
        return carry, self.play(carry.learner, numbers, key)


class LanePrograms(NamedTuple):
    """What trains L lanes; all arguments but the last two of `advance` have a leading axis L."""

    init: Callable[[Array, Numbers], Carry]
    advance: Callable[[Carry, Numbers, Array, Array], Carry]
    track_best: Callable[[Carry, Numbers, Array], Carry]
    play: Callable[[tuple[Learner, Numbers], Array], Played]
    """from learners without their replay, and keys"""
    carry: Carry
    """its shapes"""
    layout: Layout
    """how lanes are split over devices"""
    bytes_needed: int
    """what `advance` takes on its device; 0 where the device does not say"""


def compile_lanes(lane: Lane, lanes: int, names: Iterable[str], devices: int = 1) -> LanePrograms:
    """Compile what trains a number of lanes that differ in the options `names`, at the same time."""
    layout = over_lanes(lanes, devices)
    one = example(lane.config, names)
    numbers = {name: jax.ShapeDtypeStruct((lanes,), value.dtype) for name, value in one.items()}
    seeds, scores = (jax.ShapeDtypeStruct((lanes,), kind) for kind in (jnp.int32, jnp.float32))
    count, budget = (jax.ShapeDtypeStruct((), kind) for kind in (jnp.int32, jnp.float32))
    keys = jax.eval_shape(lambda: seed_keys(Purpose.CURVE, [0] * lanes))
    numbers, seeds, scores, keys = layout.placed((numbers, seeds, scores, keys))

    def play(what: tuple[Learner, Numbers], key: Array) -> Played:
        return lane.play(*what, key)

    first = layout.over_seeds(lane.init, lanes, (0, 0))
    carry = layout.placed(jax.eval_shape(first, seeds, numbers))
    there = layout.shardings(carry)
    learner = carry.without_replay().learner
    kept = partial(jax.jit, donate_argnums=0, out_shardings=there)
    advance = kept(layout.over_seeds(lane.advance, lanes, (0, 0, None, None)))
    track_best = kept(layout.over_seeds(lane.track_best, lanes, (0, 0, 0)))
    init = jax.jit(first, out_shardings=there)
    jobs = {
        "advance": (advance, (carry, numbers, count, budget)),
        "play": (jax.jit(layout.over_seeds(play, lanes, (0, 0))), ((learner, numbers), keys)),
        "init": (init, (seeds, numbers)),
        "track_best": (track_best, (carry, numbers, scores)),
    }
    with ThreadPoolExecutor(len(jobs)) as pool:
        compiling = {name: pool.submit(job.lower(*args).compile) for name, (job, args) in jobs.items()}
        done = {name: program.result() for name, program in compiling.items()}
    rows = layout.rows
    return LanePrograms(
        lambda seeds, numbers: done["init"](*rows((seeds, numbers))),
        lambda carry, numbers, *rest: done["advance"](carry, rows(numbers), *rest),
        lambda carry, numbers, scores: done["track_best"](carry, *rows((numbers, scores))),
        lambda what, keys: done["play"]((what[0], rows(what[1])), rows(keys)),
        carry,
        layout,
        bytes_needed(done["advance"]),
    )


def example(config: AlgorithmConfig, names: Iterable[str]) -> dict[str, Array]:
    """A number for each of these options, of the type that a program takes."""
    kinds = {name: opt.kind for name, opt in options_of(type(config)).items()}
    dtypes = {name: jnp.int32 if kinds[name] is int else jnp.float32 for name in names}
    return {name: jnp.asarray(getattr(config, name) or 0, dtype) for name, dtype in dtypes.items()}


def own_program(lane: Lane, names: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """The options that cannot be arguments of a program, and why; each of their values is another program.

    Also returns those that could be arguments but have no effect.
    """
    kinds = {name: opt.kind for name, opt in options_of(type(lane.config)).items()}
    own, idle = {name: "it is not a number" for name in names if kinds[name] not in (int, float)}, set[str]()
    rest = [name for name in names if name not in own]
    together = _idle(lane, rest)
    if isinstance(together, set):  # most often they all are numbers
        return own, together
    for name in rest:
        outcome = _idle(lane, [name])
        if isinstance(outcome, set):
            idle |= outcome
        else:
            own[name] = outcome
    return own, idle


def _idle(lane: Lane, names: Sequence[str]) -> set[str] | str:
    """The options that have no effect as arguments; or why they cannot be arguments together."""
    arguments = (jnp.int32(0), example(lane.config, names), jnp.int32(1), jax.random.key(0))
    try:
        program = jax.make_jaxpr(lane.run)(*arguments).jaxpr
    except Exception as error:  # whatever Python does with a value that is not known yet
        return (str(error) or type(error).__name__).splitlines()[0]
    inputs = program.invars[1 : 1 + len(names)]  # in the order of a flattened dictionary
    read = {id(variable) for equation in program.eqns for variable in equation.invars}
    return {name for name, variable in zip(sorted(names), inputs, strict=True) if id(variable) not in read}

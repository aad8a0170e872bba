"""How long each program of a run takes to compile."""

import time
from typing import Any, NamedTuple

from phalanx.training.programs import program_jobs
from phalanx.training.setup import Setup


class Cost(NamedTuple):
    """Seconds to make a program, and how large it is."""

    program: str
    trace: float
    """Python runs the functions, and JAX writes down what they do"""
    lower: float
    compile: float
    """XLA's part"""
    equations: int
    """of JAX, those of inner loops included"""
    kilobytes: float
    """of the text that XLA gets"""


def compile_costs(setup: Setup) -> list[Cost]:
    """Make the programs of a run one after the other; a run makes them at the same time."""
    found = []
    for name, (job, args) in program_jobs(setup.loop, setup.evaluation, against=setup.against).items():
        begin = time.perf_counter()
        traced = job.trace(*args)
        after_trace = time.perf_counter()
        lowered = traced.lower()
        after_lower = time.perf_counter()
        lowered.compile()
        end = time.perf_counter()
        spent = (after_trace - begin, after_lower - after_trace, end - after_lower)
        found.append(Cost(name, *spent, equations(traced.jaxpr), len(lowered.as_text()) / 1000))
    return found


def equations(program: Any) -> int:
    """How many equations a program of JAX has, with those of the programs in it."""
    values = [value for equation in program.eqns for value in equation.params.values()]
    parts = [part for value in values for part in (value if isinstance(value, tuple | list) else [value])]
    return len(program.eqns) + sum(equations(part) for part in parts if hasattr(part, "eqns"))

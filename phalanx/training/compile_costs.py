"""How long each program of a run takes to compile, and how many kernels it launches."""

import re
import time
from functools import cache
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
    kernels: int
    """that one call launches, with a single update"""


def compile_costs(setup: Setup) -> list[Cost]:
    """Make the programs of a run one after the other; a run makes them at the same time."""
    found = []
    for name, (job, args) in program_jobs(setup.loop, setup.evaluation, against=setup.against).items():
        begin = time.perf_counter()
        traced = job.trace(*args)
        after_trace = time.perf_counter()
        lowered = traced.lower()
        after_lower = time.perf_counter()
        compiled = lowered.compile()
        end = time.perf_counter()
        spent = (after_trace - begin, after_lower - after_trace, end - after_lower)
        sizes = equations(traced.jaxpr), len(lowered.as_text()) / 1000, kernels(compiled.as_text() or "")
        found.append(Cost(name, *spent, *sizes))
    return found


def equations(program: Any) -> int:
    """How many equations a program of JAX has, with those of the programs in it."""
    values = [value for equation in program.eqns for value in equation.params.values()]
    parts = [part for value in values for part in (value if isinstance(value, tuple | list) else [value])]
    return len(program.eqns) + sum(equations(part) for part in parts if hasattr(part, "eqns"))


COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([\w\-]+)\((.*)$")
TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
FREE = {  # names of what is there
    "after-all", "bitcast", "constant", "get-tuple-element", "opt-barrier", "parameter", "partition-id",
    "replica-id", "tuple",
}  # fmt: skip
LATER = ("-done", "-update")  # endings of the later parts of an asynchronous instruction, which counts once


def kernels(text: str) -> int:
    """How many kernels a compiled program launches, from its text.

    Those in a loop count as often as it turns, once if that is not known, such as updates. Of the branches of
    a condition it is the one with the most.
    """
    bodies: dict[str, list[tuple[str, str]]] = {}
    entry = here = ""
    for line in text.splitlines():
        if found := COMPUTATION.match(line):
            here = found[1]
            bodies[here] = []
            entry = here if line.startswith("ENTRY") else entry
        elif here and (found := INSTRUCTION.match(line)):
            bodies[here].append((found[1], found[2]))

    def called(rest: str, *roles: str) -> list[int]:
        found = [each for role in roles for each in re.findall(rf"\b{role}=(\{{.*?\}}|[^,\s]+)", rest)]
        return [launched(name) for each in found for name in re.findall(r"[\w.\-]+", each)]

    @cache
    def launched(name: str) -> int:
        return sum(cost(*instruction) for instruction in bodies.get(name, []))

    def cost(opcode: str, rest: str) -> int:
        if opcode in FREE or opcode.endswith(LATER):
            return 0
        if opcode == "while":
            turns = TURNS.search(rest)
            return (
                int(turns[1]) * sum(called(rest, "body")) if turns else sum(called(rest, "body", "condition"))
            )
        if opcode == "conditional":
            return max(
                called(rest, "branch_computations", "true_computation", "false_computation"), default=0
            )
        if opcode in ("call", "call-start", "async-start"):
            return sum(called(rest, "to_apply", "calls"))
        return 1

    return launched(entry)

"""`phalanx compare`: compare runs."""

import shlex
from argparse import Namespace
from pathlib import Path
from typing import Any

from phalanx.cli.parsing import Parser, whole_number
from phalanx.config import Option, convert
from phalanx.errors import one_line


def _parser() -> Parser:
    parser = Parser(
        prog="phalanx compare",
        usage="phalanx compare [NAME=]RUN ... | EXPERIMENT  [--metric [TASK=]NAME] [--steps INT] [--out DIR]",
        description="Compare runs: a table, a verdict, plots and a report in one HTML page.",
    )
    parser.add_argument(
        "what", metavar="RUN | EXPERIMENT", nargs="+", help="run folders, or the folder of an experiment"
    )
    add_options(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="output folder (default: results/compare, or EXPERIMENT/report)"
    )
    return parser


def add_options(parser: Parser) -> None:
    """Options that say what is compared, and where."""
    parser.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help="metric to compare, such as eval/return, or TASK=eval/return for one task",
    )
    parser.add_argument(
        "--steps", metavar="INT", help="compare at this number of env steps (default: at the end)"
    )
    parser.add_argument(
        "--control",
        metavar="ARM",
        help="compare every arm (an algorithm with its options) with this one only",
    )
    parser.add_argument(
        "--threshold",
        metavar="FLOAT",
        default="0.8",
        help="report the env steps until the normalised score first reaches this value (default: 0.8)",
    )


def given_options(args: Namespace) -> dict[str, Any]:
    """What `add_options` has read, as `gather` takes it."""
    threshold = convert(Option("--threshold", float, (), False, None, "", {}), args.threshold, "command line")
    return {
        "metric": {task: name for task, _, name in (each.rpartition("=") for each in args.metric)},
        "steps": whole_number("--steps", args.steps),
        "control": args.control,
        "threshold": threshold,
    }


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    args = _parser().parse(words)
    options = given_options(args)
    from rich.console import Console

    from phalanx.report import comparison
    from phalanx.report.compare import gather, terminal

    out, found = gather(args.what, **options)
    files = comparison.write(
        found, Path(args.out) if args.out else out, shlex.join(["phalanx", "compare", *words])
    )
    Console().print(terminal.table(found))
    for line in [*(f"note: {note}" for note in found.notes), *map(found.verdict, found.pairs)]:
        print(one_line(line))
    print(f"report: {files[0]}")
    return 0

"""`phalanx experiment`: train the runs of an experiment file."""

import shlex
import sys
from pathlib import Path

from phalanx.cli.parsing import Parser, whole_number


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx experiment",
        usage="phalanx experiment FILE.toml [--plan] [--jobs INT] [--out DIR]",
        description="Train all runs of an experiment. Finished runs are skipped, interrupted ones resumed.",
    )
    parser.add_argument("file", metavar="FILE.toml", help="an experiment file; see docs/experiments.md")
    parser.add_argument(
        "--plan",
        action="store_true",
        help="try each run briefly and estimate time, memory and disk space",
    )
    parser.add_argument(
        "--jobs",
        metavar="INT",
        default="1",
        help="number of runs at a time, each in its own process (default: 1)",
    )
    parser.add_argument("--out", metavar="DIR", help="output folder (default: results/experiments/FILE)")
    args = parser.parse(words)
    jobs = whole_number("--jobs", args.jobs)
    from phalanx import experiment

    experiment.keep_off_the_device()
    grid = experiment.read(Path(args.file), Path(args.out) if args.out else None)
    planned = experiment.plan(grid, measure=args.plan)
    from rich.console import Console

    Console().print(experiment.table(planned, jobs))
    if args.plan:
        return 0
    runner = experiment.Runner(grid, jobs, lambda line: print(line, flush=True))
    try:
        runner.run()
    except KeyboardInterrupt:
        print(f"stopped and saved; go on with:  {shlex.join(['phalanx', 'experiment', *words])}")
        return 130
    for name, reason in runner.failures.items():
        print(f"failed: {name}: {reason}", file=sys.stderr)
    if len(runner.failures) < len(grid.cells):
        print(f"see it:   phalanx compare {shlex.quote(str(grid.out))}")
    return 1 if runner.failures else 0

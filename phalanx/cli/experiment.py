"""`phalanx experiment`: train the runs of an experiment file."""

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

from phalanx.cli.parsing import Parser, positive, whole_number
from phalanx.errors import PhalanxError


def _parser() -> Parser:
    parser = Parser(
        prog="phalanx experiment",
        usage="phalanx experiment FILE.toml [--plan] [--jobs INT] [--slurm | --ray ADDRESS] [--out DIR]",
        description="Train all runs of an experiment. Finished runs are skipped, interrupted ones resumed.",
    )
    parser.add_argument("file", metavar="FILE.toml", help="an experiment file; see docs/experiments.md")
    parser.add_argument(
        "--plan",
        action="store_true",
        help="try each run briefly and estimate time, memory and disk space",
    )
    parser.add_argument(
        "--price", metavar="FLOAT", help="with --plan: price of an hour of the machine, to estimate the cost"
    )
    parser.add_argument(
        "--jobs",
        metavar="INT",
        help="number of runs at a time, each in its own process (default: 1; in a cluster: all)",
    )
    parser.add_argument(
        "--slurm",
        nargs="?",
        const="auto",
        metavar="local",
        help="submit runs to SLURM; local: to processes on this machine, as a test",
    )
    parser.add_argument("--ray", metavar="ADDRESS", help="train runs in a Ray cluster: HOST:PORT or auto")
    parser.add_argument(
        "--resources",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="resources of each run: num_cpus, num_gpus, memory for Ray; parameters of submitit for SLURM, "
        "such as gpus_per_node=1 timeout_min=600 slurm_partition=long",
    )
    parser.add_argument("--out", metavar="DIR", help="output folder (default: results/experiments/FILE)")
    return parser


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    args = _parser().parse(words)
    from phalanx import experiment

    place = where(args)
    price = positive("--price", args.price)
    if price is not None and not args.plan:
        raise PhalanxError("--price is for --plan")
    experiment.keep_off_the_device()
    grid = experiment.read(Path(args.file), Path(args.out) if args.out else None)
    at_once = "1" if place is experiment.HERE else str(len(grid.cells))
    jobs = whole_number("--jobs", args.jobs or at_once)
    planned = experiment.plan(grid, measure=args.plan, say=partial(print, file=sys.stderr, flush=True))
    from rich.console import Console

    console = Console()
    console.print(experiment.table(planned, jobs))
    if args.plan:
        if price is not None:
            print(experiment.bill(planned, jobs, price))
        return 0
    try:
        runner = watched(console, experiment, grid, jobs, place)
    except KeyboardInterrupt:
        print(f"stopped and saved; continue with:  {shlex.join(['phalanx', 'experiment', *words])}")
        return 130
    for name, reason in runner.failures.items():
        print(f"failed: {name}: {reason}", file=sys.stderr)
    if len(runner.failures) < len(grid.cells):
        print(f"see it:   phalanx compare {shlex.quote(str(grid.out))}")
    return 1 if runner.failures else 0


def where(args: Any) -> Any:
    """The place that the options name."""
    from phalanx import experiment

    resources = experiment.read_resources(args.resources)
    if args.slurm and args.ray:
        raise PhalanxError("give --slurm or --ray, not both")
    if args.slurm:
        return experiment.slurm(args.slurm, resources)
    if args.ray:
        return experiment.ray(args.ray, resources)
    if resources:
        raise PhalanxError("--resources is for --slurm and --ray: runs here share this machine")
    return experiment.HERE


def watched(console: Any, experiment: Any, grid: Any, jobs: int, place: Any) -> Any:
    """Make the runs, with a table of how they stand if this is a terminal. Returns the runner."""
    if not console.is_terminal:
        runner = experiment.Runner(grid, jobs, lambda line: print(line, flush=True), place)
        runner.run()
        return runner
    from rich.live import Live

    runner = experiment.Runner(grid, jobs, lambda line: console.print(line, markup=False), place)
    with Live(get_renderable=lambda: experiment.live_table(runner), console=console, refresh_per_second=1):
        runner.run()
    return runner

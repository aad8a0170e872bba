"""`phalanx search`: search for good settings."""

import shlex
from pathlib import Path

from phalanx.cli.parsing import Parser


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx search",
        usage="phalanx search SPACE.toml [--budget STEPS] [--devices INT|all] [--out DIR] [--plan]",
        description="Search for good hyperparameters. Settings that differ only in numbers train in one\n"
        "program; bad ones are stopped early. After an interruption the same command continues the search.",
    )
    parser.add_argument("file", metavar="SPACE.toml", help="a search file; see docs/search.md")
    parser.add_argument(
        "--budget",
        metavar="STEPS",
        help="maximum number of env steps in training, over all settings and seeds",
    )
    parser.add_argument(
        "--devices",
        metavar="INT|all",
        default="1",
        help="devices (GPUs, or cores of a CPU) that share the search",
    )
    parser.add_argument("--out", metavar="DIR", help="output folder (default: results/search/SPACE)")
    parser.add_argument("--plan", action="store_true", help="only print what would be trained")
    args = parser.parse(words)
    from phalanx import search
    from phalanx.config import RunConfig, convert, options_of
    from phalanx.report import search_page

    devices = convert(options_of(RunConfig)["devices"], args.devices, "command line")
    space = search.read(Path(args.file), args.budget, Path(args.out) if args.out else None)
    made = search.Search(space, lambda line: print(line, flush=True), devices)
    print("\n".join([*made.statement(), f"output     {space.out}", ""]), flush=True)
    if args.plan:
        return 0
    try:
        best = made.run()
    except KeyboardInterrupt:
        print(f"stopped and saved; continue with:  {shlex.join(['phalanx', 'search', *words])}")
        return 130
    facts = made.facts("finished")
    page = search_page.write(facts, space.out)[0]
    shown = ", ".join(f"{name} {value}" for name, value in best.setting.items())
    print(f"best:     {made.metric.replace('_', ' ')} {best.score:.3g} with {shown}")
    print(f"spent:    {made.env_steps:,} env steps in training, of at most {space.env_steps:,}")
    print(f"see it:   {page}")
    preset = shlex.quote(str(space.out / "preset.toml"))
    print(f"use it:   phalanx train {space.plan.algorithm} {space.plan.env} --preset {preset} --seed 1000")
    return 0

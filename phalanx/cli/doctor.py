"""`phalanx doctor`: check the machine and the installation."""

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from phalanx.cli.parsing import Parser, given_tables
from phalanx.errors import PhalanxError


def run(words: list[str]) -> int:
    """Print versions, device, memory, cache and disk, then train for a few seconds; 0 on success."""
    parser = Parser(
        prog="phalanx doctor",
        usage="phalanx doctor [--compile ALGORITHM ENV [OPTIONS]]",
        description="Print versions, device, memory and disk, and train for a few seconds.",
    )
    parser.add_argument(
        "--compile",
        nargs=argparse.REMAINDER,
        help="instead of training, print how long each program of `phalanx train ALGORITHM ENV [OPTIONS]` "
        "takes to compile, and how many kernels it launches (on a CPU: instructions of XLA)",
    )
    args = parser.parse(words)
    if args.compile is not None:
        return compile_time(args.compile)
    from phalanx import api, device
    from phalanx.report.console import megabytes, table

    device.configure()
    free = device.free_bytes()
    disk = shutil.disk_usage(Path.cwd()).free
    rows = [
        *device.versions().items(),
        ("device", device.describe()),
        ("free memory", megabytes(free) if free is not None else "unknown"),
        ("free disk here", megabytes(disk)),
        ("compile cache", str(device.cache_folder())),
    ]
    print("\n".join(table(rows)))
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trained = api.train(
            "ippo", "debug/identity", steps=40_000, eval_every=40_000, out=Path(folder) / "run", quiet=True
        )
        result = trained.facts["final"]["last"]["return"]
    seconds = time.monotonic() - begin
    learnt = result > 7.5
    verdict = "learns" if learnt else "DOES NOT LEARN: something is wrong with this installation"
    print(f"\nippo on debug/identity: return {result:.2f} of 8 after {seconds:.0f} s, so training {verdict}")
    return 0 if learnt else 1


def compile_time(words: list[str]) -> int:
    """Print where the time before the first step of a training goes, with an empty cache."""
    os.environ["PHALANX_CACHE"] = "off"
    begin = time.monotonic()
    from phalanx import api
    from phalanx.cli import train
    from phalanx.config import Layer
    from phalanx.training.compile_costs import compile_costs

    args = train.parsed(words)
    if args is None:
        return 0
    imported = time.monotonic()
    setup = api.resolve(
        args.algorithm, args.env, Layer("command line", given_tables(args)), args.config, args.preset
    )
    if args.out or args.hosts or setup.config.devices != 1:
        raise PhalanxError(
            "--compile writes nothing and is for one device: leave out --out, --hosts, --devices"
        )
    made = time.monotonic()
    costs = compile_costs(setup)
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=f"{args.algorithm} on {args.env}: seconds")
    for name in ("program", "trace", "lower", "compile", "equations", "kB of text", "kernels"):
        shown.add_column(name, justify="left" if name == "program" else "right")
    for cost in costs:
        seconds = (f"{each:.2f}" for each in (cost.trace, cost.lower, cost.compile))
        shown.add_row(
            cost.program, *seconds, f"{cost.equations:,}", f"{cost.kilobytes:,.0f}", f"{cost.kernels:,}"
        )
    Console().print(shown)
    total = sum(cost.trace + cost.lower + cost.compile for cost in costs)
    print(
        f"imports {imported - begin:.1f} s, environment and networks {made - imported:.1f} s, programs one "
        f"after the other {total:.1f} s; a training compiles them at the same time"
    )
    return 0

"""`phalanx doctor`: check the machine and the installation."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from phalanx.cli.parsing import Parser


def run(words: list[str]) -> int:
    """Print versions, device, memory, cache and disk, then train for a few seconds; 0 on success."""
    parser = Parser(
        prog="phalanx doctor",
        usage="phalanx doctor [--compile ALGORITHM ENV]",
        description="Print versions, device, memory and disk, and train for a few seconds.",
    )
    parser.add_argument(
        "--compile",
        nargs=2,
        metavar=("ALGORITHM", "ENV"),
        help="instead of training, print how long each program of a training takes to compile",
    )
    args = parser.parse(words)
    if args.compile:
        return compile_time(*args.compile)
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


def compile_time(algorithm: str, env: str) -> int:
    """Print where the time before the first training step goes, with the presets and an empty cache."""
    os.environ["PHALANX_CACHE"] = "off"
    begin = time.monotonic()
    from phalanx import api
    from phalanx.config import Layer
    from phalanx.training.compile_costs import compile_costs

    imported = time.monotonic()
    setup = api.resolve(algorithm, env, Layer("command line", {}))
    made = time.monotonic()
    costs = compile_costs(setup)
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=f"{algorithm} on {env}: seconds")
    for name in ("program", "trace", "lower", "compile", "equations", "kB of text"):
        shown.add_column(name, justify="left" if name == "program" else "right")
    for cost in costs:
        seconds = (f"{each:.2f}" for each in (cost.trace, cost.lower, cost.compile))
        shown.add_row(cost.program, *seconds, f"{cost.equations:,}", f"{cost.kilobytes:,.0f}")
    Console().print(shown)
    total = sum(cost.trace + cost.lower + cost.compile for cost in costs)
    print(
        f"imports {imported - begin:.1f} s, environment and networks {made - imported:.1f} s, programs one "
        f"after the other {total:.1f} s; a training compiles them at the same time"
    )
    return 0

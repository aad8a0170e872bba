"""`phalanx doctor`: check the machine and the installation."""

import shutil
import tempfile
import time
from pathlib import Path

from phalanx.cli.parsing import Parser


def run(words: list[str]) -> int:
    """Print versions, device, memory, cache and disk, then train for a few seconds; 0 on success."""
    Parser(
        prog="phalanx doctor",
        description="Print versions, device, memory and disk, and train for a few seconds.",
    ).parse(words)
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

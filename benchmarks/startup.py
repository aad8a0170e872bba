"""How long a user waits for the first step: a first process that compiles, and a second one that need not.

    python benchmarks/startup.py

Runs the same short training in two fresh processes with an empty compilation cache, and prints for
both the seconds from the start of the command to the first evaluation, and their ratio.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def first_evaluation(folder: Path, name: str) -> float:
    """Seconds from the start of the command to the first row of metrics."""
    command = ["train", "mappo", "switch/2", "--steps", "2048", "--out", str(folder / name)]
    environment = {**os.environ, "PHALANX_CACHE": str(folder / "cache")}
    subprocess.run(
        [sys.executable, "-m", "phalanx.cli", *command], env=environment, check=True, capture_output=True
    )
    return json.loads((folder / name / "metrics.jsonl").read_text().splitlines()[0])["seconds"]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (first_evaluation(Path(folder), name) for name in ("cold", "warm"))
    print(f"mappo (gru) on switch/2, command to first evaluation, load {os.getloadavg()[0]:.1f}")
    print(f"  empty compilation cache  {cold:5.1f} s")
    print(f"  second process           {warm:5.1f} s  ({cold / warm:.1f} times sooner)")


if __name__ == "__main__":
    main()

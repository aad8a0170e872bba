"""Whether a change costs speed: training and compiling of two checkouts, in turn, in one run.

    python benchmarks/versions.py OLD_CHECKOUT [--new CHECKOUT] [--repeats 3] [--only mappo]

Each repeat starts a process for the old and one for the new, with nothing compiled before. The rate is that
of training between the first and the last evaluation; compiling is the time to the first evaluation, imports
included. Of each the best repeat counts; ratios are new to old.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

CASES = {
    "mappo": ["mappo", "battle/3m", "--steps", "300000", "--eval-every", "300000"],
    "qmix": ["qmix", "battle/3m", "--steps", "60000", "--eval-every", "20000"],
}


class Measured(NamedTuple):
    """One run."""

    rate: float
    """env steps a second"""
    starting: float
    """seconds to the first evaluation"""


def measure(checkout: Path, words: list[str]) -> Measured:
    """Train in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PHALANX_CACHE": "off"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "phalanx", "train", *words, "--out", str(out)]
        options = ["--eval-episodes", "4", "--final-episodes", "4", "--no-tensorboard"]
        subprocess.run([*command, *options], env=environment, cwd=folder, check=True, capture_output=True)
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    # QMIX learns only once there are enough episodes: its first stretch is left out.
    begin = rows[1] if len(rows) > 2 else rows[0]
    steps = rows[-1]["env_steps"] - begin["env_steps"]
    return Measured(steps / (rows[-1]["seconds"] - begin["seconds"]), rows[0]["seconds"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", type=Path)
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=tuple(CASES))
    args = parser.parse_args()
    load = f"best of {args.repeats}, load {os.getloadavg()[0]:.1f}"
    print(f"{'':10} {'old':>10} {'new':>10} {'ratio':>7}   ({load})")
    for name, words in CASES.items():
        if args.only not in (None, name):
            continue
        found: dict[str, list[Measured]] = {"old": [], "new": []}
        for _ in range(args.repeats):
            for version, checkout in (("old", args.old), ("new", args.new)):
                found[version].append(measure(checkout.resolve(), words))
        rates = [max(each.rate for each in found[version]) for version in ("old", "new")]
        starts = [min(each.starting for each in found[version]) for version in ("old", "new")]
        print(f"{name:<10} {rates[0]:>10,.0f} {rates[1]:>10,.0f} {rates[1] / rates[0]:>6.3f}x   env steps/s")
        print(f"{'':10} {starts[0]:>10.1f} {starts[1]:>10.1f} {starts[1] / starts[0]:>6.3f}x   s to start")


if __name__ == "__main__":
    main()

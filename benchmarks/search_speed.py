"""A search in one program beside the same settings one after the other.

    python benchmarks/search_speed.py [--env battle/3m] [--settings 64] [--seeds 4] [--steps 1e6] [--runs 2]
                                      [--devices 1] [--option envs=128 ...]

The search has one rung: every setting is trained to the end, so both sides do the same work. Of the single
runs `--runs` are made, each in a process of its own with an empty compilation cache, as a user would wait for
it; the time of all is that of one times their number. The search is a process with an empty cache as well.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def timed(words: list[str], folder: Path) -> float:
    """Seconds that a phalanx command takes from the shell, with a cache of its own."""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / f"cache-{time.monotonic_ns()}")}
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", *words], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.monotonic() - begin


def main() -> None:
    """Measure both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--algorithm", default="mappo")
    parser.add_argument("--env", default="battle/3m")
    parser.add_argument("--settings", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=float, default=1e6)
    parser.add_argument("--runs", type=int, default=2, help="single runs that are measured")
    parser.add_argument("--devices", default="1", help="that share the search, and each run")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--out", type=Path, help="also write the figures to this file, as JSON")
    args = parser.parse_args()
    options = dict(each.split("=", 1) for each in args.option)
    steps = int(args.steps)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [
            f'[plan]\nalgorithm = "{args.algorithm}"\nenv = "{args.env}"\nsettings = {args.settings}',
            f"seeds = {args.seeds}\nsteps = {steps}\n[fixed]",
            *(f"{key} = {value}" for key, value in options.items()),
            "[search]\nlr = { low = 1e-4, high = 3e-3, log = true }\ncritic_lr = 'lr'",
            "entropy = { low = 1e-3, high = 1e-1, log = true }\ngae_lambda = { low = 0.8, high = 0.99 }",
        ]
        (folder / "space.toml").write_text("\n".join(lines) + "\n")
        devices = ["--devices", args.devices]
        search = ["search", str(folder / "space.toml"), "--out", str(folder / "search")]
        together = timed([*search, *devices], folder)
        facts = json.loads((folder / "search" / "search.json").read_text())
        trials = facts["trials"]
        singles = []
        for i in np.linspace(0, len(trials) - 1, args.runs).astype(int):
            setting = {**options, **trials[i]["setting"]}
            flags = [
                w
                for key, value in setting.items()
                for w in (f"--{key.replace('_', '-')}", str(value).strip('"'))
            ]
            words = ["train", args.algorithm, args.env, "--steps", str(steps), "--seeds", str(args.seeds)]
            singles.append(timed([*words, *flags, *devices, "--out", str(folder / f"run{i}")], folder))
    one = float(np.mean(singles))
    size = f"{args.settings} settings x {args.seeds} seeds, {steps:,} steps"
    figures = {
        "what": f"{args.algorithm} on {args.env}, {size}",
        "device": facts["device"],
        "devices": args.devices,
        "options": options,
        "search_seconds": round(together, 1),
        "search_parts": facts["seconds"],
        "one_run_seconds": [round(each, 1) for each in singles],
        "runs_seconds": round(one * args.settings, 1),
        "ratio": round(one * args.settings / together, 2),
        "best": max((t["rungs"][-1]["score"], t["number"]) for t in trials),
    }
    print(json.dumps(figures, indent=1))
    print(
        f"{figures['what']}: one search {together:.0f} s, {args.settings} runs one after the other "
        f"{one * args.settings:.0f} s ({args.settings} x {one:.1f} s): {figures['ratio']} times"
    )
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

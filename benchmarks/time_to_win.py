"""From the shell to a team that wins: seconds until greedy wins reach 90 %, compile included.

    python benchmarks/time_to_win.py [3m ...] [--wins 0.9] [--repeats 1] [--options "--envs 256"]

Each run is the command that is printed, in a new process with an empty compile cache, watched from
outside. The first evaluation that reaches the mark counts; it is of 128 episodes.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rollout import load

DEFAULTS = "--steps 5e5 --eval-every 25000 --eval-episodes 128"


def reached(path: Path, mark: float) -> int | None:
    """The env steps at which the win rate first was at least `mark`."""
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["eval/win_rate"] >= mark:
            return row["env_steps"]
    return None


def watch(words: list[str], mark: float) -> tuple[float, int] | None:
    """Seconds and env steps until the mark is reached; None if it never is."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        env = {**os.environ, "PHALANX_CACHE": str(Path(folder) / "cache")}
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "phalanx", *words, "--out", str(out)],
            env=env,
            stdout=subprocess.DEVNULL,
        )
        try:
            while process.poll() is None:
                steps = reached(out / "metrics.jsonl", mark)
                if steps is not None:
                    return time.perf_counter() - begin, steps
                time.sleep(0.1)
            return None
        finally:
            process.kill()
            process.wait()


def main() -> None:
    """Train and watch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("maps", nargs="*", default=["3m", "2m_vs_1m"])
    parser.add_argument("--algorithm", default="mappo")
    parser.add_argument("--wins", type=float, default=0.9, help="the mark")
    parser.add_argument("--repeats", type=int, default=1, help="seeds, one run after the other")
    parser.add_argument("--options", default="", help="further options of the command")
    args = parser.parse_args()
    for name in args.maps:
        for seed in range(args.repeats):
            words = f"train {args.algorithm} battle/{name} {DEFAULTS} --seed {seed} {args.options}"
            found = watch(shlex.split(words), args.wins)
            said = f"{found[0]:.1f} s, {found[1]:,} env steps" if found else "not reached"
            print(f"{said:<28} phalanx {words.strip()}  ({load()})", flush=True)


if __name__ == "__main__":
    main()

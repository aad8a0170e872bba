"""How often trained teams win each battle; writes docs/data/battle_wins.json.

    python benchmarks/wins.py [PLAN ...] [--jobs 1] [--out results/wins] [--only 3m 8m]

A plan is a set of runs, each a `phalanx train` command that is written down beside its result; without a
plan all are made. Runs that are finished in the folder are not made again, and what the file holds of other
plans is kept. Wins are of greedy episodes with the last parameters, on starts that nothing was chosen by.
`--jobs` processes share the device.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parent.parent / "docs" / "data" / "battle_wins.json"
EASY = [
    "2m_vs_1m",
    "3m",
    "8m",
    "2s3z",
    "2s_vs_1sc",
    "2m_vs_1z",
    "3s_vs_3z",
    "MMM",
    "1c3s5z",
    "so_many_baneling",
]
HARD = [
    "3s_vs_4z",
    "5m_vs_6m",
    "8m_vs_9m",
    "3s_vs_5z",
    "10m_vs_11m",
    "3s5z",
    "bane_vs_bane",
    "25m",
    "2c_vs_64zg",
]
SUPER_HARD = ["MMM2", "27m_vs_30m", "3s5z_vs_3s6z", "6h_vs_8z", "corridor"]


class Plan(NamedTuple):
    """Some algorithms on some maps."""

    algorithms: tuple[str, ...]
    maps: list[str]
    steps: float
    seeds: int
    options: str = ""


PLANS = {
    "easy": Plan(("mappo",), EASY, 2e6, 3),
    "hard": Plan(("mappo",), HARD, 1e7, 3),
    "super_hard": Plan(("mappo",), SUPER_HARD, 1e7, 3),
    "others": Plan(("ippo", "maa2c", "ia2c", "coma", "mappo_distil"), ["3m", "2s3z", "8m"], 2e6, 3),
}


class Job(NamedTuple):
    """One command, and where its run lies."""

    plan: str
    algorithm: str
    map: str
    command: str
    folder: Path


def jobs(plan: str, out: Path, only: list[str]) -> list[Job]:
    """The commands of a plan."""
    this = PLANS[plan]
    found = []
    for name in this.maps:
        for algorithm in this.algorithms:
            if not only or name in only:
                command = (
                    f"phalanx train {algorithm} battle/{name} --steps {this.steps:.0e} --seeds {this.seeds}"
                )
                command = f"{command} {this.options}".replace("e+0", "e").strip()
                found.append(Job(plan, algorithm, name, command, out / f"{plan}-{algorithm}-{name}"))
    return found


def facts(folder: Path) -> dict[str, Any]:
    """What a run says of itself; nothing before it has begun."""
    path = folder / "run.json"
    return json.loads(path.read_text()) if path.exists() else {}


def run(job: Job) -> None:
    """Make one run, unless it is finished."""
    if facts(job.folder).get("status") == "finished":
        return
    words = [*shlex.split(job.command)[1:], "--out", str(job.folder), "--no-tensorboard"]
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", *words], capture_output=True, text=True, check=False
    )
    last = (done.stdout + done.stderr).strip().splitlines()[-3:]
    print(
        f"{time.perf_counter() - begin:6.0f} s  {job.command}\n          " + "\n          ".join(last),
        flush=True,
    )


def row(job: Job) -> dict[str, Any] | None:
    """What is written down of a run; None if it has not finished."""
    told = facts(job.folder)
    if told.get("status") != "finished":
        return None
    lines = [json.loads(line) for line in (job.folder / "metrics.jsonl").open()]
    steps = sorted({line["env_steps"] for line in lines})
    wins = {step: [line["eval/win_rate"] for line in lines if line["env_steps"] == step] for step in steps}
    mean = {step: sum(each) / len(each) for step, each in wins.items()}
    last = told["final"]["last"]
    return {
        "plan": job.plan,
        "map": job.map,
        "algorithm": job.algorithm,
        "command": job.command,
        "wins": [round(seed["win_rate"], 3) for seed in last["seeds"]],
        "returns": [round(seed["return"], 2) for seed in last["seeds"]],
        "episodes": last["episodes"],
        "curve": {step: round(value, 3) for step, value in mean.items()},
        "seconds": round(told["seconds"]),
        "device": told["device"],
    }


def main() -> None:
    """Train, and write down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("plans", nargs="*", choices=[[], *PLANS], metavar="PLAN", help=", ".join(PLANS))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, default=Path("results/wins"), help="where runs are left")
    parser.add_argument("--only", nargs="+", default=[], metavar="MAP", help="only these maps")
    parser.add_argument("--no-training", action="store_true", help="only write down what has finished")
    args = parser.parse_args()
    todo = [job for plan in args.plans or PLANS for job in jobs(plan, args.out, args.only)]
    if args.jobs > 1:  # so that they do not each take most of a GPU's memory
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if not args.no_training:
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(run, todo))
    rows = [made for job in todo if (made := row(job))]
    new = {(each["plan"], each["map"], each["algorithm"]) for each in rows}
    old = json.loads(DATA.read_text()) if DATA.exists() else []
    kept = [each for each in old if (each["plan"], each["map"], each["algorithm"]) not in new]
    DATA.write_text(json.dumps([*kept, *rows], indent=1) + "\n")
    print(f"{len(rows)} of {len(todo)} runs are finished and written to {DATA}")


if __name__ == "__main__":
    main()

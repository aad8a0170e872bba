"""How often trained teams win each battle; writes docs/data/battle_wins.json.

    python benchmarks/wins.py [PLAN ...] [--jobs 1] [--out results/wins] [--only 3m 8m]

A plan is a set of runs, each a `phalanx train` command that is written down beside its result; without a
plan all are made. Runs that are finished in the folder are not made again, and what the file holds of other
runs is kept. Wins are of greedy episodes with the last parameters, on starts that nothing was chosen by.
`--jobs` processes share the device. They take turns on a GPU, unless NVIDIA's multi-process service runs
(`nvidia-cuda-mps-control -d`), which lets them compute at the same time.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parent.parent / "docs" / "data" / "battle_wins.json"


class Plan(NamedTuple):
    """Some arms, each the words after `phalanx train` with MAP for the map, on some maps."""

    arms: dict[str, str]
    maps: str
    options: str


MAPPO = {"mappo": "mappo battle/MAP"}
MANY_STARTS = {"mappo_512": "mappo battle/MAP --env.starts 512"}
QMIX = {"qmix": "qmix battle/MAP"}
QMIX_STEADY = {"qmix": "qmix battle/MAP --no-lr-decay"}
QMIX_LARGE_BATCH = {"qmix": "qmix battle/MAP --preset battle_hard"}
# The settings of `qmix/battle_mixed`.
VDN_MIXED = {
    "vdn": "vdn battle/MAP --hidden 128 --share type --episodes 64 --td-lambda 0.6 --epsilon-steps 500000 "
    "--lr-decay"
}
PYMARL = {"qmix_pymarl": "qmix battle/MAP --preset pymarl"}
PYMARL2 = {"qmix_pymarl2": "qmix battle/MAP --preset pymarl2"}
IPPO = {"ippo": "ippo battle/MAP --preset battle"}
IPPO_MEMORY = {"ippo_memory": "ippo battle/MAP --preset battle --network gru"}  # the preset battle_memory
IPPO_HARD = {
    "ippo_hard": "ippo battle/MAP --epochs 8 --hidden 128 --lr-decay --share type --env.reward signed "
    "--env.reward-negative-scale 0"
}
MAPPO_V2 = {"mappo": "mappo battle/MAP --preset battle_hard"}
OPEN_LOOP = {"mappo_open": "mappo battle/MAP --preset battle_hard --env.open_loop --no-last-action"}
# As many gradient steps for each env step as the presets have, with a replay that fits 8 seeds on one device.
HALF = "--envs 64 --batch-steps 1024 --gradient-steps 4 --buffer 1100"
QUARTER = "--envs 32 --batch-steps 512 --gradient-steps 2 --buffer 560"
TWO_CORES = "--devices 2"  # of a CPU, half of the seeds on each
TWO_MILLION = "--steps 2e6 --seeds 8 --envs 256 --eval-every 2e5 --save-every 2e6"
FIVE_MILLION = "--steps 5e6 --seeds 8 --envs 256 --eval-every 5e5 --save-every 5e6"
TEN_MILLION = "--steps 1e7 --seeds 8 --envs 256 --eval-every 1e6 --save-every 1e7"
V2 = "--steps 1e7 --seeds 5 --eval-every 1e6 --save-every 1e7"
V2_SHORT = "--steps 3e6 --seeds 3 --eval-every 5e5 --save-every 3e6"
OTHERS = ("ippo", "maa2c", "ia2c", "coma", "mappo_distil")
PLANS = {
    "super_hard": Plan(MAPPO, "27m_vs_30m MMM2 corridor", FIVE_MILLION),
    "super_hard_long": Plan(MAPPO, "6h_vs_8z 3s5z_vs_3s6z", TEN_MILLION),
    "hard": Plan(MAPPO, "10m_vs_11m 8m_vs_9m 5m_vs_6m 3s5z 3s_vs_5z", FIVE_MILLION),
    "hard_short": Plan(MAPPO, "25m bane_vs_bane 2c_vs_64zg 3s_vs_4z", TWO_MILLION),
    "easy": Plan(
        MAPPO,
        "MMM 8m 2s3z so_many_baneling 3s_vs_3z 2m_vs_1z 3m 2m_vs_1m",
        "--steps 2e6 --seeds 8 --envs 256 --eval-every 1e5 --save-every 2e6",
    ),
    "easy_short": Plan(MAPPO, "1c3s5z", TWO_MILLION),
    "easy_long": Plan(MAPPO, "2s_vs_1sc", TEN_MILLION),
    "many_starts": Plan(MANY_STARTS, "2s3z 2s_vs_1sc", FIVE_MILLION),
    "many_starts_long": Plan(MANY_STARTS, "3s5z 1c3s5z corridor 3s5z_vs_3s6z", TEN_MILLION),
    "many_starts_short": Plan(MANY_STARTS, "3m 8m MMM", "--steps 2e6 --seeds 8 --envs 256 --save-every 2e6"),
    "value_easy": Plan(
        {"qmix": "qmix battle/MAP"},
        "3s_vs_3z 2m_vs_1m",
        "--steps 1e6 --seeds 3 --save-every 1e6 --buffer 5000",
    ),
    "value_small": Plan(  # made on two CPU cores
        {name: f"{name} battle/MAP" for name in ("qmix", "vdn")},
        "3m",
        f"--steps 5e5 --seeds 8 {TWO_CORES} --save-every 5e5",
    ),
    "value_turns": Plan(
        {name: f"{name} battle/MAP" for name in ("qmix", "vdn")},
        "2s_vs_1sc",
        "--steps 2e6 --seeds 3 --save-every 2e6 --buffer 5000",
    ),
    "value_vdn": Plan(
        {"vdn": "vdn battle/MAP"},
        "8m 2s3z 3s_vs_3z 5m_vs_6m 8m_vs_9m",
        "--steps 1e6 --seeds 5 --eval-every 2e5 --save-every 1e6",
    ),
    "value_vdn_mixed": Plan(
        VDN_MIXED, "MMM2", f"{HALF} --steps 3e6 --seeds 5 --eval-every 5e5 --save-every 3e6"
    ),
    "value_hard": Plan(QMIX, "5m_vs_6m", "--steps 3e6 --seeds 8 --eval-every 5e5 --save-every 3e6"),
    "value_hard_short": Plan(
        QMIX, "8m_vs_9m 10m_vs_11m", f"{HALF} --steps 2e6 --seeds 8 --eval-every 5e5 --save-every 2e6"
    ),
    "value_super_hard": Plan(QMIX, "6h_vs_8z", "--steps 4e6 --seeds 8 --eval-every 5e5 --save-every 4e6"),
    "value_large_batch": Plan(
        QMIX_LARGE_BATCH, "2s3z", "--steps 1e6 --seeds 8 --eval-every 2e5 --save-every 1e6"
    ),
    "value_large_batch_short": Plan(
        QMIX_LARGE_BATCH, "8m", f"{HALF} --steps 6e5 --seeds 8 --eval-every 2e5 --save-every 6e5"
    ),
    "value_kite": Plan(
        {"qmix_signed": "qmix battle/MAP --env.reward signed"},
        "3s_vs_5z 3s_vs_4z",
        "--envs 128 --buffer 2048 --steps 3.5e6 --seeds 8 --eval-every 5e5 --save-every 3.5e6",
    ),
    "value_mixed_signed": Plan(
        {"qmix_signed": "qmix battle/MAP --env.reward signed"},
        "3s5z_vs_3s6z",
        f"{HALF} --steps 3e6 --seeds 8 --eval-every 5e5 --save-every 3e6",
    ),
    "value_plain": Plan(QMIX_STEADY, "3s_vs_5z", "--steps 1e7 --seeds 3 --eval-every 5e5 --save-every 1e7"),
    "value_mixed": Plan(
        QMIX, "MMM2 3s5z_vs_3s6z", f"{HALF} --steps 3e6 --seeds 8 --eval-every 5e5 --save-every 3e6"
    ),
    "value_mixed_short": Plan(
        QMIX, "3s5z", f"{HALF} --steps 2e6 --seeds 8 --eval-every 5e5 --save-every 2e6"
    ),
    "value_mixed_shorter": Plan(
        QMIX, "1c3s5z MMM", f"{HALF} --steps 1.5e6 --seeds 8 --eval-every 5e5 --save-every 1.5e6"
    ),
    "value_large": Plan(
        QMIX, "corridor", f"{QUARTER} --steps 2.5e6 --seeds 8 --eval-every 5e5 --save-every 2.5e6"
    ),
    "value_large_short": Plan(
        QMIX, "2c_vs_64zg", f"{QUARTER} --steps 8e5 --seeds 8 --eval-every 2e5 --save-every 8e5"
    ),
    "value_large_middle": Plan(
        QMIX, "25m", f"{QUARTER} --steps 1e6 --seeds 5 --eval-every 2e5 --save-every 1e6"
    ),
    "value_large_shorter": Plan(
        QMIX, "bane_vs_bane", f"{QUARTER} --steps 6e5 --seeds 5 --eval-every 1e5 --save-every 6e5"
    ),
    "value_largest": Plan(
        QMIX, "27m_vs_30m", f"{QUARTER} --steps 4e6 --seeds 5 --eval-every 2.5e5 --save-every 4e6"
    ),
    "value_cores": Plan(
        QMIX, "2m_vs_1z", f"--steps 1e6 --seeds 4 {TWO_CORES} --eval-every 1e5 --save-every 1e6"
    ),
    "value_cores_large_batch": Plan(
        QMIX_LARGE_BATCH,
        "so_many_baneling",
        f"{HALF} --steps 6e5 --seeds 4 {TWO_CORES} --eval-every 1e5 --save-every 6e5",
    ),
    "value_crowd": Plan(
        QMIX_STEADY,
        "bane_vs_bane",
        "--steps 1e6 --seeds 3 --envs 64 --batch-steps 512 --gradient-steps 2 --episodes 32 --buffer 512 "
        "--eval-every 1e5 --save-every 1e6",
    ),
    "pymarl": Plan(PYMARL, "3m 5m_vs_6m MMM2", "--seeds 3 --eval-every 1e5 --save-every 2.05e6"),
    "pymarl2": Plan(PYMARL2, "3m 5m_vs_6m MMM2", "--steps 3e6 --seeds 3 --eval-every 2e5 --save-every 3e6"),
    "pymarl2_6h": Plan(  # what pymarl2 changes for this map, and eight times as many environments and steps
        PYMARL2,
        "6h_vs_8z",
        "--epsilon-steps 500000 --td-lambda 0.3 --envs 64 --batch-steps 3200 --gradient-steps 8 "
        "--steps 4e6 --seeds 5 --eval-every 2.5e5 --save-every 4e6",
    ),
    "ippo": Plan(IPPO, "8m 2s3z MMM", "--envs 256 --steps 2e6 --seeds 5 --eval-every 5e5 --save-every 2e6"),
    "ippo_memory": Plan(  # made on two CPU cores
        IPPO_MEMORY, "8m MMM", f"--steps 1e6 --seeds 2 {TWO_CORES} --eval-every 1e5"
    ),
    "ippo_long": Plan(
        IPPO,
        "5m_vs_6m 3s5z MMM2 corridor",
        "--envs 256 --steps 5e6 --seeds 5 --eval-every 5e5 --save-every 5e6",
    ),
    "ippo_hard": Plan(
        IPPO_HARD,
        "MMM2 corridor",
        "--envs 256 --steps 5e6 --seeds 5 --eval-every 5e5 --save-every 5e6",
    ),
    "ippo_hard_short": Plan(
        IPPO_HARD, "MMM 8m", "--envs 256 --steps 2e6 --seeds 5 --eval-every 5e5 --save-every 2e6"
    ),
    "v2": Plan(MAPPO_V2, "v2_terran_5_vs_5 v2_protoss_5_vs_5 v2_zerg_5_vs_5", f"--envs 256 {V2}"),
    "v2_10": Plan(MAPPO_V2, "v2_terran_10_vs_10 v2_protoss_10_vs_10 v2_zerg_10_vs_10", f"--envs 256 {V2}"),
    "v2_11": Plan(MAPPO_V2, "v2_terran_10_vs_11 v2_protoss_10_vs_11 v2_zerg_10_vs_11", f"--envs 256 {V2}"),
    "v2_20": Plan(MAPPO_V2, "v2_terran_20_vs_20 v2_protoss_20_vs_20 v2_zerg_20_vs_20", f"--envs 256 {V2}"),
    "v2_23": Plan(MAPPO_V2, "v2_terran_20_vs_23 v2_protoss_20_vs_23 v2_zerg_20_vs_23", f"--envs 256 {V2}"),
    "v2_open": Plan(OPEN_LOOP, "v2_terran_5_vs_5 v2_protoss_5_vs_5 v2_zerg_5_vs_5", f"--envs 256 {V2}"),
    "v2_value": Plan(QMIX_LARGE_BATCH, "v2_terran_5_vs_5 v2_protoss_5_vs_5 v2_zerg_5_vs_5", V2),
    "v2_value_10": Plan(
        QMIX_LARGE_BATCH, "v2_terran_10_vs_10 v2_protoss_10_vs_10 v2_zerg_10_vs_10", f"{HALF} {V2}"
    ),
    "v2_value_11": Plan(
        QMIX_LARGE_BATCH,
        "v2_terran_10_vs_11 v2_protoss_10_vs_11 v2_zerg_10_vs_11",
        f"{HALF} --steps 3e6 --seeds 5 --eval-every 5e5 --save-every 3e6",
    ),
    "v2_value_20": Plan(
        QMIX_LARGE_BATCH, "v2_zerg_20_vs_20 v2_terran_20_vs_20 v2_protoss_20_vs_20", f"{QUARTER} {V2_SHORT}"
    ),
    "v2_value_23": Plan(
        QMIX_LARGE_BATCH, "v2_zerg_20_vs_23 v2_terran_20_vs_23 v2_protoss_20_vs_23", f"{QUARTER} {V2_SHORT}"
    ),
    "others": Plan({name: f"{name} battle/MAP" for name in OTHERS}, "3m", "--steps 5e5 --seeds 3"),
}


class Job(NamedTuple):
    """One command, and where its run lies."""

    plan: str
    arm: str
    map: str
    command: str
    folder: Path


def jobs(name: str, plan: Plan, out: Path, only: list[str]) -> list[Job]:
    """The commands of a plan."""
    return [
        Job(
            name,
            arm,
            where,
            f"phalanx train {words} {plan.options}",
            out / f"{name}-{arm}-{where.replace('/', '_')}",
        )
        for where in plan.maps.split()
        for arm, words in ((arm, words.replace("MAP", where)) for arm, words in plan.arms.items())
        if not only or where in only
    ]


def facts(folder: Path) -> dict[str, Any]:
    """What a run says of itself; nothing before it has begun."""
    path = folder / "run.json"
    return json.loads(path.read_text()) if path.exists() else {}


def run(job: Job, deadline: float) -> None:
    """Make one run, unless it is finished; one that was stopped goes on, or is made again if it cannot."""
    known = facts(job.folder)
    begin = time.perf_counter()
    if known.get("status") == "finished" or begin > deadline:
        return
    # Nobody goes on from these runs: the replay buffers of many seeds would only fill the disk.
    unsaved = ("--no-tensorboard", "--keep", "1", "--no-save-buffer")
    words = [*shlex.split(job.command)[1:], "--out", str(job.folder), *unsaved]
    if known.get("resume") == "inexact":
        shutil.rmtree(job.folder)
    elif known:
        words = ["resume", str(job.folder)]
    with subprocess.Popen(
        [sys.executable, "-m", "phalanx", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            told, _ = process.communicate(timeout=deadline - begin)
        except subprocess.TimeoutExpired:
            process.terminate()  # it saves what it has
            told, _ = process.communicate()
    row = result(job)
    said = f"{row.get('wins') or row['returns']}" if row else told.strip().splitlines()[-1:]
    print(f"{time.perf_counter() - begin:6.0f} s  {job.command}  {said}", flush=True)


def result(job: Job) -> dict[str, Any] | None:
    """What is written down of a run; None if it has not finished."""
    told = facts(job.folder)
    if told.get("status") != "finished":
        return None
    last, curves = told["final"]["last"], {}
    metric = "win_rate" if "win_rate" in last else "return"
    for line in map(json.loads, (job.folder / "metrics.jsonl").open()):
        curves.setdefault(line["seed"], {})[line["env_steps"]] = round(line[f"eval/{metric}"], 3)
    return {
        "plan": job.plan,
        "arm": job.arm,
        "map": job.map,
        "command": job.command,
        **({"wins": [round(seed["win_rate"], 3) for seed in last["seeds"]]} if metric == "win_rate" else {}),
        "returns": [round(seed["return"], 2) for seed in last["seeds"]],
        "episodes": last["episodes"],
        "steps": list(next(iter(curves.values()))),
        "curves": [list(curve.values()) for curve in curves.values()],
        "seconds": round(told["seconds"]),
        "device": told["device"],
        "rules": told.get("env_version"),
    }


def make(todo: list[Job], processes: int, minutes: float) -> list[dict[str, Any]]:
    """Make all runs that are not there yet; what came of those that have finished."""
    if processes > 1:  # so that they do not each take most of a GPU's memory
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    deadline = time.perf_counter() + 60 * minutes
    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(lambda job: run(job, deadline), todo))
    return [made for job in todo if (made := result(job))]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Put rows into a file of results, in the place of older ones of the same runs."""
    if not rows:
        print("no run has finished")
        return

    def which(row):
        return row["plan"], row["arm"], row["map"]

    new = {which(row) for row in rows}
    kept = [row for row in json.loads(path.read_text()) if which(row) not in new] if path.exists() else []
    lines = ",\n".join(json.dumps(row) for row in sorted([*kept, *rows], key=which))
    path.write_text(f"[\n{lines}\n]\n")
    print(f"{len(rows)} runs written to {path}")


def add_options(parser: argparse.ArgumentParser, out: Path) -> None:
    """What both commands that make runs can be told."""
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument(
        "--minutes",
        type=float,
        default=10_000,
        help="stop then; the same command goes on, Q-learning from its start",
    )
    parser.add_argument("--out", type=Path, default=out, help="where runs are left")
    parser.add_argument("--only", nargs="+", default=[], metavar="MAP", help="only these maps")


def main() -> None:
    """Train, and write down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("plans", nargs="*", metavar="PLAN", help=", ".join(PLANS))
    add_options(parser, Path("results/wins"))
    args = parser.parse_args()
    if unknown := set(args.plans) - set(PLANS):
        parser.error(f"there is no plan {', '.join(unknown)}: choose from {', '.join(PLANS)}")
    todo = [job for name in args.plans or PLANS for job in jobs(name, PLANS[name], args.out, args.only)]
    write(DATA, make(todo, args.jobs, args.minutes))


if __name__ == "__main__":
    main()

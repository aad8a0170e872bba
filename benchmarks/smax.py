"""MAPPO of phalanx and of JaxMARL on JaxMARL's own SMAX: wins by env steps and by seconds, with a verdict.

    python benchmarks/smax.py [3m 3s5z] [--seeds 5] [--steps 1e7] [--jaxmarl CHECKOUT] [--out smax.json]

phalanx trains all seeds in one process. With `--jaxmarl`, a checkout of https://github.com/FLAIROX/JaxMARL at
0.2.0, its own `baselines/MAPPO/mappo_rnn_smax.py` trains as many seeds after it, side by side under
`jax.vmap`: on a GPU that takes little more time than one seed, on a CPU its callback may hang. Sizes, budget
and hyper-parameters are those of JaxMARL's configuration file.

A win rate is that of the episodes which ended since the last point, sampled as in training, on both sides.
Seconds are those until all seeds have taken so many steps, imports and compiling included. What differs:
JaxMARL's networks have one more layer behind the gru, its actor does not see the agent's id, it learns from
steps of dead agents, and at the time limit it does not bootstrap.
"""

import argparse
import importlib.util
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.report import statistics as st
from phalanx.report.compare.model import SHOWN, Pair
from phalanx.report.compare.wording import between, verdict

POINTS = 50
ENVS, ROLLOUT = 128, 128
OPTIONS = (
    "--network gru --hidden 128 --layers 1 --activation relu --epochs 4 --minibatches 4 --lr 2e-3 "
    "--critic-lr 2e-3 --lr-decay --gamma 0.99 --gae-lambda 0.95 --clip 0.2 --entropy 0 --max-grad-norm 0.25 "
    "--value-loss squared --value-norm none --eval-episodes 1 --final-episodes 256 --no-tensorboard"
)

Curves = dict[str, Any]
"""`steps` (P,), `seconds` (P,) until all seeds are there, `wins` (S, P)"""


def phalanx_curves(name: str, args: argparse.Namespace) -> Curves:
    """Train with phalanx, in a process of its own."""
    sizes = {"--seeds": args.seeds, "--envs": args.envs, "--batch-steps": args.envs * args.rollout}
    updates = max(1, args.steps // (args.envs * args.rollout))
    every = max(1, updates // POINTS) * args.envs * args.rollout
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "mappo", f"jaxmarl/smax_{name}", "--preset", "none", *OPTIONS.split()]
        words += [str(word) for pair in sizes.items() for word in pair]
        words += ["--chunk", str(args.rollout), "--steps", str(updates * args.envs * args.rollout)]
        words += ["--eval-every", str(every), "--out", f"{folder}/run"]
        print("phalanx", *words, flush=True)
        if subprocess.run([sys.executable, "-m", "phalanx", *words], stdout=subprocess.DEVNULL).returncode:
            sys.exit(2)  # phalanx has said why
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row.get("train/win_rate") is not None]
    steps = sorted({row["env_steps"] for row in rows})
    by = {(row["seed"], row["env_steps"]): row for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    return {
        "steps": steps,
        "seconds": [max(by[seed, at]["seconds"] for seed in seeds if (seed, at) in by) for at in steps],
        "wins": [
            [by[seed, at]["train/win_rate"] if (seed, at) in by else None for at in steps] for seed in seeds
        ],
    }


def jaxmarl_seeds(checkout: str, name: str, settings: dict[str, Any], seeds: int) -> list[list[Any]]:
    """Train with JaxMARL's script: for each seed (env steps, win rate, seconds since the beginning)."""
    begin = time.perf_counter()
    import jax
    import jax.experimental
    import yaml

    folder = Path(checkout) / "baselines" / "MAPPO"
    spec = importlib.util.spec_from_file_location("mappo_rnn_smax", folder / "mappo_rnn_smax.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    config = yaml.safe_load((folder / "config" / "mappo_homogenous_rnn_smax.yaml").read_text())
    config |= {"TOTAL_TIMESTEPS": float(config["TOTAL_TIMESTEPS"]), "MAP_NAME": name, **settings}
    log: list[Any] = []

    def record(update: Any, won: Any, ended: Any) -> None:
        at = int(update) * config["NUM_ENVS"] * config["NUM_STEPS"]
        log.append((at, float(won) / int(ended) if ended else np.nan, time.perf_counter() - begin))

    def of_wins(_callback: Any, _shape: Any, metric: dict[str, Any]) -> None:
        # The script's own callback takes whole rollouts to the host; two numbers do.
        ended = metric["returned_episode"][:, :, 0]
        won = (ended * metric["returned_won_episode"][:, :, 0]).sum()
        io_callback(record, None, metric["update_steps"], won, ended.sum())

    io_callback = jax.experimental.io_callback
    jax.experimental.io_callback = of_wins
    keys = jax.vmap(jax.random.PRNGKey)(np.arange(seeds))
    jax.block_until_ready(jax.jit(jax.vmap(script.make_train(config)))(keys))
    jax.effects_barrier()
    # A callback under vmap is called for one seed after another, in order, before the next update's.
    assert all(len({row[0] for row in log[at : at + seeds]}) == 1 for at in range(0, len(log), seeds))
    return [log[seed::seeds] for seed in range(seeds)]


def jaxmarl_curves(name: str, args: argparse.Namespace) -> Curves:
    """Train with JaxMARL, in a process of its own; its curve has a point for each of its updates."""
    batch = args.envs * args.rollout
    settings = {
        "NUM_ENVS": args.envs,
        "NUM_STEPS": args.rollout,
        "TOTAL_TIMESTEPS": args.steps // batch * batch,
    }
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        logs = pool.apply(jaxmarl_seeds, (args.jaxmarl, name, settings, args.seeds))
    # JaxMARL counts an update's steps from 0 at its first.
    steps = [at + batch for at, _, _ in logs[0]]
    seconds = [max(row[2] for row in rows) for rows in zip(*logs, strict=True)]
    wins = [[None if np.isnan(win) else win for _, win, _ in rows] for rows in logs]
    return {"steps": steps, "seconds": seconds, "wins": wins}


def final(curves: Curves) -> np.ndarray:
    """(S,): the win rate of each seed over the last tenth of its steps."""
    wins = np.array(curves["wins"], float)
    return np.nanmean(wins[:, -max(1, wins.shape[1] // 10) :], axis=1)


def reached(curves: Curves, mark: float) -> str:
    """Steps and seconds at which the mean over seeds reaches `mark`."""
    wins = np.nanmean(np.array(curves["wins"], float), axis=0)
    if not (wins >= mark).any():
        return f"never reaches {mark:.0%}"
    at = int((wins >= mark).argmax())
    return f"reaches {mark:.0%} after {curves['steps'][at]:,} steps, {curves['seconds'][at]:.0f} s"


def report(name: str, sides: dict[str, Curves], mark: float) -> None:
    """Print what each side reached, and which is better."""
    scores = {side: final(curves) for side, curves in sides.items()}
    for side, curves in sides.items():
        each = " ".join(f"{score:.2f}" for score in scores[side])
        total = curves["seconds"][-1]
        print(
            f"{name} {side:8} wins {scores[side].mean():.3f} ({each}), {total:.0f} s, {reached(curves, mark)}"
        )
    if len(sides) == 2:
        better, other = sorted(sides, key=lambda side: -scores[side].mean())
        chance = st.shuffled([scores[better]], [scores[other]])
        measure = st.improvement_interval([scores[better]], [scores[other]])
        pair = Pair(better, other, measure, chance, chance <= SHOWN)
        print(f"{name} {verdict(pair, len(scores[better]), 1)}")
        print(f"{name} difference of wins {between(st.difference(scores[better], scores[other]))}")


def main() -> None:
    """Train both and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("maps", nargs="*", default=["3m", "3s5z"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--envs", type=int, default=ENVS)
    parser.add_argument("--rollout", type=int, default=ROLLOUT, help="steps of an environment in an update")
    parser.add_argument(
        "--mark", type=float, default=0.9, help="win rate whose steps and seconds are printed"
    )
    parser.add_argument("--jaxmarl", help="a checkout of JaxMARL, whose own script is run too")
    parser.add_argument("--out", default="smax.json", help="where the curves are written")
    args = parser.parse_args()
    found: dict[str, dict[str, Curves]] = {}
    for name in args.maps:
        found[name] = {"phalanx": phalanx_curves(name, args)}
        Path(args.out).write_text(json.dumps(found))
        report(name, found[name], args.mark)
        if args.jaxmarl:
            found[name]["JaxMARL"] = jaxmarl_curves(name, args)
            Path(args.out).write_text(json.dumps(found))
            report(name, found[name], args.mark)


if __name__ == "__main__":
    main()

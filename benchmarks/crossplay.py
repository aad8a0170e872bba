"""Two tables of docs/opponents.md: unlike sides, and best responses; writes docs/data/crossplay.json.

    python benchmarks/crossplay.py [worlds] [best_response] [--steps 1e6] [--jobs 4] [--out results/crossplay]

`worlds`: the adversaries of two particle worlds are trained against random, frozen, learning and past prey,
and play all of it. `best_response`: teams of `battle/3m` that were trained against the script, against
themselves and against past selves, each against a team that is then trained to beat it. Five seeds of every
team; runs that have finished are not made again. `--jobs` processes share the device.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wins import facts

DATA = Path(__file__).parent.parent / "docs" / "data" / "crossplay.json"
WORLDS = ("mpe/simple_tag", "mpe/simple_adversary")
PREY = {
    "random": "--opponent random",
    "frozen": "--opponent {folder}/frozen",
    "learning": "--opponent-algorithm ippo",
    "past": "--opponent past --opponent-algorithm ippo",
}
FOES = {
    "learning": "against_learning:opponent",
    "past, newest": "against_past:opponent",
    "past, earlier": "against_past:past",
}
TRAINED = {"script": "", "self": "--opponent self", "past": "--opponent past"}
MAP = "battle/3m"
STARTS = "--env.starts 512"  # with one start a best response need only learn one battle by heart


def phalanx(words: str, out: Path) -> None:
    """Run a command, unless it has finished in its folder."""
    if facts(out).get("status") == "finished" or (out / "crossplay.json").exists():
        return
    words = f"{words} --out {out}"
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", *shlex.split(words)], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"phalanx {words}\n{done.stdout}{done.stderr}")
    print(f"phalanx {words}", flush=True)


def train_prey(env: str, out: Path, steps: str) -> None:
    """Prey for the frozen arm: it only met random adversaries."""
    phalanx(f"train ippo {env} --side good --opponent random {steps}", folder_of(env, out) / "frozen")


def train_hunters(env: str, prey: str, out: Path, steps: str) -> None:
    """The adversaries of one arm."""
    folder = folder_of(env, out)
    options = PREY[prey].format(folder=folder)
    phalanx(f"train ippo {env} --side adversary {options} {steps}", folder / f"against_{prey}")


def meet(env: str, out: Path) -> dict[str, Any]:
    """All adversaries against all prey: mean returns of both sides, with intervals."""
    folder = folder_of(env, out)
    hunters = {f"against_{prey}": prey for prey in PREY} | {"random": "not trained"}
    prey = {"random": "random", "frozen": "frozen"}
    prey |= {team: name for name, team in FOES.items()}
    teams = [str(folder / name) if name != "random" else name for name in [*prey, *hunters][1:]]
    phalanx(f"play {' '.join(teams)} --env {env} --episodes 500", folder / "play")
    games = json.loads((folder / "play" / "crossplay.json").read_text())["games"]
    return {
        f"{hunter} | {met}": [
            [round(value, 1), *(round(end, 1) for end in interval)]
            for value, interval in zip(
                games[f"{one} | {other}"]["returns"],
                games[f"{one} | {other}"]["return_intervals"],
                strict=True,
            )
        ]
        for one, hunter in hunters.items()
        for other, met in prey.items()
    }


def folder_of(env: str, out: Path) -> Path:
    """Where what belongs to an environment is."""
    return out / env.replace("/", "_")


def answered(arm: str, out: Path, steps: str) -> dict[str, Any]:
    """A team, the best response to it, and how they and the scripts fare."""
    run, play = (folder_of(MAP, out) / name for name in (f"against_{arm}", f"answer_to_{arm}"))
    longer = f"--steps {2 * float(steps):g} --save-every {2 * float(steps):g} --seeds 5"
    phalanx(f"train mappo {MAP} {STARTS} {TRAINED[arm]} {longer}", run)
    phalanx(f"play {run} --env {MAP} {STARTS} --best-response {steps}", play)
    games = json.loads((play / "crossplay.json").read_text())["games"]
    met = ("best_response", "heuristic", "script", "random")
    pairs = [f"{run.name} | {other}" for other in met] + [f"{other} | {run.name}" for other in met]
    return {
        pair.replace(run.name, "team"): [round(value, 3) for value in games[pair]["score"].values()]
        for pair in pairs
        if pair in games  # the script plays only the enemies
    }


def main() -> None:
    """Train, play, and write down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", default=["worlds", "best_response"])
    parser.add_argument("--steps", default="1e6", help="of particle worlds and best responses")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, default=Path("results/crossplay"))
    args = parser.parse_args()
    if unknown := set(args.parts) - {"worlds", "best_response"}:
        parser.error(f"there is no part {', '.join(unknown)}: choose from worlds, best_response")
    if args.jobs > 1:  # so that they do not each take most of a GPU's memory
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    steps = f"--steps {args.steps} --save-every {args.steps} --seeds 5"
    known = json.loads(DATA.read_text())
    with ThreadPoolExecutor(args.jobs) as pool:
        answers, frozen = {}, []
        if "worlds" in args.parts:
            frozen = [pool.submit(train_prey, env, args.out, steps) for env in WORLDS]
        if "best_response" in args.parts:
            answers = {arm: pool.submit(answered, arm, args.out, args.steps) for arm in TRAINED}
        for each in frozen:
            each.result()
        if frozen:
            arms = [(env, prey) for env in WORLDS for prey in PREY]
            list(pool.map(lambda arm: train_hunters(arm[0], arm[1], args.out, steps), arms))
            known["worlds"] = dict(
                zip(WORLDS, pool.map(lambda env: meet(env, args.out), WORLDS), strict=True)
            )
        if answers:
            known["best_response"] = {arm: each.result() for arm, each in answers.items()}
    # Every list of numbers on one line.
    text = re.sub(
        r"\[\s+([^][{}]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", json.dumps(known, indent=1)
    )
    DATA.write_text(text + "\n")
    print(f"written to {DATA}")


if __name__ == "__main__":
    main()

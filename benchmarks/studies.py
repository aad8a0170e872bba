"""The studies of docs/studies.md: trains the runs of each experiment and compares its arms.

    python benchmarks/studies.py NAME ... [--jobs 4] [--out results/experiments]

A study is an experiment file, `experiments/NAME.toml`. What `phalanx compare` says of it is written to
docs/data/studies/NAME.json, its learning curves to docs/images/study_NAME.png. Finished runs are not made
again. Then run `python docs/tables.py`.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from phalanx import experiment
from phalanx.report import compare

ROOT = Path(__file__).parent.parent
SOLVED = 0.9  # wins of an evaluation


def phalanx(*words: str) -> None:
    """Run a command; stop if it fails."""
    if subprocess.run([sys.executable, "-m", "phalanx", *words]).returncode:
        sys.exit(1)


def solved(rows: list[dict[str, Any]]) -> list[int | None]:
    """The env steps after which each seed first wins 90 % of evaluation episodes; None: it never does."""
    first: dict[int, int | None] = {row["seed"]: None for row in rows}
    for row in rows:
        if row.get("eval/win_rate", 0.0) >= SOLVED and first[row["seed"]] is None:
            first[row["seed"]] = row["env_steps"]
    return list(first.values())


def summary(file: Path, runs: Path) -> dict[str, Any]:
    """What the page needs of a comparison, with where and how long its runs were trained."""
    compared = json.loads((runs / "report" / "comparison.json").read_text())
    stable = {(row["arm"], row["task"]): row for row in compared["stability"]}
    scores = {(row["arm"], row["task"]): row["scores"] for row in compared["scores"]}
    rows = []
    for cell in experiment.read(file, runs).cells:
        run = compare.read(cell.folder)
        facts = run.facts
        rows.append(
            {
                "arm": cell.arm,
                "task": cell.env,
                "scores": [round(score, 4) for score in scores[cell.arm, cell.env]],
                **{key: stable[cell.arm, cell.env][key] for key in ("spread", "drop")},
                "solved": solved(run.rows),
                "command": facts["command"].split(" --out ")[0],
                **{key: facts[key] for key in ("seconds", "device", "env_version", "git")},
            }
        )
    return {**{key: compared[key] for key in ("title", "metric", "verdicts", "notes")}, "rows": rows}


def main() -> None:
    """Make the runs of each study and write down what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="+", metavar="NAME", help="studies: names of files in experiments/")
    parser.add_argument("--jobs", default="1", help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("results/experiments"))
    args = parser.parse_args()
    for name in args.names:
        file, runs = ROOT / "experiments" / f"{name}.toml", args.out / name
        phalanx("experiment", str(file), "--jobs", args.jobs, "--out", str(runs))
        phalanx("compare", str(runs))
        data = ROOT / "docs" / "data" / "studies" / f"{name}.json"
        data.parent.mkdir(exist_ok=True)
        data.write_text(json.dumps(summary(file, runs), indent=1) + "\n")
        shutil.copy(runs / "report" / "curves.png", ROOT / "docs" / "images" / f"study_{name}.png")
        print(f"written to {data}")


if __name__ == "__main__":
    main()

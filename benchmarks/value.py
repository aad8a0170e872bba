"""What learners of values earn in a particle world and in the corridor; writes docs/data/value_returns.json.

    python benchmarks/value.py [--jobs 1] [--out results/value] [--only switch/2]

IQL, VDN and QMIX with their presets, 3 seeds each. A return is the mean over agents of the sum of their
rewards. Runs that are finished in the folder are not made again.
"""

import argparse
from pathlib import Path

from wins import Plan, add_options, jobs, make, write

DATA = Path(__file__).parent.parent / "docs" / "data" / "value_returns.json"
ARMS = {name: f"{name} MAP" for name in ("iql", "vdn", "qmix")}
PLANS = {
    "particles": Plan(ARMS, "mpe/simple_spread", "--steps 8e5 --seeds 3 --save-every 8e5"),
    "corridor": Plan(ARMS, "switch/2 switch/4", "--steps 3e5 --seeds 3 --save-every 3e5"),
}


def main() -> None:
    """Train, and write down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser, Path("results/value"))
    args = parser.parse_args()
    todo = [job for name, plan in PLANS.items() for job in jobs(name, plan, args.out, args.only)]
    write(DATA, make(todo, args.jobs, args.minutes))


if __name__ == "__main__":
    main()

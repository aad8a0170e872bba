"""Writes phalanx/references/*.json from the finished runs of experiments.

phalanx experiment experiments/references.toml
python benchmarks/references.py experiments/references.toml [--out results/experiments/references]
"""

import argparse
import json
from pathlib import Path

from phalanx import experiment, registry, reproduce
from phalanx.report import compare


def main() -> None:
    """Write a file for each finished cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, help="an experiment file")
    parser.add_argument("--out", type=Path, help="where its runs are")
    args = parser.parse_args()
    for cell in experiment.read(args.file, args.out).cells:
        if cell.state != "done":
            print(f"{cell.name} is not done")
            continue
        path = registry.ROOT / "references" / f"{cell.arm}-{cell.env.replace('/', '-')}.json"
        path.write_text(json.dumps(reproduce.describe(cell, compare.read(cell.folder)), indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()

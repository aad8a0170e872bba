"""Writes phalanx/references/*.json from the finished runs of experiments.

phalanx experiment experiments/references.toml
python benchmarks/references.py experiments/references.toml [--out FOLDER] [--only ARM ENV]
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
    parser.add_argument("--only", nargs=2, metavar=("ARM", "ENV"), help="only this run")
    args = parser.parse_args()
    cells = experiment.read(args.file, args.out).cells
    if args.only:
        cells = [cell for cell in cells if args.only == [cell.arm, cell.env]]
    if not cells or len({(cell.algorithm, cell.env) for cell in cells}) < len(cells):
        parser.error("no such run" if not cells else "two arms have the same algorithm: use --only")
    for cell in cells:
        if cell.state != "done":
            print(f"{cell.name} is not done")
            continue
        path = registry.ROOT / "references" / f"{cell.algorithm}-{cell.env.replace('/', '-')}.json"
        path.write_text(json.dumps(reproduce.describe(cell, compare.read(cell.folder)), indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()

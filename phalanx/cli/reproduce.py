"""`phalanx reproduce`: repeat a reference result."""

from pathlib import Path

from phalanx import registry
from phalanx.cli.parsing import Parser, whole_number


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx reproduce",
        description="Repeat a reference result with new seeds and check that it agrees.",
    )
    parser.add_argument("id", metavar="ID", help="a name from `phalanx list references`")
    parser.add_argument(
        "--seeds", metavar="INT", help="number of new seeds (default: as many as the reference)"
    )
    parser.add_argument("--seed", metavar="INT", help="first new seed (default: after the reference's last)")
    parser.add_argument("--out", metavar="DIR", help="the run folder (default: results/reproduce/ID)")
    args = parser.parse(words)
    seeds, seed = (
        whole_number("--seeds", args.seeds, at_least=2),
        whole_number("--seed", args.seed, at_least=0),
    )
    registry.require_reference(args.id)
    from phalanx import reproduce

    out = Path(args.out) if args.out else Path("results", "reproduce", args.id)
    judged, notes = reproduce.run(args.id, seeds, seed, out)
    for note in notes:
        print(f"note: {note}")
    print(judged.sentence)
    return 0 if judged.agree else 1

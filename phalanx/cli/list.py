"""`phalanx list`: list algorithms, environments, presets and references."""

from phalanx import registry
from phalanx.cli.parsing import Parser
from phalanx.errors import PhalanxError, suggest


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx list", description="List algorithms, environments, presets and reference results."
    )
    kinds = {
        "algorithms": registry.algorithms,
        "envs": registry.envs,
        "presets": registry.presets,
        "references": registry.references,
    }
    parser.add_argument("what", nargs="?", metavar="|".join(kinds), help="one kind (default: all)")
    args = parser.parse(words)
    if args.what is not None and args.what not in kinds:
        raise PhalanxError(f"cannot list {args.what!r}.{suggest(args.what, kinds)}")
    for kind in kinds if args.what is None else [args.what]:
        if args.what is None:
            print(f"{kind}:")
        found = kinds[kind]()
        width = max(map(len, found), default=0)
        for name, line in found.items():
            print(f"  {name:<{width}}  {line}")
    return 0

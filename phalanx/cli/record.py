"""`phalanx record`: write trajectories to a file."""

from phalanx.cli.parsing import Parser, add_team_options, team_options, where_to_play, whole_number


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx record",
        usage="phalanx record RUN FILE.npz  |  ALGORITHM ENV FILE.npz   [--episodes 100] [--sampled]",
        description="Write observations, states, masks, actions and rewards of whole episodes to one file.",
    )
    parser.add_argument(
        "what", metavar="RUN | ALGORITHM", help="a run folder, or an algorithm to play untrained"
    )
    parser.add_argument("env", metavar="ENV", nargs="?", help="environment of an untrained algorithm")
    parser.add_argument(
        "file", metavar="FILE.npz", help="file to write; docs/watching.md describes its arrays"
    )
    parser.add_argument("--episodes", metavar="INT", default="100", help="number of episodes (default: 100)")
    parser.add_argument("--seed", metavar="INT", default="0", help="random seed of the episodes (default: 0)")
    parser.add_argument(
        "--sampled", action="store_true", help="sample actions as in training (default: greedy)"
    )
    add_team_options(parser)
    args = parser.parse(words)
    where = where_to_play(args.what, args.env)
    numbers = {
        name: whole_number(f"--{name}", getattr(args, name), least)
        for name, least in (("episodes", 1), ("seed", 0))
    }
    from phalanx import api

    print(api.record(args.what, args.file, **where, **numbers, greedy=not args.sampled, **team_options(args)))
    return 0

"""`phalanx record`: write trajectories to a file."""

from phalanx.cli.parsing import (
    Parser,
    add_episodes,
    add_players,
    add_team_options,
    episode_options,
    team_options,
    where_to_play,
)


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx record",
        usage="phalanx record RUN FILE.npz  |  ALGORITHM ENV FILE.npz   [--episodes 100] [--sampled]",
        description="Write observations, states, masks, actions and rewards of whole episodes to one file.",
    )
    add_players(parser)
    parser.add_argument(
        "file", metavar="FILE.npz", help="file to write; docs/watching.md describes its arrays"
    )
    add_episodes(parser, 100)
    parser.add_argument(
        "--sampled", action="store_true", help="sample actions as in training (default: greedy)"
    )
    add_team_options(parser)
    args = parser.parse(words)
    where = where_to_play(args.what, args.env)
    numbers = episode_options(args)
    from phalanx import api

    print(api.record(args.what, args.file, **where, **numbers, greedy=not args.sampled, **team_options(args)))
    return 0

"""`phalanx watch`: write an HTML page that plays episodes."""

from pathlib import Path

from phalanx import registry
from phalanx.cli.parsing import (
    Parser,
    add_episodes,
    add_team_options,
    episode_options,
    require_run,
    team_options,
    where_to_play,
)


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx watch",
        usage="phalanx watch RUN [RUN2 | ALGORITHM] | ALGORITHM ENV | REPLAY.json  [--episodes 3] [--gif]",
        description="Play greedy episodes and write an HTML page that shows them in any browser.",
    )
    parser.add_argument(
        "what",
        metavar="RUN | ALGORITHM | REPLAY.json",
        help="a run folder, an untrained algorithm, or a file written by StarCraft2Env.save_replay()",
    )
    parser.add_argument(
        "other",
        metavar="RUN2 | ENV",
        nargs="?",
        help="a second run to show next to it, or the environment of an algorithm",
    )
    add_episodes(parser, 3)
    parser.add_argument("--out", metavar="FILE", help="file to write (default: RUN/watch.html)")
    parser.add_argument("--gif", action="store_true", help="also write a GIF")
    parser.add_argument("--mp4", action="store_true", help="also write an MP4 (needs the extra `video`)")
    add_team_options(parser)
    args = parser.parse(words)
    is_run = (Path(args.what) / "run.json").is_file()
    is_replay = args.what.endswith(".json")
    where = {} if is_run or is_replay else where_to_play(args.what, args.other)
    if is_run and args.other is not None and args.other not in registry.algorithms():
        require_run(args.other)
    numbers = episode_options(args)
    from phalanx import api

    other = args.other if is_run or is_replay else None
    films = {"gif": args.gif, "mp4": args.mp4, "out": args.out}
    for file in api.watch(args.what, other, **where, **numbers, **films, **team_options(args)):
        print(file)
    return 0

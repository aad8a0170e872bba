"""`phalanx watch`: write a page that plays a team."""

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
    """Do what the words say; returns the exit code."""
    parser = Parser(
        prog="phalanx watch",
        usage="phalanx watch RUN [RUN2 | ALGORITHM] | ALGORITHM ENV | REPLAY.json  [--episodes 3] [--gif]",
        description="Play a team greedily and write one page that shows it in any browser.",
    )
    parser.add_argument(
        "what",
        metavar="RUN | ALGORITHM | REPLAY.json",
        help="a run folder, an algorithm to watch untrained, or what StarCraft2Env.save_replay() wrote",
    )
    parser.add_argument(
        "other", metavar="RUN2 | ENV", nargs="?", help="another team beside it, or where to play"
    )
    add_episodes(parser, 3)
    parser.add_argument("--out", metavar="FILE", help="the page (default: RUN/watch.html)")
    parser.add_argument("--gif", action="store_true", help="write a film beside the page")
    parser.add_argument("--mp4", action="store_true", help="the same as MP4 (needs the extra `video`)")
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

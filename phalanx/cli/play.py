"""`phalanx play`: let teams play each other."""

import shlex
from itertools import pairwise
from pathlib import Path

from phalanx import registry
from phalanx.cli.parsing import (
    Parser,
    add_episodes,
    add_options,
    env_names,
    episode_options,
    given_tables,
)
from phalanx.errors import PhalanxError


def _parser() -> Parser:
    parser = Parser(
        prog="phalanx play",
        usage="phalanx play TEAM TEAM ... --env ENV [--episodes INT] [--seed INT] [--sampled] [--out DIR]",
        description="Let every team play every other on both sides; a matrix of wins, ratings and a verdict.",
    )
    parser.add_argument(
        "teams", metavar="TEAM", nargs="+", help="run folders, exported teams, random or heuristic"
    )
    parser.add_argument("--env", metavar="ENV", help="world with two sides, such as battle/3m")
    add_episodes(parser, 500, "games of each pair on each side")
    parser.add_argument("--sampled", action="store_true", help="draw actions instead of greedy ones")
    parser.add_argument("--out", metavar="DIR", default="results/play", help="default: results/play")
    return parser


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = _parser()
    # As two words or as one: it decides which options there are.
    env = next((after for word, after in pairwise([*words, ""]) if word == "--env"), "")
    env = env or next((word.removeprefix("--env=") for word in words if word.startswith("--env=")), "")
    if env:
        add_options(parser, env, registry.env_options(env, env_names(words)), "env")
    args = parser.parse(words)
    if not args.env:
        raise PhalanxError("name the world that they play in: --env battle/3m")
    from rich.console import Console

    from phalanx.crossplay import cross_play
    from phalanx.report import crossplay

    result = cross_play(
        args.teams,
        args.env,
        **episode_options(args),
        greedy=not args.sampled,
        env_options=given_tables(args)["env"],
    )
    files = crossplay.write(result, Path(args.out), shlex.join(["phalanx", "play", *words]))
    Console().print(crossplay.text(result))
    for line in crossplay.lines(result):
        print(line)
    print(f"page: {files[0]}")
    return 0

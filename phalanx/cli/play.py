"""`phalanx play`: let teams play each other."""

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

from phalanx import registry
from phalanx.cli.parsing import (
    Parser,
    add_episodes,
    add_options,
    add_placement,
    env_names,
    episode_options,
    given_tables,
    placement_options,
    whole_number,
)
from phalanx.errors import PhalanxError


def _parser() -> Parser:
    parser = Parser(
        prog="phalanx play",
        usage="phalanx play TEAM TEAM ... --env ENV [--episodes 500] [--watch] [--sampled] [--out DIR]\n"
        "       phalanx play RUN --env ENV --best-response 1e6",
        description="Let every team play every other team on both sides; print win rates, ratings and a "
        "verdict for each pair.",
    )
    parser.add_argument(
        "teams",
        metavar="TEAM",
        nargs="+",
        help="run folders, RUN:opponent (the opponent that learnt in a run), RUN:past (the earlier "
        "checkpoints that it was trained against), exported teams, random, heuristic, or script (of a "
        "battle; it plays the enemies)",
    )
    parser.add_argument("--env", metavar="ENV", help="environment with two sides, such as battle/3m")
    add_episodes(parser, 500, "games of each pair on each side")
    parser.add_argument(
        "--watch", action="store_true", help="also write a page that plays games of the first two teams"
    )
    parser.add_argument(
        "--best-response",
        metavar="STEPS",
        help="first train a team against the one given run for this many env steps, and let it play too",
    )
    parser.add_argument("--sampled", action="store_true", help="sample actions (default: greedy)")
    parser.add_argument("--out", metavar="DIR", default="results/play", help="default: results/play")
    add_placement(parser)
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
        raise PhalanxError("name the environment: --env battle/3m")
    from rich.console import Console

    from phalanx.crossplay import best_response, cross_play, film
    from phalanx.report import crossplay
    from phalanx.report import film as films

    numbers, out = episode_options(args), Path(args.out)
    where: dict[str, Any] = {
        "seed": numbers["seed"],
        "env_options": given_tables(args)["env"],
        "placement": placement_options(args),
    }
    teams, greedy = args.teams, not args.sampled
    if args.best_response is not None:
        if len(teams) != 1:
            raise PhalanxError(
                "--best-response takes one run: phalanx play RUN --env ENV --best-response 1e6"
            )
        steps = whole_number("--best-response", args.best_response)
        teams = best_response(teams[0], args.env, steps=steps, out=out, **where)
    result = cross_play(teams, args.env, episodes=numbers["episodes"], greedy=greedy, **where)
    files = crossplay.write(result, out, shlex.join(["phalanx", "play", *words]))
    console = Console()
    console.print(crossplay.text(result, console.width))
    for line in crossplay.lines(result):
        print(line)
    print(f"page: {files[0]}")
    if args.watch:
        shows = film(teams, args.env, greedy=greedy, **where)
        title = f"{shows[0].label} against {shows[1].label}"
        print(f"games: {films.write(shows, title, out / 'games.html')[0]}")
    return 0

"""`phalanx eval`: evaluate a policy, greedy unless told otherwise."""

import json
from pathlib import Path
from typing import Any

from phalanx import registry
from phalanx.cli.parsing import (
    Parser,
    add_episodes,
    add_options,
    add_parameters,
    add_placement,
    add_players,
    env_names,
    episode_options,
    given_tables,
    placement_options,
    positionals,
    require_run,
)
from phalanx.errors import PhalanxError


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx eval",
        usage="phalanx eval RUN | ALGORITHM ENV [--env.OPTION ...]  [--episodes 200] [--sampled] [--json]",
        description="Evaluate a policy, by default greedily. "
        "A return is the mean over agents of their summed rewards.",
    )
    add_players(parser)
    add_episodes(parser, 200, "episodes for each seed")
    add_parameters(parser)
    add_placement(parser)
    parser.add_argument(
        "--sampled", action="store_true", help="sample actions as in training (default: greedy)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    what, env = positionals(parser, words, 2)
    if what and env and not (Path(what) / "run.json").is_file():
        registry.algorithm(what)  # if there is none, this says so
        add_options(parser, env, registry.env_options(env, env_names(words)), "env")
    elif what and any(word.startswith("--env.") for word in words):
        raise PhalanxError(f"--env.* is for an untrained algorithm and ENV; {what} has its own environment")
    args = parser.parse(words)
    episodes = episode_options(args)
    if args.env is not None and (Path(args.what) / "run.json").is_file():
        raise PhalanxError(
            f"{args.what} is a run folder, which has its environment: phalanx eval {args.what}"
        )
    if args.env is None:
        if args.what in registry.algorithms():
            raise PhalanxError(f"name an environment for {args.what}: phalanx eval {args.what} ENV")
        require_run(args.what)
    from phalanx import api

    result = api.evaluate(
        args.what,
        args.env,
        **episodes,
        greedy=not args.sampled,
        which=args.which,
        checkpoint=args.checkpoint,
        env_options=given_tables(args)["env"],
        **placement_options(args),
    )
    if args.json:
        print(json.dumps(result))
        return 0
    _print(result, "sampled" if args.sampled else "greedy")
    return 0


def _print(result: dict[str, Any], kind: str) -> None:
    """A line for each seed, and what was played."""
    from phalanx.report.console import main_metrics

    for row in [{"seed": "all", **result}, *result["seeds"]] if len(result["seeds"]) > 1 else [result]:
        shown = "  ".join(f"{name} {value:.3f}" for name, value in main_metrics(row).items())
        print((f"seed {row['seed']}: " if "seed" in row else "") + shown)
    more = sum(isinstance(value, float) for value in result.values()) > len(main_metrics(result))
    print(f"{result['episodes']} {kind} episodes per seed" + "; --json prints all metrics" * more)

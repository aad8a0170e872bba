"""`phalanx check-env`: check an environment against the interface."""

import sys

from phalanx import registry
from phalanx.cli.parsing import (
    Parser,
    add_options,
    add_placement,
    env_names,
    given_tables,
    placement_options,
    positionals,
)


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx check-env",
        usage="phalanx check-env MODULE:CLASS [--env.OPTION ...] [--workers 2]",
        description="Play an environment and explain each violation of the interface.",
    )
    parser.add_argument(
        "env", metavar="MODULE:CLASS", help="your environment, or a name from `phalanx list envs`"
    )
    (env,) = positionals(parser, words, 1)
    if env:
        add_options(parser, env, registry.env_options(env, env_names(words)), "env")
    add_placement(parser)
    args = parser.parse(words)
    from phalanx import api, device
    from phalanx.training.setup import place

    device.configure()
    env = api.make_env(args.env, **given_tables(args)["env"])
    breaches = api.check_env(place(env, placement_options(args), args.env))
    for breach in breaches:
        print(f"phalanx: {breach}", file=sys.stderr)
    if not breaches:
        print(f"{args.env} implements the interface")
    return 2 if breaches else 0

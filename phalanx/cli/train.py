"""`phalanx train`: train a team."""

import argparse
import shlex
import time

from phalanx import registry
from phalanx.cli.parsing import Parser, add_hosts, add_options, env_names, given_tables
from phalanx.config import COMMAND_OPTIONS, Layer, RunConfig, both_have, by_table, clashes, options_of
from phalanx.errors import PhalanxError


def _parser() -> Parser:
    """What every training takes; the algorithm and the environment add their options."""
    parser = Parser(
        prog="phalanx train",
        usage="phalanx train ALGORITHM ENV [options]",
        description="Train a team and write checkpoints, metrics and configuration to a run folder.",
        epilog="`phalanx train ALGORITHM ENV --help` also lists the options of ALGORITHM and ENV.",
        add_help=False,
    )
    parser.add_argument(
        "algorithm", metavar="ALGORITHM", nargs="?", help="such as mappo, or package.module:Class"
    )
    parser.add_argument("env", metavar="ENV", nargs="?", help="such as switch/2, or package.module:Class")
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file of options with tables [run], [algorithm], [env]"
    )
    parser.add_argument(
        "--preset",
        metavar="NAME",
        default="auto",
        help="auto (default), none, a name from `phalanx list presets`, or FILE.toml",
    )
    parser.add_argument("--out", metavar="DIR", help="the run folder (default: results/ALGORITHM/ENV/TIME)")
    add_hosts(parser)
    parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    return parser


def parsed(words: list[str]) -> argparse.Namespace | None:
    """The options of a training; None if help was asked for and printed."""
    parser = _parser()
    named = [word for word in words[:2] if not word.startswith("-")]
    if len(named) < 2 and not {"-h", "--help"} & set(words):
        raise PhalanxError(
            "name an algorithm and an environment first: phalanx train ALGORITHM ENV, such as mappo switch/2"
        )
    layer = registry.preset(named[0], named[1], "auto") if len(named) == 2 else None
    preset = layer.values if layer else {}
    plain = words
    if named:
        config = registry.algorithm_config(named[0])
        both, own = clashes(config), options_of(config)
        add_options(parser, "the run", options_of(RunConfig), "run", both, preset.get("run"))
        add_options(parser, named[0], own, "algorithm", both | COMMAND_OPTIONS, preset.get("algorithm"))
        plain = [_plain_flag(word, named[0], config) for word in words]
    else:
        add_options(parser, "the run", options_of(RunConfig), "run", ())
    if len(named) == 2:
        add_options(
            parser,
            named[1],
            registry.env_options(named[1], env_names(words)),
            "env",
            preset=preset.get("env"),
        )
    args = parser.parse(plain)
    if args.help:
        parser.print_help()
        return None
    return args


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    started = time.monotonic()
    args = parsed(words)
    if args is None:
        return 0
    from phalanx import api, cli, hosts
    from phalanx.report.console import Console
    from phalanx.training import kept

    kept.use(cli.process_since)
    if args.hosts:
        hosts.join(args.hosts)

    command = shlex.join(["phalanx", "train", *words])
    layer = Layer("command line", given_tables(args))
    setup = api.resolve(args.algorithm, args.env, layer, args.config, args.preset)
    run = api.train_setup(setup, args.out, Console(quiet=not hosts.first()), command, started)
    if hosts.first():
        folder = shlex.quote(str(run.folder))
        print(f"see it:   phalanx plot {folder}")
        print(f"watch it: phalanx watch {folder}")
        print(f"use it:   phalanx eval {folder}")
    return 0


def _plain_flag(word: str, algorithm: str, config: type) -> str:
    """Drop the table prefix of an option (`--run.steps`), unless run and algorithm share the name."""
    if not word.startswith("--") or word.startswith("--env."):
        return word
    prefix, _, rest = word.removeprefix("--").partition("=")[0].rpartition(".")
    name = rest.replace("-", "_")
    if name not in {*options_of(RunConfig), *options_of(config)}:
        name = name.removeprefix("no_")
    if not prefix:
        if name in clashes(config):
            raise PhalanxError(both_have(rest, algorithm, dashes="--"))
        return word
    by_table(algorithm, config, {f"{prefix}.{name}": None})  # refuses what there is not
    apart = name in clashes(config) or (prefix == "algorithm" and name in COMMAND_OPTIONS)
    return word if apart else f"--{word.removeprefix(f'--{prefix}.')}"

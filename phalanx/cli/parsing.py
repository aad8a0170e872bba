"""The argument parser of all commands: argparse with one-line errors, using only its public API.

The options depend on the first arguments: the algorithm and the environment add their own. A library that
builds a command line from one type, such as tyro, must know that type first and formats errors itself;
argparse adds options one by one and lets us format errors.
"""

import argparse
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from phalanx import registry
from phalanx.config import Option, convert
from phalanx.errors import PhalanxError, suggest

NEGATIVE_NUMBER = re.compile(r"-\d*\.?\d+([eE][+-]?\d+)?")


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that suggest the nearest valid name."""

    def __init__(self, **kwargs: Any):
        self.flags: list[str] = []
        self.positionals: list[str] = []
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def add_argument(self, *names: Any, **kwargs: Any) -> argparse.Action:
        return self.noted(super().add_argument(*names, **kwargs))

    def noted(self, action: argparse.Action) -> argparse.Action:
        """Keep the names of an action on the command line."""
        self.flags += action.option_strings
        self.positionals += [] if action.option_strings else [action.dest]
        return action

    def error(self, message: str) -> NoReturn:
        raise PhalanxError(message)

    def parse(self, words: list[str]) -> argparse.Namespace:
        """Parse all words; an unknown option is an error that suggests the nearest names."""
        args, unknown = self.parse_known_args(self._joined(words))
        if unknown:
            flag = unknown[0].partition("=")[0]
            if not flag.startswith("-"):
                raise PhalanxError(f"unexpected argument {flag!r} of `{self.prog}`; see `{self.prog} --help`")
            known = [name for name in self.flags if "_" not in name]
            raise PhalanxError(f"unknown option {flag} of `{self.prog}`.{suggest(flag, known)}")
        return args

    def _joined(self, words: list[str]) -> list[str]:
        """`--lr -1e-3` as `--lr=-1e-3`: argparse takes a negative number with an exponent for an option."""
        joined: list[str] = []
        for word in words:
            if joined and joined[-1] in self.flags and NEGATIVE_NUMBER.fullmatch(word):
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        return joined


class YesNo(argparse.Action):
    """`--clock` and `--no-clock`, `--env.clock` and `--env.no-clock`."""

    def __init__(self, option_strings: list[str], dest: str, prefix: str, **kwargs: Any):
        yes, no = f"--{prefix}", f"--{prefix}no-"
        flags = [*option_strings, *(no + flag.removeprefix(yes) for flag in option_strings)]
        super().__init__(flags, dest, nargs=0, **kwargs)
        self.no = no

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, not (option_string or "").startswith(self.no))


def _shown_default(opt: Option, preset: Mapping[str, Any]) -> str:
    """The default of an option as shown in its help text."""
    origin, value = ("preset", preset[opt.name]) if opt.name in preset else ("default", opt.default)
    if value is None or value == "":
        return ""
    return f" ({origin}: {str(value).lower() if opt.kind is bool else value})"


def add_options(
    parser: Parser,
    title: str,
    options: Mapping[str, Option],
    table: str,
    prefixed: Collection[str] | None = None,
    preset: Mapping[str, Any] | None = None,
) -> None:
    """Turn config fields into flags. Their values stay text: `config.convert` checks them all.

    Those in `prefixed` (default: all) are `--TABLE.NAME`, the others `--NAME`.
    """
    group = parser.add_argument_group(title)
    for opt in options.values():
        prefix = f"{table}." if prefixed is None or opt.name in prefixed else ""
        name = prefix + opt.name
        flags = list(dict.fromkeys([f"--{name.replace('_', '-')}", f"--{name}"]))
        default = _shown_default(opt, preset or {})
        more: dict[str, Any] = {"metavar": opt.shape}
        if opt.kind is bool:
            more = {"action": YesNo, "prefix": prefix}
        elif opt.alone is not None:
            more |= {"nargs": "?", "const": opt.alone}
        action = group.add_argument(
            *flags,
            dest=f"{table}:{opt.name}",
            default=argparse.SUPPRESS,
            help=opt.help.replace("%", "%%") + default.replace("%", "%%"),
            **more,
        )
        parser.noted(action)


def env_names(words: list[str]) -> list[str]:
    """The options of the environment among some words, by name."""
    flags = [word.partition("=")[0] for word in words if word.startswith("--env.")]
    return [flag.removeprefix("--env.").replace("-", "_") for flag in flags]


def given_tables(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The options of `add_options` given on the command line, by table."""
    tables: dict[str, dict[str, Any]] = {"run": {}, "algorithm": {}, "env": {}}
    for key, value in vars(args).items():
        table, _, name = key.partition(":")
        if name:
            tables[table][name] = value
    return tables


def positionals(parser: Parser, words: list[str], count: int) -> list[str | None]:
    """The first `count` positional arguments, which determine further options."""
    plain = [word for word in words if word not in ("-h", "--help")]
    if plain and plain[0].startswith("--env."):
        raise PhalanxError(
            f"name the environment before its options, as {parser.prog} ... ENV {plain[0]} ..."
        )
    try:
        args, _ = parser.parse_known_args(plain)
    except PhalanxError:  # `parse` will say what is wrong
        return [None] * count
    return [getattr(args, name) for name in parser.positionals[:count]]


def whole_number(flag: str, text: str | None, at_least: int = 1) -> Any:
    """An integer from the command line, checked like config fields."""
    bounds = {"at_least": at_least}
    return convert(Option(flag, int, (), True, None, "", bounds), text, "command line")


def positive(flag: str, text: str | None) -> Any:
    """A number above 0 from the command line, checked like config fields."""
    return convert(Option(flag, float, (), True, None, "", {"above": 0}), text, "command line")


def require_run(folder: str) -> None:
    """Raise an error if `folder` is not a run folder, before heavy imports."""
    if not Path(folder).is_dir():
        raise PhalanxError(f"there is no run folder {folder}")
    if not (Path(folder) / "run.json").is_file():
        raise PhalanxError(f"{folder} is not a run folder: it has no run.json")


def add_hosts(parser: Parser) -> None:
    """One run on several machines."""
    parser.add_argument(
        "--hosts",
        metavar="ADDRESS:PORT,COUNT,NUMBER",
        nargs="?",
        const="auto",
        help="train one run in several processes, all started with this command: address of the first "
        "process, "
        "number of processes, index of this one from 0; without a value they are taken from SLURM or Open "
        "MPI",
    )


def add_players(parser: Parser) -> None:
    """Who plays, and where if that is not a run."""
    parser.add_argument(
        "what", metavar="RUN | ALGORITHM", help="a run folder, or an algorithm to play untrained"
    )
    parser.add_argument("env", metavar="ENV", nargs="?", help="environment of an untrained algorithm")


def add_episodes(parser: Parser, count: int, what: str = "number of episodes") -> None:
    """How many episodes to play, and which."""
    parser.add_argument("--episodes", metavar="INT", default=str(count), help=f"{what} (default: {count})")
    parser.add_argument("--seed", metavar="INT", default="0", help="random seed of the episodes (default: 0)")


def episode_options(args: argparse.Namespace) -> dict[str, int]:
    """What `add_episodes` was given."""
    return {
        "episodes": whole_number("--episodes", args.episodes),
        "seed": whole_number("--seed", args.seed, at_least=0),
    }


def add_parameters(parser: Parser) -> None:
    """Which parameters of a run to take."""
    parser.add_argument(
        "--which",
        choices=("best", "last"),
        help="best or last parameters of a run (default: best; last if teams compete)",
    )
    parser.add_argument(
        "--checkpoint", metavar="NAME", help="a checkpoint in RUN/checkpoints (default: the newest)"
    )


def add_team_options(parser: Parser) -> None:
    """Which of a run's teams to take."""
    add_parameters(parser)
    parser.add_argument(
        "--trained-seed", metavar="INT", help="seed of the run whose policy is used (default: its first)"
    )
    parser.add_argument("--team", help=argparse.SUPPRESS)  # its name in 0.1


def team_options(args: argparse.Namespace) -> dict[str, Any]:
    """The values of the options of `add_team_options`."""
    if args.team is not None:
        logging.getLogger("phalanx.cli").warning("--team is now --trained-seed")
    seed = whole_number("--trained-seed", args.trained_seed or args.team, at_least=0)
    return {"which": args.which, "trained_seed": seed, "checkpoint": args.checkpoint}


def add_placement(parser: Parser) -> None:
    """Where environments that are Python programs are stepped."""
    parser.add_argument("--workers", metavar="INT", help="processes that step environments; 0: this process")
    parser.add_argument("--worker-python", metavar="PATH", help="Python interpreter of the workers")
    parser.add_argument(
        "--step-timeout", metavar="FLOAT", help="seconds after which a worker that hangs is replaced"
    )


def placement_options(args: Any) -> dict[str, Any]:
    """What was given of them."""
    return {name: getattr(args, name) for name in ("workers", "worker_python", "step_timeout")}


def where_to_play(what: str, env: str | None) -> dict[str, Any]:
    """The environment to play in: a run has its own, an untrained algorithm needs `env`."""
    if env is None and what in registry.algorithms():
        raise PhalanxError(f"name an environment for {what}, as in {what} battle/3m")
    if env is None:
        require_run(what)
        return {}
    registry.algorithm(what)  # if there is none, this says so
    registry.env_options(env)
    return {"env": env}

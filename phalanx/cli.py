"""The command line: parse, call, print. Every mistake is one line and exit code 2."""

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from phalanx import __version__, registry
from phalanx.config import Layer, Option, RunConfig, both_have, by_table, clashes, convert, options_of
from phalanx.errors import PhalanxError, suggest

COMMANDS = {
    "train": "train a team: phalanx train mappo switch/2 --steps 2e5",
    "resume": "go on where a run stopped, or on to a larger budget",
    "eval": "play greedy episodes with a run's team, or with an untrained algorithm",
    "watch": "write a page that plays a run's team in the browser, or two beside each other",
    "record": "write the trajectories of a run's team to a file",
    "export": "write a run's team to one file that needs nothing else",
    "plot": "draw the learning curves of one or more runs",
    "compare": "say which of some runs are better, and how sure that is: phalanx compare RUN... | EXPERIMENT",
    "experiment": "make all runs that a file names, as a grid: phalanx experiment FILE.toml",
    "reproduce": "make a reference result again with fresh seeds, and say whether it agrees",
    "list": "list algorithms, environments, presets and reference results",
    "doctor": "say what this machine has, and train for a few seconds",
    "check-env": "hold an environment of yours against the contract",
}


class Parser(argparse.ArgumentParser):
    """argparse, with one-line errors that know the nearest right word."""

    def __init__(self, **kwargs: Any):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)
        # argparse does not know that -1e-3 is a number, and takes it for an option.
        self._negative_number_matcher = re.compile(r"^-\d*\.?\d+([eE][+-]?\d+)?$")

    def error(self, message: str) -> NoReturn:
        raise PhalanxError(message)

    def parse(self, words: list[str]) -> argparse.Namespace:
        """Parse all words; an option that does not exist is answered with the nearest that do."""
        args, unknown = self.parse_known_args(words)
        if unknown:
            flag = unknown[0].partition("=")[0]
            if not flag.startswith("-"):
                raise PhalanxError(f"unexpected argument {flag!r} of `{self.prog}`; see `{self.prog} --help`")
            known = [name for action in self._actions for name in action.option_strings if "_" not in name]
            raise PhalanxError(f"unknown option {flag} of `{self.prog}`.{suggest(flag, known)}")
        return args


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
    """What a help text says that an option is, if nothing is said about it."""
    origin, value = ("preset", preset[opt.name]) if opt.name in preset else ("default", opt.default)
    if value is None:
        return ""
    return f" ({origin}: {str(value).lower() if opt.kind is bool else value})"


def _add_options(
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
        group.add_argument(
            *flags,
            dest=f"{table}:{opt.name}",
            default=argparse.SUPPRESS,
            help=opt.help.replace("%", "%%") + default.replace("%", "%%"),
            **more,
        )


def _tables(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What `_add_options` was given on the command line, by table."""
    tables: dict[str, dict[str, Any]] = {"run": {}, "algorithm": {}, "env": {}}
    for key, value in vars(args).items():
        table, _, name = key.partition(":")
        if name:
            tables[table][name] = value
    return tables


def _train(words: list[str]) -> int:
    started = time.monotonic()
    parser = Parser(
        prog="phalanx train",
        usage="phalanx train ALGORITHM ENV [options]",
        description="Train a team and leave everything about it in a run folder.",
        epilog="`phalanx train ALGORITHM ENV --help` lists their own options too.",
        add_help=False,
    )
    parser.add_argument(
        "algorithm", metavar="ALGORITHM", nargs="?", help="such as mappo, or package.module:Class"
    )
    parser.add_argument("env", metavar="ENV", nargs="?", help="such as switch/2, or package.module:Class")
    parser.add_argument("--config", metavar="FILE", help="a TOML file with tables [run], [algorithm], [env]")
    parser.add_argument(
        "--preset",
        metavar="NAME",
        default="auto",
        help="auto (default), none, or a name from `phalanx list presets`",
    )
    parser.add_argument("--out", metavar="DIR", help="the run folder (default: results/ALGORITHM/ENV/TIME)")
    parser.add_argument("-h", "--help", action="store_true", help="show this and exit")
    named = [word for word in words[:2] if not word.startswith("-")]
    if len(named) < 2 and not {"-h", "--help"} & set(words):
        raise PhalanxError(
            "say first what to train and where: phalanx train ALGORITHM ENV, such as mappo switch/2"
        )
    layer = registry.preset(named[0], named[1], "auto") if len(named) == 2 else None
    preset = layer.values if layer else {}
    plain = words
    if named:
        config = registry.algorithm(named[0]).Config
        both, own = clashes(config), options_of(config)
        _add_options(parser, "the run", options_of(RunConfig), "run", both, preset.get("run"))
        _add_options(parser, named[0], own, "algorithm", both | COMMAND_OPTIONS, preset.get("algorithm"))
        plain = [_plain_flag(word, named[0], config) for word in words]
    else:
        _add_options(parser, "the run", options_of(RunConfig), "run", ())
    if len(named) == 2:
        _add_options(parser, named[1], registry.env_options(named[1]), "env", preset=preset.get("env"))
    args = parser.parse(plain)
    if args.help:
        parser.print_help()
        return 0
    from phalanx import api
    from phalanx.report.console import Console

    command = shlex.join(["phalanx", "train", *words])
    layer = Layer("command line", _tables(args))
    run = api.train_from_layer(
        args.algorithm, args.env, layer, args.config, args.preset, args.out, Console(), command, started
    )
    folder = shlex.quote(str(run.folder))
    print(
        f"see it:   phalanx plot {folder}\nwatch it: phalanx watch {folder}\nuse it:   phalanx eval {folder}"
    )
    return 0


COMMAND_OPTIONS = {"config", "preset", "out", "help"}  # of `phalanx train` itself


def _plain_flag(word: str, algorithm: str, config: type) -> str:
    """An option without the table before it (`--run.steps`), unless that tells two options apart."""
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


def _positionals(parser: Parser, words: list[str], count: int) -> list[str | None]:
    """The first arguments that are not options or their values: they bring options of their own along."""
    plain = [word for word in words if word not in ("-h", "--help")]
    if plain and plain[0].startswith("--env."):
        raise PhalanxError(
            f"name the environment before its options, as {parser.prog} ... ENV {plain[0]} ..."
        )
    names = [action.dest for action in parser._actions if not action.option_strings]
    try:
        args, _ = parser.parse_known_args(plain)
    except PhalanxError:  # `parse` will say what is wrong
        return [None] * count
    return [getattr(args, name) for name in names[:count]]


def _number(flag: str, text: str | None, at_least: int = 1) -> int | None:
    """A whole number from the command line, checked as config fields are."""
    bounds = {"at_least": at_least}
    return convert(Option(flag, int, (), True, None, "", bounds), text, "command line")


def _resume(words: list[str]) -> int:
    parser = Parser(prog="phalanx resume", description="Go on where a run stopped, to the bit.")
    parser.add_argument("run", metavar="RUN", help="a run folder")
    parser.add_argument("--steps", metavar="INT", help="another budget in env steps than the run has")
    parser.add_argument(
        "--lr-horizon",
        metavar="INT",
        help="over how many env steps the learning rates fell; needed where that was the earlier budget",
    )
    parser.add_argument("--checkpoint", metavar="NAME", help="one in RUN/checkpoints (default: the newest)")
    args = parser.parse(words)
    steps, lr_horizon = _number("--steps", args.steps), _number("--lr-horizon", args.lr_horizon)
    _require_run(args.run)
    from phalanx import api

    api.resume(args.run, steps, lr_horizon=lr_horizon, checkpoint=args.checkpoint)
    return 0


def _require_run(folder: str) -> None:
    """Refuse what is no run folder before anything heavy is imported."""
    if not Path(folder).is_dir():
        raise PhalanxError(f"there is no run folder {folder}")
    if not (Path(folder) / "run.json").is_file():
        raise PhalanxError(f"{folder} is not a run folder: it has no run.json")


def _eval(words: list[str]) -> int:
    parser = Parser(
        prog="phalanx eval",
        usage="phalanx eval RUN | ALGORITHM ENV [--env.OPTION ...]  [--episodes 200] [--json]",
        description="Play greedy episodes. A return is the mean over agents of the sum of their rewards.",
    )
    parser.add_argument(
        "what", metavar="RUN | ALGORITHM", help="a run folder, or an algorithm to play untrained"
    )
    parser.add_argument("env", metavar="ENV", nargs="?", help="where an untrained algorithm plays")
    parser.add_argument(
        "--episodes", metavar="INT", default="200", help="episodes for each seed (default: 200)"
    )
    parser.add_argument(
        "--which",
        choices=("best", "last"),
        help="which parameters of a run (default: best; last where teams compete)",
    )
    parser.add_argument("--seed", metavar="INT", default="0", help="which episodes (default: 0)")
    parser.add_argument("--checkpoint", metavar="NAME", help="one in RUN/checkpoints (default: the newest)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    what, env = _positionals(parser, words, 2)
    if what and env and not (Path(what) / "run.json").is_file():
        registry.algorithm(what)  # if there is none, this says so
        _add_options(parser, env, registry.env_options(env), "env")
    elif what and any(word.startswith("--env.") for word in words):
        raise PhalanxError(f"--env.* is for an untrained algorithm and ENV; {what} has its own environment")
    args = parser.parse(words)
    episodes, seed = _number("--episodes", args.episodes), _number("--seed", args.seed, at_least=0)
    if args.env is not None and (Path(args.what) / "run.json").is_file():
        raise PhalanxError(
            f"{args.what} is a run folder, which has its environment: phalanx eval {args.what}"
        )
    if args.env is None:
        if args.what in registry.algorithms():
            raise PhalanxError(f"say where {args.what} should play: phalanx eval {args.what} ENV")
        _require_run(args.what)
    elif args.which or args.checkpoint:
        raise PhalanxError("--which and --checkpoint are for a run, not for an untrained algorithm")
    from phalanx import api

    assert episodes is not None
    assert seed is not None
    result = api.evaluate(
        args.what,
        args.env,
        episodes=episodes,
        which=args.which,
        seed=seed,
        checkpoint=args.checkpoint,
        env_options=_tables(args)["env"],
    )
    if args.json:
        print(json.dumps(result))
        return 0
    from phalanx.report.console import main_metrics

    for row in [{"seed": "all", **result}, *result["seeds"]] if len(result["seeds"]) > 1 else [result]:
        shown = "  ".join(f"{name} {value:.3f}" for name, value in main_metrics(row).items())
        print((f"seed {row['seed']}: " if "seed" in row else "") + shown)
    more = sum(isinstance(value, float) for value in result.values()) > len(main_metrics(result))
    print(f"{result['episodes']} greedy episodes a seed" + "; --json prints all metrics" * more)
    return 0


def _team_options(parser: Parser) -> None:
    """Which of a run's teams to take."""
    parser.add_argument(
        "--which",
        choices=("best", "last"),
        help="which parameters of a run (default: best; last where teams compete)",
    )
    parser.add_argument("--team", metavar="INT", help="which of a run's seeds (default: its first)")
    parser.add_argument("--checkpoint", metavar="NAME", help="one in RUN/checkpoints (default: the newest)")


def _team(args: argparse.Namespace) -> dict[str, Any]:
    team = _number("--team", args.team, at_least=0)
    return {"which": args.which, "team": team, "checkpoint": args.checkpoint}


def _where(what: str, env: str | None) -> dict[str, Any]:
    """Where a team plays: a run has its environment, an algorithm is told one."""
    if env is None and what in registry.algorithms():
        raise PhalanxError(f"say where {what} should play, as in {what} battle/3m")
    if env is None:
        _require_run(what)
        return {}
    registry.algorithm(what)  # if there is none, this says so
    registry.env_options(env)
    return {"env": env}


def _watch(words: list[str]) -> int:
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
    parser.add_argument("--episodes", metavar="INT", default="3", help="how many (default: 3)")
    parser.add_argument("--seed", metavar="INT", default="0", help="which episodes (default: 0)")
    parser.add_argument("--out", metavar="FILE", help="the page (default: RUN/watch.html)")
    parser.add_argument("--gif", action="store_true", help="write a film beside the page")
    parser.add_argument("--mp4", action="store_true", help="the same as MP4 (needs the extra `video`)")
    _team_options(parser)
    args = parser.parse(words)
    is_run = (Path(args.what) / "run.json").is_file()
    is_replay = args.what.endswith(".json")
    where = {} if is_run or is_replay else _where(args.what, args.other)
    if is_run and args.other is not None and args.other not in registry.algorithms():
        _require_run(args.other)
    numbers = {
        name: _number(f"--{name}", getattr(args, name), least)
        for name, least in (("episodes", 1), ("seed", 0))
    }
    from phalanx import api

    other = args.other if is_run or is_replay else None
    films = {"gif": args.gif, "mp4": args.mp4, "out": args.out}
    for file in api.watch(args.what, other, **where, **numbers, **films, **_team(args)):
        print(file)
    return 0


def _record(words: list[str]) -> int:
    parser = Parser(
        prog="phalanx record",
        usage="phalanx record RUN FILE.npz  |  ALGORITHM ENV FILE.npz   [--episodes 100] [--sampled]",
        description="Write observations, states, masks, actions and rewards of whole episodes to one file.",
    )
    parser.add_argument(
        "what", metavar="RUN | ALGORITHM", help="a run folder, or an algorithm to play untrained"
    )
    parser.add_argument("env", metavar="ENV", nargs="?", help="where an untrained algorithm plays")
    parser.add_argument("file", metavar="FILE.npz", help="what to write; docs/watching.md says what is in it")
    parser.add_argument("--episodes", metavar="INT", default="100", help="how many (default: 100)")
    parser.add_argument("--seed", metavar="INT", default="0", help="which episodes (default: 0)")
    parser.add_argument(
        "--sampled", action="store_true", help="draw actions as in training (default: greedy)"
    )
    _team_options(parser)
    args = parser.parse(words)
    where = _where(args.what, args.env)
    numbers = {
        name: _number(f"--{name}", getattr(args, name), least)
        for name, least in (("episodes", 1), ("seed", 0))
    }
    from phalanx import api

    print(api.record(args.what, args.file, **where, **numbers, greedy=not args.sampled, **_team(args)))
    return 0


def _export(words: list[str]) -> int:
    parser = Parser(prog="phalanx export", description="Write a team to one file, for phalanx.load_team.")
    parser.add_argument("run", metavar="RUN", help="a run folder")
    parser.add_argument("file", metavar="FILE.zip", help="what to write")
    _team_options(parser)
    args = parser.parse(words)
    _require_run(args.run)
    from phalanx import api

    print(api.export(args.run, args.file, **_team(args)))
    return 0


def _plot(words: list[str]) -> int:
    parser = Parser(
        prog="phalanx plot",
        usage="phalanx plot RUN ...  [--metric NAME] [--out FILE]",
        description="Draw learning curves to PNG and SVG.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders")
    parser.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help="a metric of metrics.jsonl, such as learn/entropy, or 'learn/entropy/*' for all groups; may be "
        "given again (default: returns and wins)",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="without ending (default: RUN/plots/NAME, or plots/NAME for several runs, where NAME is curves "
        "or says the metrics)",
    )
    args = parser.parse(words)
    for each in args.runs:
        _require_run(each)
    from phalanx.report.plots import plot

    folders = [Path(each) for each in args.runs]
    for file in plot(folders, Path(args.out) if args.out else None, args.metric):
        print(file)
    return 0


def _compare(words: list[str]) -> int:
    parser = Parser(
        prog="phalanx compare",
        usage="phalanx compare [NAME=]RUN ... | EXPERIMENT  [--metric [TASK=]NAME] [--steps INT] [--out DIR]",
        description="Compare runs: a table, a verdict, plots and a report in one HTML page.",
    )
    parser.add_argument(
        "what", metavar="RUN | EXPERIMENT", nargs="+", help="run folders, or the folder of an experiment"
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help="such as eval/return, or TASK=eval/return",
    )
    parser.add_argument(
        "--steps", metavar="INT", help="compare what all had by then (default: at their ends)"
    )
    parser.add_argument("--control", metavar="ARM", help="compare every arm with this one only")
    parser.add_argument(
        "--threshold", metavar="FLOAT", default="0.8", help="of normalised score, for how soon (default: 0.8)"
    )
    parser.add_argument("--out", metavar="DIR", help="default: results/compare, or EXPERIMENT/report")
    args = parser.parse(words)
    threshold = convert(Option("--threshold", float, (), False, None, "", {}), args.threshold, "command line")
    metric = {task: name for task, _, name in (each.rpartition("=") for each in args.metric)}
    from rich.console import Console

    from phalanx.report import comparison
    from phalanx.report.compare import gather

    out, found = gather(
        args.what,
        metric=metric,
        steps=_number("--steps", args.steps),
        control=args.control,
        threshold=threshold,
    )
    files = comparison.write(
        found, Path(args.out) if args.out else out, shlex.join(["phalanx", "compare", *words])
    )
    Console().print(comparison.rich_table(found))
    for line in [*(f"note: {note}" for note in found.notes), *map(found.verdict, found.pairs)]:
        print(line)
    print(f"report: {files[0]}")
    return 0


def _experiment(words: list[str]) -> int:
    parser = Parser(
        prog="phalanx experiment",
        usage="phalanx experiment FILE.toml [--plan] [--jobs INT] [--out DIR]",
        description="Make every run of an experiment: what is done is skipped, what was interrupted goes on.",
    )
    parser.add_argument("file", metavar="FILE.toml", help="an experiment file; see docs/experiments.md")
    parser.add_argument(
        "--plan", action="store_true", help="try out each run for a moment and say what all will take"
    )
    parser.add_argument(
        "--jobs", metavar="INT", default="1", help="runs at a time, each a process (default: 1)"
    )
    parser.add_argument("--out", metavar="DIR", help="default: results/experiments/FILE")
    args = parser.parse(words)
    jobs = _number("--jobs", args.jobs)
    assert jobs is not None
    from phalanx import experiment

    experiment.keep_off_the_device()
    this = experiment.read(Path(args.file), Path(args.out) if args.out else None)
    planned = experiment.plan(this, measure=args.plan)
    from rich.console import Console

    Console().print(experiment.table(planned, jobs))
    if args.plan:
        return 0
    runner = experiment.Runner(this, jobs, lambda line: print(line, flush=True))
    try:
        runner.run()
    except KeyboardInterrupt:
        print(f"stopped and saved; go on with:  {shlex.join(['phalanx', 'experiment', *words])}")
        return 130
    for name, reason in runner.failures.items():
        print(f"failed: {name}: {reason}", file=sys.stderr)
    if len(runner.failures) < len(this.cells):
        print(f"see it:   phalanx compare {shlex.quote(str(this.out))}")
    return 1 if runner.failures else 0


def _reproduce(words: list[str]) -> int:
    parser = Parser(
        prog="phalanx reproduce",
        description="Run what a reference result ran, with fresh seeds, and say whether it agrees.",
    )
    parser.add_argument("id", metavar="ID", help="from `phalanx list references`")
    parser.add_argument(
        "--seeds", metavar="INT", help="how many fresh seeds (default: as many as the reference)"
    )
    parser.add_argument(
        "--seed", metavar="INT", help="the first of them (default: after the reference's last)"
    )
    parser.add_argument("--out", metavar="DIR", help="the run folder (default: results/reproduce/ID)")
    args = parser.parse(words)
    seeds, seed = _number("--seeds", args.seeds, at_least=2), _number("--seed", args.seed, at_least=0)
    registry.require_reference(args.id)
    from phalanx import reproduce

    out = Path(args.out) if args.out else Path("results", "reproduce", args.id)
    judged, notes = reproduce.run(args.id, seeds, seed, out)
    for note in notes:
        print(f"note: {note}")
    print(judged.sentence)
    return 0 if judged.agree else 1


def _list(words: list[str]) -> int:
    parser = Parser(prog="phalanx list", description="List what there is.")
    kinds = {
        "algorithms": registry.algorithms,
        "envs": registry.envs,
        "presets": registry.presets,
        "references": registry.references,
    }
    parser.add_argument("what", nargs="?", metavar="|".join(kinds), help="one kind (default: all)")
    args = parser.parse(words)
    if args.what is not None and args.what not in kinds:
        raise PhalanxError(f"cannot list {args.what!r}.{suggest(args.what, kinds)}")
    for kind in kinds if args.what is None else [args.what]:
        if args.what is None:
            print(f"{kind}:")
        found = kinds[kind]()
        width = max(map(len, found), default=0)
        for name, line in found.items():
            print(f"  {name:<{width}}  {line}")
    return 0


def _doctor(words: list[str]) -> int:
    Parser(prog="phalanx doctor", description=COMMANDS["doctor"]).parse(words)
    from phalanx.report.doctor import examine

    return examine()


def _check_env(words: list[str]) -> int:
    parser = Parser(
        prog="phalanx check-env", description="Explain each way in which an environment breaks the contract."
    )
    parser.add_argument(
        "env", metavar="MODULE:CLASS", help="your environment, or a name from `phalanx list envs`"
    )
    (env,) = _positionals(parser, words, 1)
    if env:
        _add_options(parser, env, registry.env_options(env), "env")
    args = parser.parse(words)
    from phalanx import api
    from phalanx.training import device

    device.configure()
    breaches = api.check_env(api.make_env(args.env, **_tables(args)["env"]))
    for breach in breaches:
        print(f"phalanx: {breach}", file=sys.stderr)
    if not breaches:
        print(f"{args.env} keeps the contract")
    return 2 if breaches else 0


def _help() -> int:
    width = max(map(len, COMMANDS))
    print(f"phalanx {__version__}: train, compare and watch teams of cooperating agents\n")
    print("usage: phalanx COMMAND ...\n")
    for name, line in COMMANDS.items():
        print(f"  {name:<{width}}  {line}")
    print("\n`phalanx COMMAND --help` tells more.")
    return 0


def run(words: list[str]) -> int:
    """Do what the words say; returns the exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        return _help()
    if words[0] == "--version":
        print(f"phalanx {__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise PhalanxError(f"unknown command {words[0]!r}.{suggest(words[0], COMMANDS)}")
    handler = globals()[f"_{words[0].replace('-', '_')}"]
    return handler(words[1:])


def main() -> None:
    """The `phalanx` command."""
    try:
        sys.exit(run(sys.argv[1:]))
    except PhalanxError as error:
        print(f"phalanx: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stopped:
        # A run that was asked to stop is saved, and says where; anything else has nothing to save.
        if stopped.args:
            print(f"stopped and saved; go on with:  phalanx resume {shlex.quote(str(stopped))}")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    main()

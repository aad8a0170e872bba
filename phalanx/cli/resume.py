"""`phalanx resume`: continue a stopped run."""

from phalanx.cli.parsing import Parser, add_hosts, add_placement, placement_options, require_run, whole_number


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx resume",
        description="Continue a stopped run, bit for bit (docs/host.md has the exceptions).",
    )
    parser.add_argument("run", metavar="RUN", help="a run folder")
    parser.add_argument("--steps", metavar="INT", help="new budget in env steps")
    parser.add_argument(
        "--lr-horizon",
        metavar="INT",
        help="env steps of learning-rate decay; needed if the rates decayed over the old budget",
    )
    parser.add_argument(
        "--checkpoint", metavar="NAME", help="a checkpoint in RUN/checkpoints (default: the newest)"
    )
    parser.add_argument("--devices", metavar="INT|all", help="devices that share the run from now on")
    add_placement(parser)
    add_hosts(parser)
    args = parser.parse(words)
    steps, lr_horizon = whole_number("--steps", args.steps), whole_number("--lr-horizon", args.lr_horizon)
    require_run(args.run)
    from phalanx import api, cli, hosts
    from phalanx.training import kept

    kept.use(cli.process_since)
    if args.hosts:
        hosts.join(args.hosts)
    where = {"devices": args.devices, **placement_options(args)}
    api.resume(args.run, steps, lr_horizon=lr_horizon, checkpoint=args.checkpoint, **where)
    return 0

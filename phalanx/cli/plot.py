"""`phalanx plot`: plot learning curves."""

from pathlib import Path

from phalanx.cli.parsing import Parser, require_run


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx plot",
        usage="phalanx plot RUN ...  [--metric NAME] [--out FILE]",
        description="Plot learning curves to PNG and SVG.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders")
    parser.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help="a metric of metrics.jsonl, such as learn/entropy, or 'learn/entropy/*' for all groups; "
        "repeatable (default: returns and win rates)",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="output file without extension (default: RUN/plots/NAME, or plots/NAME for several runs, where "
        "NAME is curves or made from the metrics)",
    )
    args = parser.parse(words)
    for each in args.runs:
        require_run(each)
    from phalanx.report.plots import plot

    folders = [Path(each) for each in args.runs]
    for file in plot(folders, Path(args.out) if args.out else None, args.metric):
        print(file)
    return 0

"""`phalanx export`: write trained policies to one file."""

from phalanx.cli.parsing import Parser, add_team_options, require_run, team_options


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx export", description="Write trained policies to one file, for phalanx.load_team."
    )
    parser.add_argument("run", metavar="RUN", help="a run folder")
    parser.add_argument("file", metavar="FILE.zip", help="file to write")
    add_team_options(parser)
    args = parser.parse(words)
    require_run(args.run)
    from phalanx import api

    print(api.export(args.run, args.file, **team_options(args)))
    return 0

"""`phalanx paper`: the parts of a paper about compared runs."""

import shlex
from pathlib import Path

from phalanx.cli.compare import add_options, given_options
from phalanx.cli.parsing import Parser


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx paper",
        usage="phalanx paper EXPERIMENT | [NAME=]RUN ...  [--out DIR] [--metric [TASK=]NAME] [--steps INT]",
        description="Write LaTeX tables, vector figures, a methods section, references and a document that "
        "compiles.",
    )
    parser.add_argument(
        "what", metavar="EXPERIMENT | RUN", nargs="+", help="the folder of an experiment, or run folders"
    )
    parser.add_argument(
        "--out", metavar="DIR", help="output folder (default: EXPERIMENT/paper, or results/paper)"
    )
    add_options(parser)
    args = parser.parse(words)
    options = given_options(args)
    from phalanx.report import paper
    from phalanx.report.compare import gather

    report, found = gather(args.what, **options)
    out = Path(args.out) if args.out else report.with_name("paper")
    document = paper.write(found, out, shlex.join(["phalanx", "paper", *words]), options["steps"])
    for line in [*(f"note: {note}" for note in found.notes), *map(found.verdict, found.pairs)]:
        print(line)
    for name in paper.without_entry(run for _, run in found.all_runs()):
        print(f"note: references.bib has no entry for {name}: add your own")
    print(f"paper: {document}")
    print(f"compile it:  cd {shlex.quote(str(out))} && {paper.COMPILE}")
    return 0

"""`phalanx ui`: one local page over run folders."""

import signal
import webbrowser
from pathlib import Path

from phalanx.cli.parsing import Parser
from phalanx.config import Option, convert
from phalanx.errors import PhalanxError

PORT = 8321


def run(words: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    parser = Parser(
        prog="phalanx ui",
        usage="phalanx ui [RUNS ...]  [--port INT] [--open]",
        description="Show runs in a local web page: live curves, tables, options, replays, comparisons. "
        "It only reads run folders, and cannot be reached from other machines. Ctrl-C stops it.",
    )
    parser.add_argument(
        "runs", metavar="RUNS", nargs="*", help="run folders, or folders with runs in them (default: results)"
    )
    parser.add_argument(
        "--port", metavar="INT", default=str(PORT), help=f"port of the page; 0: a free one (default: {PORT})"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    args = parser.parse(words)
    bounds = {"at_least": 0, "at_most": 65_535}
    port = convert(Option("--port", int, (), False, None, "", bounds), args.port, "command line")
    for each in args.runs:
        if not Path(each).is_dir():
            raise PhalanxError(f"there is no run folder {each}")
    from phalanx.ui import Library, Server

    library = Library([Path(each) for each in args.runs] or [Path("results")])
    with Server(library, port) as server:
        print(f"{server.address}  (Ctrl-C ends it)", flush=True)
        if args.open:
            webbrowser.open(server.address)
        # A shell that starts it in the background lets it ignore Ctrl-C: nothing could end it politely then.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("the page is closed")
    return 0

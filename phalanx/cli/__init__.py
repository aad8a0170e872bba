"""The command line: one file a command, that parses, calls and prints. A mistake is one line, exit code 2."""

import contextlib
import importlib
import logging
import shlex
import sys
from collections.abc import Iterator

from phalanx import __version__
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
    command = importlib.import_module(f"phalanx.cli.{words[0].replace('-', '_')}")
    return command.run(words[1:])


class _Lines(logging.Handler):
    """Log records as plain lines. `sys.stderr` is looked up each time: a progress bar replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {' '.join(record.getMessage().split())}", file=sys.stderr)


@contextlib.contextmanager
def _logged_to_stderr() -> Iterator[None]:
    """Show what phalanx logs, once, also if a library gives the root logger a handler of its own."""
    logger, handler = logging.getLogger("phalanx"), _Lines(logging.WARNING)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(handler)


def main() -> None:
    """The `phalanx` command."""
    try:
        with _logged_to_stderr():
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

"""The command line: one file per command. A user's mistake gives a one-line error and exit code 2."""

import contextlib
import importlib
import logging
import shlex
import sys
import time
from collections.abc import Callable, Iterator

from phalanx import __version__
from phalanx.errors import PhalanxError, one_line, suggest

COMMANDS = {
    "train": "train a team: phalanx train mappo switch/2 --steps 2e5",
    "resume": "continue a stopped run, or extend it to a larger budget",
    "eval": "evaluate the policy of a run or of an untrained algorithm",
    "watch": "write an HTML page that plays episodes of one run, or of two side by side",
    "record": "write trajectories of a run to a file",
    "export": "write the trained policies of a run to one file",
    "play": "let teams play each other: phalanx play RUN RUN random --env battle/3m",
    "plot": "plot the learning curves of one or more runs",
    "compare": "compare runs, with confidence intervals: phalanx compare RUN... | EXPERIMENT",
    "paper": "LaTeX tables, figures, methods and references of runs: phalanx paper RUN... | EXPERIMENT",
    "ui": "show runs in a local web page: live curves, tables, options, replays, comparisons",
    "experiment": "train a grid of algorithms and environments: phalanx experiment FILE.toml",
    "search": "hyperparameter search, many settings in one program: phalanx search SPACE.toml --budget 1e8",
    "reproduce": "repeat a reference result with new seeds and check that it agrees",
    "list": "list algorithms, environments, presets and reference results",
    "doctor": "print versions, device and memory, and train for a few seconds",
    "check-env": "check that your environment implements the interface",
}


def _version(_: list[str]) -> int:
    print(f"phalanx {__version__}")
    return 0


def _help(_: list[str]) -> int:
    width = max(map(len, COMMANDS))
    print(f"phalanx {__version__}: train, compare and watch teams of cooperating agents\n")
    print("usage: phalanx COMMAND ...\n")
    for name, line in COMMANDS.items():
        print(f"  {name:<{width}}  {line}")
    print("\n`phalanx COMMAND --help` describes a command.")
    return 0


def find(words: list[str]) -> Callable[[list[str]], int]:
    """The function that does what the first word says, with the words after it; it returns the exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        return _help
    if words[0] == "--version":
        return _version
    if words[0] not in COMMANDS:
        raise PhalanxError(f"unknown command {words[0]!r}.{suggest(words[0], COMMANDS)}")
    return importlib.import_module(f"phalanx.cli.{words[0].replace('-', '_')}").run


def run(words: list[str]) -> int:
    """Run a command from Python; returns the exit code."""
    return find(words)(words[1:])


class _Lines(logging.Handler):
    """Log records as plain lines. `sys.stderr` is looked up each time: a progress bar replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {one_line(record.getMessage())}", file=sys.stderr)


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


process_since: float | None = None
"""the time.time() at which `phalanx` began as a process of its own"""


def command() -> None:
    """`phalanx`, as a process of its own."""
    global process_since
    process_since = time.time()
    main()


OUT_OF_MEMORY = (
    "the device ran out of memory",
    "if other programs use it, wait for them, else try fewer --seeds, fewer --envs, or a smaller "
    "--batch-steps or --buffer",
)
OUT_OF_SHARED_MEMORY = (
    "a kernel needs more memory than a core of this GPU has",
    "leave out --env.kernel, or set PHALANX_KERNELS=off",
)


def main() -> None:
    """The `phalanx` command, from its words in `sys.argv`."""
    try:
        command = find(sys.argv[1:])
        with _logged_to_stderr():
            sys.exit(command(sys.argv[2:]))
    except PhalanxError as error:
        print(f"phalanx: {one_line(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stopped:
        # A run that was asked to stop is saved, and says where; anything else has nothing to save.
        if stopped.args:
            print(f"stopped and saved; continue with:  phalanx resume {shlex.quote(str(stopped))}")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        first, *_ = str(error).splitlines()
        of_a_core = "shared memory" in str(error).lower()  # which has the same code
        what, advice = OUT_OF_SHARED_MEMORY if of_a_core else OUT_OF_MEMORY
        print(f"phalanx: {what} ({one_line(first)}): {advice}", file=sys.stderr)
        sys.exit(1)

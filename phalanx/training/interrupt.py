"""After Ctrl-C or SIGTERM a run saves a checkpoint and stops."""

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop; its state is saved. Its text is the folder."""


@contextlib.contextmanager
def stop_requests() -> Generator[threading.Event]:
    """While open, Ctrl-C and SIGTERM ask for a stop instead of killing; a second Ctrl-C kills."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may set handlers
        return

    def ask(number: int, _: FrameType | None) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

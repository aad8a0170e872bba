"""The exception for a user's mistake: one sentence that says what is wrong and how to fix it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PhalanxError(Exception):
    """A mistake that the user can fix. The command line prints it as one line and exits with code 2."""


def one_line(text: str) -> str:
    """Text as one line that a terminal only prints: without line breaks and control characters."""
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))


NAMES_IN_A_LINE = 40  # names that one line can hold


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' with the nearest known names; all, if not too many, when none is near."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if near:
        return f" Did you mean {' or '.join(near)}?"
    return f" Known: {', '.join(known)}." if len(known) < NAMES_IN_A_LINE else ""

"""What the adapters of whole families have in common: a name, and options."""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.config import option


@dataclass(eq=False)
class Variant:
    """An environment of a family, and what is known of it by all; `extra` goes to the one who makes it."""

    variant: str
    time_limit: int | None = option(
        None, "steps after which an episode is truncated (default: the environment's own limit)", at_least=1
    )
    shrink: int = option(1, "average pictures over blocks of this many pixels a side", at_least=1)
    extra: dict = field(default_factory=dict)


@dataclass(eq=False)
class TeamsVariant(Variant):
    """One whose agents may play against each other."""

    teams: str = option("", "who plays together: agent, type, none, or teams such as red_0+red_1,blue")

"""Seeds of phalanx, below 2**64, for packages that take fewer bits."""

from __future__ import annotations


def seed32(seed: int) -> int:
    """Fold a seed into 31 bits, the same in every process."""
    return (seed ^ (seed >> 32)) & 0x7FFFFFFF

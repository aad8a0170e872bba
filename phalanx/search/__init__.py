"""Search for good settings of an algorithm, named in a small file: many at once, the best go on.

Settings that differ in numbers only are lanes of one program, beside the seeds (`training/lanes.py`); those
that differ in shape have programs of their own. After each rung of env steps the settings that are behind
are stopped (successive halving). What is finished is not trained again: the command goes on where it was
killed, to the bit.
"""

from phalanx.search.runner import Search
from phalanx.search.space import Space, read

__all__ = ["Search", "Space", "read"]

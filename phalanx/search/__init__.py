"""Hyperparameter search: many settings at once, and only the best continue.

Settings that differ only in numbers train in one program (`training/lanes.py`); settings that differ in
shapes are compiled separately. After each rung, a number of env steps, the worst settings are stopped
(successive halving). After an interruption the search continues bit for bit, and finished parts are not
trained again.
"""

from phalanx.search.runner import Search
from phalanx.search.space import Space, read

__all__ = ["Search", "Space", "read"]

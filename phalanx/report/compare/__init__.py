"""Comparisons of runs: what is compared, whether it is fair, and what can be concluded.

An *arm* is what is compared, such as an algorithm with its options; a *task* is an environment. Every arm has
one or more runs on every task, and every seed has one score there: the final evaluation of its last
parameters. Everything is read from the run folders.
"""

from phalanx.report.compare.build import EXPERIMENT, compare, gather, of_folders
from phalanx.report.compare.export import marl_eval, summary
from phalanx.report.compare.fairness import KINDS
from phalanx.report.compare.model import SHOWN, Comparison
from phalanx.report.compare.runs import Trained, differences, label, read
from phalanx.report.compare.wording import between, many

__all__ = [
    "EXPERIMENT",
    "KINDS",
    "SHOWN",
    "Comparison",
    "Trained",
    "between",
    "compare",
    "differences",
    "gather",
    "label",
    "many",
    "marl_eval",
    "of_folders",
    "read",
    "summary",
]

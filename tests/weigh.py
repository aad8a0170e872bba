"""Which tests `make test-fast` leaves out: those that took long when all were last timed.

    python -m pytest --durations=0 --durations-min=0.05 > all.log
    python tests/weigh.py all.log                 # writes tests/slow.txt
    python -m pytest --durations=0 --durations-min=0.05 -m "not slow" > fast.log
    python tests/weigh.py all.log fast.log        # who shares a fixture pays for it when others are gone

Times are of two cores and an empty compile cache. A test function is slow if its cases took more than
`SLOW_SECONDS` on average, or one of them more than three times as long.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

SLOW_SECONDS = 0.9
LIST = Path(__file__).with_name("slow.txt")
ROW = re.compile(r"([\d.]+)s (?:call|setup|teardown)\s+tests/(\w+)\.py::(\w+)(.*)")


def slow_functions(logs: list[str]) -> dict[str, float]:
    """Slow test functions, `file::function`, and the seconds of all their cases."""
    cases: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for log in logs:
        once: dict[tuple[str, str], float] = defaultdict(float)
        for seconds, file, function, case in ROW.findall(log):
            once[f"{file}::{function}", case] += float(seconds)
        for (name, case), seconds in once.items():
            cases[name][case] = max(cases[name][case], seconds)
    return {
        name: sum(times.values())
        for name, times in sorted(cases.items())
        if sum(times.values()) / len(times) > SLOW_SECONDS or max(times.values()) > 3 * SLOW_SECONDS
    }


if __name__ == "__main__":
    found = slow_functions([Path(log).read_text(encoding="utf-8") for log in sys.argv[1:]])
    LIST.write_text("".join(f"{name} {seconds:.0f}\n" for name, seconds in found.items()), encoding="utf-8")
    print(f"{len(found)} slow test functions, {sum(found.values()):.0f} s")

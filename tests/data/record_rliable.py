"""Records what the library rliable makes of random scores, for tests/test_statistics.py.

    pip install rliable==1.2.0 'pandas<3' && python tests/data/record_rliable.py

rliable is not a dependency: the releases of `arch` that it allows fail with pandas 3.
"""

import json
from pathlib import Path

import numpy as np
from rliable import library, metrics

SHAPES = [(5, 1), (3, 4), (10, 6)]  # seeds, tasks
THRESHOLDS = [0.0, 0.25, 0.5, 0.9]


def record(seed: int, seeds: int, tasks: int) -> dict:
    """Two arms of random scores and all that rliable says of them."""
    rng = np.random.default_rng(seed)
    x, y = (rng.beta(2, 2 + arm, (seeds, tasks)).round(2) for arm in range(2))

    def aggregates(scores):
        return np.array(
            [f(scores) for f in (metrics.aggregate_mean, metrics.aggregate_median, metrics.aggregate_iqm)]
        )

    points, intervals = library.get_interval_estimates({"x": x}, aggregates, reps=10_000)
    better, better_interval = library.get_interval_estimates(
        {"x,y": (x, y)}, metrics.probability_of_improvement, reps=4_000
    )
    profiles, _ = library.create_performance_profile({"x": x}, np.array(THRESHOLDS), reps=10)
    return {
        "x": x.T.tolist(),
        "y": y.T.tolist(),
        "aggregates": points["x"].tolist(),
        "intervals": intervals["x"].T.tolist(),
        "improvement": float(better["x,y"]),
        "improvement_interval": np.ravel(better_interval["x,y"]).tolist(),
        "profile": profiles["x"].tolist(),
    }


if __name__ == "__main__":
    np.random.seed(0)
    found = {"thresholds": THRESHOLDS, "cases": [record(i, *shape) for i, shape in enumerate(SHAPES)]}
    (Path(__file__).parent / "rliable.json").write_text(json.dumps(found, indent=1) + "\n")

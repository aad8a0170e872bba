"""A run made in a Ray cluster: `python -m phalanx.experiment.by_ray TOLD LOCK train ... --out FOLDER`."""

from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.experiment.elsewhere import Job, Task, folder_of, follow, run_as_program


def make(task: Task) -> int:
    """What is done on a machine of the cluster."""
    return task()


def main(told: dict[str, Any], lock: Path, words: list[str]) -> int:
    """Submit a run and follow it to its end."""
    import ray  # pyright: ignore[reportMissingImports]
    from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        ray.init(told["address"], **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines()
        raise PhalanxError(f"no Ray cluster at {told['address']}: {lines[0] if lines else error}") from None
    needs = {"num_cpus": 1, "num_gpus": min(1, ray.cluster_resources().get("GPU", 0)), **told["resources"]}
    # Ray itself does not try again: a lost run is submitted again here, where its checkpoints are counted.
    remote = ray.remote(max_retries=0, scheduling_strategy="SPREAD", **needs)(make)

    def submit() -> Job:
        call = remote.remote(Task(words, lock))

        def ended() -> bool:
            return bool(ray.wait([call], timeout=0)[0])

        def code() -> int | None:
            try:
                return ray.get(call)
            except RayError:
                return None

        return Job(ended, code, lambda: ray.cancel(call))

    return follow(submit, folder_of(words), lock)


if __name__ == "__main__":
    run_as_program(main)

"""A run made by SLURM: `python -m phalanx.experiment.by_slurm TOLD LOCK train ... --out FOLDER`."""

from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.experiment.elsewhere import Job, Task, folder_of, follow, run_as_program

TIMEOUTS = 100  # how often a job that reaches its time limit goes back into the queue
MINUTES = 24 * 60  # a job's time limit, unless another is given; submitit's own is a few minutes


class SlurmTask(Task):
    """A task that goes back into the queue when its time is up or it is preempted."""

    def checkpoint(self) -> Any:
        """Called by submitit, some time before SLURM ends the job."""
        from submitit.helpers import DelayedSubmission  # pyright: ignore[reportMissingImports]

        self.save()
        self.child = None
        return DelayedSubmission(self)


def main(told: dict[str, Any], lock: Path, words: list[str]) -> int:
    """Submit a run and follow it to its end."""
    import submitit  # pyright: ignore[reportMissingImports]
    from submitit.core.utils import FailedJobError, UncompletedJobError  # pyright: ignore[reportMissingImports]

    folder = folder_of(words)
    try:
        executor = submitit.AutoExecutor(
            folder.parent / ".slurm", cluster=told["cluster"], slurm_max_num_timeout=TIMEOUTS
        )
        executor.update_parameters(**{"timeout_min": MINUTES, "name": folder.name, **told["resources"]})
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        raise PhalanxError(f"SLURM does not take this: {str(error).splitlines()[0]}") from None

    def submit() -> Job:
        job = executor.submit(SlurmTask(words, lock))

        def code() -> int | None:
            try:
                return job.result()
            except (FailedJobError, UncompletedJobError):
                return None

        def cancel() -> None:
            if job.state == "PENDING":
                job.cancel(check=False)

        return Job(job.done, code, cancel)

    return follow(submit, folder, lock)


if __name__ == "__main__":
    run_as_program(main)

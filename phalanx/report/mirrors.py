"""Metrics in other tools (TensorBoard, Weights & Biases, MLflow), which can neither stop nor delay a run.

Each tool has its own thread. If one fails, there is one warning, and the run continues without it: all
numbers are in metrics.jsonl anyway.
"""

import dataclasses
import hashlib
import logging
import queue
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from phalanx.config import Resolved

logger = logging.getLogger(__name__)

PATIENCE = 30.0  # seconds that the end of a run waits for a tool that is behind


class Tool(Protocol):
    """A logging tool."""

    def log(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        """Log one row."""
        ...

    def close(self) -> None:
        """Finish logging."""
        ...


class TensorBoard:
    """Event files in the run folder, one per seed."""

    def __init__(self, folder: Path):
        self.folder, self.writers = folder / "tb", {}

    def log(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        from tensorboardX import SummaryWriter

        if seed not in self.writers:
            self.writers[seed] = SummaryWriter(str(self.folder / f"seed_{seed}"), purge_step=step)
        for name, value in values.items():
            self.writers[seed].add_scalar(name, value, step)
        self.writers[seed].flush()

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


class WeightsAndBiases:
    """A run of a project for each seed, grouped by the run folder; a resumed run goes on in the same."""

    def __init__(self, folder: Path, project: str, config: Mapping[str, Any]):
        import wandb  # pyright: ignore[reportMissingImports]

        self.wandb, self.folder, self.project, self.config = wandb, folder, project, config
        self.runs = {}

    def log(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        if seed not in self.runs:
            self.runs[seed] = self.wandb.init(
                project=self.project,
                group=self.folder.name,
                name=f"{self.folder.name} seed {seed}",
                id=f"{_identity(self.folder)}-{seed}",
                resume="allow",
                reinit="create_new",
                dir=str(self.folder),
                config={**self.config, "seed": seed},
            )
        self.runs[seed].log(dict(values), step=step)

    def close(self) -> None:
        for run in self.runs.values():
            run.finish()


class MLflow:
    """A run of an experiment for each seed; a resumed run goes on in the same."""

    def __init__(self, folder: Path, experiment: str, config: Mapping[str, Any]):
        import mlflow  # pyright: ignore[reportMissingImports]

        self.folder, self.config = folder, config
        self.client = mlflow.MlflowClient()
        found = self.client.get_experiment_by_name(experiment)
        self.experiment = found.experiment_id if found else self.client.create_experiment(experiment)
        self.runs: dict[int, str] = {}

    def log(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        if seed not in self.runs:
            self.runs[seed] = self._run(seed)
        for name, value in values.items():
            # Names of agents and groups may have characters that MLflow refuses, such as a+b.
            self.client.log_metric(self.runs[seed], re.sub(r"[^\w./ -]", "_", name), value, step=step)

    def _run(self, seed: int) -> str:
        identity = f"{_identity(self.folder)}-{seed}"
        earlier = self.client.search_runs([self.experiment], f"tags.phalanx = '{identity}'")
        if earlier:
            return earlier[0].info.run_id
        name = f"{self.folder.name} seed {seed}"
        run = self.client.create_run(self.experiment, tags={"phalanx": identity}, run_name=name)
        for key, value in {**self.config, "seed": seed}.items():
            self.client.log_param(run.info.run_id, key, value)
        return run.info.run_id

    def close(self) -> None:
        for run in self.runs.values():
            self.client.set_terminated(run)


def _identity(folder: Path) -> str:
    """A unique id of a run folder on this machine."""
    return hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]


class Mirror:
    """A tool in a thread of its own."""

    def __init__(self, name: str, make: Callable[[], Tool]):
        self.name, self.make = name, make
        self.rows: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def write(self, row: Mapping[str, Any]) -> None:
        """Queue a row of metrics; does not wait."""
        self.rows.put(row)

    def close(self) -> None:
        """Wait for queued rows to be written, up to a limit."""
        self.rows.put(None)
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            logger.warning("%s does not answer, and may not have everything", self.name)

    def _work(self) -> None:
        try:
            tool = self.make()
            while (row := self.rows.get()) is not None:
                numbers = {
                    name: value
                    for name, value in row.items()
                    if name not in ("seed", "env_steps") and isinstance(value, (int, float))
                }
                tool.log(row["seed"], row["env_steps"], numbers)
            tool.close()
        except BaseException as error:  # also what would end the program: it is not this tool's to end
            logger.warning("%s is off from here on: %s", self.name, _reason(error))


def _reason(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in ("wandb", "mlflow"):
        return f"it is not installed (pip install 'phalanx[{error.name}]')"
    return " ".join(str(error).split()) or type(error).__name__


def mirrors(folder: Path, resolved: Resolved) -> list[Mirror]:
    """The tools that the options of a run select."""
    run = resolved.run
    config = {
        **dataclasses.asdict(run),
        **dataclasses.asdict(resolved.algorithm),
        **{f"env.{name}": value for name, value in resolved.env.items()},
    }
    wanted: dict[str, Callable[[], Tool]] = {}
    if run.tensorboard:
        wanted["TensorBoard"] = lambda: TensorBoard(folder)
    if run.wandb:
        wanted["Weights & Biases"] = lambda: WeightsAndBiases(folder, run.wandb, config)
    if run.mlflow:
        wanted["MLflow"] = lambda: MLflow(folder, run.mlflow, config)
    return [Mirror(name, make) for name, make in wanted.items()]

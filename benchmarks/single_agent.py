"""Seconds until one agent solves a task, beside Stable-Baselines3.

    python benchmarks/single_agent.py [TASK ...] [--seeds 1] [--limit 600]

Both start from the shell, with an empty compilation cache, and are stopped at the first evaluation (20 greedy
episodes, twenty evaluations in the budget) that reaches the level. Ours have the presets found by
themselves; Stable-Baselines3 has the settings of rl-baselines3-zoo
(https://github.com/DLR-RM/rl-baselines3-zoo, hyperparams/) and trains in Gymnasium, ours in the compiled
twin or, for LunarLander and BipedalWalker, in Gymnasium too. A seed that does not reach the level within the
budget or the limit counts as missed. Needs `pip install stable-baselines3 gymnasium[box2d]`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

EPISODES, EVALUATIONS = 20, 20
WIDE = {"net_arch": [256, 256]}
DQN = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "policy_kwargs": WIDE,
}
TD3 = {
    "gamma": 0.98,
    "buffer_size": 200_000,
    "learning_starts": 10_000,
    "gradient_steps": 1,
    "train_freq": 1,
    "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": [400, 300]},
}


class Task(NamedTuple):
    """A level to reach, our command, and their class, number of environments, steps and settings."""

    level: float
    ours: str
    theirs: str
    env: str
    envs: int
    steps: float
    settings: dict[str, Any]


TASKS = {
    "CartPole PPO": Task(
        475,
        "ppo classic/CartPole-v1 --steps 3e5",
        "PPO",
        "CartPole-v1",
        8,
        1e5,
        {
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "learning_rate": lambda left: left * 1e-3,
            "clip_range": lambda left: left * 0.2,
        },
    ),
    "CartPole DQN": Task(
        475,
        "ddqn classic/CartPole-v1 --steps 1e5",
        "DQN",
        "CartPole-v1",
        1,
        5e4,
        {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "policy_kwargs": WIDE,
        },
    ),
    "Acrobot DQN": Task(-90, "ddqn classic/Acrobot-v1 --steps 1e5", "DQN", "Acrobot-v1", 1, 1e5, DQN),
    "MountainCar DQN": Task(
        -120,
        "ddqn classic/MountainCar-v0 --steps 1e5 --icm",
        "DQN",
        "MountainCar-v0",
        1,
        1.2e5,
        {
            "learning_rate": 4e-3,
            "batch_size": 128,
            "buffer_size": 10_000,
            "learning_starts": 1000,
            "gamma": 0.98,
            "target_update_interval": 600,
            "train_freq": 16,
            "gradient_steps": 8,
            "exploration_fraction": 0.2,
            "exploration_final_eps": 0.07,
            "policy_kwargs": WIDE,
        },
    ),
    "Pendulum SAC": Task(
        -170,
        "sac classic/Pendulum-v1 --steps 2e4",
        "SAC",
        "Pendulum-v1",
        1,
        2e4,
        {"learning_rate": 1e-3},
    ),
    "Pendulum TD3": Task(-170, "td3 classic/Pendulum-v1 --steps 2e4", "TD3", "Pendulum-v1", 1, 2e4, TD3),
    "Pendulum DDPG": Task(-170, "ddpg classic/Pendulum-v1 --steps 2e4", "DDPG", "Pendulum-v1", 1, 2e4, TD3),
    "MountainCarContinuous SAC": Task(
        90,
        "sac classic/MountainCarContinuous-v0 --steps 5e4",
        "SAC",
        "MountainCarContinuous-v0",
        1,
        5e4,
        {
            "learning_rate": 3e-4,
            "buffer_size": 50_000,
            "batch_size": 512,
            "ent_coef": 0.1,
            "train_freq": 32,
            "gradient_steps": 32,
            "gamma": 0.9999,
            "tau": 0.01,
            "learning_starts": 0,
            "use_sde": True,
            "policy_kwargs": {"log_std_init": -3.67, "net_arch": [64, 64]},
        },
    ),
    "LunarLander PPO": Task(
        200,
        "ppo gym/LunarLander-v3 --steps 5e5 --envs 16 --workers 2",
        "PPO",
        "LunarLander-v3",
        16,
        1e6,
        {
            "n_steps": 1024,
            "batch_size": 64,
            "gae_lambda": 0.98,
            "gamma": 0.999,
            "n_epochs": 4,
            "ent_coef": 0.01,
        },
    ),
    "LunarLander DQN": Task(200, "ddqn gym/LunarLander-v3 --steps 3e5", "DQN", "LunarLander-v3", 1, 1e5, DQN),
    "LunarLanderContinuous SAC": Task(
        200,
        "sac gym/LunarLanderContinuous-v3 --steps 2.4e5 --workers 1",
        "SAC",
        "LunarLanderContinuous-v3",
        1,
        5e5,
        {
            "batch_size": 256,
            "learning_rate": lambda left: 7.3e-4 * left,
            "buffer_size": 1_000_000,
            "gamma": 0.99,
            "tau": 0.01,
            "train_freq": 1,
            "gradient_steps": 1,
            "learning_starts": 10_000,
            "policy_kwargs": {"net_arch": [400, 300]},
        },
    ),
    "LunarLanderContinuous TD3": Task(
        200,
        "td3 gym/LunarLanderContinuous-v3 --steps 3e5 --workers 1",
        "TD3",
        "LunarLanderContinuous-v3",
        1,
        3e5,
        TD3,
    ),
    "BipedalWalker SAC": Task(
        280,
        "sac gym/BipedalWalker-v3 --steps 3e5 --workers 2",
        "SAC",
        "BipedalWalker-v3",
        1,
        5e5,
        {
            "learning_rate": 7.3e-4,
            "buffer_size": 300_000,
            "batch_size": 256,
            "gamma": 0.98,
            "tau": 0.02,
            "train_freq": 64,
            "gradient_steps": 64,
            "learning_starts": 10_000,
            "use_sde": True,
            "policy_kwargs": {"log_std_init": -3, "net_arch": [400, 300]},
        },
    ),
}


def ours(task: Task, seed: int, limit: float) -> tuple[float, int] | None:
    """Seconds from the shell and env steps until an evaluation reaches the level."""
    words = task.ours.split()
    every = float(words[words.index("--steps") + 1]) / EVALUATIONS
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        options = f"--seed {seed} --eval-every {every:.0f} --eval-episodes {EPISODES} --out {out}"
        command = [sys.executable, "-m", "phalanx", "train", *words, *options.split()]
        env = {**os.environ, "PHALANX_CACHE": f"{place}/cache"}
        begin = time.perf_counter()
        with open(f"{place}/log", "w") as log:
            run = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            while run.poll() is None and time.perf_counter() - begin < limit:
                time.sleep(0.2)
                for row in rows(out / "metrics.jsonl"):
                    if row.get("eval/return", -1e9) >= task.level:
                        return row["seconds"], row["env_steps"]
        finally:
            run.terminate()
            run.wait()
    return None


def rows(path: Path) -> list[dict[str, Any]]:
    """What is written so far; the last line may not be whole."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def theirs(task: Task, seed: int, limit: float) -> tuple[float, int] | None:
    """The same of Stable-Baselines3, in a process of its own."""
    name = next(name for name, other in TASKS.items() if other is task)
    command = [sys.executable, __file__, name, "--child", str(seed)]
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    steps = int(done.stdout.split()[-1])
    return (time.perf_counter() - begin, steps) if steps >= 0 else None


def child(task: Task, seed: int) -> None:
    """Train and print the env steps at which the level was reached, or -1."""
    import numpy as np
    import stable_baselines3  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.callbacks import (  # pyright: ignore[reportMissingImports]
        EvalCallback,
        StopTrainingOnRewardThreshold,
    )
    from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.noise import NormalActionNoise  # pyright: ignore[reportMissingImports]

    settings, env = dict(task.settings), make_vec_env(task.env, task.envs, seed)
    if task.theirs in ("TD3", "DDPG"):
        each = np.ones(env.action_space.shape)
        settings["action_noise"] = NormalActionNoise(0 * each, 0.1 * each)
    model = getattr(stable_baselines3, task.theirs)("MlpPolicy", env, seed=seed, device="cpu", **settings)
    stop = StopTrainingOnRewardThreshold(task.level)
    every = int(task.steps / EVALUATIONS / task.envs)
    watch = EvalCallback(
        make_vec_env(task.env, 1, seed + 1000),
        callback_on_new_best=stop,
        n_eval_episodes=EPISODES,
        eval_freq=every,
        verbose=0,
    )
    model.learn(int(task.steps), callback=watch)
    print(model.num_timesteps if watch.best_mean_reward >= task.level else -1)


def cell(found: list[tuple[float, int] | None], limit: float) -> str:
    """The median over seeds, or how many missed."""
    reached = sorted(one for one in found if one)
    missed = f", {len(found) - len(reached)} missed" if len(reached) < len(found) else ""
    if not reached:
        return f"not in its budget, or not in {limit:.0f} s"
    seconds, steps = reached[len(reached) // 2]
    return f"{seconds:.0f} s, {steps:,} steps{missed}"


def main() -> None:
    """Print one row for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.tasks) - set(TASKS)
    if unknown:
        parser.error(f"no such task: {', '.join(sorted(unknown))}; there are {', '.join(TASKS)}")
    chosen = {name: TASKS[name] for name in options.tasks or TASKS}
    if options.child is not None:
        child(next(iter(chosen.values())), options.child)
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| task | level | phalanx | Stable-Baselines3 |\n|---|---|---|---|")
    limit, seeds = options.limit, range(options.seeds)
    for name, task in chosen.items():
        cells = [cell([side(task, seed, limit) for seed in seeds], limit) for side in (ours, theirs)]
        print(f"| {name} | {task.level:g} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()

"""Many settings of MAPPO on battles in one compiled program; writes docs/data/mappo_search.json.

    python benchmarks/search.py [STUDY ...] [--out FILE] [--minutes 10] [--scale 1.0]

A study is one map and one network, with arms that differ in numbers only: learning rate, entropy bonus,
discount, clipping, reward. All arms and seeds of a study are trained side by side, as `--seeds` trains seeds,
so that an arm costs a fraction of a run of its own and compiles nothing (`phalanx/training/lanes.py`;
`phalanx search` does the same for options of `phalanx train`). The next studies are compiled while
one is training. Arms of a study have the same seeds. Finished studies are written down at once.
"""

import argparse
import copy
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from phalanx import device, runs
from phalanx.algorithms.ppo import PPO, MAPPOConfig
from phalanx.config import Layer, option
from phalanx.envs.battle.env import Battle
from phalanx.training.keys import Purpose
from phalanx.training.lanes import Lane, LanePrograms, compile_lanes
from phalanx.training.loop import Carry
from phalanx.training.programs import play_many, seed_keys

DATA = Path(__file__).parent.parent / "docs" / "data" / "mappo_search.json"
REWARDS: dict[str, dict[str, Any]] = {
    "absolute": {"reward": "absolute"},
    "clamped": {"reward": "clamped"},
    "signed": {"reward": "signed"},
    "net": {"reward": "signed", "reward_negative_scale": 0.0},
}
EVALUATIONS = 8


@dataclass(frozen=True)
class Arm:
    """The numbers that arms of a study differ in; the defaults are those of `mappo/battle_hard`."""

    lr: float = 5e-4
    entropy: float = 0.01
    last_entropy: float | None = None
    """what the entropy bonus falls to, linearly, at the end of the run; None: it stays"""
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    reward: str = "absolute"
    limit_ends: bool = False
    """the time limit is an end (nothing is earned after it), not a cut"""

    def numbers(self) -> dict[str, float]:
        """As the program takes them: options of a `StudyConfig`."""
        last = self.entropy if self.last_entropy is None else self.last_entropy
        given = {
            **asdict(self),
            "last_entropy": last,
            "critic_lr": self.lr,
            "limit_ends": int(self.limit_ends),
        }
        kind = list(REWARDS).index(given.pop("reward"))
        return {**given, "kind": kind}

    @property
    def words(self) -> str | None:
        """Its options of `phalanx train`; None where there are none."""
        if self.last_entropy is not None or self.limit_ends:
            return None
        changed = {f.name: getattr(self, f.name) for f in fields(self)}
        changed = {name: value for name, value in changed.items() if value != getattr(Arm(), name)}
        if "lr" in changed:
            changed["critic_lr"] = changed["lr"]
        if "reward" in changed:
            changed |= {f"env.{name}": value for name, value in REWARDS[changed.pop("reward")].items()}
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in changed.items())


@dataclass(frozen=True)
class Study:
    """Some arms on one map, with options that change the program."""

    map: str
    arms: dict[str, Arm]
    seeds: int = 4
    steps: float = 4e6
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def lanes(self) -> list[Arm]:
        """One for each arm and seed."""
        return [arm for arm in self.arms.values() for _ in range(self.seeds)]

    def command(self, arm: Arm) -> str | None:
        """What trains an arm alone."""
        if arm.words is None:
            return None
        options = {**BASE, **self.options}
        given = " ".join(
            f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
            for name, value in options.items()
        )
        steps = f"--steps {self.steps:.2g} --seeds {self.seeds}".replace("+0", "")
        return " ".join(f"phalanx train mappo battle/{self.map} {given} {arm.words} {steps}".split())


BASE: dict[str, Any] = {"preset": "battle_hard", "lr_decay": True, "share": "type", "envs": 256}
NUMBERS = {
    "base": Arm(),
    "entropy 0.02": Arm(entropy=0.02),
    "entropy 0.04 to 0.002": Arm(entropy=0.04, last_entropy=0.002),
    "entropy 0.02, lr 1e-3": Arm(entropy=0.02, lr=1e-3),
    "entropy 0.02, signed": Arm(entropy=0.02, reward="signed"),
    "entropy 0.02, gamma 0.995": Arm(entropy=0.02, gamma=0.995),
    "entropy 0.02, lambda 0.98": Arm(entropy=0.02, gae_lambda=0.98),
    "entropy 0.02, clip 0.1": Arm(entropy=0.02, clip=0.1),
}
KITING = {
    "base": Arm(),
    "limit ends": Arm(limit_ends=True),
    "clamped": Arm(reward="clamped"),
    "clamped, limit ends": Arm(reward="clamped", limit_ends=True),
    "clamped, limit ends, entropy 0.02": Arm(reward="clamped", limit_ends=True, entropy=0.02),
    "signed": Arm(reward="signed"),
    "signed, entropy 0.02": Arm(reward="signed", entropy=0.02),
    "signed, gamma 0.995": Arm(reward="signed", gamma=0.995),
}
FASTER = {
    "entropy 0.02, net": Arm(entropy=0.02, reward="net"),
    "lr 1e-3": Arm(lr=1e-3),
    "lr 1e-3, net": Arm(lr=1e-3, reward="net"),
    "lr 1e-3, entropy 0.02, net": Arm(lr=1e-3, entropy=0.02, reward="net"),
    "lr 1e-3, entropy 0.04 to 0.002, net": Arm(lr=1e-3, entropy=0.04, last_entropy=0.002, reward="net"),
    "lr 2e-3, entropy 0.02": Arm(lr=2e-3, entropy=0.02),
    "lr 2e-3, entropy 0.02, net": Arm(lr=2e-3, entropy=0.02, reward="net"),
    "lr 1e-3, entropy 0.02, net, lambda 0.9": Arm(lr=1e-3, entropy=0.02, reward="net", gae_lambda=0.9),
}
STALLING = {
    "net": Arm(reward="net"),
    "lr 1e-3, net": Arm(lr=1e-3, reward="net"),
    "entropy 0.02, net": Arm(entropy=0.02, reward="net"),
    "entropy 0.02, limit ends": Arm(entropy=0.02, limit_ends=True),
}
PLAIN = {
    "base": Arm(),
    "lr 1e-3": Arm(lr=1e-3),
    "lr 1e-3, net": Arm(lr=1e-3, reward="net"),
    "lr 1e-3, entropy 0.02, net": Arm(lr=1e-3, entropy=0.02, reward="net"),
}
MEMORY = {
    "entropy 0.02, net": Arm(entropy=0.02, reward="net"),
    "lr 1e-3, entropy 0.02": Arm(lr=1e-3, entropy=0.02),
    "lr 1e-3, entropy 0.02, net": Arm(lr=1e-3, entropy=0.02, reward="net"),
    "lr 1e-3, entropy 0.02, signed": Arm(lr=1e-3, entropy=0.02, reward="signed"),
}
RATES = {
    "entropy 0.02": Arm(entropy=0.02),
    "lr 1e-3, entropy 0.02": Arm(lr=1e-3, entropy=0.02),
}
STUDIES = {
    # First, numbers.
    "MMM2": Study("MMM2", NUMBERS),
    "6h_vs_8z": Study("6h_vs_8z", NUMBERS),
    "3s_vs_5z": Study("3s_vs_5z", KITING),
    "5m_vs_6m": Study("5m_vs_6m", dict(list(NUMBERS.items())[:4]), steps=3e6),
    "3s_vs_5z gru": Study(
        "3s_vs_5z",
        {name: KITING[name] for name in ("base", "signed")},
        steps=3e6,
        options={"preset": "battle_memory"},
    ),
    # Second, a higher learning rate and a reward that cannot be farmed.
    "3s5z faster": Study("3s5z", PLAIN, steps=3e6),
    "6h_vs_8z faster": Study("6h_vs_8z", FASTER),
    "MMM2 stalling": Study("MMM2", STALLING),
    "3s_vs_5z gru net": Study(
        "3s_vs_5z",
        {name: STALLING[name] for name in ("net", "lr 1e-3, net")},
        steps=2e6,
        options={"preset": "battle_memory"},
    ),
    # Third, other networks and more epochs: not run yet.
    "6h_vs_8z gru": Study("6h_vs_8z", MEMORY, steps=3e6, options={"preset": "battle_memory"}),
    "6h_vs_8z relu": Study("6h_vs_8z", RATES, options={"activation": "relu", "feature_norm": True}),
    "6h_vs_8z epochs": Study("6h_vs_8z", RATES, options={"epochs": 15}),
}


class AllRewards(Battle):
    """A battle that tells its reward of each kind, in `info`."""

    def _play(self, state: Any, actions: Any, noise: Any):
        after, view, reward, terminated, info = super()._play(state, actions, noise)
        params = self._world.params(state.kinds)
        outcome = self._outcome(params, after.units)
        each = [self._kind(kind)._reward(params, state.units, after.units, outcome) for kind in REWARDS]
        return after, view, reward, terminated, {**info, "rewards": jnp.stack(each)}

    def _nothing_yet(self):
        reward, terminated, info = super()._nothing_yet()
        return reward, terminated, {**info, "rewards": jnp.zeros(len(REWARDS))}

    def _kind(self, kind: str) -> "AllRewards":
        other = copy.copy(self)
        for name, value in REWARDS[kind].items():
            object.__setattr__(other, name, value)  # it is frozen
        return other


@dataclass(frozen=True)
class StudyConfig(MAPPOConfig):
    """MAPPO's options, and those that only studies have."""

    last_entropy: float = option(0.01, "entropy bonus at the end of the run; it falls linearly")
    kind: int = option(0, "the reward that is learnt from: a number of REWARDS")
    limit_ends: int = option(0, "1: the time limit is an end, not a cut")


class Studied(PPO):
    """PPO with the options of studies."""

    Config = StudyConfig
    config: StudyConfig

    def update(self, learner: Any, rollout: Any, key: Any, clock: Any):
        c, now = self.config, copy.copy(self)
        entropy = c.entropy + clock.env_steps / clock.budget * (c.last_entropy - c.entropy)
        now.config = replace(c, entropy=entropy)
        reward = jnp.take(rollout.info["rewards"], c.kind, axis=-1)
        ends = rollout.truncated & (c.limit_ends > 0)
        rollout = rollout._replace(
            reward=jnp.broadcast_to(reward[..., None], rollout.reward.shape),
            terminated=rollout.terminated | ends,
            truncated=rollout.truncated & ~ends,
        )
        return super(Studied, now).update(learner, rollout, key, clock)


class Prepared(NamedTuple):
    """A study that is compiled."""

    programs: LanePrograms
    numbers: dict[str, Any]
    """of each lane, (L,)"""
    steps_per_update: int
    episodes: int
    """of the final evaluation"""
    seconds: float


def prepare(study: Study) -> Prepared:
    """Compile everything that a study runs."""
    begin = time.monotonic()
    given = {name: value for name, value in {**BASE, **study.options}.items() if name != "preset"}
    env_options = {name[4:]: given.pop(name) for name in list(given) if name.startswith("env.")}
    options = {**given, "steps": int(study.steps), "seeds": len(study.lanes), "eval_episodes": 64}
    layer = Layer("study", runs.tables_of("mappo", options, env_options))
    preset = {**BASE, **study.options}["preset"]
    setup = runs.resolve("mappo", f"battle/{study.map}", layer, None, preset)
    env = AllRewards(**{f.name: getattr(setup.env, f.name) for f in fields(setup.env)})  # type: ignore[arg-type]
    config, run = StudyConfig(**vars(setup.resolved.algorithm)), setup.config
    lanes = [arm.numbers() for arm in study.lanes]
    numbers = {name: np.array([lane[name] for lane in lanes]) for name in lanes[0]}
    numbers = {
        name: jnp.asarray(each, jnp.int32 if each.dtype.kind == "i" else jnp.float32)
        for name, each in numbers.items()
    }
    lane = Lane(Studied, config, env, run.envs, run.eval_episodes)
    programs = compile_lanes(lane, len(study.lanes), numbers)
    seconds = time.monotonic() - begin
    return Prepared(programs, numbers, config.batch_steps, run.final_episodes, seconds)


def start(study: Study, prepared: Prepared) -> Carry:
    """The carry before the first step, each lane with the numbers of its arm."""
    seeds = [seed for _ in study.arms for seed in range(study.seeds)]
    return prepared.programs.init(jnp.array(seeds, jnp.int32), prepared.numbers)


def train(name: str, study: Study, prepared: Prepared) -> list[dict[str, Any]]:
    """Train all arms; a row for each."""
    begin, programs, numbers = time.monotonic(), prepared.programs, prepared.numbers
    carry, steps = start(study, prepared), prepared.steps_per_update
    total, budget, done = int(np.ceil(study.steps / steps)), jnp.float32(study.steps), 0
    curve_keys = seed_keys(Purpose.CURVE, [0] * len(study.lanes))
    at, curves = [], []
    for part in range(1, EVALUATIONS + 1):
        count, done = total * part // EVALUATIONS - done, total * part // EVALUATIONS
        carry = programs.advance(carry, numbers, jnp.int32(count), budget)
        carry = programs.track_best(carry, numbers, jnp.zeros(len(study.lanes)))  # begin a new tally
        played = play_many(programs.play, (carry.learner, numbers), curve_keys, 64)
        at.append(done * steps)
        curves.append(played.won.mean(1))
        rate = done * steps * len(study.lanes) / (time.monotonic() - begin)
        print(f"  {name} {done * steps:,} steps, {rate:,.0f}/s", flush=True)
    final_keys = seed_keys(Purpose.FINAL, [seed for _ in study.arms for seed in range(study.seeds)])
    final = play_many(programs.play, (carry.learner, numbers), final_keys, prepared.episodes)
    seconds = time.monotonic() - begin
    rows = []
    for i, (label, arm) in enumerate(study.arms.items()):
        own = slice(i * study.seeds, (i + 1) * study.seeds)
        rows.append(
            {
                "study": name,
                "arm": label,
                "map": study.map,
                "options": {**BASE, **study.options},
                "numbers": asdict(arm),
                "command": study.command(arm),
                "wins": _rounded(final.won[own].mean(1), 3),
                "returns": _rounded(final.returns[own].mean((1, 2)), 2),
                "lengths": _rounded(final.length[own].mean(1), 1),
                "episodes": prepared.episodes,
                "steps": at,
                "curves": _rounded(np.array(curves)[:, own].T, 3),
                "seconds": round(seconds / len(study.arms), 1),
                "device": device.describe(),
            }
        )
    return rows


def _rounded(numbers: Any, digits: int) -> list[Any]:
    return np.asarray(numbers, np.float64).round(digits).tolist()


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Put rows into the file, in the place of older ones of the same study and arm."""
    new = {(row["study"], row["arm"]) for row in rows}
    old = json.loads(path.read_text()) if path.exists() else []
    kept = [row for row in old if (row["study"], row["arm"]) not in new]
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in [*kept, *rows]) + "\n]\n")


def main() -> None:
    """Train the studies in order, each compiled while those before it train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--minutes", type=float, default=1e4, help="begin no study after this time")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all budgets, to try it out")
    args = parser.parse_args()
    if unknown := set(args.studies) - set(STUDIES):
        parser.error(f"there is no study {', '.join(unknown)}: choose from {', '.join(STUDIES)}")
    begin = time.monotonic()
    names = args.studies or list(STUDIES)
    studies = {name: STUDIES[name] for name in names}
    if args.scale != 1:
        changed = {name: {**vars(each), "steps": each.steps * args.scale} for name, each in studies.items()}
        studies = {name: Study(**values) for name, values in changed.items()}
    pool = ThreadPoolExecutor(3)
    compiling = {name: pool.submit(prepare, study) for name, study in studies.items()}
    for name, study in studies.items():
        if time.monotonic() - begin > 60 * args.minutes:
            print(f"no time for {name}")
            continue
        try:
            prepared = compiling[name].result()
        except Exception as error:  # the others may still be worth their time
            print(f"{name}: {error!r}", flush=True)
            continue
        print(f"{time.monotonic() - begin:.0f} s: {name}, compiled in {prepared.seconds:.0f} s", flush=True)
        rows = train(name, study, prepared)
        write(args.out, rows)
        for row in rows:
            wins = " ".join(f"{100 * won:3.0f}" for won in row["wins"])
            returns = " ".join(f"{each:5.1f}" for each in row["returns"])
            lengths = " ".join(f"{each:4.0f}" for each in row["lengths"])
            print(f"{name:16} {row['arm']:24} wins {wins}  returns {returns}  lengths {lengths}", flush=True)
    print(f"{time.monotonic() - begin:.0f} s in all", flush=True)
    pool.shutdown(wait=False, cancel_futures=True)
    os._exit(0)  # studies that there was no time for may still be compiling


if __name__ == "__main__":
    main()

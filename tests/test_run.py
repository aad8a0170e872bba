"""Runs as a whole: folders, resuming to the bit, determinism, checkpoints, policies (pitfalls C31 to C35)."""

import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import LONG, SMALL, build, small, small_for

import phalanx
from phalanx import device, registry
from phalanx.algorithms.ppo import PPO
from phalanx.api import Run
from phalanx.config import Layer, merge
from phalanx.errors import PhalanxError
from phalanx.report import plots
from phalanx.training import checkpoint
from phalanx.training.loop import Carry
from phalanx.training.programs import compile_programs
from phalanx.training.record import Record
from phalanx.training.setup import set_up

KILLS = 5 if LONG else 1


def rows(run):
    """Metrics without the clock on the wall."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics()]


def last_arrays(folder):
    newest = checkpoint.choose(Path(folder) / "checkpoints")
    found = {}
    for path in newest.path.glob("*.npz"):
        with np.load(path) as arrays:
            found |= {name: arrays[name] for name in arrays.files}
    return newest.updates, found


def assert_same_end(one, other, by_one_program=True):
    """To the bit; where different programs made them, to a few units in the last place."""
    (updates, arrays), (other_updates, other_arrays) = last_arrays(one), last_arrays(other)
    assert updates == other_updates
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        if by_one_program:
            assert array.tobytes() == other_arrays[name].tobytes(), name
        else:
            np.testing.assert_allclose(array, other_arrays[name], rtol=1e-6, atol=1e-9, err_msg=name)


# Folders and metrics


def test_a_run_folder_has_everything(small_run):
    folder = small_run.folder
    assert {"config.toml", "run.json", "metrics.jsonl", "checkpoints", "tb"} <= {
        p.name for p in folder.iterdir()
    }
    facts = small_run.facts
    assert facts["status"] == "finished"
    assert facts["seeds"] == [0, 1]
    assert {"jax", "flax", "python", "phalanx"} <= facts["versions"].keys()
    assert facts["memory_plan"]["total"] > 0
    for which in ("last", "best"):
        assert facts["final"][which]["episodes"] == 6
        assert [row["seed"] for row in facts["final"][which]["seeds"]] == [0, 1]


def test_config_toml_holds_the_merged_values_with_their_origins(small_run):
    text = (small_run.folder / "config.toml").read_text()
    values = tomllib.loads(text)
    assert values["run"]["algorithm"] == "mappo"
    assert values["run"]["eval_every"] == 128
    assert values["algorithm"]["lr"] == 1e-3
    assert values["env"]["time_limit"] == 50
    assert "hidden = 8  # argument" in text
    assert "lr = 0.001  # preset mappo/switch" in text
    assert "gae_lambda = 0.95  # default" in text


def test_metrics_have_a_row_a_seed_and_evaluation(small_run):
    found = small_run.metrics()
    assert [(row["env_steps"], row["seed"]) for row in found] == [
        (steps, seed) for steps in (0, 128, 256, 384) for seed in (0, 1)
    ]
    needed = {"episodes", "gradient_steps", "seconds", "eval/return", "eval/length", "eval/win_rate"}
    assert all(needed <= row.keys() for row in found)
    assert all("train/return" in row for row in found)
    assert [row["train/return"] is None for row in found[::2]] == [
        True,
        True,
        False,
        True,
    ]  # episodes take 50
    assert [row["gradient_steps"] for row in found[::2]] == [0, 8, 16, 24]
    seconds = [row["seconds"] for row in found]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


def test_tensorboard_has_the_same_numbers(small_run):
    from tensorboardX.proto.event_pb2 import Event

    (file,) = (small_run.folder / "tb" / "seed_1").iterdir()
    data, mirrored = file.read_bytes(), {}
    while data:  # records of length (8 bytes), its checksum (4), the event, its checksum (4)
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        for value in event.summary.value:
            if value.tag == "eval/return":
                mirrored[event.step] = value.simple_value
        data = data[16 + size :]
    expected = {row["env_steps"]: row["eval/return"] for row in small_run.metrics() if row["seed"] == 1}
    assert mirrored == pytest.approx(expected)


def test_reported_numbers_are_those_of_a_known_game(tmp_path):
    """C32, C8: greedy returns and lengths are what the rules pay."""
    run = small(tmp_path / "run", env="debug/forever", env_options={"ends": True}, seeds=2)
    for row in run.metrics():
        assert row["eval/return"] == 10
        assert row["eval/length"] == 10
    assert row["train/return"] == 10
    assert row["episodes"] == sum(1 for _ in range(4)) * (256 // 4 // 10)
    result = phalanx.evaluate(run.folder, episodes=11)
    assert (result["return"], result["length"], result["episodes"]) == (10, 10, 11)


# Determinism


def test_the_same_seed_gives_the_same_metrics_and_another_seed_others(kept, tmp_path):
    """C33."""
    again, other = (small(tmp_path / str(seed), seed=seed, keep=2) for seed in (0, 4))
    assert rows(kept) == rows(again)
    assert_same_end(kept.folder, again.folder)
    assert [{**row, "seed": 0} for row in rows(other)] != rows(kept)


def test_seeds_trained_together_match_seeds_trained_alone():
    """After ten updates, to float tolerance."""
    loop = build("mappo", "switch/2", network="gru")
    run = jax.jit(jax.vmap(lambda seed: loop.advance(loop.init(seed), jnp.int32(10), jnp.float32(1e4))))
    together, alone = run(jnp.array([5, 6, 7])), run(jnp.array([6]))
    for a, b in zip(jax.tree.leaves(together.learner), jax.tree.leaves(alone.learner), strict=True):
        np.testing.assert_allclose(a[1], b[0], atol=1e-4)


def test_the_number_of_environments_moves_no_evaluation_and_no_gradient_step(kept, tmp_path):
    few, many = kept.metrics(), small(tmp_path / "run", envs=8).metrics()
    for name in ("env_steps", "gradient_steps", "seed"):
        assert [row[name] for row in few] == [row[name] for row in many]


# Resuming


def as_users_have_it():
    """The environment without the flags that make tests compile faster."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


def start_process(out, *more):
    command = [sys.executable, "-m", "phalanx.cli", "train", "mappo", "switch/2", "--out", str(out)]
    options = {
        "steps": 38_400,
        "eval-every": 3_840,
        "envs": 4,
        "eval-episodes": 4,
        "final-episodes": 4,
        "seeds": 2,
    }
    options |= {"network": "gru", **{name.replace("_", "-"): value for name, value in SMALL.items()}}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    return subprocess.Popen(
        [*command, *words, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=as_users_have_it(),
    )


def resume_process(out, *more):
    command = [sys.executable, "-m", "phalanx.cli", "resume", str(out), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=as_users_have_it())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    out = tmp_path_factory.mktemp("straight") / "run"
    process = start_process(out)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return out


def wait_for_evaluations(process, out, count):
    """Until that many of the eleven evaluations are written, and the checkpoint of at least the first."""
    metrics = out / "metrics.jsonl"
    while not any(out.glob("checkpoints/0*")) or metrics.read_text().count("\n") < 2 * count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.mark.parametrize("attempt", range(KILLS))
def test_killed_and_resumed_equals_never_stopped_to_the_bit(straight, tmp_path, attempt):
    out = tmp_path / "run"
    process = start_process(out)
    wait_for_evaluations(process, out, count=random.randint(1, 8))
    time.sleep(random.random() * 0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert Run(out).facts["status"] == "running", "it finished before it was killed"
    resume_process(out)
    assert_same_end(straight, out)
    assert rows(Run(straight)) == rows(Run(out))


def test_interrupted_between_evaluations_it_saves_and_resumes_to_the_bit(straight, tmp_path):
    out = tmp_path / "run"
    process = start_process(out)
    wait_for_evaluations(process, out, count=2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130
    assert f"continue with:  phalanx resume {out}" in output
    assert Run(out).facts["status"] == "interrupted"
    resume_process(out)
    assert_same_end(straight, out)
    assert rows(Run(straight)) == rows(Run(out))


def test_a_finished_run_goes_on_to_a_larger_budget_as_if_it_had_it_from_the_start(two_checkpoints, tmp_path):
    whole, half = small(tmp_path / "whole", steps=512, keep=2), two_checkpoints
    phalanx.resume(half.folder, 512, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert rows(whole) == rows(half)
    assert tomllib.loads((half.folder / "config.toml").read_text())["run"]["steps"] == 512
    with pytest.raises(PhalanxError, match="is finished at 512 env steps"):
        phalanx.resume(half.folder)


def test_a_replay_that_is_full_resumes_to_the_bit(tmp_path):
    options = {"algorithm": "qmix", "env": "debug/two_step", "buffer": 64, "episodes": 8}
    whole = small(tmp_path / "whole", steps=512, **options)
    half = small(tmp_path / "half", steps=256, **options)
    _, arrays = last_arrays(half.folder)
    lengths = arrays[".length"]  # of the replay, in a file of its own
    played, places = half.metrics()[-1]["episodes"], lengths.size
    assert played > 1.5 * places, "every ring has gone round"
    assert (lengths > 0).sum() == 64
    phalanx.resume(half.folder, 512, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert rows(whole) == rows(half)


def test_an_empty_replay_is_not_stored_and_resumes_to_the_bit(tmp_path):
    options = {"algorithm": "qmix", "env": "debug/two_step", "buffer": 64, "episodes": 8, "keep": 9}
    whole = small(tmp_path / "whole", steps=256, **options)
    stored = {each.updates: each.replay_sha256 for each in checkpoint.listing(whole.folder / "checkpoints")}
    assert [updates for updates, replay in stored.items() if replay is None] == [0]
    assert not (whole.folder / "checkpoints" / "0000000000" / "replay.npz").exists()
    again = shutil.copytree(whole.folder, tmp_path / "again")
    phalanx.resume(again, 320, checkpoint="0000000000", quiet=True)
    phalanx.resume(whole.folder, 320, quiet=True)
    assert_same_end(whole.folder, again)
    assert rows(whole) == rows(Run(again))


def test_without_its_replay_a_run_resumes_with_an_empty_one_and_says_so(tmp_path, capsys):
    options = {"algorithm": "qmix", "env": "debug/two_step", "buffer": 64, "episodes": 8}
    run = small(tmp_path / "run", steps=256, save_buffer=False, **options)
    assert not list(run.folder.glob("checkpoints/*/replay.npz"))
    assert run.facts["resume"] == "inexact"
    capsys.readouterr()
    phalanx.resume(run.folder, 512)
    said = " ".join(capsys.readouterr().out.split())
    assert "the replay buffer was not saved: the run continues with an empty one, not bit for bit" in said
    held = {row["env_steps"]: row.get("learn/replay_size") for row in run.metrics()}
    assert held[384] < held[256] <= 64
    assert run.facts["status"] == "finished"


def test_prioritised_steps_resume_to_the_bit(tmp_path):
    """A ring that has gone round, its priorities, target networks and temperatures; and curiosity on top."""
    options = {"algorithm": "masac", "env": "debug/two_step", "buffer": 96, "batch_size": 8, "warm_up": 64}
    options |= {"priority": 0.6, "gradient_steps": 2, "rnd": True}
    whole = small(tmp_path / "whole", steps=512, **options)
    half = small(tmp_path / "half", steps=256, **options)
    _, arrays = last_arrays(half.folder)
    assert (arrays[".priority"] > 0).all()
    # More than the two batches of 8 of the last update: those of earlier updates are kept too.
    assert len(np.unique(arrays[".priority"])) > 16
    phalanx.resume(half.folder, 512, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert rows(whole) == rows(half)


# Checkpoints


class Learner(NamedTuple):
    weights: Any
    replay: Any = None


def carry_of(weights, replay=None):
    """A carry that holds nothing but these."""
    return Carry(Learner(weights, replay), *[None] * 6)  # type: ignore[arg-type]


def test_the_best_checkpoint_loses_its_replay_and_still_plays(tmp_path):
    carry = carry_of(jnp.arange(3), jnp.arange(5))
    for updates, score in enumerate([1.0, 9.0, 2.0, 3.0]):
        checkpoint.save(tmp_path, carry, updates=updates, score=score, metrics_bytes=0, seconds=0.0, keep=2)
    assert [each.updates for each in checkpoint.listing(tmp_path)] == [1, 2, 3]
    with pytest.raises(PhalanxError, match=r"replay.npz is missing, .* use --checkpoint 0000000003"):
        checkpoint.choose(tmp_path, "0000000001")
    best = checkpoint.choose(tmp_path, "0000000001", to_go_on=False)
    like = jax.eval_shape(lambda: carry)
    played = checkpoint.restore(best, like.without_replay())
    assert (played.learner.weights == carry.learner.weights).all()
    last = checkpoint.restore(checkpoint.choose(tmp_path), like)
    assert (last.learner.replay == carry.learner.replay).all()
    (tmp_path / "0000000003" / "replay.npz").write_bytes(b"")
    with pytest.raises(PhalanxError, match=r"replay.npz does not match .* use --checkpoint 0000000002"):
        checkpoint.choose(tmp_path)


def test_checkpoints_can_be_rarer_than_evaluations(tmp_path):
    run = small(tmp_path / "run", eval_every=64, save_every=150, keep=9)
    assert len(run.metrics()) == 5
    assert [each.updates for each in checkpoint.listing(run.folder / "checkpoints")] == [0, 3, 4]


def test_checkpoints_that_no_disk_can_hold_are_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(PhalanxError, match=r"checkpoints of this run need .* try --keep 1, or another --out"):
        small(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_last_few_and_the_best_checkpoints_are_kept(tmp_path):
    carry = carry_of(jnp.arange(3))
    for updates, score in enumerate([1.0, 9.0, 2.0, None, 3.0, 9.0, 4.0, 5.0]):
        checkpoint.save(tmp_path, carry, updates=updates, score=score, metrics_bytes=0, seconds=0.0, keep=2)
    assert [each.updates for each in checkpoint.listing(tmp_path)] == [5, 6, 7]


def test_every_kind_of_array_comes_back_to_the_bit(tmp_path):
    weights = {
        "float": jnp.array([0.1, jnp.nan, -0.0, 1e-45], jnp.float32),
        "int8": jnp.array([-7], jnp.int8),
        "bool": jnp.array([True, False]),
        "none": jnp.zeros((2, 0)),
        "key": jax.random.split(jax.random.key(3), 2),
    }
    carry = carry_of(weights)
    checkpoint.save(tmp_path, carry, updates=1, score=0.0, metrics_bytes=0, seconds=0.0, keep=1)
    back = checkpoint.restore(checkpoint.choose(tmp_path), jax.eval_shape(lambda: carry)).learner.weights
    for name, value in weights.items():
        if name == "key":
            assert (jax.random.key_data(value) == jax.random.key_data(back[name])).all()
        else:
            assert np.asarray(value).tobytes() == np.asarray(back[name]).tobytes()
            assert value.dtype == back[name].dtype


def break_newest(run, how):
    newest = sorted((run.folder / "checkpoints").iterdir())[-1]
    if how == "flipped byte":
        data = bytearray((newest / "carry.npz").read_bytes())
        data[len(data) // 2] ^= 1
        (newest / "carry.npz").write_bytes(data)
    elif how == "changed manifest.json":
        text = (newest / "manifest.json").read_text()
        (newest / "manifest.json").write_text(text.replace('"metrics_bytes": ', '"metrics_bytes": 1'))
    else:
        (newest / how.split()[1]).unlink()
    return newest


@pytest.mark.parametrize(
    "how", ["flipped byte", "missing carry.npz", "missing manifest.json", "changed manifest.json"]
)
def test_a_broken_checkpoint_is_refused_by_name_and_the_one_before_is_offered(two_checkpoints, how):
    broken = break_newest(two_checkpoints, how)
    with pytest.raises(PhalanxError) as refused:
        phalanx.resume(two_checkpoints.folder, 512, quiet=True)
    message = str(refused.value)
    assert str(broken) in message
    before = sorted((two_checkpoints.folder / "checkpoints").iterdir())[-2].name
    assert f"--checkpoint {before}" in message
    with pytest.raises(PhalanxError, match="broken"):
        phalanx.load(two_checkpoints.folder)
    phalanx.resume(two_checkpoints.folder, 512, checkpoint=before, quiet=True)
    assert two_checkpoints.metrics()[-1]["env_steps"] == 512


def test_resuming_an_older_checkpoint_forgets_the_later_ones(two_checkpoints):
    """Else the next resume would take up a future that is not this run's any more."""
    older = sorted((two_checkpoints.folder / "checkpoints").iterdir())[-2]
    phalanx.resume(two_checkpoints.folder, 512, checkpoint=older.name, quiet=True)
    assert [row["env_steps"] for row in two_checkpoints.metrics()] == [0, 128, 256, 384, 512]
    found = checkpoint.listing(two_checkpoints.folder / "checkpoints")
    assert found[-1].updates == 8
    assert all(each.unreadable is None for each in found)


def test_a_metrics_file_that_lost_rows_is_refused_before_anything_is_dropped(two_checkpoints):
    before = sorted((two_checkpoints.folder / "checkpoints").iterdir())
    (two_checkpoints.folder / "metrics.jsonl").write_text("")
    with pytest.raises(PhalanxError, match="rows of it are missing"):
        phalanx.resume(two_checkpoints.folder, 512, checkpoint=before[-2].name, quiet=True)
    assert sorted((two_checkpoints.folder / "checkpoints").iterdir()) == before


def test_a_budget_below_what_is_done_is_refused(two_checkpoints):
    Record(two_checkpoints.folder).note(status="interrupted")
    with pytest.raises(PhalanxError, match="already has 256 env steps"):
        phalanx.resume(two_checkpoints.folder, 100)


def test_a_checkpoint_of_another_shape_is_refused_by_name(two_checkpoints):
    config = two_checkpoints.folder / "config.toml"
    config.write_text(config.read_text().replace("hidden = 8", "hidden = 16"))
    with pytest.raises(PhalanxError, match="does not fit"):
        phalanx.load(two_checkpoints.folder)


def test_a_full_disk_loses_nothing(two_checkpoints, monkeypatch):
    before = sorted(p.name for p in (two_checkpoints.folder / "checkpoints").iterdir())

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(PhalanxError, match="No space left on device; earlier checkpoints are untouched"):
        phalanx.resume(two_checkpoints.folder, 512, quiet=True)
    monkeypatch.undo()
    assert sorted(p.name for p in (two_checkpoints.folder / "checkpoints").iterdir()) == before
    phalanx.resume(two_checkpoints.folder, 512, quiet=True)
    assert two_checkpoints.facts["status"] == "finished"


# What stops a run


def test_numbers_that_are_no_longer_finite_stop_the_run(tmp_path):
    with pytest.raises(PhalanxError, match="no longer finite"):
        small(tmp_path / "run", lr=1e30, critic_lr=1e30, max_grad_norm=1e30, value_loss="squared")
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["status"].startswith("failed: ")


def test_a_plan_that_does_not_fit_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "free_bytes", lambda *_: 100_000)
    with pytest.raises(PhalanxError, match=r"needs .* of memory .* try --seeds"):
        small(tmp_path / "run", seeds=8)
    assert not (tmp_path / "run").exists()


def test_memory_does_not_grow_with_the_length_of_a_run():
    """C35: a thousand evaluations' worth of slices leave the process where it was."""
    loop = build("ippo", "debug/identity")
    carry = jax.jit(jax.vmap(loop.init))(jnp.array([0]))
    advance = jax.jit(jax.vmap(loop.advance, (0, None, None)), donate_argnums=0)

    def resident(calls, carry):
        for _ in range(calls):
            carry = advance(carry, jnp.int32(1), jnp.float32(1e4))
        jax.block_until_ready(carry)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), carry

    before, carry = resident(200, carry)
    after, _ = resident(2000, carry)
    assert after - before < 20e6


def memory_of_a_run():
    """Bytes planned for QMIX with a large replay, and those of the process before, at first and later.

    Large, so that what a step needs goes back to the system: of pieces below 32 MB glibc keeps some.
    """
    options = {**small_for("qmix"), "buffer": 1_500_000, "gradient_steps": 1, "reward": "mean"}
    layer = Layer("test", {"algorithm": options, "run": {"envs": 4}})
    names, config = ("qmix", "debug/identity"), registry.algorithm_config("qmix")
    setup = set_up(merge(names, config, {}, [layer]), registry.make_env(names[1], {}))
    programs = compile_programs(setup.loop, setup.evaluation).complete()

    def resident(calls, carry):
        for _ in range(calls):
            carry = jax.block_until_ready(programs.advance(carry, jnp.int32(1), jnp.float32(1e6)))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), carry

    before, _ = resident(0, None)
    first, carry = resident(5, programs.init(jnp.array([0], jnp.int32)))
    later, _ = resident(40, carry)
    return programs.bytes_needed, before, first, later


def test_the_plan_of_memory_is_what_a_run_takes():
    """With a replay that outweighs all else: within a tenth, and no more after many updates.

    In a process of its own: one that has freed memory takes that first, and grows by less.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        planned, before, first, later = pool.submit(memory_of_a_run).result()
    assert planned > 1e9
    assert (first - before) / planned == pytest.approx(1, abs=0.1)
    assert later - first < 0.05 * planned


# Policies


def test_a_loaded_policy_plays_as_the_evaluation_did(small_run):
    """C31, C32: obs in, actions out, memory carried; the returns are those of `evaluate`."""
    env = phalanx.make_env("switch/2")
    policy = phalanx.load(small_run.folder, which="last", seed=1)
    state, now = env.reset(jax.random.key(0))
    total, memory = np.zeros(2), None
    step = jax.jit(env.step)
    for t in range(50):
        seen = now.observation
        actions, memory = policy.act(seen.obs, memory, seen.avail, seen.alive)
        assert actions.shape == (2,)
        state, now = step(jax.random.key(t), state, actions)
        total += np.asarray(now.reward)
        if now.terminated:
            break
    expected = phalanx.evaluate(small_run.folder, which="last", episodes=4)["seeds"][1]["return"]
    assert total.mean() == pytest.approx(expected, abs=1e-5)  # switch always starts alike


def test_policies_act_for_many_teams_at_once_and_refuse_wrong_shapes(small_run):
    policy = small_run.policy()
    obs = np.random.default_rng(0).random((3, 2, 2))
    together, memory = policy.act(obs)
    assert together.shape == (3, 2)
    assert policy.act(obs, memory)[0].shape == (3, 2)
    for i in range(3):
        assert policy.act(obs[i])[0].tolist() == together[i].tolist()
    with pytest.raises(PhalanxError, match=r"obs must be \(2, 2\)"):
        policy.act(np.zeros((2, 3)))
    with pytest.raises(PhalanxError, match="has the seeds 0, 1, not 9"):
        phalanx.load(small_run.folder, seed=9)
    drawn, _ = policy.act(obs, greedy=False, key=jax.random.key(1))
    assert drawn.shape == (3, 2)


def test_a_forbidden_action_is_never_chosen(small_run):
    policy = small_run.policy()
    only = np.zeros((2, 5), bool)
    only[:, 3] = True
    for i in range(20):
        assert policy.act(np.random.default_rng(i).random((2, 2)), avail=only)[0].tolist() == [3, 3]


# Plots


def test_plots_are_drawn_from_the_folder_alone(small_run, tmp_path):
    steps, values = plots.curve(small_run.metrics(), "eval/return")
    assert steps.tolist() == [0, 128, 256, 384]
    assert values.shape == (2, 4)
    files = plots.plot([small_run.folder, small_run.folder], tmp_path / "both")
    assert [file.suffix for file in files] == [".png", ".svg"]
    assert all(file.stat().st_size > 1000 for file in files)
    assert plots.labels([small_run.folder]) == ["mappo switch/2"]
    assert "<!-- greedy win rate -->" in files[1].read_text()
    assert [file.name for file in plots.plot([small_run.folder], tmp_path / "one.png")] == [
        "one.png",
        "one.svg",
    ]


def test_runs_that_differ_only_in_what_is_not_compiled_share_their_programs(tmp_path, monkeypatch):
    """Another seed, budget and folder: nothing is traced again; another size is."""
    traced = []
    update = PPO.update
    monkeypatch.setattr(PPO, "update", lambda *args: traced.append(1) or update(*args))
    first = small(tmp_path / "first", seed=1, hidden=9)
    count = len(traced)
    assert count > 0
    again = small(tmp_path / "again", seed=1, steps=128, eval_every=64, hidden=9)
    assert len(traced) == count
    assert rows(again)[:1] == rows(first)[:1]
    small(tmp_path / "other", steps=128, hidden=10)
    assert len(traced) > count

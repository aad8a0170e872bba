"""What a resumed run promises: the longer run itself, or one line that says why not."""

import json
import signal
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import small
from test_run import assert_same_end, carry_of, rows

import phalanx
from phalanx.errors import PhalanxError
from phalanx.training import checkpoint
from phalanx.training.driver import Driver


def config(run):
    return tomllib.loads((run.folder / "config.toml").read_text())


def test_a_falling_rate_with_a_horizon_goes_on_as_if_the_run_had_been_longer(tmp_path):
    options = {"lr_decay": True, "lr_horizon": 512}
    whole = small(tmp_path / "whole", steps=512, **options)
    half = small(tmp_path / "half", steps=256, **options)
    rates = [row["learn/actor_lr"] for row in whole.metrics()[1:]]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 2 * rates[-1] > 0
    phalanx.resume(half.folder, 512, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert rows(whole) == rows(half)


def files(run):
    return {path.name: path.read_bytes() for path in run.folder.glob("*.*")}


def test_a_rate_that_falls_over_the_budget_is_not_stretched(tmp_path):
    """Another budget would have had other rates from the start; given their horizon, they stay at its end."""
    falling = {"group_lr": "all agents=1e-3:1e-4"}
    run = small(tmp_path / "run", steps=256, **falling)
    before = files(run)
    for steps, horizon in ((512, None), (512, 512), (128, None)):
        with pytest.raises(PhalanxError, match=r"decay over its budget of 256 env steps.* --lr-horizon 256"):
            phalanx.resume(run.folder, steps, lr_horizon=horizon, quiet=True)
    assert files(run) == before
    phalanx.resume(run.folder, 512, lr_horizon=256, quiet=True)
    whole = small(tmp_path / "whole", steps=512, lr_horizon=256, **falling)
    assert_same_end(whole.folder, run.folder, by_one_program=False)  # the horizon was the budget at first
    assert run.metrics()[-1]["learn/actor_lr"] == pytest.approx(1e-4)
    assert config(run)["algorithm"]["lr_horizon"] == 256
    with pytest.raises(PhalanxError, match="decay over 256 env steps: leave out lr_horizon"):
        phalanx.resume(run.folder, 1024, lr_horizon=1024, quiet=True)


def test_nobody_trains_at_a_rate_of_zero(tmp_path):
    run = small(tmp_path / "run", steps=128, lr_decay=True)
    before = files(run)
    with pytest.raises(PhalanxError, match="rates from the start: train a new run with --steps 256"):
        phalanx.resume(run.folder, 256, quiet=True)
    with pytest.raises(PhalanxError, match="all learning rates are 0 after lr_horizon=128 env steps"):
        phalanx.resume(run.folder, 256, lr_horizon=128, quiet=True)
    assert files(run) == before
    with pytest.raises(PhalanxError, match="use an lr_horizon of at least 256"):
        small(tmp_path / "other", steps=256, lr_decay=True, lr_horizon=128)


def test_a_resume_that_is_refused_changes_nothing(two_checkpoints, monkeypatch):
    run = two_checkpoints
    before = files(run)

    def refuse(*_):
        raise PhalanxError("it does not fit")

    monkeypatch.setattr(checkpoint, "restore", refuse)
    with pytest.raises(PhalanxError, match="it does not fit"):
        phalanx.resume(run.folder, 512, quiet=True)
    assert files(run) == before


def test_a_horizon_that_nothing_falls_over_is_refused(two_checkpoints, tmp_path):
    with pytest.raises(PhalanxError, match="lr_horizon is set and no learning rate decays"):
        small(tmp_path / "other", lr_horizon=512)
    with pytest.raises(PhalanxError, match="lr_horizon is set and no learning rate decays"):
        phalanx.resume(two_checkpoints.folder, 512, lr_horizon=256, quiet=True)


def test_the_configuration_says_what_happened(two_checkpoints):
    run = two_checkpoints
    phalanx.resume(run.folder, 512, quiet=True)
    text = (run.folder / "config.toml").read_text()
    assert "steps = 512  # resume" in text
    assert "hidden = 8  # argument" in text
    assert "gae_lambda = 0.95  # default" in text
    (resumed,) = run.facts["resumed"]
    assert run.facts["final"]["last"]["episodes"] == 4
    assert (resumed["env_steps"], resumed["steps"]) == (256, 512)
    assert resumed["versions"]["jax"] == jax.__version__


def test_another_version_than_the_checkpoints_is_said(two_checkpoints, capsys):
    run = two_checkpoints
    newest = checkpoint.choose(run.folder / "checkpoints").path
    manifest = json.loads((newest / "manifest.json").read_text())
    manifest.pop("seal")
    manifest["versions"]["jax"] = "0.0.1"
    manifest["seal"] = checkpoint._seal(manifest)
    (newest / "manifest.json").write_text(json.dumps(manifest))
    phalanx.resume(run.folder, 320)
    said = capsys.readouterr().out
    assert f"jax 0.0.1 (now {jax.__version__})" in " ".join(said.split())
    assert "not bit for bit" in " ".join(said.split())
    phalanx.resume(run.folder, 384)
    assert "not bit for bit" not in capsys.readouterr().out


def test_keys_of_another_kind_are_refused(tmp_path):
    with jax.default_prng_impl("rbg"):
        carry = carry_of({"key": jax.random.key(0)})
    checkpoint.save(tmp_path, carry, updates=1, score=0.0, metrics_bytes=0, seconds=0.0, keep=1)
    like = jax.eval_shape(lambda: carry_of({"key": jax.random.key(0)}))
    with pytest.raises(PhalanxError, match=r"does not fit: .*'key'.* is uint32\[4\], needed is uint32\[2\]"):
        checkpoint.restore(checkpoint.choose(tmp_path), like)


# No checkpoint of NaNs


def poisoned(monkeypatch, tmp_path, also_interrupt):
    """A run whose parameters become NaN with the third update, its metrics one update later."""
    progress = Driver._progress

    def poison(driver, count, seconds):
        wait = progress(driver, count, seconds)
        if driver.updates >= 3:
            learner = driver.carry.learner
            params = jax.tree.map(lambda x: jnp.full_like(x, np.nan), learner.actor.params)
            driver.carry = driver.carry._replace(
                learner=learner._replace(actor=learner.actor._replace(params=params))
            )
            if also_interrupt:
                signal.raise_signal(signal.SIGINT)
        return wait

    monkeypatch.setattr(Driver, "_progress", poison)
    with pytest.raises(PhalanxError, match="is no longer finite") as refused:
        small(tmp_path / "run", steps=512, eval_every=128 if also_interrupt else 64)
    return str(refused.value)


@pytest.mark.parametrize("also_interrupt", [False, True])
def test_what_is_not_a_number_is_never_saved(monkeypatch, tmp_path, also_interrupt):
    """Neither after an evaluation nor at an interrupt between two."""
    said = poisoned(monkeypatch, tmp_path, also_interrupt)
    assert str(tmp_path / "run" / "checkpoints") in said
    saved = checkpoint.listing(tmp_path / "run" / "checkpoints")
    assert saved[-1].updates == 2
    for each in saved:
        with np.load(each.path / "carry.npz") as arrays:
            assert not any(np.isnan(arrays[name]).any() for name in arrays.files if ".params" in name)
    assert "failed" in json.loads((tmp_path / "run" / "run.json").read_text())["status"]

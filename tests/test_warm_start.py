"""A run that starts from the networks of another: `--init-from RUN`."""

import shutil
import sys
import tomllib

import jax
import numpy as np
import pytest
from conftest import same, small_for
from custom_env import Agree
from test_run import small

import phalanx
from phalanx import cli
from phalanx.config import Layer
from phalanx.errors import PhalanxError
from phalanx.runs import open_run, read_carry, resolve, tables_of
from phalanx.training import checkpoint as checkpoints
from phalanx.training.driver import Driver
from phalanx.training.programs import carry_shapes
from phalanx.training.warm_start import start_from

QMIX = {"network": "mlp", "episodes": 4, "buffer": 64, "reward_norm": "scale"}


def setup_of(algorithm, env="mpe/simple_tag", env_options=None, **options):
    """A run that is put together and not compiled: by default of 3 adversaries and a good agent."""
    settings = {"envs": 4, "steps": 256, **small_for(algorithm), **options}
    tables = tables_of(algorithm, settings, env_options or {})
    return resolve(algorithm, env, Layer("argument", tables), preset="none")


def drawn(setup, seed):
    """A carry with random numbers in its learner."""
    numbers, shapes = np.random.default_rng(seed), carry_shapes(setup.loop)
    learner = shapes.without_replay().learner
    return shapes._replace(
        learner=jax.tree.map(lambda x: np.asarray(numbers.normal(size=x.shape), x.dtype), learner)
    )


def started(source, target):
    """The networks of a source, and those of a run that starts from it, both by role."""
    trained, new = drawn(source, 1), drawn(target, 2)
    after = start_from("SOURCE", source, trained, target)(new)
    return source.algorithm.networks(trained.learner), target.algorithm.networks(after.learner)


def of_group(network, group):
    return jax.tree.map(lambda x: x[:, group], network.parameters)


# What is taken over


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """IPPO with two seeds on debug/identity."""
    return small(tmp_path_factory.mktemp("source") / "run", seeds=2, steps=128, eval_every=64, lr=0.01)


@pytest.fixture(scope="module")
def warm(source, tmp_path_factory):
    """A run of other seeds that starts from it."""
    out = tmp_path_factory.mktemp("warm") / "run"
    return small(out, seeds=2, seed=5, steps=64, eval_every=64, lr=0.01, init_from=source.folder)


def learner_of(run, checkpoint=None):
    setup, record = open_run(run.folder, None)
    return read_carry(setup, record, checkpoint).learner


def test_a_run_begins_with_the_last_parameters_of_another(source, warm):
    trained, begun = learner_of(source), learner_of(warm, "0000000000")
    assert same(trained.actor.params, begun.actor.params)
    assert same(trained.critic.params, begun.critic.params)
    assert same(trained.value_norm, begun.value_norm)
    assert trained.value_norm.weight.all()
    assert not begun.gradient_steps.any()
    assert not any(np.any(x) for x in jax.tree.leaves(begun.actor.optimiser))


def test_its_first_evaluation_is_the_last_of_the_other(source, warm):
    """Curves are of the same episodes in all runs."""

    def returns(run, env_steps):
        return [row["eval/return"] for row in run.metrics() if row["env_steps"] == env_steps]

    assert returns(warm, 0) == returns(source, 128)
    assert returns(warm, 0) != returns(source, 0)


def test_it_resumes_without_the_other_run(source, warm, tmp_path):
    copy, gone = tmp_path / "copy", tmp_path / "source"
    shutil.copytree(warm.folder, copy)
    source.folder.rename(gone)
    try:
        phalanx.resume(copy, 128, quiet=True)
    finally:
        gone.rename(source.folder)
    assert phalanx.api.Run(copy).facts["status"] == "finished"


def test_qmix_takes_over_mixer_target_network_and_reward_statistics():
    setup = setup_of("qmix", "debug/two_step", **QMIX)
    trained = drawn(setup, 1)
    begun = start_from("SOURCE", setup, trained, setup)(drawn(setup, 2)).learner
    assert same(begun.actor.params, trained.learner.actor.params)
    assert same(begun.mixer.params, trained.learner.mixer.params)
    assert same(begun.target.actor, trained.learner.actor.params)
    assert same(begun.target.mixer, trained.learner.mixer.params)
    assert same(begun.reward_norm, trained.learner.reward_norm)
    assert not same(begun.epsilon, trained.learner.epsilon)
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(begun) if leaf.size]
    assert len(set(pointers)) == len(pointers)  # programs take over the memory of each


@pytest.mark.parametrize("algorithm", ["coma", "mappo_distil", "maa2c", "qplex"])
def test_every_kind_of_learner_can_start_from_another(algorithm):
    setup = setup_of(algorithm, "debug/two_step", **(QMIX if algorithm == "qplex" else {}))
    before, after = started(setup, setup)
    assert before.keys() == after.keys()
    assert all(same(before[role].parameters, after[role].parameters) for role in before)


def test_another_task_of_the_same_shape_is_fine():
    identity = setup_of("ippo", "debug/identity", {"actions": 2})
    before, after = started(identity, setup_of("ippo", "debug/memory"))
    assert same(before["critic"].parameters, after["critic"].parameters)


@pytest.mark.parametrize("share", ["type", "agent"])
def test_one_shared_network_becomes_one_for_each_type_or_agent(share):
    before, after = started(setup_of("ippo"), setup_of("ippo", share=share))
    for role, network in after.items():
        assert network.groups.count == {"type": 2, "agent": 4}[share]
        for group in range(network.groups.count):
            assert same(of_group(network, group), of_group(before[role], 0))


def test_the_network_of_a_type_becomes_that_of_its_agents():
    before, after = started(setup_of("ippo", share="type"), setup_of("ippo", share="agent"))
    for role, network in after.items():
        assert before[role].groups.of_agent == (0, 0, 0, 1)
        for agent, group in enumerate(before[role].groups.of_agent):
            assert same(of_group(network, agent), of_group(before[role], group))
        assert not same(of_group(network, 0), of_group(network, 3))


def test_one_trained_seed_becomes_many_and_each_of_many_one():
    one, two = setup_of("ippo"), setup_of("ippo", seeds=2)
    before, after = started(one, two)
    for seed in (0, 1):
        taken = jax.tree.map(lambda x, seed=seed: x[seed], after["actor"].parameters)
        assert same(taken, jax.tree.map(lambda x: x[0], before["actor"].parameters))
    before, after = started(two, two)
    assert same(before["actor"].parameters, after["actor"].parameters)


# What is refused

# Q-networks of the shape of IPPO's actors
LIKE_IPPO = {"network": "mlp", "layers": 2, "last_action": False, "episodes": 4, "buffer": 64}


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ({}, {"hidden": 16}, r"SOURCE: actor\['head'\]\['kernel'\] is \[8, 5\], needed is \[16, 5\]"),
        ({}, {"network": "gru"}, r"SOURCE: actor\['gru'\].* is in only one of the two"),
        ({"algorithm": "iql", **LIKE_IPPO}, {}, "SOURCE: iql has no critic"),
        ({}, {"algorithm": "iql", **LIKE_IPPO}, "SOURCE: ippo has no mixer"),
        ({}, {"algorithm": "random"}, "random has no networks to start from SOURCE"),
        ({"seeds": 2}, {"seeds": 3}, "SOURCE has 2 seeds, and this run 3: train 2 seeds, or start from one"),
        ({"seeds": 2}, {}, "SOURCE has 2 seeds, and this run 1"),
        ({"share": "agent"}, {}, "SOURCE: actor: the agents of all agents had 4 networks, not one"),
        (
            {"share": "agent", "env": "debug/identity"},
            {"share": "agent"},
            "SOURCE: actor is of 2 agents in 2 groups, and this run has 4 agents",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(source, target, said):
    source, target = (setup_of(**{"algorithm": "ippo", **each}) for each in (source, target))
    with pytest.raises(PhalanxError, match=said) as refused:
        start_from("SOURCE", source, drawn(source, 1), target)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--init-from", "SOURCE", "--hidden", "16", "--seeds", "2"], "needed is [16, 3]"),
        (["--init-from", "nowhere"], "nowhere is not a run folder: it has no run.json"),
    ],
)
def test_the_command_line_refuses_before_anything_is_compiled_or_written(
    source, words, said, tmp_path, monkeypatch, capsys
):
    words = [str(source.folder) if word == "SOURCE" else word for word in words]
    settings = ["--envs", "4", "--batch-steps", "64", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["phalanx", "train", "ippo", "debug/identity", *settings, *words])
    monkeypatch.setattr(Driver, "_compile", lambda driver: pytest.fail("compiled"))
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out
    assert not (tmp_path / "run").exists()


def test_a_run_in_an_environment_object_can_start_from_another_in_it(tmp_path):
    """Such an environment has no name to build it from: the new run brings it."""
    env = make_object()
    first = small(tmp_path / "first", env=env, steps=64, eval_every=64)
    assert tomllib.loads((first.folder / "config.toml").read_text())["run"]["env"].startswith("object:")
    second = small(tmp_path / "second", env=env, steps=64, eval_every=64, init_from=str(first.folder))
    assert second.metrics()[0]["eval/return"] == first.metrics()[-1]["eval/return"]


def make_object():
    class Local(Agree):
        """Not importable by name."""

    return Local()


def test_a_broken_checkpoint_is_refused_with_what_can_be_done(two_checkpoints, tmp_path):
    """Training has no option for the checkpoint to start from: none is named."""
    newest = checkpoints.listing(two_checkpoints.folder / "checkpoints")[-1].path
    (newest / checkpoints.ARRAYS).write_bytes(b"")
    with pytest.raises(PhalanxError, match=r"is damaged: .*: remove the damaged one to start from \d+$"):
        small(tmp_path / "new", init_from=two_checkpoints.folder)
    assert not (tmp_path / "new").exists()

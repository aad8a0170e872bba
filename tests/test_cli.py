"""The command line: what it prints, and one line with exit code 2 for every mistake."""

import contextlib
import fnmatch
import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import phalanx
from phalanx import cli, registry
from phalanx.config import RunConfig, merge, options_of
from phalanx.errors import PhalanxError
from phalanx.training.compile_costs import equations, kernels

HERE = Path(__file__).parent

# Every wrong invocation and what its one line must say.
WRONG = {
    "trane mappo switch/2": "Did you mean train?",
    "train": "phalanx train ALGORITHM ENV",
    "train mappo": "phalanx train ALGORITHM ENV",
    "train mapo switch/2": "unknown algorithm 'mapo'. Did you mean mappo",
    "train mappo swich/2": "unknown environment 'swich/2'. Did you mean switch/2",
    "train mappo switch/5": "unknown environment 'switch/5'. Did you mean switch/",
    "train mappo battle/3mm": "unknown environment 'battle/3mm'. Did you mean battle/3m",
    "train mappo battle/3m --env.reward dense": "reward must be one of absolute, clamped, signed, sparse",
    "train mappo battle/3m --env.conic-view": "unknown option --env.conic-view",
    "train mappo battle/v2_zerg_5_vs_5 --env.prob-obs-enemy 2": "prob_obs_enemy must be at most 1",
    "eval heuristic switch/2": "switch/2 has no scripted team",
    "train mappo mpe/simple_spred": "unknown environment 'mpe/simple_spred'. Did you mean mpe/simple_spread",
    "train mappo mpe/simple_spread --env.agents 0": "agents must be at least 1, not '0'",
    "train mappo mpe/simple_spread --env.local-ratio 2": "local_ratio must be at most 1",
    "train mappo mpe/simple_tag --env.prey tame": "prey must be one of learning, scripted",
    "train mappo mpe/simple_tag --env.obstacles -1": "obstacles must be at least 0",
    "train coma mpe/simple_spread --env.continuous-actions": "has no continuous actions",
    "train mappo mpe/simple_tag --share all": "cannot be shared by the teams of mpe/simple_tag: choose",
    "eval random mpe/simple_tag --env.food 2": "unknown option --env.food",
    "eval random mpe/simple_tag --env.good none": "good must be a whole number, not 'none'",
    "check-env mpe/simple_tag --env.good 0": "good must be at least 1",
    "check-env --env.good 1 mpe/simple_tag": "name the environment before its options",
    "eval randm mpe/simple_tag --env.good 1": "unknown algorithm 'randm'. Did you mean random",
    "eval random mpe/simple_tag --which last": "which is for a run folder, and random is an untrained",
    "eval damaged --env.agents 4": "damaged has its own environment",
    "train mappo switch/2 --value-norm-decay 1": "value_norm_decay must be below 1",
    "train mappo battle/MMM --share type --group-lr medevac=1": "Did you mean medivac",
    "train mappo switch/2 --step 100": "unknown option --step of `phalanx train`. Did you mean --steps",
    "train mappo switch/2 --learning-rate 1": "unknown option --learning-rate",
    "train mappo switch/2 --steps many": "steps must be a whole number, not 'many'",
    "train mappo switch/2 --steps 1e14": "is more than 2,147,483,647 updates",
    f"train mappo switch/2 --steps {'9' * 400}": "steps must be at most 1e+18",
    "train mappo switch/2 --seed 2147483647 --seeds 2": "the last of 2 seeds from 2147483647",
    "train random switch/2 --envs 100": "cannot be cut into 100 environments",
    "train mappo switch/2 --entropy -1e-3": "entropy must be at least 0",
    "train mappo switch/2 --layers 1e6": "layers must be at most 64",
    "train mappo switch/2 --out taken/file/run": "is not a folder one can write to",
    f"train mappo switch/2 --out {'x' * 300}": "cannot write",
    "train mappo switch/2 --steps 0": "steps must be at least 1",
    "train mappo switch/2 --steps 1.5": "steps must be a whole number",
    "train mappo switch/2 --seeds -1": "seeds must be at least 1",
    "train mappo switch/2 --gamma 1.5": "gamma must be at most 1",
    "train mappo switch/2 --lr 0": "lr must be above 0",
    "train mappo switch/2 --lr nan": "lr must be a finite number",
    "train mappo switch/2 --network cnn": "network=cnn needs pictures",
    "train mappo switch/2 --network gro": "Did you mean gru",
    "train mappo switch/2 --share unit": "share must be all, team, type, agent",
    "train --seeds 2 mappo switch/2": "name an algorithm and an environment first",
    "train mappo switch/2 --critic-share 0;0": "critic_share must be all, team, type, agent",
    "train mappo switch/2 --reward own": "choose reward=mean",
    "train mappo switch/2 --envs 100": "cannot be cut into 100 environments",
    "train mappo custom_env:Raises": "cannot build 'custom_env:Raises': RuntimeError: no licence",
    "train mappo custom_env:OddOption": "OddOption.sizes cannot be an option",
    "train mappo switch/2 --envs 1e6": "is more than the 2048 env steps of an update",
    "train mappo switch/2 --env.clok": "unknown option --env.clok",
    "train mappo switch/2 --env.time-limit 0": "time_limit must be at least 1",
    "train mappo switch/2 --steps": "expected one argument",
    "train mappo switch/2 extra": "unexpected argument 'extra'",
    "train mappo switch/2 --config nowhere.toml": "cannot read nowhere.toml: No such file",
    "train mappo switch/2 --config broken.toml": "is not valid TOML",
    "train mappo switch/2 --config odd.toml": "unknown option 'lrr' in [algorithm] (file odd.toml).",
    "train mappo switch/2 --config table.toml": "unknown table [algoritm]",
    "train mappo switch/2 --preset fast": "mappo has no preset 'fast'",
    "train mappo switch/2 --out taken": "already exists",
    "train mappo custom_env:Unsound": "violates the interface: step gives reward as float32[]",
    "train coma custom_env:Steering": "has no continuous actions",
    "train mappo custom_env:NeedsArguments": "cannot build 'custom_env:NeedsArguments'",
    "train mappo custom_env:Nothing": "has no 'Nothing'",
    "train mappo no_such_module:Env": "No module named",
    "resume nowhere": "there is no run folder nowhere",
    "resume taken": "is not a run folder: it has no run.json",
    "resume damaged": "run.json is not readable",
    "eval damaged": "run.json is not readable",
    "eval damaged switch/2": "is a run folder, which has its environment",
    "eval mappo": "name an environment for mappo",
    "eval nowhere": "there is no run folder",
    "eval random switch/2 --episodes none": "--episodes must be a whole number",
    "plot": "the following arguments are required: RUN",
    "plot nowhere": "there is no run folder",
    "list maps": "cannot list 'maps'",
    "check-env switch/9": "unknown environment",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(HERE))
    (tmp_path / "broken.toml").write_text("[run\n")
    (tmp_path / "odd.toml").write_text("[algorithm]\nlrr = 1\n")
    (tmp_path / "table.toml").write_text("[algoritm]\nlr = 1\n")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("[1]")
    return tmp_path


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_line_and_exit_code_2(words, folder, monkeypatch, capsys):
    before = sorted(folder.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["phalanx", *words.split()])
    with pytest.raises(SystemExit) as left:
        cli.main()
    captured = capsys.readouterr()
    assert left.value.code == 2
    assert WRONG[words] in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("phalanx: ")
    assert "Traceback" not in captured.err
    assert [p for p in sorted(folder.rglob("*")) if "__pycache__" not in str(p)] == before  # no half-made run


def run_cli(*words, cwd):
    return subprocess.run(
        [sys.executable, "-m", "phalanx.cli", *words], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_a_device_that_runs_out_of_memory_is_one_line(monkeypatch, capsys):
    """Any other error of JAX has its traceback."""

    def fail_with(message):
        def command(words):
            raise RuntimeError(message)

        monkeypatch.setattr(cli, "find", lambda words: command)
        cli.main()

    with pytest.raises(SystemExit) as stopped:
        fail_with("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 20.93GiB.\nMore of it")
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("phalanx: the device ran out of memory (RESOURCE_EXHAUSTED: ")
    assert "20.93GiB.): if other programs use it" in said
    assert said.count("\n") == 1
    with pytest.raises(RuntimeError, match="INTERNAL"):
        fail_with("INTERNAL: something else")
    with pytest.raises(SystemExit) as stopped:
        fail_with("RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 262144, available 232448")
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "phalanx: a kernel needs more memory than a core of this GPU has (RESOURCE_EXHAUST"
    )
    assert said.endswith("): leave out --env.kernel, or set PHALANX_KERNELS=off\n")


def test_a_warning_is_one_plain_line_on_stderr(monkeypatch, capsys):
    """Also if a library gives the root logger a handler; and nothing is left of it after the command."""
    logger, others = logging.getLogger("phalanx.report.mirrors"), []
    elsewhere = logging.Handler()
    elsewhere.emit = others.append
    monkeypatch.setattr(logging.getLogger(), "handlers", [elsewhere])

    def command(words):
        logger.warning("%s is off:\nno login", "Weights & Biases")
        logger.info("of no interest")
        return 0

    monkeypatch.setattr(cli, "find", lambda words: command)
    for _ in range(2):
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert stopped.value.code == 0
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", "warning: Weights & Biases is off: no login\n")
    assert not others
    logger.warning("from Python")
    assert [record.getMessage() for record in others] == ["from Python"]


def test_the_whole_story_from_the_shell(tmp_path):
    """Train, evaluate, plot and resume, as a stranger would, with output that is not a terminal."""
    (tmp_path / "my.toml").write_text("[algorithm]\nlr = 2e-3\nhidden = 8\n[run]\nenvs = 4\n")
    options = ["--config", "my.toml", "--batch-steps", "64", "--eval-episodes", "4", "--hidden", "16"]
    trained = run_cli(
        *["train", "ippo", "switch/2", "--steps", "2e2", "--out", "r", "--no-tensorboard", "--env.clock"],
        *["--share", "agent", "--lr-horizon", "500", *options],
        cwd=tmp_path,
    )
    assert trained.returncode == 0, trained.stderr
    assert trained.stderr == ""
    for said in (
        "ippo on switch/2: 2 agents",
        "one for each of agent_0; agent_1; sees own observation",
        "memory",
        "256 env steps",
        "\x1b",
    ):
        assert (said in trained.stdout) == (said != "\x1b"), trained.stdout
    assert not (tmp_path / "r" / "tb").exists()
    text = (tmp_path / "r" / "config.toml").read_text()
    assert "lr = 0.002  # file my.toml" in text
    assert "hidden = 16  # command line" in text
    assert "clock = true  # command line" in text
    assert 'share = "agent"  # command line' in text
    evaluated = run_cli("eval", "r", "--episodes", "5", "--json", cwd=tmp_path)
    result = json.loads(evaluated.stdout)
    assert {"return", "win_rate", "length", "episodes", "seeds"} <= result.keys()
    assert result["episodes"] == 5
    plotted = run_cli("plot", "r", cwd=tmp_path)
    assert (tmp_path / plotted.stdout.split()[0]).is_file()
    resumed = run_cli("resume", "r", "--steps", "5e2", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "continuing at 256 env steps" in resumed.stdout


def test_an_untrained_algorithm_can_be_evaluated(capsys):
    assert cli.run(["eval", "random", "debug/identity", "--episodes", "64", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 2 < result["return"] < 3.4  # 8 steps at one chance in three


def test_an_environment_of_the_users_own(tmp_path, monkeypatch):
    """By name from the command line, as an object from Python, and resumed either way."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(HERE))
    from custom_env import Agree

    options = {"steps": 512, "envs": 4, "batch_steps": 128, "hidden": 8, "quiet": True, "eval_episodes": 4}
    run = phalanx.train("ippo", Agree(pay=2.0), **options)
    assert run.folder.parts[:-1] == ("results", "ippo", "custom_env-Agree")
    assert 'env = "custom_env:Agree"' in (run.folder / "config.toml").read_text()
    assert phalanx.evaluate(run.folder, episodes=4)["return"] in (0.0, 8.0)

    class Local(Agree):
        """Not importable: only the object itself will do."""

    local = phalanx.train("ippo", Local(), **options)
    with pytest.raises(PhalanxError, match="passed as a Python object"):
        phalanx.resume(local.folder, 1024)
    phalanx.resume(local.folder, 1024, env=Local(), quiet=True)
    assert local.metrics()[-1]["env_steps"] == 1024


def test_check_env_explains_breaches(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(HERE))
    assert cli.run(["check-env", "custom_env:Agree"]) == 0
    assert "implements the interface" in capsys.readouterr().out
    assert cli.run(["check-env", "custom_env:Unsound"]) == 2
    assert "gives reward as float32[], but the spec asks for float32[2]" in capsys.readouterr().err


def test_help_is_made_from_the_configs(capsys):
    assert cli.run(["train", "mappo", "switch/2", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for option in {**options_of(RunConfig), **options_of(registry.algorithm_config("mappo"))}.values():
        assert f"--{option.name.replace('_', '-')}" in text
        assert " ".join(option.help.split()) in text
    assert "--env.time-limit" in text
    assert "(preset: gru)" in text  # what the run would have, not only what the class has
    assert cli.run([]) == 0
    assert "check-env" in capsys.readouterr().out


def test_listing_and_helping_import_nothing_heavy(tmp_path):
    code = (
        "import sys; from phalanx import cli;"
        "cli.run(['list']); cli.run(['--help']); cli.run(['train', '--help']);"
        "assert not {'jax', 'flax', 'matplotlib'} & set(sys.modules), 'heavy'"
    )
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 30
    for name in ("mappo", "switch/4", "debug/death", "mappo/switch"):
        assert name in done.stdout


def test_names_of_options_do_not_clash():
    run = options_of(RunConfig).keys()
    for name in registry.algorithms():
        assert not run & options_of(registry.algorithm_config(name)).keys()


def test_every_preset_can_be_used():
    """On one family of environments at least: all its options are known and within bounds."""
    for name in registry.presets():
        algorithm, _, which = name.partition("/")
        layer = registry.preset(algorithm, "", which)
        fitting = []
        for env in ("switch/2", "battle/3m", "mpe/simple_spread"):
            with contextlib.suppress(PhalanxError):
                merge(
                    (algorithm, env), registry.algorithm_config(algorithm), registry.env_options(env), [layer]
                )
                fitting.append(env.partition("/")[0])
        assert fitting, name
        if which in ("switch", "battle", "mpe"):
            assert which in fitting


def test_a_preset_is_chosen_by_environment_then_by_family():
    chosen = {
        env: registry.preset("mappo", env, "auto").origin
        for env in (
            "battle/3m",
            "battle/5m_vs_6m",
            "battle/corridor",
            "battle/2m_vs_1z",
            "battle/3s_vs_5z",
            "battle/v2_zerg_5_vs_5",
            "mpe/simple_tag",
        )
    }
    hard = "battle_hard"
    presets = ("battle", hard, "battle_agent_state", "battle_kite", "battle_memory", hard, "mpe")
    assert list(chosen.values()) == [f"preset mappo/{name}" for name in presets]
    assert registry.preset("mappo", "debug/memory", "auto") is None
    for name, env in (("ppo", "classic"), ("ippo", "classic"), ("ppo", "switch"), ("ippo", "switch")):
        assert registry.preset(name, f"{env}/any", "auto").origin == f"preset {name}/{env}"
    named = [env for preset in registry.presets() for env in registry._preset_envs(preset)]
    assert len(named) > 5
    assert all(fnmatch.filter(registry.envs(), each) for each in named)


def test_doctor_says_what_compiling_costs(capsys, monkeypatch):
    monkeypatch.setenv("PHALANX_CACHE", "off")
    assert cli.run(["doctor", "--compile", "random", "debug/identity", "--env.actions", "4"]) == 0
    said = capsys.readouterr().out
    for program in ("learn", "play", "init", "track_best"):
        (line,) = (line for line in said.splitlines() if f" {program} " in line)
        seconds = [float(entry) for entry in line.replace(",", "").replace("│", " ").split()[1:]]
        assert seconds[2] > 0  # to compile
        assert seconds[3] > 10  # equations
        assert seconds[5] > 0  # kernels


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["mapo", "debug/identity"], "unknown algorithm 'mapo'"),
        (["mappo"], "name an algorithm and an environment first"),
        (["ippo", "debug/identity", "--lrr", "1"], "unknown option --lrr"),
        (["ippo", "debug/identity", "--out", "here"], "leave out --out, --hosts, --devices"),
        (["ippo", "debug/identity", "--devices", "2"], "leave out --out, --hosts, --devices"),
    ],
)
def test_doctor_refuses_what_it_cannot_compile(words, why, monkeypatch):
    monkeypatch.setenv("PHALANX_CACHE", "off")
    with pytest.raises(PhalanxError, match=why):
        cli.run(["doctor", "--compile", *words])


def test_equations_of_inner_programs_are_counted():
    inner = jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y) + 1, x))(1.0)
    assert equations(inner) >= 3 > len(inner.eqns)


PROGRAM = """HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%inside (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %a = f32[8]{0} sine(%p)
  ROOT %b = f32[8]{0} cosine(%a)
}

%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]{0}) parameter(0)
  %x = f32[8]{0} get-tuple-element(%t), index=1
  %two = f32[8]{0} fusion(%x), kind=kLoop, calls=%inside
  %sorted = f32[8]{0} sort(%two), dimensions={0}, to_apply=%less
  ROOT %out = (s32[], f32[8]{0}) tuple(%i, %sorted)
}

%check (t: (s32[], f32[8])) -> pred[] {
  %t = (s32[], f32[8]{0}) parameter(0)
  ROOT %less = pred[] fusion(%t), kind=kLoop, calls=%inside
}

%few (p: f32[8]) -> f32[8] {
  ROOT %p = f32[8]{0} copy(%q)
}

%many (p: f32[8]) -> f32[8] {
  %begun = (f32[8]{0}, f32[8]{0}) copy-start(%p)
  %done = f32[8]{0} copy-done(%begun)
  %other = ((f32[8]{0}), f32[8]{0}) fusion-start(%p), kind=kLoop, calls=%inside
  %same = f32[8]{0} fusion-done(%other)
  ROOT %called = f32[8]{0} call(%done), to_apply=%graph
}

%graph (p: f32[8]) -> f32[8] {
  %one = f32[8]{0} custom-call(%p), custom_call_target="__gpu$xla.gpu.triton"
  ROOT %two = f32[8]{0} custom-call(%one), custom_call_target="__cublas$gemm"
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %known = (s32[], f32[8]{0}) while(%p), condition=%check, body=%body, backend_config={SEVEN}
  %open = (s32[], f32[8]{0}) while(%known), condition=%check, body=%body
  ROOT %chosen = f32[8]{0} conditional(%open), branch_computations={%few, %many}
}
""".replace("SEVEN", '"known_trip_count":{"n":"7"}')


def test_kernels_are_counted_as_often_as_they_run():
    """Two in each of seven turns; two and the question in a loop without end; four in the larger branch."""
    assert kernels(PROGRAM) == kernels(PROGRAM.replace("%", "")) == 7 * 2 + 3 + 4


def test_kernels_of_a_compiled_loop_grow_with_its_turns():
    def counted(turns):
        def run(x):
            return jax.lax.scan(lambda y, z: (jnp.sort(jnp.sin(y) @ z), y.sum()), x, jnp.ones((turns, 8, 8)))

        return kernels(jax.jit(run).lower(jnp.ones((8, 8))).compile().as_text())

    few, more, most = map(counted, (10, 20, 30))
    assert few >= 20, "a product and a sort in each"
    assert more - few == most - more >= 20


def test_doctor_trains_and_says_so(capsys):
    assert cli.run(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "so training learns" in said
    assert "jaxlib" in said

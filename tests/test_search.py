"""The search: which settings there are, which go on, and that a kill costs nothing."""

import json
import math
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

import phalanx
from phalanx import cli, search
from phalanx.config import Layer, options_of
from phalanx.errors import PhalanxError
from phalanx.registry import preset
from phalanx.report import importance, metrics, search_page
from phalanx.report.compare import gather
from phalanx.search import runner, sampler
from phalanx.search.halving import best_first, cost, halve, most_settings, rungs
from phalanx.search.space import Plan, price
from phalanx.training import checkpoint

PLAN = {"algorithm": "ippo", "env": "debug/identity", "steps": 256, "seeds": 2}
FIXED = {"envs": 4, "batch_steps": 64, "hidden": 8, "epochs": 2, "minibatches": 2, "network": "mlp"}
FIXED |= {"eval_every": 64, "eval_episodes": 4, "final_episodes": 4}
SEARCH = {"lr": {"low": 1e-4, "high": 1e-2, "log": True}, "entropy": [0.0, 0.1]}


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def file(folder, plan=None, searched=None, fixed=None):
    """A search file."""
    tables = {"plan": {**PLAN, **(plan or {})}, "fixed": {**FIXED, **(fixed or {})}}
    tables["search"] = SEARCH if searched is None else searched
    lines = []
    for table, entries in tables.items():
        lines += [f"[{table}]", *(f"{json.dumps(name)} = {toml(value)}" for name, value in entries.items())]
    path = folder / "space.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def space(folder, budget=None, **tables):
    return search.read(file(folder, **tables), budget, folder / "out")


# Settings


def test_a_range_is_covered_evenly_and_a_list_equally_often(tmp_path):
    asked = sampler.Spread(space(tmp_path, plan={"settings": 10})).ask(10)
    logs = sorted(math.log10(each["lr"]) for each in asked)
    assert [math.floor((each + 4) / 0.2 + 1e-6) for each in logs] == list(range(10))
    assert sorted(each["entropy"] for each in asked) == [0.0] * 5 + [0.1] * 5


def test_lists_alone_are_a_grid(tmp_path):
    lists = {"lr": [1e-3, 1e-2], "entropy": [0.0, 0.1, 0.2]}
    whole = space(tmp_path, searched=lists)
    assert (whole.settings, whole.grid) == (6, True)
    asked = sampler.Spread(whole).ask(6)
    assert len({tuple(each.values()) for each in asked}) == 6
    part = space(tmp_path, plan={"settings": 4}, searched=lists)
    assert (part.settings, part.grid) == (4, False)
    assert len({tuple(each.values()) for each in sampler.Spread(part).ask(4)}) == 4


def test_an_option_can_have_the_value_of_another(tmp_path):
    found = space(tmp_path, plan={"settings": 3}, searched={**SEARCH, "critic_lr": "lr"})
    assert found.complete({"lr": 1e-3, "entropy": 0.0}) == {"lr": 1e-3, "entropy": 0.0, "critic_lr": 1e-3}


# Halving


def test_rungs_multiply_steps_and_divide_settings():
    schedule = rungs(64, 16_000, 3, 4)
    assert schedule == [(64, 1_000), (16, 4_000), (4, 16_000)]
    assert cost(schedule, 2) == 2 * (64 * 1_000 + 16 * 3_000 + 4 * 12_000)


def test_halving_keeps_the_best_on_a_known_objective():
    """The score of setting i after n steps is -(i - 37)^2 - 1000 / n, so the order never changes."""
    trained = []

    def train(names, rung):
        trained.append(names)
        return {name: -((name - 37) ** 2) - 1000 / schedule[rung].steps for name in names}

    schedule = rungs(64, 16_000, 3, 4)
    halve(range(64), schedule, train)
    assert [len(each) for each in trained] == [64, 16, 4]
    assert set(trained[1]) == set(range(29, 46)) - {45}  # nearest to 37; of the equals 29 and 45 the first
    assert trained[2][0] == 37
    assert set(trained[2]) == {35, 36, 37, 38}


def test_a_diverged_setting_never_goes_on():
    seen = []

    def train(names, rung):
        seen.append(names)
        return {name: None if name < 6 else float(name) for name in names}

    halve(range(8), rungs(8, 100, 3, 2), train)
    assert seen == [list(range(8)), [7, 6], [7, 6]]
    assert best_first({0: None, 1: (0.0, 1.0), 2: (0.0, 2.0)}) == [2, 1]


@pytest.mark.parametrize("plan", [{}, {"rungs": 3}, {"rungs": 3, "factor": 2, "sampler": "tpe", "round": 5}])
def test_a_budget_buys_as_many_settings_as_fit(plan):
    whole = Plan("ippo", "debug/identity", steps=1_000, **plan)
    for budget in (1, 1_999, 2_000, 50_000, 123_456):
        most = most_settings(budget, lambda n: price(whole, n))
        assert budget < price(whole, most + 1)
        assert not most or price(whole, most) <= budget


# What mattered


def test_the_share_of_an_option_is_that_of_a_known_function():
    """score = 2 a + b with a, b uniform on two values: a has 4/5 of the variance, b 1/5, c nothing."""
    settings = [{"a": a, "b": b, "c": c} for a in (0, 1) for b in (0, 1) for c in (0, 1)] * 40
    scores = np.array([[2.0 * each["a"] + each["b"]] * 2 for each in settings])
    found = importance.importance(["a", "b", "c"], settings, scores, {"a", "b", "c"})
    shares = {each.name: each.share for each in found.effects}
    assert [each.name for each in found.effects] == ["a", "b", "c"]
    assert shares == pytest.approx({"a": 0.8, "b": 0.2, "c": 0.0}, abs=0.01)
    assert {each.name for each in found.effects if each.chance < 0.05} == {"a", "b"}
    assert found.seeds == 0


def test_chance_alone_has_no_share_and_is_told_as_seeds():
    random = np.random.default_rng(0)
    settings = [{"a": value} for value in random.random(200)]
    found = importance.importance(["a"], settings, random.normal(size=(200, 4)), set())
    assert found.effects[0].share < 0.05
    assert found.seeds == pytest.approx(1, abs=0.25)


# A whole search

HALVING = {"settings": 4, "rungs": 2, "factor": 2}


class Killed(BaseException):
    """Nothing catches it."""


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """Programs of equal lanes are compiled once for all tests."""
    known, compile_lanes = {}, runner.compile_lanes

    def remembered(lane, width, names, devices):
        key = (repr(lane.config), lane.env, lane.envs, width, tuple(names), devices)
        if key not in known:
            known[key] = compile_lanes(lane, width, names, devices)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "compile_lanes", remembered)
        yield known


def run(folder, lines=None, **tables):
    """Make a search and run it to its end."""
    folder.mkdir(exist_ok=True)
    made = search.Search(space(folder, **{"plan": HALVING, **tables}), (lines or []).append)
    made.run()
    return made


def numbers(folder):
    """Every number that was measured, as text."""
    files = sorted((folder / "out" / "blocks").glob("*/*.json*"))
    return {str(path.relative_to(folder)): path.read_text() for path in files}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A search that nothing stopped, of two rungs."""
    folder = tmp_path_factory.mktemp("straight")
    return folder, run(folder)


def test_one_program_trains_all_settings_and_halving_stops_those_behind(straight):
    folder, made = straight
    assert made.shapes.reasons == {}
    assert sorted(path.name for path in (folder / "out" / "blocks").iterdir()) == ["1-1-1", "1-2-1"]
    first = {trial.number: trial.rungs[0] for trial in made.trials}
    went_on = {trial.number for trial in made.trials if len(trial.rungs) == 2}
    assert went_on == set(best_first({n: (r["score"], r["return"]) for n, r in first.items()})[:2])
    assert made.best().number in went_on
    assert made.env_steps == made.space.env_steps == 2 * (4 * 128 + 2 * 128)


def test_a_setting_does_as_its_run_does(straight, tmp_path):
    """The last rung has two settings: lanes that moved from a program of eight to one of four."""
    folder, made = straight
    best = made.best()
    alone = phalanx.train("ippo", "debug/identity", out=tmp_path / "run", steps=256, seeds=2, quiet=True,
                          **FIXED, **best.setting)  # fmt: skip
    rows = [row for path in ("1-1-1", "1-2-1") for row in metrics.read(folder / "out" / "blocks" / path)]
    mine = {
        (row["seed"], row["env_steps"]): row["eval/return"] for row in rows if row["setting"] == best.number
    }
    theirs = {(row["seed"], row["env_steps"]): row["eval/return"] for row in alone.metrics()}
    assert mine.keys() == theirs.keys()
    assert mine == pytest.approx(theirs, abs=1e-3)
    ended = [row["return"] for row in alone.facts["final"]["last"]["seeds"]]
    assert best.rungs[-1]["returns"] == pytest.approx(ended, abs=1e-3)


@pytest.mark.parametrize(
    ("where", "at"), [*(("training", at) for at in range(1, 5)), ("saving", 1), ("saving", 2), ("saving", 4)]
)
def test_a_killed_search_goes_on_to_the_bit(straight, tmp_path, monkeypatch, where, at):
    """Killed in some call of the program that trains, or between rows and their checkpoint."""
    calls = {"training": 0, "saving": 0}

    def counted(name, fn):
        def call(*args, **kwargs):
            calls[name] += 1
            if (name, calls[name]) == (where, at):
                raise Killed
            return fn(*args, **kwargs)

        return call

    def killing(lane, width, names, devices):
        made = compiled(lane, width, names, devices)
        return made._replace(advance=counted("training", made.advance))

    compiled = runner.compile_lanes
    monkeypatch.setattr(runner, "compile_lanes", killing)
    monkeypatch.setattr(checkpoint, "save", counted("saving", checkpoint.save))
    folder = tmp_path / "search"
    with pytest.raises(Killed):
        run(folder)
    assert json.loads((folder / "out" / "search.json").read_text())["status"] == "running"
    made = run(folder)
    # Four updates in all, one in each call: what was saved is not trained again.
    assert calls["training"] == (5 if (where, at) != ("saving", 1) else 4)
    assert numbers(folder) == numbers(straight[0])
    assert made.best().setting == straight[1].best().setting
    assert (folder / "out" / "preset.toml").read_text() == (straight[0] / "out" / "preset.toml").read_text()


def test_more_devices_than_there_are_are_refused(tmp_path):
    path = file(tmp_path, HALVING)
    with pytest.raises(PhalanxError, match="devices=2: JAX has started with 1 device"):
        cli.run(["search", str(path), "--devices", "2", "--out", str(tmp_path / "out")])
    with pytest.raises(
        PhalanxError, match=r"devices must be a whole number or all, not 'x' \(command line\)"
    ):
        cli.run(["search", str(path), "--devices", "x"])
    assert not (tmp_path / "out").exists()


def test_a_finished_search_is_not_trained_again(straight, monkeypatch):
    folder, made = straight
    monkeypatch.setattr(runner, "compile_lanes", None)
    before = numbers(folder)
    assert run(folder).best().setting == made.best().setting
    assert numbers(folder) == before
    assert not list((folder / "out").glob("blocks/*/checkpoints"))


def test_settings_of_other_shapes_have_their_own_programs_and_few_at_once_give_the_same(tmp_path):
    shapes = {"lr": [1e-3, 1e-2], "hidden": [4, 8]}
    path = file(tmp_path, {"steps": 128}, shapes)
    text = path.read_text().replace('"hidden" = 8\n', "")
    path.write_text(text)
    assert "hidden" not in tomllib.loads(text)["fixed"]
    made = search.Search(search.read(path, None, tmp_path / "out"), print)
    made.run()
    assert list(made.shapes.reasons) == ["hidden"]
    assert list(made.shapes.names) == ["lr"]
    assert made.compiled == 2
    other = search.Search(space_of(path, tmp_path / "few", "at_once = 1"), print)
    other.run()
    assert len(list((tmp_path / "few" / "blocks").iterdir())) == 4
    for one, few in zip(made.trials, other.trials, strict=True):
        assert one.rungs[0]["returns"] == pytest.approx(few.rungs[0]["returns"], abs=1e-3)


def space_of(path, out, line):
    changed = path.with_name("changed.toml")
    changed.write_text(path.read_text().replace("[plan]", f"[plan]\n{line}"))
    return search.read(changed, None, out)


def test_learning_that_diverges_stops_one_setting_and_not_the_search(tmp_path):
    made = run(tmp_path, plan={"steps": 128}, searched={"lr": [1e-3, 1e38]})
    assert [trial.score is None for trial in made.trials] == [False, True]
    assert made.best().setting == {"lr": 1e-3}
    facts = made.facts("finished")
    assert facts["trials"][1]["rungs"][0]["scores"] == [None, None]
    assert "diverged" in search_page.html(facts, search_page.importance_of(facts), [])


def test_a_stop_request_saves_and_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    path, block = file(tmp_path, HALVING), runner.Block

    class Stopped(block):
        def run(self, programs, stop, say):
            stop.set()
            super().run(programs, stop, say)

    monkeypatch.setattr(runner, "Block", Stopped)
    words = ["search", str(path), "--out", str(tmp_path / "out")]
    assert cli.run(words) == 130
    assert f"continue with:  phalanx search {path}" in capsys.readouterr().out
    assert (tmp_path / "out" / "blocks" / "1-1-1" / "checkpoints").is_dir()
    monkeypatch.setattr(runner, "Block", block)
    assert cli.run(words) == 0


def test_the_command_writes_a_page_a_preset_and_says_what_was_spent(tmp_path, capsys):
    path, out = file(tmp_path, HALVING), tmp_path / "out"
    assert cli.run(["search", str(path), "--budget", "2e3", "--out", str(out), "--plan"]) == 0
    assert not out.exists()
    assert cli.run(["search", str(path), "--budget", "2e3", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "spent:    1,536 env steps in training, of at most 1,536" in said
    assert "4 to 128 env steps per seed, 2 to 256 env steps per seed" in said
    assert {"report.html", "search.png", "search.json", "preset.toml", "importance.json"} <= {
        each.name for each in out.iterdir()
    }
    page = (out / "report.html").read_text()
    assert "<script" not in page
    assert "of the variance between settings" in page
    assert "mathdefault" not in (out / "search.svg").read_text(), "ticks of a log axis are plain numbers"
    assert set(json.loads((out / "importance.json").read_text())["importance"]) == {"lr", "entropy"}


def test_a_run_with_the_preset_of_a_search_has_its_options_and_compare_tells_the_tuning(straight, tmp_path):
    folder, made = straight
    file_ = folder / "out" / "preset.toml"
    given = {"steps": 128, "eval_episodes": 4, "final_episodes": 4, "quiet": True}
    tuned = phalanx.train("ippo", "debug/identity", preset=str(file_), out=tmp_path / "tuned", **given)
    same = {name: FIXED[name] for name in ("envs", "batch_steps", "hidden", "epochs", "minibatches")}
    plain = phalanx.train("ippo", "debug/identity", out=tmp_path / "plain", lr=0.05, **given, **same)
    config = tomllib.loads((tuned.folder / "config.toml").read_text())
    assert {name: config["algorithm"][name] for name in made.best().setting} == made.best().setting
    assert (config["run"]["envs"], config["algorithm"]["hidden"]) == (4, 8)
    assert tuned.facts["tuning"]["settings"] == 4
    assert plain.facts["tuning"] == {}
    _, found = gather([f"tuned={tuned.folder}", f"plain={plain.folder}"])
    assert found.notes[-1] == (
        "tuning before these runs: tuned: 4 settings, 1,536 env steps on debug/identity; "
        "plain: no search recorded"
    )
    with pytest.raises(PhalanxError, match="was found for ippo, not for mappo"):
        preset("mappo", "debug/identity", str(file_))
    layer = preset("ippo", "debug/identity", str(file_))
    assert isinstance(layer, Layer)
    assert set(layer.values) == {"run", "algorithm"}


# Mistakes


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"plan": {"settings": 4, "sets": 1}}, "unknown option 'sets' in [plan]. Did you mean"),
        ({"plan": {"algorithm": 3}}, '[plan] must say algorithm = "mappo"'),
        ({"plan": {"settings": 0}}, "settings must be at least 1, not 0"),
        ({}, "say how many settings to try: settings in [plan], or a budget"),
        ({"searched": {}}, "it searches nothing"),
        ({"searched": {"lr": {"low": 1}}}, "lr must be a list of values or a range such as"),
        ({"searched": {"lr": {"low": 2, "high": 1}}}, "low and high of lr must be numbers, low the smaller"),
        ({"searched": {"lr": {"low": 0, "high": 1, "log": True}}}, "low above 0"),
        ({"searched": {"lr": [1e-3, 1e-3]}}, "lr names a value twice"),
        ({"searched": {"lr": []}}, "lr must be a list of values"),
        (
            {"searched": {"lr": [1e-3], "critic_lr": "rl"}},
            'critic_lr = "rl" must name another searched option',
        ),
        ({"searched": {"hidden": [4]}}, "hidden is in [fixed] and in [search]: leave one out"),
        ({"searched": {"seeds": [1, 2]}}, "seeds belongs in [plan]"),
        ({"fixed": {"steps": 3}, "plan": {"settings": 1}}, "steps belongs in [plan]"),
        ({"fixed": {"devices": 2}, "plan": {"settings": 1}}, "devices is an option of the command"),
        (
            {"plan": {"settings": 9, "budget": 2e3}},
            "9 settings take 4,608 env steps, more than the budget of 2,000: use settings = 3",
        ),
        ({"plan": {"budget": 100}}, "the budget of 100 env steps is less than the 512 of one setting"),
    ],
)
def test_a_mistake_in_the_file_is_told_in_one_line(tmp_path, tables, message):
    with pytest.raises(PhalanxError) as raised:
        space(tmp_path, **tables)
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / "space.toml"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"searched": {"lrr": [1e-3]}}, "ippo has no option 'lrr'. Did you mean lr"),
        ({"searched": {"lr": [1e-3, -1.0]}}, "lr must be above 0, not -1.0"),
        ({"searched": {"chunk": [4, 8]}}, "chunk has no effect with these options: leave it out"),
        ({"searched": {"env.nothing": [1]}}, "unknown option 'nothing' in [env]"),
        ({"plan": {"settings": 2, "metric": "win_rate"}}, 'has no wins: use metric = "return"'),
        ({"plan": {"settings": 2, "rungs": 6}}, "less than the 64 of an update: use fewer rungs"),
        ({"plan": {"settings": 2, "env": "gym/CartPole-v1"}}, "is a Python program"),
        ({"plan": {"settings": 2, "sampler": "tpe"}}, "pip install 'phalanx[search]'"),
    ],
)
def test_what_cannot_be_trained_is_told_before_anything_is(tmp_path, monkeypatch, tables, message):
    if "pip" in message:
        monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(PhalanxError) as raised:
        search.Search(space(tmp_path, **tables), print)
    assert message in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_search_or_of_something_else_is_refused(straight, tmp_path):
    folder, _ = straight
    other = search.read(file(tmp_path, {**HALVING, "draw": 1}), None, folder / "out")
    with pytest.raises(PhalanxError, match="holds a search of another space or plan"):
        search.Search(other, print).run()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "search.json").write_text("{")
    with pytest.raises(PhalanxError, match=r"search.json is not readable"):
        search.Search(search.read(file(tmp_path, HALVING), None, tmp_path / "broken"), print).run()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(PhalanxError, match="holds something else"):
        search.Search(search.read(file(tmp_path, HALVING), None, tmp_path / "mine"), print).run()


def test_the_page_of_the_docs_names_every_option_of_a_plan():
    page = (Path(__file__).parents[1] / "docs" / "search.md").read_text()
    for name, opt in options_of(Plan).items():
        assert f"| `{name}` |" in page, name
        assert opt.help


# By TPE


def test_tpe_comes_near_a_known_optimum_and_goes_on_as_it_would_have(tmp_path):
    pytest.importorskip("optuna")
    where = {"lr": {"low": 1e-4, "high": 1e-1, "log": True}, "hidden": [4, 8]}

    def asked(rounds):
        found = sampler.TPE(wanted)
        seen = []
        for _ in range(rounds):
            settings = found.ask(8)
            scores = {
                len(seen) + i: -abs(math.log10(s["lr"]) + 2) - (s["hidden"] == 4)
                for i, s in enumerate(settings)
            }
            found.tell({name: (score, 100, i % 4 < 2) for i, (name, score) in enumerate(scores.items())})
            seen += settings
        return seen

    fixed = {"plan": {"sampler": "tpe", "settings": 48, "round": 8}, "searched": {**where}}
    path = file(tmp_path, **fixed)
    path.write_text(path.read_text().replace('"hidden" = 8\n', "", 1))
    wanted = search.read(path, None, tmp_path / "out")
    seen = asked(6)
    assert asked(6) == seen
    late = [abs(math.log10(each["lr"]) + 2) for each in seen[-16:]]
    assert np.median(late) < 0.4  # 0.75 by chance
    assert sum(each["hidden"] == 8 for each in seen[-16:]) >= 12  # 8 by chance


def test_rounds_of_tpe_are_trained_and_go_on_after_a_kill(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    rounds = {"sampler": "tpe", "settings": 4, "round": 2, "steps": 128}
    made = run(tmp_path / "straight", plan=rounds)
    assert [len(trial.rungs) for trial in made.trials] == [1] * 4
    assert made.env_steps == 4 * 2 * 128
    tell = sampler.TPE.tell

    def kill(*args):
        tell(*args)
        raise Killed

    monkeypatch.setattr(sampler.TPE, "tell", kill)
    with pytest.raises(Killed):
        run(tmp_path / "killed", plan=rounds)
    monkeypatch.setattr(sampler.TPE, "tell", tell)
    again = run(tmp_path / "killed", plan=rounds)
    assert [trial.setting for trial in again.trials] == [trial.setting for trial in made.trials]
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "straight")


def test_a_killed_process_goes_on_to_the_bit(straight, tmp_path):
    path, out = file(tmp_path, HALVING), tmp_path / "out"
    words = [sys.executable, "-m", "phalanx", "search", str(path), "--out", str(out)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("blocks/*/checkpoints/0*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert json.loads((out / "search.json").read_text())["status"] == "running"
    assert subprocess.run(words, stdout=subprocess.DEVNULL).returncode == 0
    assert numbers(tmp_path) == numbers(straight[0])

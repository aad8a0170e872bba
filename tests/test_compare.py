"""Comparisons from run folders alone: what is refused, what is said, and the page."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import phalanx
from phalanx import cli
from phalanx.config import toml_value
from phalanx.errors import PhalanxError
from phalanx.report.compare import compare, label, marl_eval, read
from phalanx.report.compare.fairness import env_notes
from phalanx.report.compare.model import Cell
from phalanx.report.comparison import html
from phalanx.report.figures import limits, look

STEPS = np.arange(0, 11) * 50_000


def write_run(
    folder: Path,
    algorithm="mappo",
    env="battle/3m",
    level=0.8,
    seeds=5,
    first=0,
    version=1,
    wins=True,
    **options,
):
    """A run folder as training leaves it, with made-up numbers; `level` is what its seeds end near."""
    rng = np.random.default_rng([seeds, first, int(1000 * level), len(env)])
    folder.mkdir(parents=True)
    budget = options.pop("steps", int(STEPS[-1]))
    status = options.pop("status", "finished")
    origins = options.pop("origins", {})
    tables = {
        "run": {"algorithm": algorithm, "env": env, "steps": budget, "seeds": seeds, "seed": first}
        | {"eval_episodes": 32},
        "algorithm": {"lr": 5e-4, **options},
        "env": {"time_limit": 60},
    }
    text = "\n".join(
        line
        for table, values in tables.items()
        for line in (f"[{table}]", *(f"{key} = {toml_value(value)}" for key, value in values.items()), "")
    )
    (folder / "config.toml").write_text(text)
    rows, ends = [], []
    for seed in range(first, first + seeds):
        end = float(np.clip(rng.normal(level, 0.04), 0, 1))
        for steps in STEPS[budget >= STEPS]:
            value = end * (1 - np.exp(-steps / 120_000)) + float(rng.normal(0, 0.015)) * (steps > 0)
            value = float(np.clip(value, 0, 1))
            row = {"seed": seed, "env_steps": int(steps), "seconds": 3 + steps / 5e3, "eval/length": 30.0}
            row |= {"eval/return": 20 * value, "train/return": 15 * value if steps else None}
            rows.append(row | ({"eval/win_rate": value, "train/win_rate": value} if wins else {}))
        ends.append({"seed": seed, "return": 20 * end, "length": 30.0} | ({"win_rate": end} if wins else {}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts = {
        "command": f"phalanx train {algorithm} {env} --seeds {seeds} --out {folder}",
        "started": "2026-01-02T03:04:05+00:00",
        "versions": {"phalanx": "0.1.0", "jax": "0.8.0"},
        "device": "a machine (cpu)",
        "git": "abc1234",
        "seeds": list(range(first, first + seeds)),
        "env_version": version,
        "origins": origins,
        "status": status,
        "seconds": 103.0,
        "final": {which: {"episodes": 256, "seeds": ends} for which in ("last", "best")},
    }
    (folder / "run.json").write_text(json.dumps(facts))
    return folder


def say(*folders, **options):
    return compare([read(folder) for folder in folders], **options)


@pytest.fixture
def two(tmp_path):
    """Two arms that differ, on two tasks."""
    return [
        write_run(tmp_path / f"{algorithm}-{env[7:]}", algorithm, env, level)
        for algorithm, level in (("mappo", 0.9), ("ippo", 0.6))
        for env in ("battle/3m", "battle/8m")
    ]


def test_a_difference_is_said_in_a_sentence(two):
    found = say(*two)
    (pair,) = found.pairs
    assert found.verdict(pair) == "mappo is better than ippo: probability of improvement 1.00 [0.79, 1.00]"
    assert found.aggregates["mappo"]["IQM"].value == pytest.approx(0.9, abs=0.04)
    assert found.metric == {"battle/3m": "eval/win_rate", "battle/8m": "eval/win_rate"}


def test_arms_with_another_number_of_seeds_or_without_a_preset_are_noted(tmp_path):
    tuned = {"algorithm": {"lr": "preset mappo/battle_hard", "gamma": "default"}}
    one = write_run(tmp_path / "one", "mappo", seeds=5, origins=tuned)
    other = write_run(tmp_path / "other", "ippo", seeds=4, origins={"algorithm": {"lr": "command line"}})
    assert say(one, other).notes == [
        "the arms differ in their number of seeds on battle/3m: mappo 5, ippo 4",
        "only some arms have a preset, which favours them, on battle/3m: mappo mappo/battle_hard, ippo none",
    ]
    fair = write_run(tmp_path / "fair", "ippo", seeds=5, origins={"run": {"envs": "preset ippo/battle"}})
    assert say(one, fair).notes == []
    evil = write_run(tmp_path / "evil", "ippo", seeds=5, origins={"run": {"envs": ["preset", 1]}})
    with pytest.raises(PhalanxError, match="not what training writes: see 'origins'"):
        say(one, evil)


def test_what_cannot_be_shown_is_said_too(tmp_path):
    same = [write_run(tmp_path / str(i), name, level=0.8) for i, name in enumerate(("mappo", "ippo"))]
    found = say(*same)
    assert re.match(
        r"no difference between \w+ and \w+ can be shown with 5 seeds: probability of improvement 0\.\d\d \[",
        found.verdict(found.pairs[0]),
    )
    far = [
        write_run(tmp_path / name, name, level=level, seeds=3)
        for name, level in (("mappo", 0.9), ("ippo", 0.1))
    ]
    assert say(*far).verdict(say(*far).pairs[0]).startswith("no difference"), "three seeds cannot show it"
    few = [write_run(tmp_path / f"{name}2", name, seeds=2) for name in ("mappo", "ippo")]
    assert "cannot be told apart with 2 seeds" in say(*few).verdict(say(*few).pairs[0])


def test_equal_win_rates_have_an_interval_and_equal_returns_have_none(tmp_path):
    folders = [write_run(tmp_path / name, name, level=9) for name in ("mappo", "ippo")]
    found = say(*folders)
    assert found.cells["mappo", "battle/3m"].scores.tolist() == [1] * 5
    for interval in (found.mean("mappo", "battle/3m"), found.aggregates["mappo"]["IQM"]):
        assert (interval.value, interval.high) == (1, 1)
        assert 0.99 < interval.low < 1
    wider = say(*folders, steps=500_000).cells["mappo", "battle/3m"]
    assert wider.episodes == 32, "the curve's evaluations have fewer episodes"
    returns = say(*folders, metric={"": "eval/return"}).mean("mappo", "battle/3m")
    assert returns.low == returns.high == 20


def test_scores_are_of_the_final_evaluation_and_with_steps_of_the_curve(two):
    run = read(two[0])
    ends = [row["win_rate"] for row in run.facts["final"]["last"]["seeds"]]
    assert say(*two).cells["mappo", "battle/3m"].scores.tolist() == ends
    early = say(*two, steps=120_000).cells["mappo", "battle/3m"]
    assert early.steps[-1] == 100_000
    assert early.scores.tolist() == [row["eval/win_rate"] for row in run.rows if row["env_steps"] == 100_000]


def test_returns_are_normalised_by_what_was_seen_or_by_given_bounds(tmp_path):
    folders = [
        write_run(tmp_path / name, name, level=level, wins=False)
        for name, level in (("mappo", 1), ("ippo", 0.5))
    ]
    found = say(*folders)
    low, high = found.bounds["battle/3m"]
    assert (low, found.metric["battle/3m"]) == (0, "eval/return")
    assert high == 20, "a final evaluation counts too"
    assert say(*folders, bounds={"battle/3m": (0, 40)}).aggregates["mappo"]["mean"].value < 0.55


def test_arms_are_called_by_what_differs(tmp_path):
    runs = [
        read(write_run(tmp_path / "a", "mappo", "battle/3m", share="all")),
        read(write_run(tmp_path / "b", "mappo", "battle/3m", share="agent")),
        read(write_run(tmp_path / "c", "ippo", "battle/3m", share="agent")),
    ]
    assert label(runs) == ["mappo share=all", "mappo share=agent", "ippo"]
    more = read(write_run(tmp_path / "d", "ippo", "battle/3m", share="agent", first=5))
    assert len(compare([*runs, more]).cells["ippo", "battle/3m"].seeds) == 10


def test_options_for_speed_make_no_other_arm(tmp_path):
    """Nor does it matter that a run is older than such an option."""
    run = read(write_run(tmp_path / "a", "mappo", "battle/3m"))
    env = run.config.get("env", {})
    with_kernel = run._replace(config={**run.config, "env": {**env, "kernel": True}})
    other_reward = run._replace(config={**run.config, "env": {**env, "reward": "sparse"}})
    assert label([run, with_kernel]) == ["mappo", "mappo"]
    assert not env_notes({"battle/3m": [run, with_kernel]})
    assert label([run, other_reward]) == ["mappo reward=None", "mappo reward=sparse"]
    assert env_notes({"battle/3m": [run, other_reward]})


def test_unfair_comparisons_are_refused(two, tmp_path):
    def refused(match, *more, **options):
        with pytest.raises(PhalanxError, match=match):
            say(*two, *more, **options)

    refused("version 1 of battle/3m and .* version 2", write_run(tmp_path / "v", "coma", version=2))
    refused(
        "compare both at an earlier point with --steps 250000",
        write_run(tmp_path / "s", "coma", steps=250_000),
    )
    refused(r"is not finished \(interrupted\)", write_run(tmp_path / "i", "coma", status="interrupted"))
    refused("seed 0 of ippo on battle/3m is in", write_run(tmp_path / "d", "ippo"))
    kinds = {"battle/3m": "train/return", "battle/8m": "eval/return"}
    refused("eval/return on battle/8m is of greedy play and train/return on battle/3m", metric=kinds)
    refused("have a metric 'eval/wins'. Did you mean eval/win_rate", metric={"": "eval/wins"})
    refused("learn/kl|have a metric", metric={"": "learn/kl"})
    refused("there is no arm 'ipo' to compare with. Did you mean ippo", control="ipo")
    with pytest.raises(PhalanxError, match="there is only one arm, mappo"):
        say(*two[:2])


def test_a_task_that_an_arm_lacks_is_left_out_and_said(two):
    found = say(*two[:3])
    assert found.tasks == ["battle/3m"]
    assert found.notes == ["battle/8m is left out of the statistics: ippo has no run there"]


def test_the_interchange_format_holds_every_seed_and_step(two):
    found = marl_eval(say(*two))
    assert found.keys() == {"battle"}
    seed = found["battle"]["3m"]["mappo"]["seed_4"]
    assert len(seed) == len(STEPS) + 1
    assert seed["step_10"]["step_count"] == 500_000
    assert seed["step_10"].keys() == {"step_count", "return", "win_rate", "length"}
    assert seed["absolute_metrics"].keys() == {"return", "win_rate", "length"}


def test_the_command_writes_everything(two, tmp_path, capsys):
    out = tmp_path / "report"
    assert cli.run(["compare", *map(str, two), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "mappo is better than ippo" in said
    names = {"report.html", "curves.png", "curves.svg", "aggregates.png", "aggregates.svg"}
    assert {path.name for path in out.iterdir()} == names | {"comparison.json", "marl_eval.json"}
    figures = json.loads((out / "comparison.json").read_text())
    assert figures["aggregates"]["mappo"]["IQM"]["low"] > 0.8
    stable = {(row["arm"], row["task"]): row for row in figures["stability"]}["mappo", "battle/3m"]
    scores = next(
        row["scores"] for row in figures["scores"] if (row["arm"], row["task"]) == ("mappo", "battle/3m")
    )
    assert stable["spread"] == pytest.approx(np.std(scores, ddof=1))
    curves = say(*two).cells["mappo", "battle/3m"].curve
    assert stable["drop"] == pytest.approx((curves.max(1) - curves[:, -1]).mean())
    shown = f"<b>± {stable['spread']:.2f}</b><small>drop {stable['drop']:.2f}</small>"
    assert shown in (out / "report.html").read_text()
    named = [f"mine={two[0]}", f"theirs={two[2]}", "--metric", "eval/return", "--out", str(out)]
    assert cli.run(["compare", *named]) == 0
    assert "mine is better than theirs" in capsys.readouterr().out


def test_python_compares_as_the_command_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arm, level in (("mine", 0.9), ("theirs", 0.5)):
        write_run(tmp_path / arm, level=level)
    found = phalanx.compare(
        {"a=b": tmp_path / "mine", "theirs": "theirs"}, out="report", metric="eval/return"
    )
    assert json.loads(json.dumps(found)) == json.loads(Path("report", "comparison.json").read_text())
    assert found["metric"] == {"battle/3m": "eval/return"}
    assert Path("report", "report.html").is_file()
    assert {score["arm"] for score in found["scores"]} == {"a=b", "theirs"}
    assert found["verdicts"][0].startswith("a=b is better than theirs")
    with pytest.raises(PhalanxError, match="there is no run folder elsewhere"):
        phalanx.compare({"a": "mine", "b": "elsewhere"})


def test_no_two_of_many_arms_look_the_same(tmp_path):
    assert len({look(arm) for arm in range(32)}) == 32
    nine = [write_run(tmp_path / f"run{i}", f"algorithm{i}") for i in range(9)]
    page = html(say(*nine), "phalanx compare ...")
    rings = re.findall(r'class="dot again"></i>(\w+)', page)
    assert set(rings) == {"algorithm8"}, "the ninth has the first one's colour, in a ring"


def test_untrained_teams_do_not_hide_the_curves():
    steps = np.arange(0, 110, 10)
    learns = np.array([[-1000.0, -40, -38, -36, -34, -32, -30, -28, -26, -24, -20]])
    low, high = limits([Cell([], [0], learns[:, -1], steps, learns)])
    assert -58 < low < -56, "as much room below as the curve needs, not down to -1000"
    assert -20 < high < -17
    steady = np.full((1, 11), 5.0)
    low, high = limits([Cell([], [0], steady[:, -1], steps, steady)])
    assert low < 5 < high
    low, high = limits([Cell([], [0], steady[:, -1], steps[:1], np.array([[-5.0]]))])
    assert low < -5 < high, "a run that has only begun"
    assert limits([Cell([], [0], steady[:, -1], steps, np.full((1, 11), np.nan))]) == (0.0, 1.0)


def test_the_page_needs_nothing_from_outside_and_escapes_names(two):
    runs = [read(folder) for folder in two]
    page = html(compare(runs, ["<b>&", "<b>&", "other", "other"]), "phalanx compare ...")
    assert "<b>&amp;" not in page.replace("&lt;b&gt;&amp;", "")
    assert "&lt;b&gt;&amp; is better than other" in page
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)[^\"]*\"", page)
    assert not re.findall(r"url\((?!#)", page)
    assert "<script" not in page
    for colour in ("#0072b2", "#d55e00"):  # figures take the page's colours
        assert colour not in page.split("</style>")[1]
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_page_in_a_browser(two, tmp_path):
    """By day and by night, at a desk and on a phone: no complaint, no request, nothing too wide."""
    browser = pytest.importorskip("browser", reason="no driver for a browser here")
    if browser.find() is None:
        pytest.skip("no Chromium here")
    file = tmp_path / "report.html"
    file.write_text(html(say(*two), "phalanx compare ..."))
    with browser.browser(browser.find()) as page:
        for width, phone in ((1280, False), (390, True)):
            papers = set()
            for dark in (False, True):
                page.resize(width, 900, dark=dark, phone=phone)
                page.call("Page.navigate", url=file.as_uri())
                page.until("document.readyState === 'complete' && !!document.querySelector('.verdicts')")
                assert "mappo is better than ippo" in page.text(".verdicts")
                assert page.ask("document.querySelectorAll('figure svg').length") == 6
                assert page.ask("document.documentElement.scrollWidth") <= width
                papers.add(page.ask("getComputedStyle(document.body).backgroundColor"))
            assert len(papers) == 2
        assert page.complaints == []

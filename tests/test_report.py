"""What is said and drawn of a run: evaluations in a line, a curve in text, any metric in a picture."""

import dataclasses
import io
import json

import jax.numpy as jnp
import numpy as np
import pytest
from test_compare import write_run

from phalanx import cli, registry
from phalanx.report import compare, console, plots
from phalanx.report.console import Console, main_metrics, text_curve
from phalanx.training.evaluate import Played, summary

TAG = registry.make_env("mpe/simple_tag", {}).spec
RETURNS = np.array([[1.0, 2.0, 3.0, -2.0], [3.0, 2.0, 1.0, -6.0]])


def played(returns=RETURNS):
    return Played(*map(jnp.asarray, (returns, np.full(len(returns), 25), np.zeros(len(returns), bool))))


def test_an_evaluation_has_deviations_and_the_returns_of_each_agent():
    found = summary(played(), TAG)
    assert (found["return"], found["return_std"]) == (0.5, 0.5)  # episodes of 1 and 0
    assert found["return/adversary"] == 2
    by_agent = dict(zip(TAG.agents, RETURNS.T, strict=True))
    for agent, values in by_agent.items():
        assert found[f"agent_return/{agent}"] == values.mean()
        assert found[f"agent_return_std/{agent}"] == values.std()
    assert found["agent_return_std/adversary_0"] == 1  # its returns are 1 and 3
    json.dumps(found)


def test_agents_with_one_reward_have_no_returns_of_their_own():
    common = dataclasses.replace(TAG, common_reward=True)
    assert summary(played(), common).keys() == {"return", "return_std", "length"}
    alone = dataclasses.replace(TAG, agents=("one",), agent_types=("one",), teams=(), common_reward=False)
    assert summary(played(RETURNS[:, :1]), alone).keys() == {"return", "return_std", "length"}


def test_a_line_shows_the_main_metrics_of_an_evaluation():
    few = {"seed": 0, **summary(played(), TAG)}
    assert list(main_metrics(few)) == ["return", "return_std", "length", "return/adversary", "return/good"]
    many = {"return": 1.0, **{f"return/{i}": 1.0 for i in range(9)}, "win_rate": 0.5}
    assert list(main_metrics(many)) == ["return", "win_rate"]


def test_phalanx_eval_prints_a_readable_line_and_json_has_all(capsys):
    words = [
        "eval",
        "random",
        "mpe/simple_tag",
        "--env.good",
        "3",
        "--env.adversaries",
        "6",
        "--episodes",
        "2",
    ]
    assert cli.run(words) == 0
    line, last = capsys.readouterr().out.splitlines()
    assert line.count("return") == 4  # the mean, its deviation, and two types
    assert last == "2 greedy episodes per seed; --json prints all metrics"
    assert cli.run([*words, "--json"]) == 0
    assert len([name for name in json.loads(capsys.readouterr().out) if "agent_return" in name]) == 18


# The curve in text


def test_a_curve_in_text_goes_from_low_to_high():
    assert text_curve([0, 0.5, 1], 0, 1) == "▁▅█"
    assert text_curve([0, 0.5, 1], 0, 1, "ascii") == text_curve([0, 0.5, 1], 0, 1, None) == "_+@"
    assert text_curve([3, 3], 3, 3) == "▁▁"
    long = text_curve(np.linspace(0, 1, 1001), 0, 1)
    assert len(long) == console.WIDTH
    assert list(long) == sorted(long)


@pytest.mark.parametrize(("encoding", "curve"), [("utf-8", "▁█"), ("ascii", "_@"), ("latin-1", "_@")])
def test_the_console_ends_with_a_curve_that_its_stream_can_print(monkeypatch, encoding, curve):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding=encoding))
    rows = [
        {"seed": seed, "env_steps": steps, "eval/return": 9.0, "eval/win_rate": value}
        for seed, last in ((0, 1.0), (1, 0.9))
        for steps, value in ((0, 0.0), (2000, last))
    ]
    Console(quiet=True).curve(rows)
    Console().curve(rows)
    console.sys.stdout.flush()
    about = "(greedy evaluations, 0 to 2,000 env steps, mean of 2 seeds)"
    assert raw.getvalue().decode(encoding) == f"win_rate  0 {curve} 0.95  {about}\n"


def test_without_wins_the_curve_is_of_returns(capsys):
    Console().curve([{"seed": 0, "env_steps": s, "eval/return": float(s - 7)} for s in (0, 5, 10)])
    assert capsys.readouterr().out.startswith("return  -7 ▁▅█ 3  (")
    Console().curve([])
    assert capsys.readouterr().out == ""


# Pictures


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of three seeds, with entropies of two groups."""
    root = tmp_path_factory.mktemp("plotted")
    folders = []
    for name, level in (("mappo", 0.9), ("ippo", 0.6)):
        folders.append(write_run(root / name, name, level=level, seeds=3))
        file = folders[-1] / "metrics.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:
            row["learn/epsilon"] = 0.5
            row |= {f"learn/entropy/{group}": 1 / (2 + row["seed"]) for group in ("scout", "worker")}
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folders


def drawn(monkeypatch, *words):
    """The panels that a command draws."""
    found = []
    write = plots._write
    monkeypatch.setattr(
        plots, "_write", lambda panels, out: found.append((panels, out)) or write(panels, out)
    )
    assert cli.run(["plot", *map(str, words)]) == 0
    return found[0]


def test_any_metric_can_be_drawn(runs, monkeypatch, capsys):
    panels, out = drawn(monkeypatch, runs[0], "--metric", "learn/epsilon", "--metric", "learn/entropy/*")
    assert [panel.title for panel in panels] == ["learn/epsilon", "learn/entropy"]
    assert [line.label for line in panels[0].lines] == ["mappo battle/3m (3 seeds)"]
    assert [line.label for line in panels[1].lines] == ["scout (3 seeds)", "worker (3 seeds)"]
    assert panels[1].lines[0].values[:, 0].tolist() == [1 / 2, 1 / 3, 1 / 4]
    assert out == runs[0] / "plots" / "learn-epsilon-learn-entropy"
    files = capsys.readouterr().out.split()
    assert files == [f"{out}.png", f"{out}.svg"]
    assert (runs[0] / "plots" / "learn-epsilon-learn-entropy.png").stat().st_size > 1000


def test_lines_of_a_pattern_are_told_apart_wherever_its_star_stands(runs, monkeypatch):
    panels, _ = drawn(monkeypatch, runs[0], "--metric", "*return")
    (panel,) = panels
    assert len(panel.lines) > 1
    assert len({line.label for line in panel.lines}) == len(panel.lines)


def test_of_several_runs_each_metric_has_a_panel(runs, monkeypatch, tmp_path):
    panels, _ = drawn(monkeypatch, *runs, "--metric", "learn/entropy/*", "--out", tmp_path / "x")
    assert [panel.title for panel in panels] == ["learn/entropy/scout", "learn/entropy/worker"]
    assert [line.label.split()[0] for line in panels[0].lines] == ["mappo", "ippo"]


def test_without_a_metric_returns_and_wins_are_drawn(runs, monkeypatch):
    panels, out = drawn(monkeypatch, runs[0])
    assert [panel.title for panel in panels] == list(plots.PANELS.values())
    assert out == runs[0] / "plots" / "curves"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("learn/entropy", r"no metric 'learn/entropy' .* Did you mean learn/entropy/\* or"),
        ("learn/entrpy/scout", "Did you mean learn/entropy/scout or"),
        ("zzz", r"Known: .*learn/entropy/\*"),
        ("seed", "no metric 'seed'"),
    ],
)
def test_an_unknown_metric_is_answered_with_the_nearest_names(runs, name, said):
    with pytest.raises(plots.PhalanxError, match=said):
        cli.run(["plot", str(runs[0]), "--metric", name])


def test_a_metric_without_values_is_not_left_out_silently(runs, tmp_path):
    folder = write_run(tmp_path / "new", seeds=1)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (folder / "metrics.jsonl").write_text(json.dumps(rows[0] | {"train/return": None}) + "\n")
    with pytest.raises(plots.PhalanxError, match="sampled return while training has no values yet"):
        cli.run(["plot", str(folder), "--metric", "eval/return", "--metric", "train/return"])


def test_many_groups_are_told_apart():
    colours = plots._colours(27)
    assert len(set(colours)) == 27
    assert plots._colours(3) == list(plots.COLOURS[:3])


def test_runs_are_compared_by_the_returns_of_one_agent(tmp_path):
    folders = [
        write_run(tmp_path / name, name, level=level) for name, level in (("mappo", 0.9), ("ippo", 0.5))
    ]
    for folder in folders:  # as an evaluation writes them
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        renamed = [row | {"eval/agent_return/agent_0": row["eval/return"]} for row in rows]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in renamed))
        facts = json.loads((folder / "run.json").read_text())
        for result in facts["final"].values():
            for row in result["seeds"]:
                row["agent_return/agent_0"] = row["return"]
        (folder / "run.json").write_text(json.dumps(facts))
    found = compare.compare(
        [compare.read(folder) for folder in folders], metric={"": "eval/agent_return/agent_0"}
    )
    assert "mappo is better" in found.verdict(found.pairs[0])

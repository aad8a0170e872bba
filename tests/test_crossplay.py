"""Teams that play each other: win rates, ratings, and what is refused."""

import json

import numpy as np
import pytest
from conftest import small

import phalanx
from phalanx import cli
from phalanx.crossplay import cross_play, film
from phalanx.errors import PhalanxError
from phalanx.report import crossplay, ratings


def test_ratings_are_those_that_the_games_were_drawn_from():
    """Strengths are recovered, and lie within their intervals."""
    rng = np.random.default_rng(0)
    strength = np.array([0.0, 100.0, 250.0, -150.0])
    games = {}
    for i in range(4):
        for j in range(4):
            chance = 1 / (1 + 10 ** ((strength[j] - strength[i]) / 400))
            games[i, j] = (rng.random((1, 1, 2000)) < chance).astype(float)
    found = ratings.table(games, 4)
    for k, interval in enumerate(found.ratings):
        assert interval.value == pytest.approx(strength[k] - strength.mean(), abs=25)
        assert interval.low < strength[k] - strength.mean() < interval.high
    assert found.pairs[0, 2].high < 0.5 < found.pairs[1, 3].low


def test_two_teams_have_the_closed_form():
    """With the prior of half a draw each: odds of (w + 1/2) to (l + 1/2)."""
    rating = ratings.bradley_terry(np.array([[0.0, 30.0], [10.0, 0.0]]))
    assert rating[0] - rating[1] == pytest.approx(400 * np.log10(30.5 / 10.5), abs=0.01)


def test_seeds_that_differ_widen_the_interval():
    games = np.zeros((4, 4, 100))
    games[:2] = 1.0
    rng = np.random.default_rng(0)
    assert np.std(ratings.resampled(games, rng)) > 0.15
    even = np.tile([0.0, 1.0], 50) * np.ones((4, 4, 1))
    assert np.std(ratings.resampled(even, rng)) < 0.03


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        drawn = (rng.random((1, 1, 60)) < 0.8).astype(float)
        low, high = np.quantile(ratings.resampled(drawn, rng), [0.025, 0.975])
        inside += low <= 0.8 <= high
    assert 180 <= inside <= 199


def test_a_narrow_terminal_gets_numbered_columns():
    """Three trained teams, and a script that plays only the second side."""
    teams, rng = (
        ["trained-against-script", "trained-against-itself", "random", "script"],
        np.random.default_rng(0),
    )
    pairs = [(i, j) for i in range(3) for j in range(4)]
    games = {pair: (rng.random((1, 1, 50)) < 0.5).astype(float) for pair in pairs}
    table = ratings.table(games, 4)
    result = crossplay.CrossPlay(
        "battle/3m", ("allies", "enemies"), teams, 50, table, dict.fromkeys(pairs, (1.0, 1.0)), True
    )
    wide = crossplay.text(result, 200)
    assert [column.header for column in wide.columns] == ["allies", *teams]
    assert next(iter(wide.columns[1].cells)) == result.cell(0, 0)
    narrow = crossplay.text(result, 80)
    assert [column.header for column in narrow.columns] == ["allies", "1", "2", "3", "4"]
    assert list(narrow.columns[0].cells) == [f"{n + 1} {team}" for n, team in enumerate(teams[:3])]
    assert next(iter(narrow.columns[2].cells)) == f"{100 * games[0, 1].mean():.0f} %"
    assert narrow.caption == "4 script; intervals are in the page"


@pytest.fixture(scope="module")
def pennies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "mine"
    small(folder, env="game/pennies", steps=64, seeds=2, opponent="self")
    return folder


def test_the_script_beats_whom_it_should(tmp_path, capsys):
    """From the shell: the matrix, ratings, a verdict and the files."""
    words = ["play", "random", "heuristic", "--env", "battle/3m", "--episodes", "64"]
    assert cli.run([*words, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "heuristic beats random" in printed
    saved = json.loads((tmp_path / "crossplay.json").read_text())
    assert saved["games"]["heuristic | random"]["score"]["value"] > 0.9
    assert saved["games"]["random | heuristic"]["score"]["value"] < 0.1
    assert next(iter(saved["ratings"])) == "heuristic"
    page = (tmp_path / "crossplay.html").read_text()
    assert "heuristic beats random" in page
    assert (tmp_path / "crossplay.png").stat().st_size > 5000


def test_every_seed_of_a_run_plays(pennies):
    result = cross_play([str(pennies), "random"], "game/pennies", episodes=40)
    assert set(result.returns) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    for mine, theirs in result.returns.values():
        assert mine.value == pytest.approx(-theirs.value)
        assert abs(mine.value) <= 1


def test_unlike_sides_are_played_by_who_was_trained_for_them(tmp_path):
    hunters = tmp_path / "hunters"
    small(hunters, env="mpe/simple_tag", steps=64, opponent="random", side="adversary")
    result = cross_play([str(hunters), "random"], "mpe/simple_tag", episodes=16)
    assert set(result.returns) == {(0, 1), (1, 1)}
    assert not result.has_win
    # Nobody but the random team can play the prey: it has the only column.
    assert (result.rows, result.columns) == ([0, 1], [1])
    assert [column.header for column in crossplay.text(result, 200).columns] == ["adversary", "random"]
    assert crossplay.values(result).shape == (2, 1)
    assert crossplay.html(result, "").count("hunters") == 1
    mine, theirs = result.returns[0, 1]
    assert mine.value != theirs.value
    for wide, shown in ((200, result.cell(0, 1)), (20, result.cell(0, 1, whole=False))):
        assert next(iter(crossplay.text(result, wide).columns[1].cells)) == shown
    assert result.cell(0, 1).count("[") == 2
    assert "[" not in result.cell(0, 1, whole=False)
    (game,) = (each for name, each in crossplay.summary(result)["games"].items() if name != "random | random")
    assert game["return_intervals"][0][0] <= game["returns"][0] <= game["return_intervals"][0][1]
    assert crossplay.lines(result) == []


def test_the_interval_of_a_mean_return_covers_the_mean():
    """Of 30 seeds against 30, each with its own mean: seeds vary more than games."""
    rng, inside, widths = np.random.default_rng(0), 0, []
    for draw in range(200):
        mine, yours = rng.normal(0, 2, (30, 1)), rng.normal(0, 1, (1, 30))
        found = ratings.mean_return(rng.normal((mine + yours)[..., None], 1, (30, 30, 20)), draw)
        inside += found.low < 0 < found.high
        widths.append(found.high - found.low)
    assert 0.9 < inside / 200 < 0.99
    # The standard error of the mean: of 30 and of 30 seeds, and hardly of the games.
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.sqrt((4 + 1) / 30), rel=0.1)


def test_what_cannot_be_played_is_refused_in_one_line(pennies):
    with pytest.raises(PhalanxError, match="there is no team 'nobody'"):
        cross_play(["nobody", "random"], "battle/3m")
    with pytest.raises(PhalanxError, match="cannot play a side of battle/3m: number of agents 1 and 3"):
        cross_play([str(pennies), "random"], "battle/3m")
    with pytest.raises(PhalanxError, match="switch/2 has no other side"):
        cross_play(["random"], "switch/2")
    with pytest.raises(PhalanxError, match="name the environment"):
        cli.run(["play", "random", "random"])
    with pytest.raises(PhalanxError, match="has no option"):
        cross_play(["random"], "battle/3m", env_options={"speed": 3})


def test_names_are_as_short_as_they_differ():
    from phalanx.crossplay import _labels

    assert _labels(["a/x/1", "a/y/1", "random"]) == ["x/1", "y/1", "random"]
    assert _labels(["random", "random"]) == ["random (1)", "random (2)"]


def test_a_film_shows_the_same_games_from_both_sides():
    """Each side sees itself as the allies, on a symmetric map as a reflection of what the other sees."""
    ours, theirs = film(["heuristic", "random"], "battle/3m", games=2)
    assert (ours.label, theirs.label) == ("heuristic (allies)", "random (enemies)")
    for mine, yours, one, other in zip(
        ours.episodes, theirs.episodes, ours.frames, theirs.frames, strict=True
    ):
        assert mine.length == yours.length
        assert (mine.won, yours.won) == (True, False)
        assert len(one) == len(other) == mine.length + 1
        for frame, seen in zip(one, other, strict=True):
            left, right = np.asarray(frame["x"])[3:], 32 - np.asarray(seen["x"])[:3]
            np.testing.assert_allclose(np.sort(left), np.sort(right), atol=1e-4)
        # An agent's own health stands in what it sees and in the picture.
        features = theirs.spec.obs_features[1]
        health = features.index("own health")
        np.testing.assert_allclose(
            np.asarray(yours.observation.obs)[:, 1, health],
            [float(seen["health"][1]) / float(seen["max_health"][1]) for seen in other],
            atol=1e-5,
        )


def test_the_game_s_script_plays_the_enemies_of_a_battle():
    result = cross_play(["random", "script"], "battle/3m", episodes=32)
    assert set(result.returns) == {(0, 0), (0, 1)}
    assert result.table.cells[0, 1].value < 0.1
    assert crossplay.summary(result)["games"]["random | script"]["returns"][1] is None
    with pytest.raises(PhalanxError, match="game/pennies has no script for one side"):
        cross_play(["random", "script"], "game/pennies")


def test_a_best_response_is_trained_against_a_run(tmp_path, capsys):
    """The run, the answer to it, its past selves and a random team play each other."""
    run = tmp_path / "run"
    small(run, env="game/rock_paper_scissors", steps=128, opponent="past", snapshot_every=64)
    words = ["play", str(run), "--env", "game/rock_paper_scissors", "--best-response", "4096"]
    assert cli.run([*words, "--episodes", "20", "--out", str(tmp_path / "play")]) == 0
    assert "best_response" in capsys.readouterr().out
    saved = json.loads((tmp_path / "play" / "crossplay.json").read_text())
    assert saved["teams"] == ["run", "best_response", "run:past", "random"]
    assert saved["games"]["best_response | run"]["returns"] == [1, -1], "it has found the answer"
    assert saved["games"]["run | best_response"]["returns"] == [-1, 1]
    answer = phalanx.Run(tmp_path / "play" / "best_response")
    config = (answer.folder / "config.toml").read_text()
    assert f'opponent = "{run}"' in config
    assert "opponent_greedy = true" in config
    with pytest.raises(PhalanxError, match="takes one run"):
        cli.run(["play", str(run), "random", "--env", "game/pennies", "--best-response", "64"])
    with pytest.raises(PhalanxError, match="trained against a run folder, and 'random' is not one"):
        cli.run(["play", "random", "--env", "game/pennies", "--best-response", "64"])

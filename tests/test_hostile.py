"""Run folders from anybody: `compare`, `plot` and `watch` show them or refuse in one line.

Nothing in them runs, and nothing outside of them is read or written.
"""

import json
import os
import shutil
from pathlib import Path

import hostile
import numpy as np
import pytest
from test_compare import write_run

import phalanx
from phalanx import cli
from phalanx.errors import PhalanxError, one_line
from phalanx.files import inside, open_inside, write_whole
from phalanx.report import metrics, page
from phalanx.training import checkpoint


def refusal(*words) -> str:
    """The one line with which a command refuses."""
    with pytest.raises(PhalanxError) as refused:
        cli.run([str(word) for word in words])
    assert hostile.SECRET not in str(refused.value)
    return one_line(str(refused.value))


# compare and plot


@pytest.mark.parametrize("kind", hostile.BROKEN)
def test_compare_refuses_a_broken_run_in_a_line(tmp_path, kind):
    broken, sound = hostile.BROKEN[kind](tmp_path / "broken"), write_run(tmp_path / "sound", "ippo")
    said = refusal("compare", broken, sound, "--out", tmp_path / "out")
    assert said.startswith((str(broken), "there is no run", "a run of", f"cannot read {broken}"))
    assert len(said) < 600


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e300", '"<b>"', "[1]"])
def test_compare_refuses_scores_that_are_no_numbers(tmp_path, value):
    folder, sound = write_run(tmp_path / "a"), write_run(tmp_path / "b", "ippo")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    row = json.loads(lines[3])
    lines[3] = json.dumps(row | {"eval/win_rate": "HERE"}).replace('"HERE"', value)
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    said = refusal("compare", folder, sound, "--out", tmp_path / "out")
    assert "number" in said


def test_compare_shows_names_with_scripts_as_text(tmp_path, capsys):
    runs = [hostile.names(tmp_path / "a"), hostile.names(tmp_path / f"b{hostile.SCRIPT[:20]}")]
    named = [f"one={runs[0]}", f"[/red]$\\frac={runs[1]}"]
    assert cli.run(["compare", *named, "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<img" not in text
    assert "<script" not in text
    assert 'onerror="' not in text.replace("&quot;", "")
    assert "\x1b" not in capsys.readouterr().out
    assert cli.run(["plot", str(runs[0]), "--out", str(tmp_path / "out" / "curves")]) == 0


def test_an_arm_is_named_in_one_printable_line(tmp_path, capsys):
    runs = [write_run(tmp_path / name, note=note) for name, note in (("a", "x\x1b[31m\ny" * 40), ("b", "z"))]
    assert cli.run(["compare", *map(str, runs), "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "mappo note=x?[31m y" in out.replace("\n", " ")


def test_compare_and_plot_read_nothing_through_links(tmp_path):
    elsewhere, sound = hostile.outside(tmp_path / "elsewhere"), write_run(tmp_path / "sound", "ippo")
    for name in ("run.json", "config.toml", "metrics.jsonl"):
        run = hostile.linked(tmp_path / name.partition(".")[0], elsewhere, name)
        said = refusal("compare", run, sound, "--out", tmp_path / "out")
        assert said == f"{run / name} is a link out of its folder: it is not read"
    assert not (tmp_path / "out").exists()
    for run in ("config", "metrics"):
        assert "is a link out of its folder" in refusal("plot", tmp_path / run)


def test_a_link_within_the_folder_is_read(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").rename(run / "moved.jsonl")
    (run / "metrics.jsonl").symlink_to("moved.jsonl")
    assert len(metrics.read(run)) == 55


def test_an_experiment_reads_only_its_own_folder(tmp_path):
    write_run(tmp_path / "elsewhere", "ippo")
    write_run(tmp_path / "plan" / "a")
    cell = {"arm": "a", "env": "battle/3m", "folder": "a", "failed": None}
    plan = {"title": "t", "file": "f.toml", "control": None, "bounds": {}}
    for cells, said in (
        ([cell, cell | {"arm": "b", "folder": "../elsewhere"}], "is a link out of its folder"),
        ([cell, cell | {"arm": "b", "folder": str(tmp_path / "elsewhere")}], "is a link out of its folder"),
        ([cell, {"arm": "b"}], "is not what `phalanx experiment` writes"),
        ("cells", "is not what `phalanx experiment` writes"),
    ):
        (tmp_path / "plan" / "experiment.json").write_text(json.dumps(plan | {"cells": cells}))
        assert said in refusal("compare", tmp_path / "plan")
    for text in ("[", "[]", hostile.DEEP, json.dumps(plan | {"cells": [cell], "title": 3})):
        (tmp_path / "plan" / "experiment.json").write_text(text)
        assert "is not what `phalanx experiment` writes" in refusal("compare", tmp_path / "plan")


def test_a_metrics_file_that_is_being_written_is_read_to_its_last_whole_line(tmp_path):
    run, other = write_run(tmp_path / "a"), write_run(tmp_path / "b", "ippo")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"seed": 0, "env_st')
    assert len(metrics.read(run)) == 55
    assert cli.run(["compare", str(run), str(other), "--out", str(tmp_path / "out")]) == 0


def test_a_huge_metrics_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "MOST", 2000)
    run, other = write_run(tmp_path / "a"), write_run(tmp_path / "b", "ippo")
    said = refusal("compare", run, other, "--out", tmp_path / "out")
    assert said == f"{run / 'metrics.jsonl'} has more than 0 MB: it is not read"


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path):
    run, other = write_run(tmp_path / "a"), write_run(tmp_path / "b", "ippo")
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    assert "is not a plain file" in refusal("compare", run, other, "--out", tmp_path / "out")


# watch


@pytest.fixture
def run(two_checkpoints) -> Path:
    return two_checkpoints.folder


def test_watch_refuses_broken_files_in_a_line(run, tmp_path):
    sound = {name: (run / name).read_bytes() for name in ("run.json", "config.toml")}
    for name, contents in {
        "run.json": [b"{", b"[]", hostile.DEEP.encode(), b"\xff\x00"],
        "config.toml": [
            b"\xff",
            b"run = 3",
            f"a = {hostile.DEEP}".encode(),
            b"[run]\n",
            b"[run]\nsteps = []\n",
        ],
    }.items():
        for content in contents:
            (run / name).write_bytes(content)
            assert str(run) in refusal("watch", run)
        (run / name).write_bytes(sound[name])
    facts = json.loads(sound["run.json"])
    (run / "run.json").write_text(json.dumps(facts | {"env_version": hostile.SCRIPT}))
    assert "was made with version" in refusal("watch", run)
    (run / "run.json").write_text(json.dumps(facts | {"origins": [1]}))
    assert refusal("watch", run)
    assert not (run / "watch.html").exists()


def test_watch_reads_nothing_through_links(run, tmp_path):
    elsewhere = hostile.outside(tmp_path / "elsewhere")
    newest = max((run / "checkpoints").glob("0*"))
    shutil.copytree(newest, elsewhere / newest.name)
    for name in ("run.json", "config.toml"):
        (run / name).rename(tmp_path / name)
        (run / name).symlink_to(elsewhere / name)
        assert "is a link out of its folder" in refusal("watch", run)
        (run / name).unlink()
        (tmp_path / name).rename(run / name)
    shutil.rmtree(newest)
    newest.symlink_to(elsewhere / newest.name)
    assert "is damaged: it is a link out of the run folder" in refusal("watch", run)
    newest.unlink()
    newest.mkdir()
    for each in (elsewhere / newest.name).iterdir():
        (newest / each.name).symlink_to(each)
    assert "is damaged: it is a link out of the run folder" in refusal("watch", run)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to(elsewhere)
    assert "is a link out of its folder" in refusal("watch", run)


def test_a_checkpoint_with_a_matching_checksum_and_junk_in_it_is_refused(run):
    newest = max((run / "checkpoints").glob("0*"))
    manifest = json.loads((newest / "manifest.json").read_text())
    manifest.pop("seal")
    for junk in (b"", b"PK\x03\x04 no zip", b"\x93NUMPY"):
        (newest / "carry.npz").write_bytes(junk)
        manifest["sha256"] = checkpoint._digest(newest / "carry.npz")
        sealed = manifest | {"seal": checkpoint._seal(manifest)}
        (newest / "manifest.json").write_text(json.dumps(sealed))
        assert f"checkpoint {newest} is damaged: carry.npz" in refusal("watch", run)
    np.savez(newest / "carry.npz", evil=np.array([print], dtype=object))  # needs pickle
    manifest["sha256"] = checkpoint._digest(newest / "carry.npz")
    (newest / "manifest.json").write_text(json.dumps(manifest | {"seal": checkpoint._seal(manifest)}))
    assert str(newest) in refusal("watch", run)


@pytest.mark.parametrize("option", ['env = "runs.evil.code:Env"', 'algorithm = "runs.evil.code:A"'])
def test_code_in_a_run_folder_is_not_run(run, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    evil = shutil.copytree(run, tmp_path / "runs" / "evil")
    (evil / "code.py").write_text("from pathlib import Path\nPath('owned').touch()\n")
    text = (evil / "config.toml").read_text()
    name = option.partition(" ")[0]
    lines = [option if line.startswith(f"{name} =") else line for line in text.splitlines()]
    assert option in lines
    (evil / "config.toml").write_text("\n".join(lines) + "\n")
    assert "names code in its own folder" in refusal("watch", "runs/evil")
    assert not Path("owned").exists()


def test_a_program_in_a_run_folder_is_not_run(run):
    text = (run / "config.toml").read_text()
    assert 'worker_python = ""' in text
    (run / "config.toml").write_text(text.replace('worker_python = ""', f'worker_python = "{run}/python"'))
    assert "names code in its own folder, worker_python" in refusal("watch", run)


def test_watch_writes_through_no_link(run, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    for name in ("watch.html", ".unfinished-watch.html"):
        (run / name).symlink_to(mine)
    (file,) = phalanx.watch(run, episodes=1)
    assert mine.read_text() == "mine"
    assert not file.is_symlink()


def test_replays_of_junk_are_refused(tmp_path):
    file = tmp_path / "r.json"
    head = {"format": "phalanx replay 1", "map": "3m", "options": {}, "won": 1, "terminated": 1, "scene": {}}
    body = {"frames": [{}], "obs": [[]], "avail": [[]], "alive": [[]], "actions": [[0]], "rewards": [0.0]}
    shaped = {"frames": [{"kind": "battle"}] * 2, "obs": [[[0.0]] * 3] * 2, "avail": [[[1] * 9] * 3] * 2}
    shaped |= {"alive": [[1] * 3] * 2, "actions": [[0] * 3], "rewards": [0.0]}
    for text in ("", "[]", "{}", json.dumps(head | shaped), hostile.DEEP,
                 json.dumps(head), json.dumps(head | body),
                 json.dumps(head | body | {"map": "../../etc"}), json.dumps(head | {"options": []}),
                 json.dumps(head | body | {"obs": 1e999})):  # fmt: skip
        file.write_text(text)
        said = refusal("watch", file)
        assert said


def test_a_title_cannot_leave_its_place(small_run, tmp_path):
    (file,) = phalanx.watch(small_run.folder, episodes=1, out=tmp_path / "a.html")
    text = file.read_text()
    data = text.partition(page.BEFORE_DATA)[2].partition("</script>")[0]
    made = page._filled("{{SCRIPT}}</title><script>alert(1)</script>", data)
    assert "<title>{{SCRIPT}}&lt;/title&gt;" in made
    assert made.count("<script") == text.count("<script")


# Files


def test_a_path_stays_in_its_folder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("x")
    (tmp_path / "out").write_text("x")
    (tmp_path / "in" / "link").symlink_to("../out")
    (tmp_path / "in" / "loop").symlink_to("loop")
    assert inside(tmp_path / "in", "file").read_text() == "x"
    for name in ("../out", str(tmp_path / "out"), "link", "loop", "file/../../out"):
        with pytest.raises(PhalanxError, match="is a link out of its folder"):
            open_inside(tmp_path / "in", name)
    with pytest.raises(FileNotFoundError):
        open_inside(tmp_path / "in", "nothing")


def test_a_file_is_not_written_through_a_link(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".unfinished-new").symlink_to("mine")
    write_whole(tmp_path / "new", lambda file: file.write_text("new"))
    assert ((tmp_path / "mine").read_text(), (tmp_path / "new").read_text()) == ("mine", "new")

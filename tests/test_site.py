"""The site builds without a warning, and what its tutorials tell can be done."""

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from test_watch import chromium  # noqa: F401

import phalanx
from phalanx import cli

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
# With fewer steps, and a game of one step where battles would take long to compile.
SHORTER = {
    r"--steps \S+": "--steps 1024 --batch-steps 1024 --eval-episodes 4 --final-episodes 4",
    r"--seeds 5": "--seeds 2",
    r"--episodes \d+": "--episodes 8",
    r"--best-response \S+": "--best-response 1024",
    r"battle/3m": "switch/2",
}
GAME = {
    r"battle/3m": "game/rock_paper_scissors",
    r" heuristic script ": " random ",
    r" --env.starts \d+": "",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_without_a_warning(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]*"https?://[^>]*>', home), "loads from elsewhere"
    assert (site / "source" / "phalanx" / "types.py.txt").is_file()
    assert 'id="phalanx.api.train"' in (site / "api.html").read_text(encoding="utf-8")


def test_formulas_are_mathml(site):
    page = (site / "algorithms" / "mappo.html").read_text(encoding="utf-8")
    assert page.count("<math") > 5
    assert "$" not in re.sub(r"<pre.*?</pre>|<code.*?</code>|<script.*?</script>", "", page, flags=re.DOTALL)


def test_search_works_from_disk(site, chromium):  # noqa: F811
    chromium.complaints.clear()
    chromium.resize(1280, 860)
    chromium.call("Page.navigate", url=(site / "algorithms" / "qmix.html").as_uri())
    chromium.until("document.readyState === 'complete' && !!document.querySelector('.md-search__input')")
    chromium.ask("document.querySelector('.md-search__input').focus()")
    for letter in "halving":
        chromium.press(letter)
    chromium.until("[...document.querySelectorAll('.md-search-result__link')].length > 0")
    found = chromium.ask("[...document.querySelectorAll('.md-search-result__link')].map(a => a.href).join()")
    assert (site / "search.html").as_uri() in found
    assert not chromium.complaints, "nothing is asked of the network"


def test_every_replay_is_on_a_page():
    made = re.findall(
        r'^    "(\w+)": \("', (ROOT / "docs" / "replays.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert sorted(re.findall(r"^<!-- replay (\w+)", pages, re.MULTILINE)) == sorted(made)


def test_every_public_name_is_in_the_reference_with_a_docstring():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)", page, re.MULTILINE)}
    assert listed == set(phalanx.__all__)
    for name in phalanx.__all__:
        assert inspect.getdoc(getattr(phalanx, name)), name


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    of_the_repository = {"changelog.md", "contributing.md"}  # docs/site.py adds them
    assert pages | of_the_repository == set(re.findall(r"([\w/-]+\.md)", nav))


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of each code block of a tutorial."""
    text = (TUTORIALS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def follow(page: str, folder: Path, changes: dict[str, str]) -> list[str]:
    """Do what a tutorial says in a folder: write its files, run its commands; returns them."""
    done = []
    for language, text in blocks(page):
        if language:
            name = re.match(r"# (\S+)\n", text)
            assert name, f"{page}: a block says in its first line which file it is"
            (folder / name[1]).write_text(text)
            continue
        for line in re.findall(r"^phalanx .*", text, re.MULTILINE):
            command = line
            for old, new in changes.items():
                command = re.sub(old, new, command)
            done.append(command)
            assert cli.run(shlex.split(command, comments=True)[1:]) == 0, command
    return done


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_tutorial_of_a_first_team(folder):
    # The corridor has no scripted team to be shown beside.
    follow("first-team.md", folder, {**SHORTER, r"watch (\S+) heuristic": r"watch \1 random"})
    assert (folder / "results" / "corridor" / "watch.html").is_file()
    assert phalanx.load_team("marines.zip").spec.name == "switch/2"


def test_the_tutorial_of_an_environment(folder, capsys):
    follow("own-environment.md", folder, {**SHORTER, r"--envs 8 --workers 2": "--envs 2 --workers 1"})
    assert phalanx.Run(folder / "results" / "agree").facts["status"] == "finished"
    assert "Agree" in capsys.readouterr().out


def test_the_tutorial_of_an_algorithm(folder, capsys):
    try:
        follow("own-algorithm.md", folder, SHORTER)
    finally:
        for name in ("reinforce", "explore"):  # test_extend.py has a module of the same name
            sys.modules.pop(name, None)
    assert "--entropy FLOAT" in capsys.readouterr().out
    for name in ("plain", "explore", "explore_more"):
        run = phalanx.Run(folder / "results" / name)
        assert run.facts["status"] == "finished"
        assert "learn/policy_loss" in run.metrics()[-1]
    assert (folder / "results" / "both.png").is_file()


def test_the_tutorial_of_a_comparison(folder):
    text = (TUTORIALS / "comparison.md").read_text(encoding="utf-8")
    assert "steps = 1e5\nseeds = 5" in text
    small = "steps = 1024\nseeds = 2\nbatch_steps = 1024\neval_episodes = 4\nfinal_episodes = 4"
    (block,) = (block for language, block in blocks("comparison.md") if language)
    name = block.splitlines()[0].removeprefix("# ")
    (folder / name).write_text(block.replace("steps = 1e5\nseeds = 5", small))
    made = f"results/experiments/{name.removesuffix('.toml')}"
    for command in (["experiment", name], ["compare", made], ["paper", made]):
        assert f"phalanx {' '.join(command)}" in text
        assert cli.run(command) == 0
    assert (folder / made / "paper" / "main.tex").is_file()


def test_the_tutorial_of_a_search(folder):
    small = {"settings = 16": "settings = 4", "seeds = 2": "seeds = 1", "steps = 2e5": "steps = 8192"}
    for language, block in blocks("search.md"):
        if language:
            for old, new in small.items():
                assert old in block
                block = block.replace(old, new)
            (folder / "corridor.toml").write_text(block)
            continue
        for line in block.strip().splitlines():
            words = shlex.split(re.sub(r"--seeds 5 --steps 2e5", "--steps 2048", line))
            assert cli.run(words[1:]) == 0, line
    assert (folder / "results" / "search" / "corridor" / "report.html").is_file()


def test_the_tutorial_of_self_play(folder):
    first = {r"(--out results/script)": r"\1 --opponent random"}  # a game has no script of its own
    done = follow("self-play.md", folder, {**SHORTER, **GAME, **first})
    assert len(done) == 5
    assert (folder / "results" / "play" / "crossplay.html").is_file()
    assert (folder / "results" / "play" / "games.html").is_file()

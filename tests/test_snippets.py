"""Every command and program that the README, the first pages and the tutorials show can be run.

A page is followed as a reader would: in one folder, from top to bottom, its files are written and its
commands and programs run. Only budgets are smaller, and battles, which take long to compile, are another
task. A new line is run too; one that cannot be run must be listed in `ELSEWHERE`.
"""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from phalanx import cli

ROOT = Path(__file__).parents[1]
FIRST = ("README.md", "docs/index.md", "docs/getting-started.md", "docs/from-pymarl.md")
TUTORIALS = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
PAGES = [*FIRST, *TUTORIALS]

# How lines begin that are not run here, and which test runs such a line, or why none can.
ELSEWHERE = {
    r"make demo": "test_learning::test_learns_to_win_a_battle",
    r"make test": "runs this test",
    r"git clone |python3 -m venv |pip install ": "tools/release_check.py installs into empty environments",
    r"python src/main\.py ": "PyMARL's own command",
    r"cd \S+/paper$|pdflatex ": "test_paper::test_the_document_compiles_with_all_entries",
    r"return -?\d|no difference between ": "what a command prints",
    r"srun phalanx train ": "test_hosts::test_two_hosts_train_one_run_through_a_stop_and_a_loss",
    r"phalanx train .* --ray [\d.]+:": "test_ray::test_a_run_survives_a_lost_node",
    r"phalanx experiment .* --slurm": "test_clusters::"
    "test_slurm_restarts_a_job_that_is_lost_and_stops_when_asked",
    r"phalanx experiment .* --ray": "test_clusters::test_ray_moves_a_run_whose_machine_is_lost",
}
# What is smaller. Options are set in every command of a kind, or only where they are given.
SET = {
    "train": {"--steps": "1024", "--batch-steps": "1024", "--eval-episodes": "4", "--final-episodes": "4"},
    "eval": {"--episodes": "8"},
}
WHERE_GIVEN = {
    "train": {"--seeds": "2", "--envs": "2", "--workers": "1"},
    "play": {"--best-response": "1024"},
    "experiment": {"--jobs": "2"},
}
FILES = {
    r"^steps = .*": "steps = 1024",
    r"^seeds = .*": "seeds = 2",
    r"^\[all\]$": "[all]\nbatch_steps = 1024\neval_episodes = 4\nfinal_episodes = 4",
    r'^envs = \["(.*?)".*\]$': r'envs = ["\1"]',
    r"\bbattle/\w+": "switch/2",
}
PROGRAMS = {r"\bsteps=[\d.e]+": "steps=1024, batch_steps=1024, final_episodes=4", r"battle/\w+": "switch/2"}
COMMANDS = {r"\bbattle/\w+": "switch/2", r"(watch \S+) heuristic": r"\1 random"}  # the corridor has no script
# A game of one step instead of battles between teams; it has no script either.
GAME = {
    r" --env.starts \d+": "",
    r"\bbattle/\w+": "game/rock_paper_scissors",
    r" heuristic script ": " random ",
    r"(--out results/script)": r"\1 --opponent random",
}
# What is other on a page.
OF_PAGE = {
    "docs/from-pymarl.md": {r"\bbattle/\w+": "debug/two_step"},  # with a common reward, as QMIX wants
    "docs/tutorials/self-play.md": GAME,
    "docs/tutorials/search.md": {r"^settings = .*": "settings = 4", r"^steps = .*": "steps = 8192"},
}


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of each code block of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def lines(block: str) -> list[str]:
    """The lines of a block for the shell, without blank ones."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def elsewhere(line: str) -> str | None:
    """Who runs a line that is not run here."""
    return next((who for start, who in ELSEWHERE.items() if re.match(start, line)), None)


def changed(text: str, table: dict[str, str]) -> str:
    """A text with replacements."""
    for old, new in table.items():
        text = re.sub(old, new, text, flags=re.MULTILINE)
    return text


def smaller(command: str, of_page: dict[str, str]) -> list[str]:
    """The words of a command of phalanx, with a small budget."""
    words = shlex.split(changed(command, {**COMMANDS, **of_page}), comments=True)[1:]
    if "--help" in words or words[1:2] == ["--help"]:
        return words
    given = {name: value for name, value in WHERE_GIVEN.get(words[0], {}).items() if name in words}
    for name, value in {**given, **SET.get(words[0], {})}.items():
        if name in words:
            del words[words.index(name) : words.index(name) + 2]
        words += [name, value]
    return words


def latest_run() -> str:
    """What a page calls RUN: the folder of the run before."""
    return str(max(Path("results").rglob("run.json"), key=lambda path: path.stat().st_mtime).parent)


def save(text: str, of_page: dict[str, str]) -> bool:
    """Write a block that says in its first line which file it is; returns whether it does."""
    name = re.match(r"# (\S+\.(?:py|toml))\n", text)
    if name:
        Path(name[1]).write_text(changed(text, {**FILES, **of_page}) if name[1].endswith(".toml") else text)
    return bool(name)


def follow(page: str) -> None:
    """Do what a page says in the current folder."""
    of_page = OF_PAGE.get(page, {})
    for language, text in blocks(page):
        if language == "":
            for line in lines(text):
                if elsewhere(line):
                    continue
                words = smaller(line, of_page)
                words = [latest_run() if word == "RUN" else word for word in words]
                assert run(words) == 0, f"{page}: {line}"
        elif not save(text, of_page):
            assert language == "python", f"{page}: {text}"
            exec(compile(changed(text, PROGRAMS), page, "exec"), {"__name__": "snippet"})


def run(words: list[str]) -> int:
    """The exit code of a command; that of --help is raised."""
    try:
        return cli.run(words)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the experiments of the repository and the examples of extend.md."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("experiments").mkdir()
    for path in (ROOT / "experiments").glob("*.toml"):
        Path("experiments", path.name).write_text(changed(path.read_text(encoding="utf-8"), FILES))
    for _, text in blocks("docs/extend.md"):
        save(text, {})
    yield tmp_path
    for name, module in list(sys.modules.items()):  # another page may have a module of the same name
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_can_be_done(page, folder):
    follow(page)
    for path in folder.rglob("run.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["status"] == "finished", path
    # Files that the page says are then there.
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in re.findall(r"\bresults/[\w/.-]+\.(?:html|png|tex|toml|zip)\b", text):
        assert (folder / name).is_file(), name


def test_every_block_is_run_or_says_who_runs_it():
    shown = []
    for page in PAGES:
        for language, text in blocks(page):
            assert language in ("", "python", "toml"), f"{page}: what is to be done with {language}?"
            shown += lines(text) if language == "" else []
    unknown = [line for line in shown if not line.startswith("phalanx ") and not elsewhere(line)]
    assert not unknown, "neither run nor listed in ELSEWHERE"


def test_what_is_run_elsewhere_has_its_test():
    for who in ELSEWHERE.values():
        module, found, name = who.partition("::")
        if found:
            text = (ROOT / "tests" / f"{module}.py").read_text(encoding="utf-8")
            assert f"def {name}(" in text, who

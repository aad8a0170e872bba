"""`phalanx paper`: LaTeX that compiles, says what the comparison says, and runs nothing of a run folder."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_compare import say, write_run

from phalanx import cli, registry
from phalanx.errors import PhalanxError
from phalanx.report import paper
from phalanx.report.compare import read
from phalanx.report.paper import bibliography as bib
from phalanx.report.paper import tables
from phalanx.report.paper.latex import count, escape, joined, number, printable, stacked, tabulars
from phalanx.report.paper.methods import algorithm_name, section
from phalanx.report.statistics import Interval

HOSTILE = (
    r"\input{/etc/passwd} $x_{ 100% & #1 ~^ <b>|`` -- ''q, \write18{touch pwned} 中é" + "\n\\end{document}"
)


def experiment(folder, arms, tasks=("battle/3m", "battle/8m"), seeds=5, title="A title", **options):
    """The folder of a finished experiment with made-up runs; `arms` are algorithms and levels by name."""
    cells = []
    for (arm, (algorithm, level)), task in itertools.product(arms.items(), tasks):
        name = f"run{len(cells)}"
        write_run(folder / name, algorithm, task, level, seeds=seeds, **options)
        cells.append({"arm": arm, "env": task, "folder": name, "failed": None})
    facts = {"title": title, "file": "small.toml", "control": None, "bounds": {}, "cells": cells}
    (folder / "experiment.json").write_text(json.dumps(facts))
    return folder


def everything(out: Path) -> str:
    """The document with all its parts put in, without comments."""

    def part(match):
        return (out / f"{match[1]}.tex").read_text(encoding="utf-8")

    text = re.sub(r"\\input\{([^}]*)\}", part, (out / "main.tex").read_text(encoding="utf-8"))
    return re.sub(r"(?<!\\)%.*", "", text)


def assert_sound(out: Path) -> None:
    """What can be checked without LaTeX: environments, braces, citations, references, files."""
    text = everything(out)
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{([\w*]+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    depth = np.cumsum([{"{": 1, "}": -1}[char] for char in re.findall(r"(?<!\\)(?:\\\\)*([{}])", text)])
    assert depth.min() >= 0
    assert depth[-1] == 0
    entries = re.findall(r"^@\w+\{(\w+),", (out / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(bib.cited(text)) == sorted(entries), "an entry for each citation, and no other"
    assert set(re.findall(r"\\ref\{([^}]*)\}", text)) <= set(re.findall(r"\\label\{([^}]*)\}", text))
    drawn = re.findall(r"\\includegraphics\[[^]]*\]\{([^}]*)\}", text)
    assert drawn
    for name in drawn:
        assert (out / name).read_bytes().startswith(b"%PDF")
        assert "<svg" in (out / name).with_suffix(".svg").read_text(encoding="utf-8")


def compile_pdf(out: Path) -> str:
    """What LaTeX says; only where it is installed."""
    if not (shutil.which("pdflatex") and shutil.which("bibtex")):
        pytest.skip("there is no pdflatex here")
    once = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main"]
    for words in (once, ["bibtex", "main"], once, once):
        done = subprocess.run(words, cwd=out, capture_output=True, text=True, errors="replace", timeout=300)
        assert done.returncode == 0, done.stdout[-3000:]
    assert (out / "main.pdf").read_bytes().startswith(b"%PDF")
    return done.stdout


# What is cited


def test_every_algorithm_and_every_family_has_its_entry():
    known = bib.entries()
    assert set(bib.ALGORITHMS) == set(registry.algorithms())
    families = {name.partition("/")[0] for name in registry.envs()}
    assert {begin.partition("/")[0] for begin in bib.ENVIRONMENTS} == families
    for name in registry.envs():
        assert bib.of_environment(name), name
    tables_of_keys = (bib.ALGORITHMS, bib.ENVIRONMENTS, bib.OPTIONS)
    for keys in (keys for table in tables_of_keys for keys in table.values()):
        assert keys
        assert set(keys) <= set(known), keys


def test_options_that_are_cited_exist():
    options = {
        name
        for each in registry.algorithms()
        for name in registry.algorithm_config(each).__dataclass_fields__
    }
    assert set(bib.OPTIONS) <= options


def test_every_entry_is_used_and_complete():
    source = "".join(path.read_text(encoding="utf-8") for path in Path(paper.__file__).parent.glob("*.py"))
    for key, text in bib.entries().items():
        assert f'"{key}"' in source or re.search(rf"cite\{{[^}}]*\b{key}\b", source), key
        fields = dict(re.findall(r"^  (\w+) += \{(.*)", text, re.MULTILINE))
        assert {"author", "title", "year"} <= set(fields), key
        assert text.count("{") == text.count("}"), key
        assert {"journal", "booktitle", "note", "howpublished"} & set(fields), key


def test_the_longest_beginning_counts_and_options_are_cited_where_they_are_on(tmp_path):
    assert bib.of_environment("battle/3m") == ("samvelyan2019smac",)
    assert bib.of_environment("battle/v2_zerg_5_vs_5") == ("ellis2023smacv2",)
    assert bib.of_environment("my_module:Env") == ()
    on, off = (read(write_run(tmp_path / str(flag), "qmix", icm=flag)) for flag in (True, False))
    assert bib.of_options(on) == {"icm": ("pathak2017icm",)}
    assert bib.of_options(off) == {}


# Escaping


def test_text_is_printed_and_never_run():
    assert escape(r"a_b & 50% #1 {x} $y$ ~ ^ \z") == (
        r"a\_b \& 50\% \#1 \{x\} \$y\$ \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )
    assert escape("a--b ''c") == "a-{}-b '{}'c"
    assert escape("one\ntwo\t\0three\x1b") == "one two three"
    assert escape("Zoë 中") == "Zoë [U+4E2D]"
    assert escape(3) == "3"
    assert printable("a\u2028b") == "a b"


def test_no_command_is_left_in_an_escaped_text():
    left = re.sub(r"\\(?:[{}$&#%_]|text\w+\{\})", "", escape(HOSTILE))
    assert not set(left.replace("{}", "")) & set(r"\{}$&#%_^~<>|`")


def test_numbers_and_lists():
    assert number(-1.005, 1) == "$-$1.0"
    assert number(-0.001) == "0.00"
    assert count(1_500_000) == r"1\,500\,000"
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"
    assert stacked(Interval(0.5, np.nan, np.nan)) == "0.50"
    assert r"\textbf{0.50}" in stacked(Interval(0.5, 0.4, 0.6), bold=True)


def test_a_long_table_is_cut_into_parts():
    rows = [[str(i), "x"] for i in range(45)]
    first, second = tabulars("ll", ["a", "b"], [rows[:10], rows[10:]])
    assert first.count(r"\midrule") == 2, "under the head, and between the groups"
    assert (second.count(r" \\"), second.count(r"\midrule")) == (6, 1)
    assert "none" in tabulars("ll", ["a", "b"], [[]])[0]


# What is bold


def test_an_arm_is_bold_only_where_it_is_shown_to_lead(tmp_path):
    far = {"mappo": ("mappo", 0.9), "ippo": ("ippo", 0.6), "vdn": ("vdn", 0.3)}

    def of(seeds, folder, arms=far):
        runs = [
            write_run(tmp_path / folder / f"{name}{task[7:]}", name, task, level, seeds=seeds)
            for name, (_, level) in arms.items()
            for task in ("battle/3m", "battle/8m")
        ]
        return say(*runs)

    clear = of(10, "clear")
    assert tables.leaders(clear) == dict.fromkeys(("", "battle/3m", "battle/8m"), "mappo")
    (text,) = tables.scores(clear)
    bold = re.findall(r"\\textbf\{([\d.]+)\}", text)
    means = [clear.mean("mappo", task).value for task in clear.tasks]
    assert bold == [
        f"{value:.2f}" for value in [*means, *(i.value for i in clear.aggregates["mappo"].values())]
    ]
    few = of(3, "few")
    assert "battle/3m" not in tables.leaders(few), "three seeds on one task cannot show it"
    second = {"mappo": ("mappo", 0.8), "ippo": ("ippo", 0.8), "vdn": ("vdn", 0.3)}
    assert tables.leaders(of(10, "second", second)) == {}, "better than one, but not than all"
    assert r"\textbf" not in tables.scores(of(10, "again", second))[0]


def test_tests_on_single_tasks_are_corrected_for_their_number(tmp_path):
    """Five seeds that are all above have p = 0.008: shown alone, and not among ten tasks."""

    def leading(tasks, folder):
        return tables.leaders(
            say(
                *(
                    write_run(tmp_path / folder / f"{name}{i}", name, f"battle/{i}", level)
                    for name, level in (("mappo", 0.9), ("ippo", 0.3))
                    for i in range(tasks)
                )
            )
        )

    assert leading(1, "one") == {"": "mappo", "battle/0": "mappo"}
    assert leading(10, "ten") == {"": "mappo"}


def test_verdicts_are_those_of_compare(tmp_path):
    found = say(*(write_run(tmp_path / n, n, level=x) for n, x in (("mappo", 0.9), ("ippo", 0.5))))
    (text,) = tables.verdicts(found)
    (pair,) = found.pairs
    value, low, high = pair.improvement
    assert f"mappo over ippo & {value:.2f} [{low:.2f}, {high:.2f}] & {pair.chance:.3f} & better" in text


def test_options_are_those_that_are_set_or_differ(tmp_path):
    one = write_run(tmp_path / "a", "mappo", share="all", own=1)
    other = write_run(tmp_path / "b", "ippo", share="agent")
    for folder in (one, other):
        facts = json.loads((folder / "run.json").read_text())
        origins = {
            "algorithm": {"lr": "preset mappo/battle", "own": "default"},
            "run": {"steps": "command line"},
        }
        (folder / "run.json").write_text(json.dumps(facts | {"origins": origins}))
    found = say(one, other)
    (text,) = tables.options(found)
    assert re.findall(r"texttt\{([^}]*)\}", text) == ["algorithm.lr", "algorithm.share"]
    said = section(found)
    assert r"\texttt{mappo/battle} are those that come with" in said
    assert algorithm_name("mappo") == "MAPPO"
    assert algorithm_name("my_module:Mine") == "my_module:Mine"


# The whole


def test_a_kit_says_what_was_done(tmp_path, capsys):
    folder = experiment(tmp_path / "first", {"mappo": ("mappo", 0.9), "a_ippo": ("ippo", 0.5)})
    assert cli.run(["paper", str(folder)]) == 0
    out = folder / "paper"
    said = capsys.readouterr().out
    assert "mappo is better than a_ippo" in said
    assert str(out / "main.tex") in said
    assert_sound(out)
    text = " ".join(everything(out).split())
    for words in (
        r"We compare MAPPO~\cite{schulman2017ppo,yu2022mappo} and a\_ippo (IPPO~\cite{schulman2017ppo,dewitt",
        r"battle/3m~\cite{samvelyan2019smac}",
        "the implementation in phalanx, not the original programs",
        r"phalanx~\cite{phalanx} 0.1.0 and JAX~\cite{bradbury2018jax} 0.8.0",
        "on a machine (cpu)",
        r"battle/3m & all & 1 & 0--4 & 500\,000",
        "4 runs with 10\\,000\\,000 environment steps, which took 7 minutes",
        "mappo is better than a\\_ippo: probability of improvement 1.00",
        r"$p < 0.05$",
    ):
        assert words in text, words
    readme = (out / "README.md").read_text()
    assert f"phalanx train mappo battle/3m --seeds 5 --out {folder / 'run0'}" in readme
    assert f"phalanx paper {folder}" in readme
    assert "ellis2023" not in (out / "references.bib").read_text()


def test_an_unfinished_experiment_says_so(tmp_path, capsys):
    folder = experiment(tmp_path / "part", {"mappo": ("mappo", 0.9), "ippo": ("ippo", 0.5)})
    shutil.rmtree(folder / "run3")
    assert cli.run(["paper", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "note: ippo on battle/8m is not finished" in capsys.readouterr().out
    assert "ippo on battle/8m is not finished" in (tmp_path / "out" / "main.tex").read_text()
    assert "ippo on battle/8m is not finished" in (tmp_path / "out" / "README.md").read_text()
    assert_sound(tmp_path / "out")
    shutil.rmtree(folder / "run2")
    with pytest.raises(PhalanxError, match="only one arm"):
        cli.run(["paper", str(folder)])


def test_few_seeds_and_one_task_and_returns_are_described(tmp_path):
    arms = {"mappo": ("mappo", 0.9), "ippo": ("ippo", 0.5)}
    folder = experiment(tmp_path / "few", arms, ["debug/identity"], seeds=2, wins=False)
    cli.run(["paper", str(folder), "--steps", "300000"])
    text = everything(folder / "paper")
    assert "With 2 seeds there are no confidence intervals" in text
    assert "The measure is the greedy return" in text
    assert r"its last value within 300\,000 environment steps" in text
    assert "Scores are normalised linearly" in text
    assert "over all tasks" not in text.replace("measures over all tasks", "")
    assert "not the original programs" not in text
    assert_sound(folder / "paper")


@pytest.mark.filterwarnings("error:.*missing from font:UserWarning", "error:.*constrained_layout:UserWarning")
def test_a_hostile_experiment_is_printed_and_not_run(tmp_path, capsys):
    name = HOSTILE.replace("\n", " ")  # names on several lines are refused
    arms = {"mappo": ("mappo", 0.9), name: ("my_module:Mine", 0.5), "$x_{$": ("qmix", 0.2)}
    folder = experiment(tmp_path / "evil", arms, ["../x%$_", "battle/3m"], title=name, seeds=3)
    for run in folder.glob("run?"):
        facts = json.loads((run / "run.json").read_text())
        facts |= {"device": HOSTILE, "git": HOSTILE, "command": HOSTILE, "versions": {HOSTILE: HOSTILE}}
        facts["origins"] = {"algorithm": {"lr": f"preset {HOSTILE}"}}
        (run / "run.json").write_text(json.dumps(facts))
    cli.run(["paper", str(folder)])
    assert "no entry for my_module:Mine" in capsys.readouterr().out
    out = folder / "paper"
    assert_sound(out)
    text = everything(out)
    assert not re.search(r"\\(input|write18|end\{document\}.+)\b", text.replace("\n", " ").removesuffix("\n"))
    assert not {
        path.name for path in (out / "figures").iterdir() if not re.fullmatch(r"[a-z0-9-]+\.\w+", path.name)
    }
    compile_pdf(out)
    assert not (out / "pwned").exists()


def test_the_document_compiles_with_all_entries(tmp_path):
    folder = experiment(tmp_path / "first", {"mappo": ("mappo", 0.9), "qmix": ("qmix", 0.5)})
    cli.run(["paper", str(folder)])
    out = folder / "paper"
    (out / "references.bib").write_text("\n".join(bib.entries().values()))
    text = (out / "main.tex").read_text()
    (out / "main.tex").write_text(text.replace(r"\bibliographystyle", r"\nocite{*}\bibliographystyle"))
    said = compile_pdf(out)
    assert not re.findall(r"^(?:LaTeX Warning|Overfull|!).*", said, re.MULTILINE)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    folder = experiment(tmp_path / "first", {"mappo": ("mappo", 0.9), "ippo": ("ippo", 0.5)})
    (tmp_path / "file").write_text("")
    with pytest.raises(PhalanxError, match="cannot write"):
        cli.run(["paper", str(folder), "--out", str(tmp_path / "file")])
    (tmp_path / "out" / "main.tex").mkdir(parents=True)
    with pytest.raises(PhalanxError, match="cannot write"):
        cli.run(["paper", str(folder), "--out", str(tmp_path / "out")])
    with pytest.raises(PhalanxError, match="no run folder"):
        cli.run(["paper", str(tmp_path / "nothing")])
    for text in ("{", "[]", "{}"):
        (folder / "experiment.json").write_text(text)
        with pytest.raises(PhalanxError, match="is not what `phalanx experiment` writes"):
            cli.run(["paper", str(folder)])

"""What is checked before a release: the files of a wheel, licences, the changelog and CITATION.cff."""

import importlib.util
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import phalanx

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("release_check", ROOT / "tools" / "release_check.py")
assert spec is not None
assert spec.loader is not None
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)

FILES = [
    "phalanx/__init__.py",
    "phalanx/presets/mappo/battle.toml",
    "phalanx/references/a.json",
    "phalanx/report/comparison.css",
    "phalanx/report/paper/literature.bib",
    "phalanx/report/viewer/page.html",
]


def wheel(tmp_path, files, commands="[console_scripts]\nphalanx = phalanx.cli:main\n", licence=True):
    path = tmp_path / "phalanx-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in files:
            archive.writestr(name, "")
        archive.writestr(
            "phalanx-1.2.3.dist-info/METADATA", "Metadata-Version: 2.4\nName: phalanx\nVersion: 1.2.3\n"
        )
        if commands:
            archive.writestr("phalanx-1.2.3.dist-info/entry_points.txt", commands)
        if licence:
            archive.writestr("phalanx-1.2.3.dist-info/licenses/LICENSE", "")
    return path


def test_a_wheel_holds_the_package_and_nothing_else(tmp_path):
    good = wheel(tmp_path, FILES)
    assert list(check.contents(good, [*FILES, "tests/test_a.py", "README.md"])) == []
    assert check.version_of(good) == "1.2.3"
    lacking = list(check.contents(wheel(tmp_path, FILES[1:]), FILES))
    assert lacking == ["the wheel lacks phalanx/__init__.py: see package-data in pyproject.toml"]
    (more,) = check.contents(wheel(tmp_path, [*FILES, "tests/test_a.py"]), FILES)
    assert more == "the wheel has tests/test_a.py, which is no part of the package"
    (stale,) = check.contents(wheel(tmp_path, [*FILES, "phalanx/old.py"]), FILES)
    assert "phalanx/old.py" in stale
    assert list(check.contents(wheel(tmp_path, FILES, commands=""), FILES)) == [
        "the wheel has no command `phalanx`"
    ]
    assert list(check.contents(wheel(tmp_path, FILES, licence=False), FILES)) == ["the wheel lacks LICENSE"]


def test_an_sdist_has_the_project_s_pages_and_no_half_of_the_tests(tmp_path):
    def problems(names):
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
            for name in names:
                archive.addfile(tarfile.TarInfo(f"phalanx-1.2.3/{name}"))
        return list(check.source_contents(tmp_path / "a.tar.gz"))

    pages = ["CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml"]
    assert problems(pages) == []
    assert problems(pages[1:]) == ["the sdist lacks CHANGELOG.md"]
    assert problems([*pages, "tests/test_a.py"]) == [
        "the sdist has tests, but not their data: see MANIFEST.in"
    ]


@pytest.mark.parametrize("part", ["presets", "references", "viewer", "bibliography", "styles"])
def test_a_wheel_without_a_part_of_the_data_is_refused_even_if_git_has_none(tmp_path, part):
    files = [name for name in FILES if check.PARTS[part] not in name]
    assert list(check.contents(wheel(tmp_path, files), files)) == [f"the wheel has no {part}"]


@pytest.mark.parametrize(
    ("licence", "fine"),
    [
        ("MIT", True),
        ("Apache-2.0", True),
        ("BSD License", True),
        ("BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0", True),
        ("MIT AND GPL-3.0-or-later WITH GCC-exception-3.1", True),
        ("BSD-3-Clause AND GPL-3.0-with-GCC-exception", True),
        ("GPL-3.0-or-later", False),
        ("GNU General Public License v3 (GPLv3)", False),
        ("GNU Lesser General Public License v2 or later (LGPLv2+)", False),
        ("LGPL-2.1-only", False),
        ("AGPL-3.0", False),
        ("MPL-2.0", False),
        ("Mozilla Public License 2.0 (MPL 2.0)", False),
        ("", False),
        ("UNKNOWN", False),
    ],
)
def test_copyleft_and_unknown_licences_are_refused_unless_allowed(licence, fine):
    package = check.Package("some", "1.0", licence)
    assert (check.licence_problem(package) is None) == fine
    assert check.licence_problem(package, {"some": "a reason"}) is None


def test_the_changelog_and_the_citation_know_the_version(tmp_path):
    def problems(version, heading, cited):
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")
        (tmp_path / "CITATION.cff").write_text(f"title: x\nversion: {cited}\n")
        return list(check.documents(version, tmp_path))

    assert problems("0.3.0.dev0", "0.3.0 (unreleased)", "0.3.0.dev0") == []
    assert problems("0.3.0", "0.3.0 (2030-01-02)", "0.3.0") == []
    assert problems("0.3.0", "0.3.0 (unreleased)", "0.3.0") == [
        "the section 0.3.0 of CHANGELOG.md has no date"
    ]
    assert problems("0.3.0", "0.2.0 (2030-01-02)", "0.3.0") == ["CHANGELOG.md has no section 0.3.0"]
    assert "names version 0.2.0" in problems("0.3.0", "0.3.0 (2030-01-02)", "0.2.0")[0]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository with one commit, whose wheel is fine on every Python; gives `git`."""

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        return check.run(["git", *who, "-C", tmp_path, *words]).strip()

    monkeypatch.setattr(check, "ROOT", tmp_path)
    for name in ("NAME", "EMAIL"):
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", "a@b.c")
    (tmp_path / "phalanx").mkdir()
    (tmp_path / "phalanx" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    monkeypatch.setattr(check, "build", lambda *_: (Path("a.whl"), Path("a.tar.gz")))
    monkeypatch.setattr(check, "version_of", lambda wheel: "1.2.3")
    monkeypatch.setattr(check, "version_of_python", lambda python: python.removeprefix("python") + ".1")
    for name in ("contents", "source_contents", "documents", "in_empty_environment"):
        monkeypatch.setattr(check, name, lambda *_: [])
    return git


def released(monkeypatch, *words):
    """The exit code of the tool."""
    monkeypatch.setattr("sys.argv", ["release_check.py", *words])
    return check.main()


ALL = ("python3.11", "python3.12", "python3.13")


def test_a_python_that_is_not_tried_fails_unless_others_are_named(project, monkeypatch, capsys):
    monkeypatch.setattr(check, "found_pythons", lambda: list(ALL))
    assert released(monkeypatch) == 0
    monkeypatch.setattr(check, "found_pythons", lambda: ["python3.11", "python3.13"])
    assert released(monkeypatch) == 1
    assert "Python 3.12 was not found" in capsys.readouterr().err
    assert released(monkeypatch, "python3.12") == 0
    assert project("tag") == "", "a check makes no tag"


def test_a_release_is_tagged_once_from_a_clean_tree_and_on_all_pythons(
    project, monkeypatch, capsys, tmp_path
):
    assert released(monkeypatch, "--tag", "python3.12") == 1
    (tmp_path / "new.py").write_text("")
    assert released(monkeypatch, "--tag", *ALL) == 1
    assert "not committed" in capsys.readouterr().err
    (tmp_path / "new.py").unlink()
    monkeypatch.setattr(check, "documents", lambda *_: ["CITATION.cff names version 1.0"])
    assert released(monkeypatch, "--tag", *ALL) == 1
    assert project("tag") == "", "what has a problem is not tagged"
    monkeypatch.setattr(check, "documents", lambda *_: [])
    assert released(monkeypatch, "--tag", *ALL) == 0
    assert project("cat-file", "-t", "v1.2.3") == "tag", "annotated"
    assert project("rev-parse", "v1.2.3^{commit}") == project("rev-parse", "HEAD")
    assert released(monkeypatch, "--tag", *ALL) == 1
    assert "v1.2.3 exists" in capsys.readouterr().err


def test_this_tree_is_in_order():
    assert list(check.documents(phalanx.__version__, ROOT)) == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for version in check.PYTHONS:
        assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    package = ROOT / "phalanx"
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "package-data"
    ]
    listed = {path for pattern in data["phalanx"] for path in package.glob(pattern)}
    tracked = {ROOT / name for name in check.tracked() if name.startswith("phalanx/")}
    assert {path for path in tracked if path.suffix != ".py"} <= listed, "see package-data in pyproject.toml"


def test_the_changelog_is_by_kind():
    _, _, text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("## 0.2.0")
    text, _, _ = text.partition("\n## ")
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == ["Added", "Changed", "Fixed", "Numbers change"]
    assert "**Numbers change**" not in text, "such lines have their own section"
    head, *_ = text.split("### ")
    assert "- " not in head, "every line has a kind"


@pytest.mark.parametrize(
    "page", ["docs/stability.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"]
)
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert target.startswith("https://") or (ROOT / page).parent.joinpath(target).is_file(), target

"""Checks a release before it is made: `make release-check`. With --tag it also makes it: `make release`.

Builds the sdist and from it the wheel, out of the files that git tracks. Checks their metadata and contents,
and that the changelog and CITATION.cff know the version. Then installs the wheel into an empty environment of
each Python, lists the licences of what came with it, and trains, compares and shows a small team there.
Nothing is published. What is left behind are the files in `dist/`, and with --tag an annotated tag.
"""

import argparse
import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
BUILD_TOOLS = ("build>=1.2", "twine>=6.1")
TRAIN = "train mappo switch/2 --steps 2048 --seeds 2 --envs 8 --hidden 8 --final-episodes 4 --out run"

COPYLEFT = re.compile(r"\b(?:[AL]?GPL|GNU|MPL|Mozilla|EUPL|CDDL|EPL|OSL|SSPL|CC-BY-SA)", re.IGNORECASE)
# GCC's runtime library, which wheels of NumPy and SciPy bring along, may be used by programs of any licence.
EXCEPTIONS = re.compile(
    r"\(?GPL-3\.0-(?:or-later|only) WITH GCC-exception-3\.1\)?|GPL-3\.0-with-GCC-exception", re.IGNORECASE
)
# Packages that may come along in spite of this, with a reason, such as "MPL-2.0: covers its own files only".
ALLOWED: dict[str, str] = {}


class Package(NamedTuple):
    """An installed package and what its metadata say of its licence."""

    name: str
    version: str
    licence: str


def main() -> int:
    """Run all checks; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "pythons", nargs="*", metavar="PYTHON", help="interpreters (default: python3.11 to python3.13, all)"
    )
    parser.add_argument(
        "--dist", type=Path, default=ROOT / "dist", help="folder for wheel and sdist (default: dist)"
    )
    parser.add_argument(
        "--tag", action="store_true", help="tag the commit if nothing is wrong; all Pythons must be tried"
    )
    args = parser.parse_args()
    pythons = {python: version_of_python(python) for python in args.pythons or found_pythons()}
    # Before minutes are spent. Whoever names interpreters for a check means these and no others.
    problems = [] if args.pythons and not args.tag else list(untried(pythons.values()))
    commit, tag = run(["git", "-C", ROOT, "rev-parse", "HEAD"]).strip(), f"v{declared_version(ROOT)}"
    problems += untaggable(ROOT, tag) if args.tag else []
    if problems:
        return verdict(problems)
    with tempfile.TemporaryDirectory() as scratch:
        wheel, sdist = build(Path(scratch), args.dist)
        problems += [
            *contents(wheel, tracked()),
            *source_contents(sdist),
            *documents(version_of(wheel), ROOT),
        ]
        for python, version in pythons.items():
            found = in_empty_environment(python, version, wheel, Path(scratch))
            problems += [f"Python {version}: {problem}" for problem in found]
    print(f"\ntried on Python {', '.join(pythons.values())}")
    if args.tag and not problems:
        run(["git", "-C", ROOT, "tag", "--annotate", tag, "--message", f"phalanx {tag[1:]}", commit])
        print(f"tagged {commit[:10]} as {tag}; publish it with:  git push origin {tag}")
    return verdict(problems, f"{wheel.name}, {sdist.name}")


def verdict(problems: list[str], files: str = "") -> int:
    """Print what is wrong, or that nothing is; returns the exit code."""
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    print("not ready to release" if problems else f"ready to release: {files}")
    return 1 if problems else 0


def run(words: Iterable[str | Path], **options: object) -> str:
    """Run a program; returns what it prints. One that fails ends the check, with its last lines."""
    words = [str(word) for word in words]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)  # pyright: ignore
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(words)}\n" + "\n".join(done.stdout.splitlines()[-20:]))
    return done.stdout


def environment(folder: Path, python: str = sys.executable) -> Path:
    """Make an empty environment; returns its interpreter."""
    if python == sys.executable:
        venv.create(folder, with_pip=True)
    else:
        run([python, "-m", "venv", folder])
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def tracked() -> list[str]:
    """The files that git tracks, without those of them that are gone."""
    names = run(["git", "-C", ROOT, "ls-files", "-z"]).split("\0")
    return [name for name in names if name and (ROOT / name).is_file()]


def declared_version(root: Path) -> str:
    """The version that the source declares."""
    text = (root / "phalanx" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def untaggable(root: Path, tag: str) -> Iterator[str]:
    """Why a release cannot be tagged."""
    if run(["git", "-C", root, "status", "--porcelain"]).strip():
        yield "the working copy has changes that are not committed"
    if run(["git", "-C", root, "tag", "--list", tag]).strip():
        yield f"the tag {tag} exists: raise the version in phalanx/__init__.py"


# The files


def build(scratch: Path, dist: Path) -> tuple[Path, Path]:
    """Build sdist and wheel from a copy of the tracked files, so that nothing old gets in; check metadata."""
    source, out = scratch / "source", scratch / "dist"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    if run(["git", "-C", ROOT, "status", "--porcelain"]).strip():
        print("note: the working copy has changes that are not committed; untracked files are left out")
    python = environment(scratch / "tools")
    run([python, "-m", "pip", "install", "--quiet", *BUILD_TOOLS])
    run([python, "-m", "build", "--outdir", out, source])
    print(run([python, "-m", "twine", "--no-color", "check", "--strict", *sorted(out.iterdir())]).strip())
    dist.mkdir(parents=True, exist_ok=True)
    copies = [Path(shutil.copy2(path, dist)) for path in out.iterdir()]
    (wheel,) = (path for path in copies if path.suffix == ".whl")
    (sdist,) = (path for path in copies if path.suffix != ".whl")
    return wheel, sdist


def version_of(wheel: Path) -> str:
    """The version that a wheel's metadata name."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))["Version"]


def contents(wheel: Path, files: Iterable[str]) -> Iterator[str]:
    """What is wrong with the files in a wheel: it must hold the package, its metadata, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if not name.endswith("/")}
        (entry,) = [name for name in inside if name.endswith(".dist-info/entry_points.txt")] or [None]
        commands = archive.read(entry).decode() if entry else ""
    package = {name for name in files if name.startswith("phalanx/")}
    others = {name for name in inside - package if ".dist-info/" not in name}
    for name in sorted(package - inside):
        yield f"the wheel lacks {name}: see package-data in pyproject.toml"
    for name in sorted(others):
        yield f"the wheel has {name}, which is no part of the package"
    if not any(name.endswith("/licenses/LICENSE") for name in inside):
        yield "the wheel lacks LICENSE"
    if "phalanx = phalanx.cli:main" not in commands:
        yield "the wheel has no command `phalanx`"
    kinds = {kind: len([n for n in package & inside if part in n]) for kind, part in PARTS.items()}
    print(
        f"{wheel.name}: {len(inside)} files; "
        + ", ".join(f"{count} of {kind}" for kind, count in kinds.items())
    )
    for kind, count in kinds.items():
        if not count:
            yield f"the wheel has no {kind}"


PARTS = {
    "presets": "/presets/",
    "references": "/references/",
    "viewer": "/report/viewer/",
    "bibliography": ".bib",
    "styles": ".css",
}


def source_contents(sdist: Path) -> Iterator[str]:
    """What is wrong with the files in an sdist; the wheel was built from it, so it has the package."""
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml"):
        if name not in inside:
            yield f"the sdist lacks {name}"
    if any(name.startswith("tests/") for name in inside):
        yield "the sdist has tests, but not their data: see MANIFEST.in"


def documents(version: str, root: Path) -> Iterator[str]:
    """What the changelog and CITATION.cff do not know of a version."""
    released = re.sub(r"\.?(?:dev|rc|a|b)\d*$", "", version)
    heading = re.search(
        rf"^## {re.escape(released)}\b(.*)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
    )
    if not heading:
        yield f"CHANGELOG.md has no section {released}"
    elif version == released and not re.search(r"\d{4}-\d\d-\d\d", heading[1]):
        yield f"the section {released} of CHANGELOG.md has no date"
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    if not cited or cited[1].strip("\"'") != version:
        yield f"CITATION.cff names version {cited[1] if cited else 'none'}, and the wheel is {version}"


# Empty environments


def found_pythons() -> list[str]:
    """The interpreters python3.11 to python3.13 that can be started."""
    found = [shutil.which(f"python{version}") for version in PYTHONS]
    return [python for python in found if python and not _silent([python, "--version"])]


def version_of_python(python: str) -> str:
    """The version of an interpreter."""
    return run([python, "-c", "import platform; print(platform.python_version())"]).strip()


def untried(versions: Iterable[str]) -> Iterator[str]:
    """A problem for each Python that a release must be tried on, and is not."""
    tried = {version.rpartition(".")[0] for version in versions}
    for version in PYTHONS:
        if version not in tried:
            yield f"Python {version} was not found: name all three, PYTHONS='/path/to/python3.11 ...'"


def _silent(words: list[str]) -> int:
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def in_empty_environment(python: str, version: str, wheel: Path, scratch: Path) -> list[str]:
    """Install a wheel and its dependencies, and use it; returns problems."""
    folder = scratch / f"python-{version}"
    inside = environment(folder / "env", python)
    run([inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel])
    packages = installed(inside, folder)
    print(f"\nPython {version}: {len(packages)} packages")
    for package in packages:
        print(f"  {package.name:<24} {package.version:<12} {package.licence[:80]}")
    problems = [problem for package in packages if (problem := licence_problem(package))]
    return problems + used(inside, folder)


def installed(python: Path, folder: Path) -> list[Package]:
    """The packages of an environment, but for pip and phalanx."""
    (folder / "licences.py").write_text(LICENCES, encoding="utf-8")
    rows = json.loads(run([python, "-I", folder / "licences.py"]))
    return sorted(Package(*row) for row in rows if row[0].lower() not in ("pip", "setuptools", "phalanx"))


LICENCES = """
import json
from importlib.metadata import distributions

rows = []
for dist in distributions():
    about = dist.metadata
    classifiers = [each for each in about.get_all("Classifier", []) if each.startswith("License ::")]
    classifiers = [each.rpartition(" :: ")[2] for each in classifiers]
    written = (about.get("License") or "").strip()
    short = written if "\\n" not in written and len(written) < 100 else ""
    told = about.get("License-Expression") or ", ".join(classifiers) or short or written[:60].split("\\n")[0]
    rows.append([about["Name"], dist.version, " ".join(told.split())])
print(json.dumps(rows))
"""


def licence_problem(package: Package, allowed: Mapping[str, str] = ALLOWED) -> str | None:
    """Why a dependency with this licence may not be shipped with; None if it may."""
    if package.name.lower() in allowed:
        return None
    if not package.licence or package.licence.upper() == "UNKNOWN":
        return f"{package.name} names no licence: look it up, and add it to ALLOWED in tools/release_check.py"
    if COPYLEFT.search(EXCEPTIONS.sub("", package.licence)):
        return f"{package.name} has a copyleft licence that is not allowed: {package.licence}"
    return None


def used(python: Path, folder: Path) -> list[str]:
    """Train a small team, and compare and show it, with the installed package alone; returns problems."""
    work = folder / "work"
    work.mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean |= {
        "JAX_PLATFORMS": "cpu",
        "PHALANX_CACHE": str(folder / "cache"),
        "MPLCONFIGDIR": str(folder / "plots"),
    }
    said: dict[str, str] = {}
    for line in (
        TRAIN,
        "watch run",
        "compare a=run b=run",
        "paper a=run b=run",
        "list presets",
        "list references",
    ):
        words = [python, "-I", "-m", "phalanx", *line.split()]
        said[line] = run(words, cwd=work, env=clean)
        print(f"  phalanx {line}")
    problems = []
    if json.loads((work / "run" / "run.json").read_text(encoding="utf-8")).get("status") != "finished":
        problems.append("`phalanx train mappo switch/2` did not finish")
    for line in ("list presets", "list references"):
        if "mappo" not in said[line]:
            problems.append(f"`phalanx {line}` shows none")
    for name in ("compare/report.html", "paper/main.tex", "paper/references.bib"):
        if not (work / "results" / name).is_file():
            problems.append(f"there is no {name}")
    return problems


if __name__ == "__main__":
    sys.exit(main())

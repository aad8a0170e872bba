"""The site builds without a warning, its replays play, and its reference is complete."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import griffe
import pytest
from mkdocs.exceptions import PluginError
from test_watch import chromium  # noqa: F401

import phalanx

ROOT = Path(__file__).parents[1]


def load(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks, replays = load("site"), load("replays")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built. One small replay stands for all of them."""
    folder, made = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("replays")
    (one,) = phalanx.watch("random", env="classic/CartPole-v1", episodes=1, out=made / "classic.html")
    for name in replays.REPLAYS:
        (made / f"{name}.html").write_bytes(one.read_bytes())
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, "PHALANX_REPLAYS": str(made)}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_without_a_warning(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]*"https?://[^>]*>', home), "loads from elsewhere"
    assert (site / "source" / "phalanx" / "types.py.txt").is_file()
    assert 'id="phalanx.train"' in (site / "api.html").read_text(encoding="utf-8")


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


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)], ids=["desktop", "phone"])
def test_a_replay_plays_in_its_page(site, chromium, width, phone):  # noqa: F811
    papers = set()
    for dark in (False, True):
        chromium.complaints.clear()
        chromium.resize(width, 844, dark=dark, phone=phone)
        chromium.call("Page.navigate", url="about:blank")
        chromium.call("Page.navigate", url=(site / "classic.html").as_uri())
        chromium.until("document.readyState === 'complete' && !!document.querySelector('iframe.replay')")
        assert chromium.ask("document.documentElement.scrollWidth") <= width
        with chromium.inside("iframe.replay"):
            chromium.until("document.documentElement?.dataset.ready === 'yes'")
            picture = "document.querySelector('#stage canvas').toDataURL()"
            start, shown = chromium.text("#step"), chromium.ask(picture)
            chromium.click("#play")
            chromium.until(f"document.querySelector('#step').innerText !== {json.dumps(start)}")
            chromium.until(f"{picture} !== {json.dumps(shown)}")
            papers.add(chromium.ask("getComputedStyle(document.body).backgroundColor"))
        assert not chromium.complaints
    assert len(papers) == 2, "light and dark look the same"


def test_every_replay_is_on_a_page():
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert sorted(re.findall(r"^<!-- replay (\w+)", pages, re.MULTILINE)) == sorted(replays.REPLAYS)


def test_a_missing_replay_is_an_error(tmp_path):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="mpe.md"), is_homepage=False, meta={})
    config = SimpleNamespace(extra={"replays": str(tmp_path)})
    with pytest.raises(PluginError, match=r"mpe\.md: there is no replay mpe"):
        hooks.on_page_markdown("<!-- replay mpe: a caption -->", page, config, None)
    (tmp_path / "mpe.html").touch()
    shown = hooks.on_page_markdown("<!-- replay mpe: a caption -->", page, config, None)
    assert '<iframe src="replays/mpe.html"' in shown
    assert "a caption" in shown


def test_a_replay_is_made_again_when_phalanx_is_newer(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(replays, "MADE", tmp_path / "replays")
    monkeypatch.setattr(replays, "make", lambda team, env, page: made.append(page.stem) or page.touch())
    replays.main()
    assert made == list(replays.REPLAYS)
    replays.main()
    assert len(made) == len(replays.REPLAYS), "kept"
    os.utime(tmp_path / "replays" / "mpe.html", (0, 0))
    replays.main()
    assert made[-1] == "mpe"
    assert len(made) == len(replays.REPLAYS) + 1


def test_what_the_reference_lacks_is_named():
    code = {
        "__init__.py": "from package.a import Known, forgotten\n__all__ = ['Known', 'forgotten']",
        "a.py": '''
def forgotten():
    """It does something."""

class Known:
    """A class."""
    told: int = option(1, "by its help")
    bare: int = 0
    documented: int = 0
    """a field"""

    def __init__(self):
        self._hidden = 1

    def method(self):
        pass
''',
    }
    with griffe.temporary_visited_package("package", code) as package:
        assert list(hooks.undocumented(package, "::: package.Known")) == [
            "docs/api.md lacks package.forgotten",
            "package.Known.bare has no docstring",
            "package.Known.method has no docstring",
        ]


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    of_the_repository = {"changelog.md", "contributing.md"}  # docs/site.py adds them
    assert pages | of_the_repository == set(re.findall(r"([\w/-]+\.md)", nav))


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120

"""What MkDocs cannot do by itself: files from outside of docs/, replays, formulas, a complete reference."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import griffe
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(((?:\.\./)+)([\w./-]+?\.\w+)(?:#[\w-]*)?\)")
REPLAY = re.compile(r"<!-- replay (\w+)(?:: (.+?))? -->")  # the name, and what it shows
FORMULA = re.compile(r'<(div|span) class="arithmatex">\\[\[(](.*?)\\[\])]</\1>', re.DOTALL)
SOURCES, REPLAYS = "source", "replays"  # the folders of the site that they are copied to
# Pages of the site that are files of the repository.
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def _linked(page: Path) -> set[str]:
    """Files outside of docs/ that a page links to."""
    found = (
        (page.parent / up / path).resolve() for up, path in LINK.findall(page.read_text(encoding="utf-8"))
    )
    return {
        str(file.relative_to(ROOT)) for file in found if file.is_file() and ROOT / "docs" not in file.parents
    }


def _page(name: str) -> str:
    """A page of the repository, with links as docs/ has them."""
    text = re.sub(r"\]\((?!docs/|https?:|#)", "](../", (ROOT / name).read_text(encoding="utf-8"))
    return text.replace("](docs/", "](")


def _made(config) -> Path:
    """The folder that docs/replays.py wrote to."""
    return ROOT / config.extra["replays"]


def undocumented(package: griffe.Module, reference: str) -> Iterator[str]:
    """Public names that the reference lacks, and names and members there without a docstring.

    Members are methods, properties and fields. A field made by `option` is described by its help text.
    """
    listed = re.findall(r"^::: (\S+)", reference, re.MULTILINE)
    for name in package.exports or []:
        if f"{package.name}.{name}" not in listed:
            yield f"docs/api.md lacks {package.name}.{name}"
    for path in listed:
        named = package[path.partition(".")[2]]
        named = named.final_target if isinstance(named, griffe.Alias) else named
        members = [
            each for each in named.members.values() if named.is_class and not each.name.startswith("_")
        ]
        for each in (named, *members):
            if not each.is_alias and not each.docstring and "option(" not in str(getattr(each, "value", "")):
                yield f"{path} has no docstring" if each is named else f"{path}.{each.name} has no docstring"


def on_pre_build(config) -> None:
    """Refuse to build with gaps in the reference."""
    package = griffe.load("phalanx", search_paths=[ROOT], resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    found = list(undocumented(package, (ROOT / "docs" / "api.md").read_text(encoding="utf-8")))
    if found:
        raise PluginError("\n".join(found))


def on_files(files: Files, config) -> Files:
    """Add pages of the repository, the files that pages link to, and the replays that were made."""
    wanted = {path for page in (ROOT / "docs").rglob("*.md") for path in _linked(page)}
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=_page(name)))
        wanted |= {path for _, path in LINK.findall(_page(name))}
    for path in sorted(wanted):
        files.append(File.generated(config, f"{SOURCES}/{path}.txt", content=(ROOT / path).read_bytes()))
    for page in sorted(_made(config).glob("*.html")):
        files.append(File.generated(config, f"{REPLAYS}/{page.name}", content=page.read_bytes()))
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Let links to these files lead to their copies, and show replays. The home page has no side bars."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    depth = page.file.src_uri.count("/")

    def copied(match: re.Match) -> str:
        up, path = match.groups()
        if up.count("../") <= depth or not (ROOT / path).is_file():
            return match[0]
        return f"]({'../' * depth}{PAGES.get(path, f'{SOURCES}/{path}.txt')})"

    def shown(match: re.Match) -> str:
        name, caption = match.groups()
        if not (_made(config) / f"{name}.html").exists():
            raise PluginError(f"{page.file.src_uri}: there is no replay {name}: python docs/replays.py")
        source = f"{'../' * depth}{REPLAYS}/{name}.html"
        says = f"{caption}. " if caption else ""
        frame = f'<iframe src="{source}" title="replay" class="replay" loading="lazy"></iframe>'
        return f"{frame}\n\n*{says}[Open it in a page of its own]({source}).*"

    return REPLAY.sub(shown, LINK.sub(copied, markdown))


def on_page_content(content: str, page, config, files) -> str:
    """Formulas as MathML, which browsers show by themselves."""

    def shown(match: re.Match) -> str:
        block, tex = match[1] == "div", html.unescape(match[2])
        formula = convert(tex, display="block" if block else "inline")
        if "\\" in formula:
            raise PluginError(f"{page.file.src_uri}: cannot show the formula {tex}")
        return f'<div class="formula">{formula}</div>' if block else formula

    return FORMULA.sub(shown, content)

"""The documents as a site: it builds, its links lead somewhere, and what it names is there."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag
from xml.etree import ElementTree

import pytest
from typer.main import get_command

from benchmarks.__main__ import ALL, BESIDE_PEERS
from benchmarks.pictures import INTERRUPTED, PICTURES, heard, spoken
from benchmarks.texts import SHORT
from tests.documents import PAGES, ROOT, TOP, blocks, text_of
from tts_plugins.cli.app import app

DOCUMENTS = (*TOP, *PAGES)

OTHERS = {"--http", "--interface", "--no-deps", "--oldest", "--voices"}
"""Options in the documents that belong to other programs: granian, pip, scripts/test, espeak-ng."""

LARGEST = 150_000
"""Bytes of a picture."""


class Page(HTMLParser):
    """What a page links to, what it loads, and where it can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if anchor := given.get("id") or given.get("name"):
            self.anchors.add(anchor)
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        elif address := given.get("src") or given.get("href"):
            self.loads.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a user would; any warning is a failure."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [ROOT / "scripts" / "docs", "--site-dir", str(folder)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_each_page_is_on_the_site(pages: dict[Path, Page]) -> None:
    assert {path.stem for path in pages} >= {Path(page).stem for page in PAGES}


def test_all_links_of_the_site_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            address, anchor = urldefrag(link)
            if path.stem == "404" or re.match(r"https?:|mailto:|javascript:", address):
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            known = anchor and target in pages and anchor in pages[target].anchors
            if not target.is_file() or (anchor and not known and target.suffix == ".html"):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_the_site_loads_nothing_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {address for page in pages.values() for address in page.loads}
    assert loaded
    assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert styles
    assert not any(re.search(r"url\(['\"]?(https?:)?//|@import", style) for style in styles)


@pytest.mark.parametrize("document", TOP)
def test_links_between_files_lead_somewhere(document: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(document)):
        address, anchor = urldefrag(link)
        if address.startswith("https://"):
            continue
        target = address or document
        assert (ROOT / target).exists(), link
        assert not anchor or anchor in headings(target), link


def headings(document: str) -> set[str]:
    """The anchors of a document's headings, as its readers make them."""
    titles = re.findall(r"^#+ (.*)$", text_of(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_scripts_that_are_named_exist(document: str) -> None:
    text = text_of(document)
    for name in re.findall(r"scripts/(\w+)", text):
        assert (ROOT / "scripts" / name).stat().st_mode & 0o111, name
    for names in re.findall(r"scripts/benchmark((?: \w+)*)", code(document)):
        assert {*names.split()} <= {*ALL, *BESIDE_PEERS}
    for names in re.findall(r"scripts/pictures((?: \w+)*)", code(document)):
        assert {*names.split()} <= PICTURES.keys()
    for name in re.findall(r"scripts/agent (\w+)|examples/agents/(\w+)\.py", code(document)):
        assert (ROOT / "examples" / "agents" / f"{''.join(name)}.py").is_file(), name


def test_readme_names_every_example() -> None:
    there = {
        path.stem
        for path in (ROOT / "examples" / "agents").glob("*.py")
        if "\ndef main(" in path.read_text("utf-8")
    }
    assert {*re.findall(r"scripts/agent (\w+)", text_of("README.md"))} >= there


@pytest.mark.parametrize("document", DOCUMENTS)
def test_options_that_are_named_exist(document: str) -> None:
    shown = code(document)
    every = {option for command in options().values() for option in command}
    assert {*re.findall(r"(?<![\w-])--[a-z][a-z-]*", shown)} <= every | OTHERS
    for line in re.findall(r"tts-plugins ([^\n`|]+)", shown):
        command, *words = line.split()
        assert command in options() or command.startswith("-"), line
        named = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)}
        assert named <= options().get(command, every), line


def test_every_option_of_the_server_is_told() -> None:
    _, told = text_of("docs/serving.md").split("## Options")
    assert {*re.findall(r"--[a-z][a-z-]*", told)} == options()["serve"] - {"--help"}


@pytest.mark.parametrize("document", [page for page in PAGES if blocks(page, "text")])
def test_messages_are_those_that_the_package_says(document: str) -> None:
    unknown = [
        line
        for line in "".join(blocks(document, "text")).splitlines()
        if not any(message.fullmatch(line) for message in messages())
    ]
    assert unknown == []


@cache
def messages() -> tuple[re.Pattern[str], ...]:
    """All that the package may say, with holes where it says something else each time."""
    found = {
        _pattern(node)
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.JoinedStr | ast.Constant)
    }
    # Too little is fixed in some, which would be whatever somebody writes.
    return tuple(
        re.compile(f"(?:.*: )?{each}") for each in found if len(re.findall(r"\w", each)) > 9
    )


def _pattern(node: ast.AST) -> str:
    match node:
        case ast.JoinedStr():
            return "".join(map(_pattern, node.values))
        case ast.Constant(value=str(text)):
            return r".+?".join(map(re.escape, re.split(r"%(?:\.0)?[sdrgf]", text)))
    return ".+?"


def code(document: str) -> str:
    """All that a document shows as code, in blocks and in lines."""
    text = text_of(document)
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    return "\n".join([*fenced, *(" ".join(each.split()) for each in inline)])


@cache
def options() -> dict[str, set[str]]:
    """The options of each command of tts-plugins."""
    commands = getattr(get_command(app), "commands")  # noqa: B009  not in the stubs of all typers
    return {
        name: {"--help", *(option for each in command.params for option in each.opts)}
        for name, command in commands.items()
    } | {"--version": {"--version"}}


def test_no_picture_is_large_and_each_has_words_for_who_cannot_see_it() -> None:
    pictures = list((ROOT / "docs" / "images").iterdir())
    assert {picture.name for picture in pictures if picture.stat().st_size > LARGEST} == set()
    shown = [
        found
        for document in DOCUMENTS
        for found in re.findall(r"!\[(.*?)\]\((.*?)\)", text_of(document))
    ]
    assert {Path(address).name for _, address in shown} == {picture.name for picture in pictures}
    assert all(len(words) > 40 for words, _ in shown)


def test_words_in_the_picture_stand_where_the_engine_says(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "pictures", "speech", "--to", str(tmp_path)], check=True)
    drawn = ElementTree.parse(tmp_path / "speech.svg").getroot()
    sentence = spoken(SHORT)
    assert [word.text for word in sentence.words] == SHORT.split()
    for row in ("whole", "spectrogram"):
        placed = dict(marks(drawn, row))
        assert list(placed) == SHORT.split()
        first, last = sentence.words[0], sentence.words[-1]
        width = (placed[last.text] - placed[first.text]) / (last.start - first.start)
        for word in sentence.words:
            at = placed[first.text] + (word.start - first.start) * width
            assert placed[word.text] == pytest.approx(at, abs=0.01)
    known = [word.text for word in heard(sentence.words, INTERRUPTED)]
    assert known == SHORT.split()[:8]
    assert [text for text, _ in marks(drawn, "heard")] == known
    assert [text for text, _ in marks(drawn, "unheard")] == SHORT.split()[8:]


def marks(drawn: ElementTree.Element, row: str) -> Iterator[tuple[str, float]]:
    """The words of a row of the picture, and how far right each begins."""
    for group in drawn.iter("{http://www.w3.org/2000/svg}g"):
        if group.get("id", "").startswith(f"{row}-"):
            (text,) = group.iter("{http://www.w3.org/2000/svg}text")
            place = re.search(
                r"translate\(([\d.]+)|x=\"([\d.]+)", ElementTree.tostring(text, "unicode")
            )
            assert place
            yield str(text.text), float(place[1] or place[2])

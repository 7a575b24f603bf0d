"""What the documents show, taken out to be run."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = tuple(sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")))
"""What the site is made of."""

STRANGER = "docs/extending.md"
"""Teaches how to write an engine in a package of one's own."""


def text_of(document: str) -> str:
    return (ROOT / document).read_text("utf-8")


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(document), re.MULTILINE | re.DOTALL)


def commands(document: str) -> list[str]:
    """The lines of its shell blocks that run tts-plugins, and end."""
    lines = "".join(blocks(document, "bash")).splitlines()
    return [line for line in lines if "tts-plugins " in line and line not in servers(document)]


def servers(document: str) -> list[str]:
    """The lines of its shell blocks that serve until they are stopped."""
    lines = "".join(blocks(document, "bash")).splitlines()
    return [line for line in lines if line.startswith("tts-plugins serve")]


def install_stranger(folder: Path) -> str:
    """Install the documents' engine into a folder, as pip would; return the engine's name."""
    (project,) = (tomllib.loads(block) for block in blocks(STRANGER, "toml"))
    name, version = project["project"]["name"], project["project"]["version"]
    ((engine, target),) = project["project"]["entry-points"]["tts_plugins.engines"].items()
    module, class_ = target.split(":")
    (source,) = (b for b in blocks(STRANGER, "python") if f"class {class_}" in b)
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[tts_plugins.engines]\n{engine} = {target}\n")
    return str(engine)


def environment(*installed: Path) -> dict[str, str]:
    """Where commands run: our scripts first, and the packages that a folder holds."""
    scripts = str(Path(sys.executable).parent)
    path = os.pathsep.join([scripts, os.environ["PATH"]])
    modules = os.pathsep.join(map(str, [*installed, os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PATH": path, "PYTHONPATH": modules.rstrip(os.pathsep)}

"""README and CONTRIBUTING: what they show runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT, blocks, commands, environment, install_stranger

DOCUMENTS = ("README.md", "CONTRIBUTING.md")


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(block, id=f"{d}-{i}")
        for d in DOCUMENTS
        for i, block in enumerate(blocks(d, "python"))
    ],
)
def test_python_blocks_run(code: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@pytest.mark.parametrize("line", [line for d in DOCUMENTS for line in commands(d)])
def test_commands_run(line: str, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    install_stranger(installed)
    player = tmp_path / "aplay"  # there may be no sound card
    player.write_text("#!/bin/sh\nexec cat >/dev/null\n")
    player.chmod(0o755)
    variables = environment(installed)
    variables["PATH"] = f"{tmp_path}:{variables['PATH']}"
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line], cwd=tmp_path, env=variables, check=True
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_scripts_that_are_named_exist(document: str) -> None:
    lines = "".join(blocks(document, "bash")).splitlines()
    named = {line.split()[0] for line in lines if line.startswith("scripts/")}
    assert named
    assert all((ROOT / script).stat().st_mode & 0o111 for script in named)


@pytest.mark.parametrize("document", [*DOCUMENTS, "CHANGELOG.md"])
def test_documents_are_plain(document: str) -> None:
    text = (ROOT / document).read_text("utf-8")
    assert text.count("```") % 2 == 0
    assert text.startswith("# ")

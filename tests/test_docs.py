"""README and CONTRIBUTING: what they show runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT, blocks, commands, environment, install_stranger, servers

DOCUMENTS = ("README.md", "CONTRIBUTING.md")

SERVED = "127.0.0.1:8080"
"""Where README's blocks look for a server; another port takes its place."""


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The address of the server that README starts."""
    (line,) = servers("README.md")
    command = [*line.split(), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment(), text=True) as process:
        try:
            assert process.stderr
            ready = next(line for line in process.stderr if line.startswith("ready: "))
            address = re.search(r"http://(\S+?);", ready)
            assert address
            yield address[1]
        finally:
            process.terminate()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(block, id=f"{d}-{i}")
        for d in DOCUMENTS
        for i, block in enumerate(blocks(d, "python"))
    ],
)
def test_python_blocks_run(code: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if SERVED in code:
        code = code.replace(SERVED, request.getfixturevalue("served"))
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

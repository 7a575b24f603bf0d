"""README, CONTRIBUTING and the pages of docs: what they show runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import (
    PAGES,
    ROOT,
    TOP,
    blocks,
    commands,
    environment,
    install_stranger,
    servers,
    text_of,
)

DOCUMENTS = (*TOP, *PAGES)

SERVED = "127.0.0.1:8080"
"""Where the documents' blocks look for a server; another port takes its place."""

FORKING = """
import json, os, runpy, sys, traceback
import openai, tts_plugins.adapters.livekit, tts_plugins.adapters.pipecat
import tts_plugins.engines.hibari, tts_plugins.fallback, tts_plugins.remote

for line in sys.stdin:
    folder = json.loads(line)
    if (child := os.fork()) == 0:
        os.chdir(folder)
        output = os.open("output.txt", os.O_CREAT | os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = 0
        try:
            runpy.run_path("block.py", run_name="__main__")
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs one block after the other, each in a process that has imported the frameworks already: that
takes seconds, which every block would take anew."""


@pytest.fixture(scope="module")
def forking() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", FORKING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        yield process
        process.terminate()


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The address of the server that the page about it starts."""
    (line,) = servers("docs/serving.md")
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
def test_python_blocks_run(
    code: str, forking: subprocess.Popen[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if SERVED in code:
        code = code.replace(SERVED, request.getfixturevalue("served"))
    (tmp_path / "block.py").write_text(code)
    assert forking.stdin
    assert forking.stdout
    forking.stdin.write(f"{json.dumps(str(tmp_path))}\n")
    forking.stdin.flush()
    assert forking.stdout.readline() == "0\n", (tmp_path / "output.txt").read_text()


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
def test_documents_are_plain(document: str) -> None:
    text = text_of(document)
    assert text.count("```") % 2 == 0
    assert text.startswith("# ")


def test_readme_is_a_page_or_three() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 170

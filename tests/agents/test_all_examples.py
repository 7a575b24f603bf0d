"""What all examples for agents have in common, whatever they do; each has tests of its own too."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT

FOLDER = ROOT / "examples" / "agents"
NAMES = sorted(
    path.stem
    for path in FOLDER.glob("*.py")
    if "\ndef main() -> None:\n" in path.read_text("utf-8")
)
LONGEST = 225
"""Lines: what can be read in a few minutes."""


def document(name: str) -> str:
    return ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))) or ""


def commands(name: str) -> list[str]:
    """What its docstring says to type, without the comments behind it."""
    lines = (line.partition("  #")[0].strip() for line in document(name).splitlines())
    return [line for line in lines if re.search(rf"(^| )scripts/agent {name}( |$)", line)]


def keys() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Each command that needs a key: whose it is, the key's variable, and the other variables."""
    for name in NAMES:
        for command in commands(name):
            given = dict(re.findall(r"\b([A-Z_]+)=(\S+)", command))
            for variable in [each for each in given if each.endswith("_KEY")]:
                others = {each: what for each, what in given.items() if each != variable}
                yield name, variable, others


@pytest.fixture
def main(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The example, as if it was started with no argument."""
    pytest.importorskip("aiortc", reason="needs the agents dependency group")
    name = request.getfixturevalue("name")
    monkeypatch.setattr("sys.argv", [name])
    found: Callable[[], None] = importlib.import_module(f"examples.agents.{name}").main
    return found


def test_there_are_examples() -> None:
    assert {"custom_engine", "livekit_agent", "pipecat_bot", "two_voices"} <= set(NAMES)
    assert "brains" not in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_says_in_one_line_what_it_is_and_then_how_to_start_it(name: str) -> None:
    first, blank, *_ = document(name).splitlines()
    assert first[0].isupper()
    assert first.endswith(".")
    assert blank == ""
    assert 2 <= len(commands(name)) <= 4


@pytest.mark.parametrize("name", NAMES)
def test_its_commands_can_be_typed(name: str) -> None:
    for command in commands(name):
        assert shlex.split(command)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_short_and_ends_as_a_program_does(name: str) -> None:
    lines = (FOLDER / f"{name}.py").read_text("utf-8").splitlines()
    assert len(lines) <= LONGEST
    assert lines[-2:] == ['if __name__ == "__main__":', "    main()"]


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_test_that_starts_it(name: str) -> None:
    test = (Path(__file__).parent / f"test_{name}.py").read_text("utf-8")
    assert f'Running("{name}"' in test.replace("(\n        ", "(")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "livekit_agent"])
def test_it_tells_what_it_can_be_told(
    name: str,
    main: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # LiveKit's own command line answers for livekit_agent.
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert f"usage: {name}" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "variable", "others"), list(keys()))
def test_a_key_that_is_missing_is_named_in_one_line(
    name: str,
    variable: str,
    others: dict[str, str],
    main: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(variable, raising=False)
    for each, what in others.items():
        monkeypatch.setenv(each, what)
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value.code).startswith(f"set {variable}")
    assert "\n" not in str(ended.value.code)


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_that_is_none_is_one_line(
    name: str, main: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"):
        monkeypatch.setenv(variable, "ws://nowhere")
    for variable in ("LLM", "STT"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("ELEVENLABS_API_KEY", "a key of ours")
    monkeypatch.setenv("TTS", "nobody")
    monkeypatch.setenv("VOICES", "nobody,tone")
    if name == "clone_voice":
        monkeypatch.setattr("sys.argv", [name, "me.wav"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value.code).startswith("no engine 'nobody'; available: ")
    assert "\n" not in str(ended.value.code)


@pytest.mark.parametrize("arguments", [[], ["nobody"], ["brains"], ["__init__"], ["--help"]])
def test_a_name_that_is_none_gets_the_list(arguments: list[str]) -> None:
    result = subprocess.run(
        [ROOT / "scripts" / "agent", *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stdout == ""
    first, *lines = result.stderr.splitlines()
    assert first == "Which one? scripts/agent and one of these:"
    assert [line.split(maxsplit=1) for line in lines] == [
        [name, document(name).splitlines()[0]] for name in NAMES
    ]

"""A voice learnt once: the first run learns it, the second only speaks."""

from __future__ import annotations

import asyncio
import re
import wave
from pathlib import Path

import numpy as np
import pytest

from examples.agents import clone_voice
from tests.agents.running import Ended, Running
from tests.engines.kokoro.models import make_folder
from tests.hearing import pitch
from tests.server.cloner import recording
from tests.servers import Call, Line, serving
from tts_plugins.audio.pcm import to_s16


@pytest.fixture
def parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An engine that beeps at the pitch of a recording, installed as a stranger's."""
    info = tmp_path / "packages" / "tts_parrot-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tts-parrot\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tts_plugins.engines]\nparrot = tests.server.cloner:Parrot\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(info.parent))
    return "parrot"


def cloned(clip: Path | str, engine: str, output: Path) -> Ended:
    with Running("clone_voice", str(clip), "Hello.", "-o", str(output), TTS=engine) as example:
        return example.end()


def test_the_second_run_knows_the_voice_wherever_the_recording_lies(
    parrot: str, tmp_path: Path
) -> None:
    me, moved = tmp_path / "me.wav", tmp_path / "moved" / "me.wav"
    me.write_bytes(recording(330))
    first = cloned(me, parrot, tmp_path / "first.wav")
    moved.parent.mkdir()
    me.rename(moved)
    second = cloned(moved, parrot, tmp_path / "second.wav")
    assert (first.status, second.status) == (0, 0), first.output + second.output
    learnt = re.search(r"^It learnt (me-[0-9a-f]{8}) in 0\.\d s\.$", first.output, re.MULTILINE)
    assert learnt
    assert f"It knows {learnt[1]} already." in second.output
    assert "learnt" not in second.output
    for path in (tmp_path / "first.wav", tmp_path / "second.wav"):
        with wave.open(str(path)) as wav:
            assert wav.getnframes() == 6 * 1440
            assert pitch(wav.readframes(6 * 1440), 24_000) == pytest.approx(330, abs=3)


async def test_ctrl_c_ends_it_while_it_waits_for_a_server(tmp_path: Path) -> None:
    clip, output, asked = tmp_path / "me.wav", tmp_path / "clone.wav", asyncio.Event()
    clip.write_bytes(recording())

    async def hangs(back: Line, call: Call) -> None:
        asked.set()

    async with serving(hangs) as server:
        with Running("clone_voice", str(clip), "-o", str(output), TTS=server.url) as example:
            await asyncio.wait_for(asked.wait(), 30)
            ended = await asyncio.to_thread(example.press_ctrl_c)
    assert ended.status == 0, ended.output
    assert "Traceback" not in ended.output
    assert not output.exists()


@pytest.mark.parametrize(
    ("clip", "complaint"),
    [
        (recording(seconds=0.2), "the recording is shorter than 0.5 s: say more"),
        (recording(level=0.0), "the recording is silent: nothing in it is above -40 dB"),
        (recording(level=1.0), "the recording is clipped: 3% of its samples are at full scale"),
        (b"RIFF, or something like that", "the recording can't be read: "),
    ],
    ids=["short", "silent", "clipped", "no audio"],
)
def test_a_recording_of_no_use_is_one_line(
    clip: bytes, complaint: str, parrot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bad.wav"
    path.write_bytes(clip)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    said = refused(monkeypatch, path, parrot, tmp_path / "clone.wav")
    assert said.startswith(complaint)
    assert "\n" not in said
    assert not (tmp_path / "clone.wav").exists()


@pytest.mark.parametrize(
    ("engine", "complaint"),
    [
        ("hibari", "hibari can't clone a voice. "),
        ("pocket?model=/nowhere/at/all.yaml", "pocket's model '/nowhere/at/all.yaml' can't be lo"),
    ],
)
def test_where_there_is_nothing_to_clone_with_it_says_what_else_there_is(
    engine: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine.startswith("pocket"):
        pytest.importorskip("pocket_tts")
    path = tmp_path / "me.wav"
    path.write_bytes(recording())
    said = refused(monkeypatch, path, engine, tmp_path / "clone.wav")
    assert said.startswith(complaint)
    assert "Files of your own are TTS='pocket?model=/path/of/a.yaml'" in said
    assert "\n" not in said


async def test_pocket_learns_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pocket_tts")
    from tests.engines.pocket.tiny import tiny
    from tts_plugins.engines.pocket.loading import imported

    imported()
    engine = f"pocket?model={tiny(tmp_path / 'pocket')}"
    path = tmp_path / "me.wav"
    path.write_bytes(recording())
    for says in ("It learnt me-", "It knows me-"):
        said = await clone_voice.speak(str(path), "Hello.", engine)
        assert said.sample_rate == 24_000
        assert np.any(said.samples)
        assert says in capsys.readouterr().out


async def test_kokoro_keeps_a_blend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The tiny model beeps at 100 Hz, and at 100 more for the mean of a voice: 1 and 3 here.
    engine = f"kokoro?model={make_folder(tmp_path)}&threads=1"
    for says in ("It learnt blend-", "It knows blend-"):
        said = await clone_voice.speak("af_one+am_three", "Hello.", engine)
        assert says in capsys.readouterr().out
        assert pitch(to_s16(said.samples), said.sample_rate) == pytest.approx(300, abs=5)


def refused(monkeypatch: pytest.MonkeyPatch, clip: Path, engine: str, output: Path) -> str:
    """What it ends with, run in this process."""
    monkeypatch.setattr("sys.argv", ["clone_voice", str(clip), "Hello.", "-o", str(output)])
    monkeypatch.setenv("TTS", engine)
    with pytest.raises(SystemExit) as ended:
        clone_voice.main()
    return str(ended.value.code)

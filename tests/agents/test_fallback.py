"""The cloud works, refuses, hangs, dies: what is heard, from whom, and what is said about it."""

from __future__ import annotations

import asyncio
import wave
from pathlib import Path

import numpy as np
import pytest

from examples.agents import fallback
from tests.agents.running import Running
from tests.dialects.elevenlabs_server import ElevenLabs, beep, lines, refusal
from tests.faults import hangs
from tests.server.live import live
from tests.servers import Answer, Call, Line, serving
from tts_plugins.audio.pcm import from_s16, joined, to_s16
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.types import Samples, SynthesisRequest

FIRST, SECOND = "Good morning.", "The ferry leaves."
LOCAL = "tone?frequency=300"


def in_the_cloud(text: str) -> Samples:
    return from_s16(beep(text, "pcm_24000"))


def here(text: str) -> Samples:
    request = SynthesisRequest(text)
    return joined([chunk.samples for chunk in ToneEngine(frequency=300).synthesize(request)])


async def dies(back: Line, call: Call) -> None:
    """After the first seven characters of the text have been sent."""
    back.head(content_type="application/json")
    await back.chunk(next(lines(call.json["text"])))
    back.close()


async def called(
    monkeypatch: pytest.MonkeyPatch, *answers: Answer
) -> tuple[Samples, str, ElevenLabs]:
    """What is heard of both texts, the address of the cloud, and what it was asked."""
    monkeypatch.setenv("ELEVENLABS_API_KEY", "a key of ours")
    monkeypatch.setattr(fallback, "PATIENCE", 1.0)
    service = ElevenLabs(key="a key of ours")
    service.next += answers
    heard: list[Samples] = []
    async with serving(service.answer) as server:
        cloud = f"elevenlabs+{server.url}"
        engines = (f"{cloud}?api_key_env=ELEVENLABS_API_KEY", LOCAL)
        await fallback.speak((FIRST, SECOND), engines, heard.append)
    return joined(heard), cloud, service


async def test_a_cloud_that_works_says_it_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard, cloud, service = await called(monkeypatch)
    assert service.texts == [FIRST, SECOND]
    assert np.array_equal(heard, joined([in_the_cloud(FIRST), in_the_cloud(SECOND)]))
    assert capsys.readouterr().out.splitlines() == [
        FIRST,
        f"  {cloud} spoke for 0.65 s",
        SECOND,
        f"  {cloud} spoke for 0.85 s",
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refusal(401, "invalid_api_key", "that key is nobody's"), "that key is nobody's"),
        (refusal(503, "overloaded", "come back later", retry_after=60), "come back later"),
        (hangs, "no sound within 1 s"),
    ],
    ids=["a wrong key", "too busy", "hangs"],
)
async def test_a_cloud_that_fails_rests_and_this_machine_says_it_all(
    answer: Answer,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard, cloud, service = await called(monkeypatch, answer)
    assert service.texts == [FIRST]
    assert np.array_equal(heard, joined([here(FIRST), here(SECOND)]))
    assert capsys.readouterr().out.splitlines() == [
        FIRST,
        "  tone spoke for 0.72 s",
        SECOND,
        "  tone spoke for 0.90 s",
    ]
    (line,) = caplog.messages
    assert line.startswith(f"{cloud}")
    assert reason in line


async def test_a_cloud_that_dies_on_the_way_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard, _, service = await called(monkeypatch, dies)
    assert service.texts == [FIRST]
    assert np.array_equal(heard, joined([in_the_cloud(FIRST[:7]), here(SECOND)]))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == FIRST
    assert said[1].endswith("spoke for 0.35 s")
    assert said[2].startswith("  and broke off: ")
    assert said[3:] == [SECOND, "  tone spoke for 0.90 s"]


async def test_it_starts_with_a_server_of_ours_in_the_clouds_place(tmp_path: Path) -> None:
    path = tmp_path / "said.wav"
    async with live() as server:
        cloud = f"elevenlabs+{server.url}"
        with Running("fallback", FIRST, "--cloud", cloud, "-o", str(path), TTS=LOCAL) as example:
            ended = await asyncio.to_thread(example.end)
    assert ended.status == 0
    assert ended.output.splitlines() == [
        FIRST,
        f"  {cloud} spoke for 0.72 s",
        f"0.7 s in {path}",
    ]
    expected = [chunk.samples for chunk in ToneEngine().synthesize(SynthesisRequest(FIRST))]
    with wave.open(str(path)) as wav:
        assert wav.getframerate() == 24_000
        assert wav.readframes(wav.getnframes()) == to_s16(joined(expected))


async def test_ctrl_c_leaves_a_recording_of_what_was_heard(tmp_path: Path) -> None:
    path = tmp_path / "said.wav"
    service, asked_again = ElevenLabs(key="a key of ours"), asyncio.Event()

    async def hangs_the_second_time(back: Line, call: Call) -> None:
        if service.texts == [FIRST]:
            asked_again.set()
        else:
            await service.answer(back, call)

    async with serving(hangs_the_second_time) as server:
        cloud = f"elevenlabs+{server.url}?api_key_env=KEY"
        arguments = (FIRST, SECOND, "--cloud", cloud, "-o", str(path))
        with Running("fallback", *arguments, TTS=LOCAL, KEY="a key of ours") as example:
            await asyncio.wait_for(asked_again.wait(), 30)
            ended = await asyncio.to_thread(example.press_ctrl_c)
    assert ended.status == 0
    assert ended.output.splitlines() == [
        FIRST,
        f"  {cloud.partition('?')[0]} spoke for 0.65 s",
        SECOND,
        f"0.7 s in {path}",
    ]
    with wave.open(str(path)) as wav:
        assert wav.readframes(wav.getnframes()) == beep(FIRST, "pcm_24000")

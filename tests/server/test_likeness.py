"""Recordings that come along with requests: learnt once, and not without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.test_fish import Parrot, recording
from tts_plugins.errors import InvalidRequestError
from tts_plugins.server import likeness
from tts_plugins.server.engines import Hosted
from tts_plugins.server.likeness import like
from tts_plugins.types import SynthesisRequest


def asked(*references: Any) -> SynthesisRequest:
    return SynthesisRequest("Hello.", options={"seed": 1, "references": list(references)})


async def test_a_recording_becomes_a_voice_and_other_options_stay() -> None:
    engine = Parrot()
    hosted = Hosted("parrot", engine, aliases={})
    first = await like(hosted, asked((recording(), "Hello.")), "mai")
    again = await like(hosted, asked((recording(), "Hello.")), "mai")
    assert first == again
    assert first.options == {"seed": 1}
    assert [voice.id for voice in await hosted.voices("mai")] == ["polly", first.voice]
    assert [voice.id for voice in await hosted.voices("lan")] == ["polly"]
    assert engine.lessons == 1


async def test_the_oldest_is_forgotten_for_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "_MOST", 2)
    engine = Parrot()
    hosted = Hosted("parrot", engine, aliases={})
    names = [
        (await like(hosted, asked((recording(), said)), "mai")).voice for said in ("a", "b", "c")
    ]
    assert [voice.id for voice in await hosted.voices("mai")] == ["polly", *names[1:]]
    assert len(engine.learnt) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        "/etc/passwd",
        [("/etc/passwd", "Hello.")],
        [(b"no recording", "Hello.")],
        [],
        [(recording(), "a"), (recording(), "b")],
    ],
)
async def test_anything_else_is_refused(wrong: Any) -> None:
    engine = Parrot()
    request = SynthesisRequest("Hello.", options={"references": wrong})
    with pytest.raises(InvalidRequestError):
        await like(Hosted("parrot", engine, aliases={}), request, "mai")
    assert engine.lessons == 0


async def test_a_request_without_recordings_is_as_it_was() -> None:
    request = SynthesisRequest("Hello.", voice="polly", options={"seed": 1})
    assert await like(Hosted("parrot", Parrot(), aliases={}), request, "mai") is request


async def test_two_first_requests_at_once_learn_a_recording_once() -> None:
    engine = Parrot()
    hosted = Hosted("parrot", engine, aliases={})
    request = asked((recording(), "Hello."))
    both = await asyncio.gather(like(hosted, request, "mai"), like(hosted, request, "mai"))
    assert both[0] == both[1]
    assert engine.lessons == 1


async def test_what_was_kept_because_it_spoke_is_forgotten_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(likeness, "_MOST", 1)
    hosted = Hosted("parrot", Parrot(), aliases={})
    first = await like(hosted, asked((recording(), "a")), "mai")
    taken, _ = await hosted.request(first, "mai")
    with hosted.speaking(taken.voice):
        await like(hosted, asked((recording(), "b")), "mai")
        assert len(await hosted.voices("mai")) == 3
    both = [like(hosted, asked((recording(), said)), "mai") for said in ("c", "c")]
    last, _ = await asyncio.gather(*both)
    assert [voice.id for voice in await hosted.voices("mai")] == ["polly", last.voice]

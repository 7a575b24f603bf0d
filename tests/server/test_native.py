"""An engine at the other end of our own API is as good as the engine itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.cloner import Mimic, heard, recording
from tests.server.live import live, tones
from tts_plugins.audio.pcm import joined, to_s16
from tts_plugins.dialects.native import NativeDialect
from tts_plugins.engine import Engine
from tts_plugins.errors import (
    EngineError,
    EngineNotFoundError,
    EngineTimeoutError,
    InvalidRequestError,
    OverloadedError,
    RemoteError,
    TTSError,
    VoiceNotFoundError,
)
from tts_plugins.registry import open_engine
from tts_plugins.remote import RemoteEngine
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

TEXT = "Hello there, how are you today?"


async def spoken(engine: Engine, request: SynthesisRequest) -> list[AudioChunk]:
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def whole(chunks: Sequence[AudioChunk]) -> tuple[bytes, int, list[Word]]:
    [rate] = {chunk.sample_rate for chunk in chunks}
    samples = to_s16(joined(chunk.samples for chunk in chunks))
    return samples, rate, [word for chunk in chunks for word in chunk.words]


@pytest.mark.parametrize("rate", [24_000, 44_100])
async def test_a_tone_sounds_the_same_from_afar(rate: int) -> None:
    here = tones(sample_rate=rate)
    async with live(here) as server:
        afar = open_engine(server.url)
        request = SynthesisRequest(TEXT, speed=1.5)
        assert whole(await spoken(afar, request)) == whole(await spoken(here, request))
        assert await afar.voices() == await here.voices()
        await afar.aclose()
    await here.aclose()


async def test_hibari_sounds_the_same_from_afar() -> None:
    here = open_engine("hibari")
    async with live(here) as server:
        afar = open_engine(server.url)
        for voice in (None, "heart"):
            request = SynthesisRequest(TEXT, voice=voice, options={"seed": 7})
            assert whole(await spoken(afar, request)) == whole(await spoken(here, request))
        with pytest.raises(VoiceNotFoundError, match="no voice 'bob'; available: heart"):
            await spoken(afar, SynthesisRequest(TEXT, voice="bob"))
        with pytest.raises(InvalidRequestError, match="seed is an int"):
            await spoken(afar, SynthesisRequest(TEXT, options={"seed": "x"}))
        with pytest.raises(InvalidRequestError, match="speed 9"):
            await spoken(afar, SynthesisRequest(TEXT, speed=9.0))
        await afar.aclose()
    await here.aclose()


async def test_a_unix_socket_is_an_address_too(tmp_path: Path) -> None:
    async with live(uds=tmp_path / "tts.sock"):
        afar = open_engine(f"unix://{tmp_path}/tts.sock")
        assert len(whole(await spoken(afar, SynthesisRequest("Hello.")))[0]) == 2 * 8640
        assert [voice.id for voice in await afar.voices()] == ["tone"]
        await afar.aclose()


async def test_one_of_several_engines_is_asked_for_by_its_name() -> None:
    async with live({"low": tones(frequency=220), "high": tones(sample_rate=48_000)}) as server:
        for spec, rate in ((server.url, 24_000), (f"{server.url}?model=high", 48_000)):
            afar = open_engine(spec)
            assert whole(await spoken(afar, SynthesisRequest("Hello.")))[1] == rate
            await afar.aclose()
        async with server.client.get(f"{server.url}/api/engines") as reply:
            assert await reply.json() == {
                "engines": [
                    {"name": "low", "default": True, "clones": False, "sample_rate": 24_000},
                    {"name": "high", "default": False, "clones": False, "sample_rate": 48_000},
                ]
            }


async def test_a_voice_is_learnt_from_afar_once() -> None:
    engine = Mimic()
    async with live(engine, keys=["key-of-ann", "key-of-ben"]) as server:
        for _ in range(2):
            afar = RemoteEngine(NativeDialect(), server.url, api_key="key-of-ann")
            voice = await afar.clone("mai", recording(330), transcript="Xin chào.")
            assert voice.id == "mai"
            pcm, rate, _ = whole(await spoken(afar, SynthesisRequest(TEXT, voice="mai")))
            assert len(pcm) / 2 / rate == pytest.approx(0.06 * len(TEXT))
            assert [voice.id for voice in await afar.voices()] == ["own", "mai"]
            await afar.aclose()
        [(_, clip, transcript)] = engine.clips
        assert (clip, transcript) == (recording(330), "Xin chào.")
        assert heard(clip) == pytest.approx(330, abs=1)
        other = RemoteEngine(NativeDialect(), server.url, api_key="key-of-ben")
        assert [voice.id for voice in await other.voices()] == ["own"]
        with pytest.raises(VoiceNotFoundError, match="no voice 'mai'; available: own"):
            await spoken(other, SynthesisRequest(TEXT, voice="mai"))
        await other.aclose()


async def test_what_an_engine_raises_is_raised_from_afar() -> None:
    for error in (
        OverloadedError("busy", retry_after=60.0),
        EngineTimeoutError("no audio for 10 s"),
        InvalidRequestError("no such speed"),
        EngineError("out of memory"),
        RemoteError("422: no such word", status_code=422),
    ):
        async with live(Fails(error)) as server:
            afar = RemoteEngine(NativeDialect(), server.url, name="afar", retries=0)
            with pytest.raises(TTSError) as raised:
                await spoken(afar, SynthesisRequest(TEXT))
            assert type(raised.value) is type(error)
            assert str(raised.value).removeprefix("afar: ") == str(error)
            assert raised.value.status_code == error.status_code
            await afar.aclose()


async def test_what_fails_on_the_way_is_heard_until_then() -> None:
    async with live(Fails(EngineTimeoutError("no audio for 10 s"), after=3)) as server:
        afar = RemoteEngine(NativeDialect(), server.url, name="afar")
        async with aclosing(afar.stream(SynthesisRequest(TEXT))) as chunks:
            assert [len((await anext(chunks)).samples) for _ in range(3)] == [2400] * 3
            with pytest.raises(EngineTimeoutError, match="no audio for 10 s"):
                await anext(chunks)
        await afar.aclose()


async def test_recordings_that_come_along_are_never_paths() -> None:
    engine = Mimic()
    async with live(engine) as server:
        paths: list[Any] = [[["/etc/passwd", "root"]], ["/etc/passwd"], "/etc/passwd", 5, [[]]]
        for references in paths:
            afar = open_engine(server.url)
            with pytest.raises(InvalidRequestError):
                await spoken(afar, SynthesisRequest(TEXT, options={"references": references}))
            await afar.aclose()
    assert engine.clips == []


async def test_a_form_that_lacks_something_is_refused_in_the_shape_of_our_api() -> None:
    async with live(Mimic()) as server:
        url = f"{server.url}/api/voices"
        async with server.client.post(url, data=b"x") as reply:
            assert (reply.status, (await reply.json())["error"]["kind"]) == (415, "RefusedError")
        async with server.client.get(f"{server.url}/api/nowhere") as reply:
            assert (reply.status, (await reply.json())["error"]["kind"]) == (404, "RefusedError")


class Fails:
    """Beeps for a while, and then raises what it is given."""

    def __init__(self, error: Exception, *, after: int = 0) -> None:
        self._error = error
        self._after = after

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        for _ in range(self._after):
            yield AudioChunk(np.full(2400, 0.1, np.float32), 24_000)
        raise self._error

    async def voices(self) -> Sequence[Voice]:
        return []

    async def aclose(self) -> None: ...


# A server in front of a server


async def test_from_afar_too_an_engine_or_an_option_that_there_isnt_is_an_error() -> None:
    async with live() as server:
        async with aclosing(open_engine(server.url, model="bass")) as engine:
            with pytest.raises(EngineNotFoundError, match="no engine 'bass'; available: tone"):
                await anext(engine.stream(SynthesisRequest("Hello.")))
        async with aclosing(open_engine(server.url)) as engine:
            with pytest.raises(InvalidRequestError, match="tone has no option pitch"):
                await anext(engine.stream(SynthesisRequest("Hello.", options={"pitch": 2})))


async def test_options_pass_through_a_server_to_the_one_that_knows_them() -> None:
    class Spy(Mimic):
        request_options = ("seed",)
        asked: Any = None

        async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
            self.asked = request
            async with aclosing(super().stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk

    engine = Spy()
    async with live(engine) as behind:
        middle = open_engine(behind.url)
        async with live(middle) as front:
            afar = open_engine(front.url)
            await spoken(afar, SynthesisRequest(TEXT, options={"seed": 1}))
            assert engine.asked.options == {"seed": 1}
            with pytest.raises(InvalidRequestError, match="has no option colour"):
                await spoken(afar, SynthesisRequest(TEXT, options={"seed": 1, "colour": "red"}))
            await afar.aclose()
        await middle.aclose()

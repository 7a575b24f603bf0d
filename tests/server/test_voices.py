"""tts_plugins.server.voices and whose a voice is: its owner's, and nobody else's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.dialects.elevenlabs_server import ElevenLabs
from tests.hearing import pitch
from tests.server.cloner import RATE, Mimic, recording
from tests.server.live import Live, live, tones
from tests.servers import serving
from tts_plugins.dialects.elevenlabs import ElevenLabsDialect
from tts_plugins.dialects.openai import OpenAIDialect
from tts_plugins.dialects.vieneu import VieNeuDialect
from tts_plugins.errors import (
    EngineError,
    EngineTimeoutError,
    InvalidRequestError,
    RemoteError,
    TTSError,
    VoiceNotFoundError,
)
from tts_plugins.remote import RemoteEngine
from tts_plugins.server.engines import Hosted
from tts_plugins.server.refusals import RefusedError
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

ANN, BEN = "key-of-ann", "key-of-ben"
KEYS = [ANN, BEN]


@asynccontextmanager
async def client(server: Live, key: str = ANN) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    async with openai.AsyncOpenAI(api_key=key, base_url=f"{server.url}/v1", max_retries=0) as api:
        yield api


async def learn(api: openai.AsyncOpenAI, name: str, clip: bytes) -> str:
    voice = await api.audio.voices.create(
        name=name, audio_sample=("../../me.wav", clip), consent="cons_1"
    )
    return voice.id


async def heard(api: openai.AsyncOpenAI, voice: str) -> float:
    """The pitch at which a voice speaks."""
    reply = await api.audio.speech.create(
        model="tts-1", voice=voice, input="Hello there.", response_format="pcm"
    )
    return pitch(reply.content, RATE)


async def listed(server: Live, key: str, path: str = "/v1/voices") -> list[str]:
    headers = {"authorization": f"Bearer {key}"}
    async with server.client.get(server.url + path, headers=headers) as reply:
        return [voice["id"] for voice in (await reply.json())["voices"]]


async def post(
    server: Live, path: str, fields: Mapping[str, Any], key: str = ANN
) -> tuple[int, Any]:
    """Send a form; the status, and the body."""
    form = aiohttp.FormData()
    for name, value in fields.items():
        filename = "x" if isinstance(value, bytes) else None
        form.add_field(name, value, filename=filename)
    headers = {"authorization": f"Bearer {key}"}
    async with server.client.post(server.url + path, data=form, headers=headers) as reply:
        return reply.status, await reply.json()


async def stream(engine: RemoteEngine, voice: str) -> float:
    request = SynthesisRequest("Hello there.", voice=voice)
    async with aclosing(engine.stream(request)) as chunks:
        parts = [chunk async for chunk in chunks]
    return pitch(b"".join(_pcm(part) for part in parts), parts[0].sample_rate)


def _pcm(chunk: AudioChunk) -> bytes:
    pcm: bytes = (chunk.samples * 32767).astype("<i2").tobytes()
    return pcm


# The doors


async def test_openais_own_client_enrols_speaks_and_deletes() -> None:
    engine = Mimic()
    async with live(engine, keys=KEYS) as server, client(server) as api:
        voice = await api.audio.voices.create(
            name="Mai", audio_sample=("../../me.wav", recording(330)), consent="cons_1"
        )
        assert (voice.id, voice.name, voice.object) == ("Mai", "Mai", "audio.voice")
        assert voice.type == "audio_sample"
        assert voice.created_at > 1_700_000_000
        assert await heard(api, "Mai") == pytest.approx(330, abs=1)
        deleted = await api.audio.voices.delete("Mai")
        assert (deleted.id, deleted.deleted, deleted.object) == (
            "Mai",
            True,
            "audio.voice.deleted",
        )
        with pytest.raises(openai.NotFoundError, match="no voice 'Mai'"):
            await api.audio.voices.delete("Mai")
        with pytest.raises(openai.BadRequestError, match="no voice 'Mai'"):
            await heard(api, "Mai")
    assert list(engine.pitches) == [None, "own"]


async def test_openais_voices_cannot_be_made_of_words() -> None:
    async with live(Mimic(), keys=KEYS) as server, client(server) as api:
        with pytest.raises(openai.BadRequestError, match="send type=audio_sample"):
            await api.audio.voices.create(name="Mai", prompt="a warm voice", type="prompt")


async def test_vieneus_clients_are_answered_as_vieneu_does() -> None:
    fields = {
        "name": "Mai Anh",
        "file": recording(330),
        "denoise": "true",
        "description": "clip 0123",
    }
    async with live(Mimic(), keys=KEYS) as server:
        status, body = await post(server, "/v1/voices", fields)
        assert (status, body) == (
            200,
            {"id": "Mai Anh", "name": "Mai Anh", "description": "clip 0123"},
        )
        for name in ("", "../etc", "a/b", ".hidden", "x" * 201, "a\nb", "a\\b"):
            status, body = await post(server, "/v1/voices", fields | {"name": name})
            assert status == 400, name
            assert body["error"]["code"] == 400
            assert "a voice's name has" in body["error"]["message"]
        status, body = await post(server, "/v1/voices", {"name": "Mai", "audio": b"x"})
        assert status == 400
        assert "file, a file with a recording of the voice, is missing" in str(body)


@pytest.mark.parametrize("dialect", [VieNeuDialect(), OpenAIDialect(consent="cons_1")])
async def test_a_recording_is_sent_once_and_its_voice_found_again(
    dialect: VieNeuDialect | OpenAIDialect,
) -> None:
    engine = Mimic()
    async with live(engine, keys=KEYS) as server:
        for _ in range(2):
            remote = RemoteEngine(dialect, server.url, api_key=ANN)
            voice = await remote.clone("mai", recording(330))
            assert await stream(remote, voice.id) == pytest.approx(330, abs=1)
            assert "own" in [voice.id for voice in await remote.voices()]
            assert "mai" in [voice.id for voice in await remote.voices()]
            await remote.aclose()
        assert len(engine.clips) == 1
        other = RemoteEngine(dialect, server.url, api_key=BEN)
        assert [voice.id for voice in await other.voices()] == ["own"]
        await other.aclose()


async def test_what_the_engine_is_given_is_a_plain_wav_under_a_name_that_tells_whose_it_is() -> (
    None
):
    engine = Mimic()
    async with live(engine, keys=KEYS) as server, client(server) as api:
        await learn(api, "mai", recording(330) + b"LIST\x04\0\0\0evil")
        [(name, clip, transcript)] = engine.clips
        assert name.startswith("mai-key")
        assert clip == recording(330)
        assert transcript == ""
        owner = next(iter(server.house.keys._digests.values()))
        assert name == f"mai-key{owner}"


async def test_an_engine_that_cannot_clone_says_so_and_reads_no_recording() -> None:
    async with live(tones(), keys=KEYS) as server:
        status, body = await post(server, "/v1/voices", {"name": "mai", "file": b"junk"})
        assert status == 501
        assert "can't clone voices" in body["error"]["message"]


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory"), OSError("disk"), KeyError("x"), TimeoutError("slow")]
)
async def test_whatever_an_engine_raises_is_told_in_the_shape_of_the_dialect(
    error: Exception,
) -> None:
    async with live(Mimic(error=error), keys=KEYS) as server:
        status, body = await post(server, "/v1/voices", {"name": "mai", "file": recording()})
        assert status == 500
        assert body["error"]["message"] == f"{type(error).__name__}: {error}"
        assert await listed(server, ANN) == ["own"]


async def test_a_model_chooses_which_engine_learns() -> None:
    first, second = Mimic(), Mimic()
    async with live({"one": first, "two": second}, keys=KEYS) as server:
        fields = {"name": "mai", "file": recording(330), "model": "two"}
        assert (await post(server, "/v1/voices", fields))[0] == 200
        assert (len(first.clips), len(second.clips)) == (0, 1)
        assert await listed(server, ANN, "/v1/voices?model=two") == ["own", "mai"]
        assert await listed(server, ANN) == ["own"]


# Whose a voice is


async def test_a_voice_cannot_be_noticed_with_another_key() -> None:
    engine = Mimic()
    async with live(engine, keys=KEYS) as server, client(server) as ann, client(server, BEN) as ben:
        await learn(ann, "mai", recording(330))
        title = engine.clips[0][0]
        assert await listed(server, ANN) == ["own", "mai"]
        assert await listed(server, BEN) == ["own"]
        refusals = []
        for name in ("mai", title, title.upper(), "nobody"):
            with pytest.raises(openai.BadRequestError) as refusal:
                await heard(ben, name)
            refusals.append(str(refusal.value).replace(name, "NAME"))
            with pytest.raises(openai.NotFoundError):
                await ben.audio.voices.delete(name)
        assert len(set(refusals)) == 1
        assert "available: own" in refusals[0]
        assert await heard(ann, "mai") == pytest.approx(330, abs=1)


async def test_two_callers_call_their_voices_alike() -> None:
    async with (
        live(Mimic(), keys=KEYS) as server,
        client(server) as ann,
        client(server, BEN) as ben,
    ):
        await learn(ann, "mai", recording(330))
        await learn(ben, "mai", recording(550))
        assert await heard(ann, "mai") == pytest.approx(330, abs=1)
        assert await heard(ben, "mai") == pytest.approx(550, abs=1)
        await ann.audio.voices.delete("mai")
        assert await heard(ben, "mai") == pytest.approx(550, abs=1)
        assert await listed(server, ANN) == ["own"]


async def test_a_name_of_the_engines_own_is_taken_for_everybody() -> None:
    async with live(Mimic(), keys=KEYS) as server, client(server) as api:
        with pytest.raises(openai.ConflictError, match="there is a voice 'own' already"):
            await learn(api, "own", recording(330))
        with pytest.raises(openai.NotFoundError):
            await api.audio.voices.delete("own")


async def test_a_name_given_twice_is_the_newer_voice() -> None:
    async with live(Mimic(), keys=KEYS) as server, client(server) as api:
        await learn(api, "mai", recording(330))
        await learn(api, "mai", recording(550))
        assert await heard(api, "mai") == pytest.approx(550, abs=1)
        assert await listed(server, ANN) == ["own", "mai"]


async def test_two_enrolments_at_once_are_learnt_one_after_the_other() -> None:
    engine = Mimic(gate=asyncio.Event())
    assert engine.gate
    async with live(engine, keys=KEYS) as server, client(server) as ann, client(server, BEN) as ben:
        tasks = [
            asyncio.create_task(learn(ann, "mai", recording(330))),
            asyncio.create_task(learn(ann, "mai", recording(440))),
            asyncio.create_task(learn(ben, "mai", recording(550))),
        ]
        await server.until(lambda: server.house.enrolling == 3 and engine.learning)
        # Meanwhile others speak.
        assert await heard(ben, "own") == pytest.approx(440, abs=1)
        engine.gate.set()
        assert await asyncio.gather(*tasks) == ["mai"] * 3
        assert engine.most_learning == 1
        assert await heard(ben, "mai") == pytest.approx(550, abs=1)


async def test_a_voice_that_speaks_is_deleted_when_it_has_spoken() -> None:
    async with live(Mimic(), keys=KEYS) as server, client(server) as api:
        await learn(api, "mai", recording(330))
        async with api.audio.speech.with_streaming_response.create(
            model="tts-1", voice="mai", input="Hello there. " * 200, response_format="pcm"
        ) as reply:
            parts = reply.iter_bytes()
            body = await anext(parts)
            with pytest.raises(
                openai.ConflictError, match="'mai' speaks just now: delete it later"
            ):
                await api.audio.voices.delete("mai")
            async for part in parts:
                body += part
        await api.audio.voices.delete("mai")
    assert len(body) == 2 * 12 * 200 * RATE * 6 // 100


async def test_a_client_that_leaves_in_the_middle_leaves_no_half_voice() -> None:
    gate = asyncio.Event()
    engine = Mimic(gate=gate)
    async with live(engine, keys=KEYS) as server, client(server) as api:
        leaving = asyncio.create_task(learn(api, "mai", recording(330)))
        await server.until(lambda: engine.learning)
        leaving.cancel()
        await asyncio.wait({leaving})
        gate.set()
        await server.until(lambda: server.house.enrolling == 0)
        assert await listed(server, ANN) == ["own", "mai"]
        assert await heard(api, "mai") == pytest.approx(330, abs=1)


# What an engine may do


def hosted(engine: Any) -> Hosted:
    return Hosted("mimic", engine, aliases={})


async def names(hosted: Hosted, caller: str) -> list[str]:
    return [voice.id for voice in await hosted.voices(caller)]


async def test_a_server_that_was_restarted_gives_kept_voices_back_to_their_owners() -> None:
    engine = Mimic()
    await hosted(engine).clone("mai", recording(330), caller="0a1b2c3d")
    later = hosted(engine)
    assert await names(later, "ffffffff") == ["own"]
    assert await names(later, "0a1b2c3d") == ["own", "mai"]
    request, _ = await later.request(SynthesisRequest("Hi.", voice="mai"), "0a1b2c3d")
    assert request.voice == "mai-key0a1b2c3d"
    await later.forget("mai", "0a1b2c3d")
    assert list(engine.pitches) == [None, "own"]


async def test_a_kept_voice_is_its_owners_even_if_nothing_was_listed_before() -> None:
    engine = Mimic()
    await hosted(engine).clone("mai", recording(330), caller="0a1b2c3d")
    later = hosted(engine)
    with pytest.raises(VoiceNotFoundError):
        await later.request(SynthesisRequest("Hi.", voice="mai-key0a1b2c3d"), "ffffffff")
    request, _ = await later.request(SynthesisRequest("Hi.", voice="mai"), "0a1b2c3d")
    assert request.voice == "mai-key0a1b2c3d"


class Keeps(Mimic):
    """Cannot forget."""

    forget: Any = None


async def test_an_engine_that_cannot_forget_keeps_a_voice_that_nobody_has() -> None:
    engine = Keeps()
    here = hosted(engine)
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    await here.forget("mai", "0a1b2c3d")
    assert await names(here, "0a1b2c3d") == ["own"]
    await here.clone("mai", recording(550), caller="0a1b2c3d")
    request, _ = await here.request(SynthesisRequest("Hi.", voice="mai"), "0a1b2c3d")
    assert engine.pitches[request.voice] == pytest.approx(550, abs=1)


class Knows(Mimic):
    """Knows a recording again, whatever the voice is to be called."""

    async def clone(self, name: str, reference: Path | bytes, *, transcript: str = "") -> Voice:
        assert isinstance(reference, bytes)
        return await super().clone(f"clip {hash(reference)}", reference)


async def test_one_voice_of_two_callers_is_forgotten_with_the_second() -> None:
    engine = Knows()
    here = hosted(engine)
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    await here.clone("anh", recording(330), caller="ffffffff")
    assert len(engine.pitches) == 3
    assert await names(here, "0a1b2c3d") == ["own", "mai"]
    assert await names(here, "ffffffff") == ["own", "anh"]
    await here.forget("mai", "0a1b2c3d")
    assert await names(here, "0a1b2c3d") == ["own"]
    assert await names(here, "ffffffff") == ["own", "anh"]
    await here.clone("anh", recording(550), caller="ffffffff")
    assert len(engine.pitches) == 3
    await here.forget("anh", "ffffffff")
    assert list(engine.pitches) == [None, "own"]


async def test_a_voice_that_was_renamed_isnt_lost_when_its_old_name_is_used_again() -> None:
    engine = Mimic()
    here = hosted(engine)
    for caller in ("0a1b2c3d", "-"):
        await here.clone("mai", recording(330), caller=caller)
        with pytest.raises(TTSError, match="there is a voice 'own'"):
            await here.rename("mai", "own", caller)
        await here.rename("mai", "anh", caller)
        await here.clone("mai", recording(550), caller=caller)
        assert await names(here, caller) == ["own", "anh", "mai"]
        for name, hertz in (("anh", 330), ("mai", 550)):
            request, _ = await here.request(SynthesisRequest("Hi.", voice=name), caller)
            assert engine.pitches[request.voice] == pytest.approx(hertz, abs=1)
        with pytest.raises(VoiceNotFoundError):
            await here.rename("nobody", "somebody", caller)
        with pytest.raises(InvalidRequestError):
            await here.rename("mai", "a/b", caller)


async def test_a_voice_that_the_engine_does_not_manage_to_forget_is_still_there() -> None:
    engine = Mimic()
    here = hosted(engine)
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    title = engine.clips[0][0]
    hertz = engine.pitches.pop(title)
    with pytest.raises(EngineError, match="KeyError"):
        await here.forget("mai", "0a1b2c3d")
    engine.pitches[title] = hertz
    assert await names(here, "0a1b2c3d") == ["own", "mai"]


async def test_an_engine_that_never_finishes_learning_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tts_plugins.server.engines._LEARNING", 0.01)
    here = hosted(Mimic(gate=asyncio.Event()))
    with pytest.raises(EngineTimeoutError, match=r"no voice was learnt within 0\.01 s"):
        await here.clone("mai", recording(330), caller="-")
    assert await names(here, "-") == ["own"]


async def test_an_enrolment_that_is_cancelled_leaves_nothing_behind() -> None:
    gate = asyncio.Event()
    engine = Mimic(gate=gate)
    here = hosted(engine)
    task = asyncio.create_task(here.clone("mai", recording(330), caller="0a1b2c3d"))
    while not engine.learning:  # noqa: ASYNC110  what it asks has no event
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait({task})
    assert await names(here, "0a1b2c3d") == ["own"]
    gate.set()
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    assert await names(here, "0a1b2c3d") == ["own", "mai"]


async def test_a_strangers_list_of_voices_may_fail_in_any_way() -> None:
    class Broken(Mimic):
        async def voices(self) -> Any:
            raise ZeroDivisionError("no voices")

    with pytest.raises(EngineError, match="ZeroDivisionError: no voices"):
        await hosted(Broken()).voices("-")


async def test_without_keys_a_voice_is_everybodys_under_its_own_name() -> None:
    engine = Mimic()
    here = hosted(engine)
    await here.clone("mai", recording(330), caller="-", description="clip 0123")
    assert [name for name, _, _ in engine.clips] == ["mai"]
    assert await here.voices("-") == [Voice("own", "und"), Voice("mai", "und", "clip 0123")]


class Vendor(Mimic):
    """Calls voices by ids of its own, and lists nothing but those."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        """Until then it learns and forgets, but doesn't say so."""
        self.answers.set()

    async def clone(self, name: str, reference: Path | bytes, *, transcript: str = "") -> Voice:
        await super().clone(name, reference, transcript=transcript)
        learnt = f"id{len(self.clips)}"
        self.pitches[learnt] = self.pitches.pop(name)
        await self.answers.wait()
        return Voice(learnt, "und")

    async def forget(self, voice: str) -> None:
        await self.answers.wait()
        await super().forget(voice)


class Describes(Vendor):
    """Describes each voice by what it was to be called."""

    async def voices(self) -> Sequence[Voice]:
        titles = {f"id{n + 1}": clip[0] for n, clip in enumerate(self.clips)}
        listed = await super().voices()
        return [replace(voice, description=titles.get(voice.id, "")) for voice in listed]


async def refused(hosted: Hosted, name: str, caller: str) -> None:
    with pytest.raises(VoiceNotFoundError, match=r"available: own$"):
        await hosted.request(SynthesisRequest("Hi.", voice=name), caller)


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  what it asks has no event
            await asyncio.sleep(0.001)


async def test_a_voice_is_nobody_elses_while_it_is_learnt_and_forgotten() -> None:
    engine = Vendor()
    now = [0.0]
    here = Hosted("vendor", engine, aliases={}, clock=lambda: now[0])
    assert await names(here, "ffffffff") == ["own"]
    for doing in (
        lambda: here.clone("mai", recording(330), caller="0a1b2c3d"),
        lambda: here.forget("mai", "0a1b2c3d"),
    ):
        engine.answers.clear()
        task = asyncio.create_task(doing())
        await until(lambda: "id1" in engine.pitches)
        for _ in range(2):
            now[0] += 100
            assert await names(here, "ffffffff") == ["own"]
            await asyncio.sleep(0)
        await refused(here, "id1", "ffffffff")
        engine.answers.set()
        await task
        assert await names(here, "ffffffff") == ["own"]
    assert await names(here, "0a1b2c3d") == ["own"]


async def test_what_a_learning_left_behind_that_was_cut_is_nobodys() -> None:
    engine = Vendor()
    now = [0.0]
    here = Hosted("vendor", engine, aliases={}, clock=lambda: now[0])
    engine.answers.clear()
    task = asyncio.create_task(here.clone("mai", recording(330), caller="0a1b2c3d"))
    await until(lambda: "id1" in engine.pitches)
    task.cancel()
    await asyncio.wait({task})
    engine.answers.set()
    await here.clone("anh", recording(330), caller="0a1b2c3d")
    now[0] = 100
    await names(here, "ffffffff")
    await asyncio.sleep(0)
    await refused(here, "id1", "ffffffff")
    assert await names(here, "ffffffff") == ["own"]
    assert await names(here, "0a1b2c3d") == ["own", "anh"]


async def test_a_voice_that_was_learnt_after_all_is_its_callers() -> None:
    engine = Describes()
    now = [0.0]
    here = Hosted("vendor", engine, aliases={}, clock=lambda: now[0])
    engine.answers.clear()
    task = asyncio.create_task(here.clone("mai", recording(330), caller="0a1b2c3d"))
    await until(lambda: "id1" in engine.pitches)
    task.cancel()
    await asyncio.wait({task})
    now[0] = 100
    await names(here, "ffffffff")
    await asyncio.sleep(0)
    await refused(here, "id1", "ffffffff")
    request, _ = await here.request(SynthesisRequest("Hi.", voice="mai"), "0a1b2c3d")
    assert request.voice == "id1"


async def test_whose_a_voice_is_stands_in_its_description_where_its_id_is_the_engines() -> None:
    engine = Describes()
    await hosted(engine).clone("mai", recording(330), caller="0a1b2c3d")
    later = hosted(engine)
    assert await names(later, "ffffffff") == ["own"]
    await refused(later, "id1", "ffffffff")
    request, _ = await later.request(SynthesisRequest("Hi.", voice="mai"), "0a1b2c3d")
    assert request.voice == "id1"
    # Learnt anew, it is still called so that its owner is known.
    await later.clone("mai", recording(550), caller="0a1b2c3d")
    assert [clip[0] for clip in engine.clips] == ["mai-key0a1b2c3d"] * 2
    assert await names(hosted(engine), "ffffffff") == ["own"]


async def test_a_name_that_looks_like_somebodys_mark_is_still_its_owners() -> None:
    engine = Describes()
    await hosted(engine).clone("mai-keyffffffff", recording(330), caller="0a1b2c3d")
    later = hosted(engine)
    assert await names(later, "ffffffff") == ["own"]
    assert await names(later, "0a1b2c3d") == ["own", "mai-keyffffffff"]


async def test_a_blend_with_somebodys_voice_is_refused() -> None:
    engine = Mimic()
    here = hosted(engine)
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    for blend in ("mai-key0a1b2c3d+own", "own(2)+MAI-KEY0A1B2C3D", "own+mai-key0a1b2c3d(1)+own"):
        await refused(here, blend, "ffffffff")


async def test_a_voice_that_speaks_is_kept_when_its_name_is_learnt_anew() -> None:
    engine = Vendor()
    here = hosted(engine)
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    with here.speaking("id1"):
        await here.clone("mai", recording(550), caller="0a1b2c3d")
        assert list(engine.pitches) == [None, "own", "id1", "id2"]
    await refused(here, "id1", "ffffffff")
    assert await names(here, "0a1b2c3d") == ["own", "mai"]


async def test_a_caller_has_as_many_voices_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts_plugins.server.engines._MOST", 2)
    here = hosted(Mimic())
    for name in ("mai", "anh", "mai"):
        await here.clone(name, recording(330), caller="0a1b2c3d")
    with pytest.raises(RefusedError, match="you have 2 voices, as many as may be: delete") as no:
        await here.clone("lan", recording(330), caller="0a1b2c3d")
    assert no.value.status_code == 409
    await here.clone("lan", recording(330), caller="ffffffff")
    await here.forget("mai", "0a1b2c3d")
    await here.clone("lan", recording(330), caller="0a1b2c3d")


async def test_what_the_engine_lists_no_more_is_not_remembered() -> None:
    engine = Keeps()
    now = [0.0]
    here = Hosted("mimic", engine, aliases={}, clock=lambda: now[0])
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    await here.forget("mai", "0a1b2c3d")
    del engine.pitches["mai-key0a1b2c3d"]
    now[0] = 100
    await names(here, "0a1b2c3d")
    await asyncio.sleep(0)
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    assert [clip[0] for clip in engine.clips] == ["mai-key0a1b2c3d"] * 2


async def test_a_request_costs_little_where_many_voices_are_enrolled() -> None:
    engine = Mimic()
    engine.pitches.update({f"v{n}-key{n % 16:08x}": 440.0 for n in range(3000)})
    here = hosted(engine)
    assert len(await here.voices("00000001")) == 189
    began = time.process_time()
    await here.request(SynthesisRequest("Hi.", voice="own"), "00000001")
    assert time.process_time() - began < 0.1


# A server in front of a server


async def test_a_server_whose_voices_have_ids_of_their_own_shows_them_to_their_owners_alone() -> (
    None
):
    vendor = ElevenLabs()
    async with serving(vendor.answer) as behind:
        remote = RemoteEngine(ElevenLabsDialect(), behind.url, api_key=vendor.key)
        own = [voice.id for voice in await remote.voices()]
        async with (
            live(remote, keys=KEYS) as server,
            client(server) as ann,
            client(server, BEN) as ben,
        ):
            await learn(ann, "mai", recording(330))
            await learn(ben, "anh", recording(330))
            assert await listed(server, ANN) == [*own, "mai"]
            assert await listed(server, BEN) == [*own, "anh"]
            assert vendor.voices[-1]["voice_id"] == f"clone{len(own)}"
            await heard(ann, "mai")
            with pytest.raises(openai.BadRequestError, match="no voice 'mai'") as refusal:
                await heard(ben, "mai")
            assert "key" not in str(refusal.value)
        await remote.aclose()
        # After a restart, or in another of its processes.
        remote = RemoteEngine(ElevenLabsDialect(), behind.url, api_key=vendor.key)
        async with (
            live(remote, keys=KEYS) as server,
            client(server) as ann,
            client(server, BEN) as ben,
        ):
            assert await listed(server, BEN) == own  # the vendor has his recording as hers
            assert await listed(server, ANN) == [*own, "mai"]
            await heard(ann, "mai")
            with pytest.raises(openai.BadRequestError, match=f"no voice 'clone{len(own)}'"):
                await heard(ben, f"clone{len(own)}")
        await remote.aclose()


async def test_an_engine_behind_a_server_that_cannot_clone_is_told_before_anything_is_sent() -> (
    None
):
    async with live(tones()) as behind:
        remote = RemoteEngine(VieNeuDialect(), behind.url)
        with pytest.raises(RemoteError, match="can't clone"):
            await remote.clone("mai", recording(330))
        await remote.aclose()

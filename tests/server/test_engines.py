"""What requests call the engines of a server, and which of their voices there are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.server.cloner import Mimic, recording
from tts_plugins.errors import InvalidRequestError, RemoteError
from tts_plugins.server.engines import Engines, Hosted, named
from tts_plugins.server.refusals import RefusedError
from tts_plugins.types import SynthesisRequest, Voice


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["hibari"], {"hibari": "hibari"}),
        (["en=hibari", "tone"], {"en": "hibari", "tone": "tone"}),
        (
            ["kokoro+http://localhost:8880?voice=af_bella"],
            {"kokoro": "kokoro+http://localhost:8880?voice=af_bella"},
        ),
        (["http://tts.example:8080"], {"tts.example": "http://tts.example:8080"}),
        (["unix:///run/tts.sock"], {"server": "unix:///run/tts.sock"}),
        (
            ["fallback:openai+http://127.0.0.1:9,hibari"],
            {"fallback": "fallback:openai+http://127.0.0.1:9,hibari"},
        ),
        (["a=openai+http://h:1?model=x"], {"a": "openai+http://h:1?model=x"}),
    ],
)
def test_an_engine_is_called_by_its_name_or_what_its_address_begins_with(
    given: list[str], expected: dict[str, str]
) -> None:
    assert named(given) == expected


def test_two_engines_cant_have_one_name() -> None:
    for second in ("tone", "tone=hibari"):
        spec = second.removeprefix("tone=")
        with pytest.raises(InvalidRequestError) as raised:
            named(["tone", second])
        assert str(raised.value) == f"two engines are called 'tone': write NAME={spec}"


class Lists(Mimic):
    """Lists its voices when it is let to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.lets = asyncio.Event()
        self.fails = False

    async def voices(self) -> Sequence[Voice]:
        self.asked += 1
        await self.lets.wait()
        if self.fails:
            raise RemoteError("no list today")
        return await super().voices()


async def taken(hosted: Hosted, voice: str | None, caller: str = "-") -> str | None:
    """What the engine is asked for."""
    request, _ = await hosted.request(SynthesisRequest("Hi.", voice=voice), caller)
    return request.voice


async def test_the_list_of_voices_is_asked_for_once_however_many_wait_for_it() -> None:
    engine = Lists()
    hosted = Hosted("lists", engine, aliases={})
    waiting = [asyncio.create_task(taken(hosted, "own")) for _ in range(8)]
    await asyncio.sleep(0.01)
    waiting.pop().cancel()
    engine.lets.set()
    assert await asyncio.gather(*waiting) == ["own"] * 7
    assert engine.asked == 1


async def test_the_old_list_is_good_enough_while_another_is_on_its_way() -> None:
    engine = Lists()
    engine.lets.set()
    now = [0.0]
    hosted = Hosted("lists", engine, aliases={}, clock=lambda: now[0])
    await hosted.voices("-")
    engine.lets.clear()
    engine.pitches["new"] = 550.0
    now[0] = 61
    for _ in range(3):
        assert [voice.id for voice in await hosted.voices("-")] == ["own"]
    engine.lets.set()
    await asyncio.sleep(0.01)
    assert [voice.id for voice in await hosted.voices("-")] == ["own", "new"]
    assert engine.asked == 2


async def test_speech_needs_no_list_of_voices(caplog: pytest.LogCaptureFixture) -> None:
    engine = Lists()
    engine.lets.set()
    engine.fails = True
    now = [0.0]
    hosted = Hosted("lists", engine, aliases={}, clock=lambda: now[0])
    assert await taken(hosted, "own") == "own"
    await hosted.check("own", "-")
    with pytest.raises(RemoteError, match="no list today"):
        await hosted.voices("-")
    assert engine.asked == 1
    assert caplog.messages == ["lists doesn't list its voices: no list today"]
    engine.fails = False
    now[0] = 6
    assert [voice.id for voice in await hosted.voices("-")] == ["own"]
    engine.fails = True
    now[0] = 100
    await hosted.voices("-")
    await asyncio.sleep(0.01)
    assert [voice.id for voice in await hosted.voices("-")] == ["own"]
    assert await taken(hosted, "own") == "own"


class Far(Mimic):
    """Has voices that it would have to download."""

    def __init__(self) -> None:
        super().__init__()
        self.here = {"own"}

    async def voices(self) -> Sequence[Voice]:
        return [Voice(name, "und", ready=name in self.here) for name in ("own", "emma", "fable")]


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ("hibari", "fetch it first with `tts-plugins say Hi. --engine hibari --voice emma`"),
        ("native+http://h:1?api_key=secret", "isn't here yet: have its engine fetch it first$"),
        ("fallback:a,b", "isn't here yet: have its engine fetch it first$"),
        ("", "isn't here yet: have its engine fetch it first$"),
    ],
)
async def test_no_client_has_a_voice_downloaded(spec: str, remedy: str) -> None:
    engine = Far()
    now = [0.0]
    hosted = Hosted("far", engine, aliases={"anna": "emma"}, spec=spec, clock=lambda: now[0])
    assert [voice.id for voice in await hosted.voices("-")] == ["own"]
    for name in ("emma", "anna"):
        with pytest.raises(InvalidRequestError, match=remedy):
            await taken(hosted, name)
        with pytest.raises(InvalidRequestError, match=remedy):
            await hosted.check(name, "-")
    # A name that clients send because they have to.
    assert await taken(hosted, "fable") is None
    engine.here.add("emma")
    now[0] = 61
    await hosted.voices("-")
    await asyncio.sleep(0.01)
    assert [voice.id for voice in await hosted.voices("-")] == ["own", "emma"]
    assert await taken(hosted, "anna") == "emma"


async def test_an_engine_that_was_opened_by_its_name_is_named_in_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engines = Engines({"en": "hibari"})
    async with aclosing(engines):
        await engines.open(warm=False)
        with pytest.raises(InvalidRequestError, match="--engine hibari --voice emma"):
            await taken(engines.find(None), "emma")


async def test_a_voice_gets_a_new_name_from_its_engine_or_none() -> None:
    class Unable(Mimic):
        rename = None  # type: ignore[assignment]

    class Unwilling(Mimic):
        can_rename = False

    for engine in (Unable(), Unwilling()):
        hosted = Hosted("mimic", engine, aliases={})
        await hosted.clone("mai", recording(), caller="0a1b2c3d")
        with pytest.raises(RefusedError, match="mimic can't rename voices: enrol it by an") as no:
            await hosted.rename("mai", "anh", "0a1b2c3d")
        assert no.value.status_code == 501
        assert await taken(hosted, "mai", "0a1b2c3d") == "mai-key0a1b2c3d"


async def test_a_voice_that_speaks_keeps_its_name() -> None:
    hosted = Hosted("mimic", Mimic(), aliases={})
    await hosted.clone("mai", recording(), caller="0a1b2c3d")
    with (
        hosted.speaking("mai-key0a1b2c3d"),
        pytest.raises(RefusedError, match="'mai' speaks just now: rename it later") as no,
    ):
        await hosted.rename("mai", "anh", "0a1b2c3d")
    assert no.value.status_code == 409
    await hosted.rename("mai", "anh", "0a1b2c3d")
    assert await taken(hosted, "anh", "0a1b2c3d") == "anh-key0a1b2c3d"


async def test_one_voice_of_two_callers_stays_the_others_when_it_is_renamed() -> None:
    class Knows(Mimic):
        """Knows a recording again, whatever the voice is to be called."""

        async def clone(self, name: str, reference: Path | bytes, *, transcript: str = "") -> Voice:
            return await super().clone("clip", reference)

    engine = Knows()
    hosted = Hosted("knows", engine, aliases={})
    await hosted.clone("mai", recording(), caller="0a1b2c3d")
    await hosted.clone("lan", recording(), caller="ffffffff", description="hers")
    await hosted.rename("mai", "anh", "0a1b2c3d")
    assert [voice.id for voice in await hosted.voices("0a1b2c3d")] == ["own", "anh"]
    assert await hosted.voices("ffffffff") == [Voice("own", "und"), Voice("lan", "und", "hers")]
    assert await taken(hosted, "lan", "ffffffff") == "anh-key0a1b2c3d"
    await hosted.forget("anh", "0a1b2c3d")
    assert await taken(hosted, "lan", "ffffffff") in engine.pitches
    await hosted.forget("lan", "ffffffff")
    assert list(engine.pitches) == [None, "own"]


async def test_a_star_is_for_every_name_that_there_isnt() -> None:
    async with aclosing(Mimic()) as engine:
        hosted = Hosted("mimic", engine, aliases={"*": "own", "Rachel": "other"})
        for asked, spoken in (("af_heart", "own"), ("alloy", "own"), ("own", "own"), (None, None)):
            request, _ = await hosted.request(SynthesisRequest("Hi.", voice=asked), "-")
            assert request.voice == spoken


async def test_an_alias_for_no_voice_is_told_of_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engines = Engines({"tone": "tone"}, aliases={"alloy": "bella", "ash": "tone"})
    await engines.open(warm=False)
    await engines.aclose()
    assert caplog.messages == ["alias alloy: no voice 'bella'; available: tone"]


async def test_engines_that_are_opened_here_take_the_servers_places_and_pace() -> None:
    engines = Engines(
        {"tone": "tone", "behind": "openai+http://127.0.0.1:9"},
        pace={"max_streams": 600, "max_ahead": 0.5},
    )
    await engines.open(warm=False)
    tone, behind = engines.all()
    assert (tone.engine.engine._max_streams, tone.engine.engine._max_ahead) == (600, 0.5)  # type: ignore[attr-defined]
    assert behind.name == "behind"
    await engines.aclose()

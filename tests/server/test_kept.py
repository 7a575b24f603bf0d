"""Voices that an engine keeps: found by the next server and by the one beside it, and whose."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.hearing import pitch
from tests.server.cloner import RATE, Parrot, recording
from tests.server.live import Live, live
from tts_plugins.errors import RemoteError, VoiceNotFoundError
from tts_plugins.scheduler import Scheduler
from tts_plugins.server.engines import Hosted
from tts_plugins.types import SynthesisRequest, Voice

ANN, BEN = "key-of-ann", "key-of-ben"
KEYS = [ANN, BEN]
NO_KEY = ""

ENROLMENTS = [
    ("/v1/voices/add", "name", "files"),
    ("/v1/references/add", "id", "audio"),
    ("/api/voices", "name", "file"),
]
"""The doors, and what each calls a name and a recording."""


@asynccontextmanager
async def served(folder: Path, **options: Any) -> AsyncGenerator[Live, None]:
    """A server on that folder, as each start and each worker has an engine of its own."""
    scheduler = Scheduler(Parrot(folder))
    try:
        async with live(scheduler, **options) as server:
            yield server
    finally:
        await scheduler.aclose()


async def call(server: Live, method: str, path: str, key: str, **body: Any) -> tuple[int, bytes]:
    headers = {"accept": "application/json"} | ({"xi-api-key": key} if key else {})
    async with server.client.request(method, server.url + path, headers=headers, **body) as reply:
        return reply.status, await reply.read()


async def enrol(
    server: Live,
    name: str,
    key: str = ANN,
    *,
    hertz: float = 330,
    door: tuple[str, str, str] = ENROLMENTS[0],
) -> int:
    path, called, file = door
    form = aiohttp.FormData({called: name, "text": "Hello."})
    form.add_field(file, recording(hertz), filename="x.wav")
    return (await call(server, "POST", path, key, data=form))[0]


async def heard(server: Live, voice: str, key: str = ANN) -> float | None:
    """The pitch at which a voice speaks; None if there is no such voice."""
    path = f"/v1/text-to-speech/{voice}?output_format=pcm_24000"
    status, body = await call(server, "POST", path, key, json={"text": "Hello there."})
    assert status == 200 or (status == 400 and b"voice_not_found" in body), body
    return round(pitch(body, RATE), -1) if status == 200 else None


async def listed(server: Live, key: str = ANN) -> list[str]:
    _, body = await call(server, "GET", "/v1/voices", key)
    return [voice["voice_id"] for voice in json.loads(body)["voices"]]


async def delete(server: Live, voice: str, key: str = ANN) -> int:
    return (await call(server, "DELETE", f"/v1/voices/{voice}", key))[0]


async def rename(server: Live, old: str, new: str, key: str) -> int:
    names = {"old_reference_id": old, "new_reference_id": new}
    return (await call(server, "POST", "/v1/references/update", key, json=names))[0]


def files(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("door", ENROLMENTS)
async def test_a_voice_survives_the_server_and_is_still_its_owners_alone(
    tmp_path: Path, door: tuple[str, str, str]
) -> None:
    async with served(tmp_path, keys=KEYS) as server:
        assert await enrol(server, "mai", door=door) == 200
        assert await heard(server, "mai") == 330
    async with served(tmp_path, keys=KEYS) as server:
        _, title = [voice.id for voice in await server.house.engines.find(None).engine.voices()]
        assert await heard(server, "mai", BEN) is None
        assert await listed(server, BEN) == ["own"]
        assert await heard(server, "mai") == 330
        assert await listed(server) == ["own", "mai"]
        # By no name and at no door is it anybody else's.
        for name in ("mai", title, f"own+{title}", f"{title}(2)+own"):
            assert await heard(server, name, BEN) is None
            assert await delete(server, name, BEN) == 400  # as ElevenLabs has it
            assert (await call(server, "GET", f"/v1/voices/{name}", BEN))[0] == 400
            assert (await call(server, "GET", f"/model/{name}", BEN))[0] == 404
            assert (await call(server, "DELETE", f"/model/{name}", BEN))[0] == 404
            rename = {"old_reference_id": name, "new_reference_id": "hers"}
            status, _ = await call(server, "POST", "/v1/references/update", BEN, json=rename)
            assert status == 404
        assert await enrol(server, "mai", BEN, hertz=550, door=door) == 200
        assert await heard(server, "mai", BEN) == 550
        assert await heard(server, "mai") == 330
        assert await delete(server, "mai") == 200
        assert await heard(server, "mai") is None
        assert await heard(server, "mai", BEN) == 550
        assert await delete(server, "mai", BEN) == 200
    assert files(tmp_path) == []


async def test_a_voice_has_the_longest_of_names_and_a_key(tmp_path: Path) -> None:
    name = ("Nguyễn Thị Mai Phương " * 10)[:199] + "!"
    async with served(tmp_path, keys=KEYS) as server:
        assert await enrol(server, name) == 200
    async with served(tmp_path, keys=KEYS) as server:
        assert await listed(server) == ["own", name]
        assert await heard(server, name) == 330


async def test_one_recording_of_two_callers_is_learnt_once_and_forgotten_with_the_second(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, keys=KEYS) as server:
        await enrol(server, "mai", ANN)
        await enrol(server, "anh", BEN)
        assert files(tmp_path) == ["learnt", "names", "names"]
        assert await delete(server, "mai", ANN) == 200
        assert await heard(server, "anh", BEN) == 330
        assert await delete(server, "anh", BEN) == 200
    assert files(tmp_path) == []


@pytest.mark.parametrize("key", [ANN, NO_KEY])
async def test_the_worker_beside_it_knows_a_voice_at_once(tmp_path: Path, key: str) -> None:
    keys = KEYS if key else []
    async with served(tmp_path, keys=keys) as here, served(tmp_path, keys=keys) as there:
        for server in (here, there):  # they have just listed what there is
            assert await heard(server, "own", key) == 440
            assert await listed(server, key) == ["own"]
        assert await enrol(here, "mai", key) == 200
        assert await heard(there, "mai", key) == 330
        assert await listed(there, key) == ["own", "mai"]
        assert await enrol(there, "mai", key, hertz=550) == 200  # anew
        assert await heard(here, "mai", key) == 550
        assert await enrol(here, "anh", key) == 200
        assert (await call(there, "GET", "/v1/voices/anh", key))[0] == 200
        assert await enrol(here, "zoe", key) == 200
        assert (await call(there, "GET", "/model/zoe", key))[0] == 200
        for name in ("mai", "anh", "zoe"):
            assert await delete(there, name, key) == 200
            assert await heard(here, name, key) is None
            await delete(here, name, key)  # which is no harm
        assert await listed(here, key) == await listed(there, key) == ["own"]
        if key:
            assert await heard(there, "mai", BEN) is None
    assert files(tmp_path) == []


async def test_a_socket_at_the_worker_beside_it_knows_a_voice_at_once(tmp_path: Path) -> None:
    async with served(tmp_path, keys=KEYS) as here, served(tmp_path, keys=KEYS) as there:
        assert await listed(there) == ["own"]
        await enrol(here, "mai")
        url = f"{there.url}/v1/text-to-speech/mai/stream-input"
        with pytest.raises(aiohttp.WSServerHandshakeError, match=r"^40[04]"):
            await there.client.ws_connect(url, headers={"xi-api-key": BEN})
        async with there.client.ws_connect(url, headers={"xi-api-key": ANN}):
            pass


async def test_what_was_enrolled_without_keys_is_everybodys_and_stays_so(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        assert await enrol(server, "mai", NO_KEY) == 200
    async with served(tmp_path) as server:
        assert await listed(server, NO_KEY) == ["own", "mai"]
        assert await heard(server, "mai", NO_KEY) == 330
        assert await enrol(server, "mai", NO_KEY, hertz=550) == 200
        assert await heard(server, "mai", NO_KEY) == 550
        assert await enrol(server, "own", NO_KEY) == 409
    async with served(tmp_path, keys=KEYS) as server:
        for key in KEYS:
            assert await listed(server, key) == ["own", "mai"]
            assert await heard(server, "mai", key) == 550
            # But nobody's to take away, or to take the name of.
            assert await delete(server, "mai", key) == 400
            assert await enrol(server, "mai", key) == 409
    async with served(tmp_path) as server:
        assert await delete(server, "own", NO_KEY) == 400
        assert await delete(server, "mai", NO_KEY) == 200
        assert await listed(server, NO_KEY) == ["own"]
        assert await delete(server, "mai", NO_KEY) == 400
    assert files(tmp_path) == []


@pytest.mark.parametrize("key", [ANN, NO_KEY])
async def test_a_voices_new_name_survives_the_server(tmp_path: Path, key: str) -> None:
    keys = KEYS if key else []
    async with served(tmp_path, keys=keys) as server:
        assert await enrol(server, "mai", key) == 200
        assert await rename(server, "mai", "anh", key) == 200
        assert await listed(server, key) == ["own", "anh"]
        assert await heard(server, "anh", key) == 330
        assert await heard(server, "mai", key) is None
    async with served(tmp_path, keys=keys) as server:
        assert await listed(server, key) == ["own", "anh"]
        assert await heard(server, "mai", key) is None
        # And again, by one that didn't enrol it.
        assert await rename(server, "anh", "zoe", key) == 200
        assert await listed(server, key) == ["own", "zoe"]
        assert await rename(server, "zoe", "own", key) == 409
        assert await rename(server, "own", "lan", key) == 404
        if key:
            assert await rename(server, "zoe", "lan", BEN) == 404
            assert await heard(server, "zoe", BEN) is None
    async with served(tmp_path, keys=keys) as server:
        assert await heard(server, "zoe", key) == 330
        assert await delete(server, "zoe", key) == 200
    assert files(tmp_path) == []


@pytest.mark.parametrize("key", [ANN, NO_KEY])
async def test_a_new_name_at_one_worker_and_its_old_one_at_another_are_two_voices(
    tmp_path: Path, key: str
) -> None:
    keys = KEYS if key else []
    async with served(tmp_path, keys=keys) as here, served(tmp_path, keys=keys) as there:
        assert await enrol(here, "mai", key) == 200
        assert await heard(there, "mai", key) == 330
        assert await rename(here, "mai", "anh", key) == 200
        assert await enrol(there, "mai", key, hertz=550) == 200
        for server in (here, there):
            assert await heard(server, "anh", key) == 330
            assert await heard(server, "mai", key) == 550
        assert await rename(here, "anh", "mai", key) == 409
        assert await enrol(there, "zoe", key, hertz=550) == 200
        assert await rename(here, "anh", "zoe", key) == 409  # of which it hasn't heard yet
        assert await delete(there, "mai", key) == 200
        assert await heard(here, "anh", key) == 330
        assert await delete(here, "anh", key) == 200
        assert await heard(there, "zoe", key) == 550


async def test_voices_of_an_earlier_server_count_among_as_many_as_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tts_plugins.server.engines._MOST", 2)
    async with served(tmp_path) as server:
        assert await enrol(server, "mai", NO_KEY) == 200
    async with served(tmp_path) as server:
        assert await enrol(server, "anh", NO_KEY) == 200
        assert await enrol(server, "zoe", NO_KEY) == 409
    async with served(tmp_path) as server:
        assert await enrol(server, "zoe", NO_KEY) == 409
        assert await enrol(server, "mai", NO_KEY, hertz=550) == 200  # anew
        assert await delete(server, "anh", NO_KEY) == 200
        assert await enrol(server, "zoe", NO_KEY) == 200


# How often an engine is asked


class Asked(Parrot):
    """Says how often it was asked for its voices, each time ``seconds`` later."""

    def __init__(self, folder: Path, *, seconds: float = 0.0) -> None:
        super().__init__(folder)
        self.seconds = seconds
        self.now = 0.0
        self.times = 0
        self.goes_on = threading.Event()
        self.goes_on.set()

    def voices(self) -> Sequence[Voice]:
        self.times += 1
        self.now += self.seconds
        assert self.goes_on.wait(5)
        return super().voices()


def hosted(engine: Asked, **aliases: str) -> Hosted:
    return Hosted("asked", Scheduler(engine), aliases=aliases, clock=lambda: engine.now)


async def taken(hosted: Hosted, voice: str, caller: str = "0a1b2c3d") -> str | None:
    request, _ = await hosted.request(SynthesisRequest("Hi.", voice=voice), caller)
    return request.voice


async def test_names_that_there_are_cost_no_list(tmp_path: Path) -> None:
    engine = Asked(tmp_path)
    here = hosted(engine, anna="own")
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    await here.voices("0a1b2c3d")
    before = engine.times
    for name in ("own", "mai", "anna", "alloy", "own+own", "own(2)"):
        await taken(here, name)
    with pytest.raises(VoiceNotFoundError):
        await taken(here, "../mai")
    assert engine.times == before


async def test_where_any_name_will_do_none_is_looked_for(tmp_path: Path) -> None:
    engine = Asked(tmp_path)
    here = Hosted("asked", Scheduler(engine), aliases={"*": "own"})
    await here.voices("-")
    assert await taken(here, "nobody") == "own"
    assert engine.times == 1


async def test_a_storm_of_unknown_names_is_one_list(tmp_path: Path) -> None:
    engine = Asked(tmp_path)
    here = hosted(engine)
    await here.voices("-")
    await asyncio.gather(*(taken(here, f"nobody {n}") for n in range(100)))
    assert engine.times == 2


async def test_a_list_that_took_long_is_followed_by_a_rest_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Asked(tmp_path, seconds=0.5)
    here = hosted(engine)
    await here.voices("-")
    await taken(here, "nobody")
    rests: list[float] = []
    sleep = asyncio.sleep

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr("tts_plugins.server.engines.asyncio.sleep", rest)
    await taken(here, "somebody")
    assert rests == [10.0]
    engine.now += 10
    await taken(here, "nobody")
    assert rests == [10.0]


async def test_who_comes_while_it_is_listed_waits_for_the_next_list(tmp_path: Path) -> None:
    engine = Asked(tmp_path)
    here = hosted(engine)
    await here.voices("-")
    engine.goes_on.clear()
    first = asyncio.create_task(taken(here, "nobody"))
    await until(lambda: engine.times == 2)
    # What that list has was read before this was learnt.
    Parrot(tmp_path).clone("mai-key0a1b2c3d", recording(330))
    second = asyncio.create_task(taken(here, "mai"))
    first.cancel()
    await asyncio.sleep(0)
    engine.goes_on.set()
    assert await second == "mai-key0a1b2c3d"
    assert engine.times == 3


async def test_an_engine_that_cannot_list_is_not_asked_for_each_name(tmp_path: Path) -> None:
    class Fails(Asked):
        def voices(self) -> Sequence[Voice]:
            super().voices()
            raise RemoteError("no list today")

    engine = Fails(tmp_path)
    here = hosted(engine)
    for _ in range(3):
        assert await taken(here, "mai") == "mai"
    assert engine.times == 1


# What another worker forgot


async def test_what_another_worker_forgot_is_listed_no_more(tmp_path: Path) -> None:
    engine = Asked(tmp_path)
    here, there = hosted(engine), hosted(Asked(tmp_path))
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    await here.clone("anh", recording(330), caller="0a1b2c3d")
    assert len(await here.voices("0a1b2c3d")) == 3
    engine.now = 1
    await here.voices("0a1b2c3d")
    await until(lambda: engine.times == 2)
    await there.forget("mai", "0a1b2c3d")
    engine.now = 100
    await here.voices("0a1b2c3d")
    await until(lambda: engine.times == 3)
    await until(lambda: is_listed(here))
    assert [voice.id for voice in await here.voices("0a1b2c3d")] == ["own", "anh"]
    with pytest.raises(VoiceNotFoundError):
        await here.forget("mai", "0a1b2c3d")


async def test_a_voice_that_is_learnt_while_it_is_listed_is_kept(tmp_path: Path) -> None:
    engine = Asked(tmp_path)
    here = hosted(engine)
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    engine.now = 1
    await here.voices("0a1b2c3d")
    await until(lambda: engine.times == 2)
    await here.forget("mai", "0a1b2c3d")
    engine.now = 100
    engine.goes_on.clear()
    await here.voices("0a1b2c3d")
    await until(lambda: engine.times == 3)
    await here.clone("mai", recording(330), caller="0a1b2c3d")
    engine.goes_on.set()
    await until(lambda: is_listed(here))
    engine.now = 200
    await here.voices("0a1b2c3d")
    await until(lambda: engine.times == 4)
    await until(lambda: is_listed(here))
    assert [voice.id for voice in await here.voices("0a1b2c3d")] == ["own", "mai"]


@pytest.mark.parametrize("caller", ["0a1b2c3d", "-"])
async def test_a_list_that_comes_while_a_voice_is_renamed_or_forgotten_does_no_harm(
    tmp_path: Path, caller: str
) -> None:
    done, goes_on = threading.Event(), threading.Event()

    class Slow(Asked):
        def rename(self, voice: str, new: str) -> Voice:
            renamed = super().rename(voice, new)
            done.set()
            assert goes_on.wait(5)
            return renamed

        def forget(self, voice: str) -> None:
            super().forget(voice)
            done.set()
            assert goes_on.wait(5)

    engine = Slow(tmp_path)
    here = hosted(engine)
    await here.clone("mai", recording(330), caller=caller, description="hers")
    await here.voices(caller)
    for change, left in (
        (here.rename("mai", "anh", caller), [Voice("anh", "und", "hers")]),
        (here.forget("anh", caller), []),
    ):
        changing = asyncio.create_task(change)
        assert await asyncio.to_thread(done.wait, 5)
        engine.times = 0
        engine.now += 100
        await here.voices(caller)
        await until(lambda: engine.times == 1)
        await until(lambda: is_listed(here))
        goes_on.set()
        await changing
        assert (await here.voices(caller))[1:] == left
        done.clear()
        goes_on.clear()


def is_listed(hosted: Hosted) -> bool:
    """Whether no list is on its way."""
    return hosted._listing is not None and hosted._listing.done()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  what it asks has no event
            await asyncio.sleep(0.001)

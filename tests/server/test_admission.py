"""Places: how many there are, and what is told to who gets none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager

import msgpack
import pytest

from tests.fakes import tone
from tests.server.live import Live, live, tones
from tts_plugins.errors import OverloadedError
from tts_plugins.server.admission import Admission
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

LONG = " ".join(["Sentences that go on and on until somebody stops them."] * 20)
ANN, BEN = "key-of-ann", "key-of-ben"
SPEECH = "/v1/audio/speech"


class Desk:
    """An admission, its clock, and those who have a place."""

    def __init__(self, **options: int) -> None:
        self.now = 0.0
        self.admission = Admission(**options, clock=lambda: self.now)
        self._open: list[ExitStack] = []

    def enter(self, caller: str = "-") -> tuple[Callable[[], None], Callable[[], None]]:
        """Take a place; what tells that it is heard, and what leaves it."""
        stack = ExitStack()
        heard = stack.enter_context(self.admission.place(caller))
        self._open.append(stack)  # or it would be left as soon as nobody holds it
        return heard, stack.close

    def refusal(self, caller: str = "-") -> tuple[str, float]:
        with pytest.raises(OverloadedError) as refused, self.admission.place(caller):
            pass
        assert refused.value.status_code == 429
        return str(refused.value), round(refused.value.retry_after, 3)

    def last(self, seconds: float, *, waits: float = 0.0) -> None:
        """Somebody has a place for so long, and is heard after a while."""
        heard, leave = self.enter()
        self.now += waits
        heard()
        self.now += seconds - waits
        leave()

    @property
    def counts(self) -> tuple[int, int]:
        return self.admission.active, self.admission.waiting


def test_a_place_is_held_until_it_is_left_and_waits_until_it_is_heard() -> None:
    desk = Desk(max_streams=3)
    heard, leave = desk.enter()
    assert desk.counts == (1, 1)
    heard()
    heard()
    assert desk.counts == (1, 0)
    _, leave_unheard = desk.enter()
    assert desk.counts == (2, 1)
    leave_unheard()
    leave()
    assert desk.counts == (0, 0)


def test_a_place_is_free_again_whatever_happened_in_it() -> None:
    desk = Desk(max_streams=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), desk.admission.place("-"):
            raise ZeroDivisionError
    assert desk.counts == (0, 0)


def test_all_places_taken() -> None:
    desk = Desk(max_streams=2)
    (heard, leave), (heard_too, _) = desk.enter(), desk.enter()
    heard()
    heard_too()
    assert desk.admission.is_full
    assert desk.refusal() == ("all 2 streams are in use; try again in 1.5 s", 1.5)
    assert desk.counts == (2, 0)
    leave()
    assert not desk.admission.is_full
    desk.enter()


def test_the_queue_is_full() -> None:
    desk = Desk(max_streams=10, max_waiting=2)
    (heard, _), _ = desk.enter(), desk.enter()
    assert desk.admission.is_full
    assert desk.refusal() == ("2 streams wait already, as many as may; try again in 0.5 s", 0.5)
    heard()
    assert not desk.admission.is_full
    desk.enter()


def test_one_key_takes_no_more_than_its_share() -> None:
    desk = Desk(max_streams=10, max_per_key=2)
    (_, leave), _ = desk.enter("greedy"), desk.enter("greedy")
    told = "2 streams are open with this key, as many as it may have; try again in 1.5 s"
    assert desk.refusal("greedy") == (told, 1.5)
    desk.enter("modest")
    assert not desk.admission.is_full
    leave()
    desk.enter("greedy")


def test_when_to_come_back_is_what_was_measured() -> None:
    desk = Desk(max_streams=4, max_waiting=2)
    for _ in range(60):
        desk.last(20.0, waits=0.4)
    places = [desk.enter() for _ in range(2)]
    assert desk.refusal()[1] == 0.2  # of two who wait 0.4 s each, one is heard every 0.2 s
    for heard, _ in places:
        heard()
    for _ in range(2):
        desk.enter()[0]()
    assert abs(desk.refusal()[1] - 5.0) < 0.01  # of four that last 20 s each, one ends every 5 s


def test_it_follows_when_streams_become_shorter() -> None:
    desk = Desk(max_streams=1)
    for _ in range(60):
        desk.last(30.0)
    for _ in range(30):
        desk.last(1.0)
    desk.enter()
    assert 1.0 <= desk.refusal()[1] < 1.1


# From a client's end


def said(text: str) -> dict[str, str]:
    return {"input": text, "voice": "alloy", "response_format": "pcm"}


@asynccontextmanager
async def over_http(server: Live, **headers: str) -> AsyncGenerator[None, None]:
    """Somebody who has begun to hear a long text."""
    url = server.url + SPEECH
    async with server.client.post(url, json=said(LONG), headers=headers) as reply:
        assert reply.status == 200
        await reply.content.readexactly(2)
        yield
        reply.close()


@asynccontextmanager
async def over_elevenlabs(server: Live, **headers: str) -> AsyncGenerator[None, None]:
    url = f"{server.url}/v1/text-to-speech/tone/multi-stream-input"
    async with server.client.ws_connect(url, headers=headers) as socket:
        await socket.send_json({"text": LONG, "flush": True})
        assert json.loads(await socket.receive_str())["audio"]
        yield


@asynccontextmanager
async def over_fish(server: Live, **headers: str) -> AsyncGenerator[None, None]:
    async with server.client.ws_connect(f"{server.url}/v1/tts/live", headers=headers) as socket:
        start = {"text": LONG, "format": "pcm"}
        await socket.send_bytes(msgpack.packb({"event": "start", "request": start}))
        await socket.send_bytes(msgpack.packb({"event": "flush"}))
        assert msgpack.unpackb(await socket.receive_bytes())["event"] == "audio"
        yield


Listener = Callable[..., AbstractAsyncContextManager[None]]


@pytest.mark.parametrize("listener", [over_http, over_elevenlabs, over_fish])
async def test_a_key_has_so_many_streams_and_other_keys_have_theirs(listener: Listener) -> None:
    ann, ben = ({"authorization": f"Bearer {key}"} for key in (ANN, BEN))
    async with live(tones(max_ahead=0.5), max_per_key=1, keys=[ANN, BEN]) as server:
        async with listener(server, **ann):
            status, headers, body = await server.ask(SPEECH, said("Hi."), **ann)
            assert (status, headers.get("retry-after")) == (429, "3")
            assert "1 streams are open with this key" in json.loads(body)["error"]["message"]
            assert (await server.ask(SPEECH, said("Hi."), **ben))[0] == 200
        await server.until(lambda: not server.house.admission.active)
        assert (await server.ask(SPEECH, said("Hi."), **ann))[0] == 200


@pytest.mark.parametrize("listener", [over_http, over_elevenlabs, over_fish])
async def test_who_is_heard_waits_no_more(listener: Listener) -> None:
    async with live(tones(max_ahead=0.5), max_waiting=1) as server:
        admission = server.house.admission
        async with listener(server):
            assert (admission.active, admission.waiting) == (1, 0)
            async with listener(server):
                assert (admission.active, admission.waiting) == (2, 0)
                async with server.client.get(f"{server.url}/ready") as reply:
                    assert reply.status == 200


class Shy:
    """Says nothing until it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        await self.go.wait()
        yield tone(0.5)

    async def voices(self) -> Sequence[Voice]:
        return []

    async def aclose(self) -> None:
        pass


async def test_so_many_may_wait_for_their_first_audio() -> None:
    engine = Shy()
    async with live(engine, max_waiting=2) as server:
        waiting = [asyncio.create_task(server.ask(SPEECH, said("Hi."))) for _ in range(2)]
        await server.until(lambda: server.house.admission.waiting == 2)
        status, headers, body = await server.ask(SPEECH, said("Hi."))
        assert (status, headers.get("retry-after")) == (429, "1")
        assert "2 streams wait already" in json.loads(body)["error"]["message"]
        async with server.client.get(f"{server.url}/ready") as reply:
            assert (reply.status, (await reply.json())["status"]) == (503, "full")
        engine.go.set()
        assert [status for status, _, _ in await asyncio.gather(*waiting)] == [200, 200]
        assert (await server.ask(SPEECH, said("Hi.")))[0] == 200

"""tts_plugins.server.enrolment: forms within limits, whatever is sent as one."""

from __future__ import annotations

import asyncio
import io
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import aiohttp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.cloner import Mimic, recording
from tests.server.live import Live, live
from tts_plugins.errors import InvalidRequestError
from tts_plugins.server.calls import Left, Line
from tts_plugins.server.enrolment import Form, read_form
from tts_plugins.server.house import Limits
from tts_plugins.server.refusals import RefusedError

KIND = "multipart/form-data; boundary=xyz"

FORM = (
    b'--xyz\r\nContent-Disposition: form-data; name="name"\r\n\r\n Mai \r\n'
    b'--xyz\r\ncontent-disposition: form-data; name="file"; filename="../a.wav"\r\n'
    b"Content-Type: audio/wav\r\n\r\nRIFF\r\n--xy\0\r\n"
    b"--xyz--\r\n"
)


async def read(*pieces: bytes, kind: str = KIND, **limits: Any) -> Form:
    """The form that comes in these pieces, before the client leaves."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages[-1]["more_body"] = False

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None: ...

    headers = [(b"content-type", kind.encode("latin-1"))]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    return await read_form(Line(scope, receive, send, id="req-1"), Limits(**limits))


def part(content: bytes, disposition: str = 'form-data; name="a"', *headers: str) -> bytes:
    lines = "\r\n".join([f"content-disposition: {disposition}", *headers])
    return f"--xyz\r\n{lines}\r\n\r\n".encode() + content + b"\r\n"


async def refused(body: bytes, why: str, kind: str = KIND) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await read(body, kind=kind)


async def test_a_form_has_texts_and_files() -> None:
    form = await read(FORM)
    assert form == Form({"name": " Mai "}, {"file": [("../a.wav", b"RIFF\r\n--xy\0")]})
    assert form.text("name") == "Mai"
    assert form.text("description") == ""
    assert form.file("file") == b"RIFF\r\n--xy\0"
    with pytest.raises(InvalidRequestError, match="audio_sample, a file with a recording"):
        form.file("audio_sample")


@given(st.lists(st.integers(0, len(FORM)), max_size=8))
def test_it_does_not_matter_in_which_pieces_a_form_comes(cuts: Sequence[int]) -> None:
    places = [0, *sorted(cuts), len(FORM)]
    pieces = [FORM[start:end] for start, end in pairwise(places)]
    assert asyncio.run(read(*pieces)) == asyncio.run(read(FORM))


async def test_several_files_of_one_name_stay_apart() -> None:
    files = [part(content, 'form-data; name="f"; filename=""') for content in (b"1", b"", b"3")]
    form = await read(*files, b"--xyz--")
    assert form.files == {"f": [("", b"1"), ("", b""), ("", b"3")]}
    assert form.file("f") == b"1"
    assert await read(b"--xyz--") == Form({}, {})


async def test_what_stands_around_a_form_or_inside_a_file_is_not_looked_at() -> None:
    inner = FORM.replace(b"xyz", b"abc") * 100
    nested = part(inner, 'form-data; name="f"; filename="x"', "Content-Type: multipart/mixed")
    form = await read(nested + b"--xyz--" + FORM)
    assert form == Form({}, {"f": [("x", inner)]})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "cut short"),
        (FORM[:-4], "cut short"),
        (FORM[: len(FORM) // 2], "cut short"),
        (b'{"name": "Mai"}', "can't be read"),
        (FORM.replace(b"--xyz", b"--abc"), "can't be read"),
        (part(b"x", "form-data") + b"--xyz--", "a part of it has no name"),
        (part(b"x", 'attachment; name="a"') + b"--xyz--", "a part of it has no name"),
        (b"--xyz\r\n\r\nx\r\n--xyz--", "a part of it has no name"),
        (part(b"\xff\xfe") + b"--xyz--", "isn't UTF-8; a file needs a filename"),
        (part(b"x" * 10_001) + b"--xyz--", "more than 10000 bytes"),
        (part(b"x", "form-data; name=" + "x" * 5000) + b"--xyz--", "header"),
        (part(b"x", "form-data; name=a", *[f"x-{n}: y" for n in range(600)]), "header"),
        (part(b"x") * 21 + b"--xyz--", "more than 20 parts"),
        (part(b"x") * 10_000, "more than 20 parts"),
        (b"--xyz\r\nno colon\r\n\r\nx\r\n--xyz--", "can't be read"),
        (b"\r\n" * 1000, "can't be read"),
    ],
)
async def test_a_form_that_cannot_be_read_says_why(body: bytes, why: str) -> None:
    await refused(body, why)


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary=""',
        "multipart/form-data; boundary=" + "x" * 1000,
    ],
)
async def test_a_boundary_that_is_none_is_refused(kind: str) -> None:
    await refused(FORM, "can't be read", kind)


@pytest.mark.parametrize(
    "kind", ["", "application/json", "text/plain; boundary=xyz", "multipart/mixed; boundary=xyz"]
)
async def test_another_media_type_is_another_status(kind: str) -> None:
    with pytest.raises(RefusedError, match="multipart/form-data") as refusal:
        await read(FORM, kind=kind)
    assert refusal.value.status_code == 415


@given(st.binary(max_size=400), st.sampled_from([b"", b"--xyz\r\n", FORM[:60], FORM[:-12]]))
def test_random_bytes_are_refused(rest: bytes, start: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="can't be read"):
        asyncio.run(read(start + rest))


async def test_a_client_that_leaves_in_the_middle_is_gone() -> None:
    messages: list[Any] = [
        {"type": "http.request", "body": FORM[:80], "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None: ...

    scope = {"type": "http", "method": "POST", "path": "/"}
    headers = [(b"content-type", KIND.encode())]
    line = Line({**scope, "headers": headers}, receive, send, id="req-1")
    with pytest.raises(Left):
        await read_form(line, Limits())


# Over a socket


async def status(server: Live, data: Any, **headers: str) -> int:
    async with server.client.post(f"{server.url}/v1/voices", data=data, headers=headers) as reply:
        body = await reply.json()
        assert isinstance(body["error"]["message"], str)
        return reply.status


def form(clip: bytes, name: str = "mai") -> aiohttp.FormData:
    data = aiohttp.FormData()
    data.add_field("name", name)
    data.add_field("file", io.BytesIO(clip), filename="clip.wav", content_type="audio/wav")
    return data


async def test_a_recording_may_have_20_mb_and_no_more() -> None:
    async with live(Mimic()) as server:
        assert await status(server, form(bytes(20_000_001))) == 413
        assert await status(server, form(bytes(20_000_000))) == 400
        assert await status(server, form(bytes(30_000_000))) == 413

        async def endless() -> AsyncGenerator[bytes, None]:
            yield part(b"", 'form-data; name="file"; filename="x"')[:-2]
            while True:
                yield bytes(65_536)

        # Whoever doesn't stop sending may hear no more than that the connection is gone.
        with suppress(aiohttp.ClientConnectionError):
            assert await status(server, endless(), **{"content-type": KIND}) == 413
        assert server.house.enrolling == 0


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/voices", ("name", "file")),
        ("/v1/audio/voices", ("name", "audio_sample")),
        ("/api/voices", ("name", "file")),
        ("/v1/voices/add", ("name", "files")),
        ("/v1/references/add", ("id", "audio")),
    ],
)
async def test_no_recording_does_harm_at_any_door(path: str, names: tuple[str, str]) -> None:
    engine = Mimic()
    hostile = [
        b"",
        b"<html>",
        bytes(1_000_000),
        recording()[:-7],
        recording(seconds=130.0, rate=8_000),
        b"RIFF\xff\xff\xff\xffWAVEfmt \xff\xff\xff\xff" + bytes(3000),
        b"fLaC\0\0\0\x22" + b"\xff" * 3000,
        b"OggS" + b"\xff" * 3000,
        b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + bytes(3000),
        np.random.default_rng(0).bytes(100_000),
    ]
    async with live(engine) as server:
        for clip in hostile:
            data = aiohttp.FormData({names[0]: "mai", "text": "Hello."})
            data.add_field(names[1], io.BytesIO(clip), filename="../../../etc/passwd")
            async with server.client.post(
                server.url + path, data=data, headers={"accept": "application/json"}
            ) as reply:
                assert reply.status == 400
                assert reply.content_type == "application/json"
        async with server.client.post(
            server.url + path, data=b"x", headers={"content-type": "text/plain"}
        ) as reply:
            assert reply.status == 415
    assert engine.clips == []


async def test_a_form_that_does_not_come_is_given_up() -> None:
    async with live(Mimic(), limits=Limits(body_seconds=0.05, clip=1000)) as server:

        async def slow() -> AsyncGenerator[bytes, None]:
            yield FORM[:-10]
            await asyncio.sleep(10)

        assert await status(server, slow(), **{"content-type": KIND}) == 408


async def test_many_forms_at_once_hold_no_more_than_a_few_do() -> None:
    gate = asyncio.Event()
    async with live(Mimic(gate=gate), keys=["key-one-1"]) as server:
        key = {"authorization": "Bearer key-one-1"}
        clip = recording(seconds=2.0, rate=48_000)

        async def enrol(name: str) -> int:
            url = f"{server.url}/v1/voices"
            async with server.client.post(url, data=form(clip, name), headers=key) as reply:
                if reply.status == 429:
                    assert reply.headers["retry-after"] == "1"
                return reply.status

        tracemalloc.start()
        try:
            enrolling = [asyncio.create_task(enrol(f"mai {n}")) for n in range(20)]
            await server.until(lambda: sum(task.done() for task in enrolling) == 16)
            gate.set()
            assert sorted(await asyncio.gather(*enrolling)) == [200] * 4 + [429] * 16
            assert tracemalloc.get_traced_memory()[1] < 30_000_000
        finally:
            tracemalloc.stop()
        assert server.house.enrolling == 0


async def test_nobody_enrols_while_the_server_shuts_down_and_who_does_is_waited_for() -> None:
    gate = asyncio.Event()
    engine = Mimic(gate=gate)
    async with live(engine) as server:
        async with server.client.post(f"{server.url}/v1/voices", data=b"x") as reply:
            assert reply.status == 415
        url = f"{server.url}/v1/voices"
        enrolling = asyncio.create_task(server.client.post(url, data=form(recording())))
        await server.until(lambda: engine.learning)
        draining = asyncio.create_task(server.house.drain())
        await asyncio.sleep(0)
        assert await status(server, form(recording())) == 503
        assert not draining.done()
        gate.set()
        reply = await enrolling
        assert reply.status == 200
        await draining

"""Fish Audio's WebSocket: its messages, and what is none."""

from __future__ import annotations

import msgpack
import pytest

from tts_plugins.dialects.fish_socket import (
    Flush,
    Start,
    Stop,
    Text,
    read_message,
    write_audio,
    write_finish,
)
from tts_plugins.errors import InvalidRequestError


def test_events_are_read() -> None:
    request = {"text": "", "format": "pcm", "prosody": None}
    said = [
        {"event": "start", "request": request},
        {"event": "text", "text": "Xin chào"},
        {"event": "flush"},
        {"event": "stop"},
    ]
    assert [read_message(msgpack.packb(event)) for event in said] == [
        Start(request),
        Text("Xin chào"),
        Flush(),
        Stop(),
    ]


def test_bytes_on_the_wire_are_read() -> None:
    # {"event": "text", "text": "Hi"} as LiveKit's plugin sends it.
    assert read_message(bytes.fromhex("82a56576656e74a474657874a474657874a24869")) == Text("Hi")


def test_unknown_events_and_unknown_fields_do_not_matter() -> None:
    assert read_message(msgpack.packb({"event": "ping", "at": 3})) is None
    assert read_message(msgpack.packb({"event": "flush", "why": "now"})) == Flush()


@pytest.mark.parametrize(
    "nonsense",
    [
        '{"event": "flush"}',
        b"",
        b"\xc1",
        b"\x82\xa5event",
        b"\x81" * 100_000,
        b"\xdd\xff\xff\xff\xff" + b"\x01" * 10_000,
        b"\xdf\xff\xff\xff\xff",
        b"\xdc\x03\xe8" * 2_000,
        msgpack.packb("flush"),
        msgpack.packb(["flush"]),
        msgpack.packb({}),
        msgpack.packb({"event": 5}),
        msgpack.packb({1: "flush"}),
        msgpack.packb({"event": "text"}),
        msgpack.packb({"event": "text", "text": b"Hi"}),
        msgpack.packb({"event": "text", "text": None}),
        msgpack.packb({"event": "start"}),
        msgpack.packb({"event": "start", "request": "pcm"}),
        msgpack.packb({"event": "flush"}) * 2,
        b"\x81\xa5event\xa2\xff\xfe",
    ],
)
def test_what_is_no_event_is_refused_in_a_line(nonsense: bytes | str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read_message(nonsense)
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


def test_audio_is_bytes_and_comes_in_messages_that_clients_take() -> None:
    assert list(write_audio(b"")) == []
    messages = list(write_audio(bytes(100_000)))
    assert all(len(message) < 65_536 for message in messages)
    heard = [msgpack.unpackb(message) for message in messages]
    assert {said["event"] for said in heard} == {"audio"}
    assert [len(said["audio"]) for said in heard] == [48_000, 48_000, 4_000]


def test_a_finish_says_why() -> None:
    assert write_finish("stop") == b"\x82\xa5event\xa6finish\xa6reason\xa4stop"
    assert msgpack.unpackb(write_finish("error")) == {"event": "finish", "reason": "error"}

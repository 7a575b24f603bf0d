"""tts_plugins.server.sockets: what a client hears in the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.websockets import WebSocket

from tts_plugins.server.calls import Left
from tts_plugins.server.house import Limits
from tts_plugins.server.sockets import Socket, attend


async def test_who_sends_too_much_and_reads_nothing_is_told_when_it_reads() -> None:
    sent: list[Any] = []
    came, reads = asyncio.Event(), asyncio.Event()
    comes = [
        {"type": "websocket.connect"},
        {"type": "websocket.receive", "text": "x" * 900},
        {"type": "websocket.receive", "text": "x" * 900},
    ]

    async def receive() -> Any:
        if len(comes) == 1:
            came.set()
        return comes.pop(0)

    async def send(message: Any) -> None:
        if message["type"] != "websocket.accept":
            await reads.wait()
        sent.append(message)

    async def serve(socket: Socket) -> None:
        while True:
            await socket.send("audio")
            await asyncio.sleep(0)

    websocket = WebSocket({"type": "websocket", "headers": []}, receive, send)
    attending = asyncio.create_task(attend(websocket, Limits(body=1_500), serve))
    await came.wait()
    reads.set()
    await asyncio.wait_for(attending, 1)
    *_, last = sent
    assert (last["type"], last["code"]) == ("websocket.close", 1008)


async def test_each_of_several_that_speak_hears_that_the_client_is_gone() -> None:
    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        if message["type"] != "websocket.accept":
            raise OSError

    websocket = WebSocket({"type": "websocket", "headers": []}, receive, send)
    await websocket.accept()
    socket = Socket(websocket, Limits())
    for _ in range(2):
        with pytest.raises(Left):
            await socket.send("audio")
    await socket.close()

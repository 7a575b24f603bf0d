"""The app under other ASGI servers, which speak HTTP/2: all streams on one connection."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import h2.connection
import h2.events
import httpx
import pytest

APP = 'from tts_plugins.server import create_app\n\napp = create_app("tone")\n'
COMMANDS = {
    "hypercorn": "hypercorn --bind 127.0.0.1:{port} app:app",
    "granian": "granian --interface asgi --http 2 --host 127.0.0.1 --port {port} app:app",
}
LONG = " ".join(["word"] * 20)
"""4.8 s as a tone, and no more than 3 s of it are spoken ahead of the listener."""


@asynccontextmanager
async def served(command: str, folder: Path) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client with one connection to the app, over HTTP/2."""
    (folder / "app.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command.format(port=port).split()),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    client = httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        http1=False,
        http2=True,
        limits=httpx.Limits(max_connections=1),
        timeout=20,
    )
    try:
        async with asyncio.timeout(30), client:
            while not await is_ready(client):
                assert process.returncode is None
                await asyncio.sleep(0.05)
            yield client
    finally:
        process.terminate()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()


async def is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/ready")).status_code == 200
    except httpx.TransportError:
        return False


async def active(client: httpx.AsyncClient) -> int:
    return int((await client.get("/health")).json()["active"])


@asynccontextmanager
async def begun(
    url: httpx.URL, speech: Mapping[str, str]
) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
    """A stream that has begun, and what resets it. httpx only stops to read."""
    reader, writer = await asyncio.open_connection(url.host, url.port)
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    asked = [(":method", "POST"), (":path", "/v1/audio/speech"), (":scheme", "http")]
    connection.send_headers(1, [*asked, (":authority", url.netloc.decode())])
    connection.send_data(1, json.dumps(speech).encode(), end_stream=True)

    async def hang_up() -> None:
        connection.reset_stream(1)
        writer.write(connection.data_to_send())
        await writer.drain()

    heard = False
    while not heard:
        writer.write(connection.data_to_send())
        events = connection.receive_data(await reader.read(65_536))
        heard = any(isinstance(event, h2.events.DataReceived) for event in events)
    try:
        yield hang_up
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("server", ["hypercorn", "granian"])
async def test_http_2(server: str, tmp_path: Path) -> None:
    async with served(COMMANDS[server], tmp_path) as client:
        speech = {"model": "tts-1", "input": "Hi.", "voice": "alloy", "response_format": "pcm"}
        pcm = await client.post("/v1/audio/speech", json=speech)
        assert (pcm.http_version, pcm.status_code) == ("HTTP/2", 200)
        assert len(pcm.content) == 2 * 24_000 * 18 // 100

        wav = await client.post("/v1/tts", json={"text": "Hi.", "format": "wav"})
        assert (wav.status_code, wav.content[:4]) == (200, b"RIFF")

        path = "/v1/text-to-speech/tone/stream/with-timestamps"
        lines = await client.post(path, json={"text": "Hi."}, params={"output_format": "pcm_24000"})
        assert lines.status_code == 200
        assert "audio_base64" in json.loads(lines.content.splitlines()[0])

        refused = await client.post("/v1/audio/speech", json={**speech, "voice": "nobody"})
        assert refused.status_code == 400

        own = str(client.base_url).rstrip("/")
        assert (await client.get("/health", headers={"origin": own})).status_code == 200
        assert (await client.get("/health", headers={"origin": "http://a.b"})).status_code == 403

        replies = await asyncio.gather(
            *(client.post("/v1/audio/speech", json=speech) for _ in range(20))
        )
        assert [len(reply.content) for reply in replies] == [len(pcm.content)] * 20

        async with begun(client.base_url, {**speech, "input": LONG}) as hang_up:
            assert await active(client) == 1
            await hang_up()
            async with asyncio.timeout(1):
                while await active(client):  # noqa: ASYNC110  it is asked over the network
                    await asyncio.sleep(0.01)

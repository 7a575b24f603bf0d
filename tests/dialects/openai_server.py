"""What servers of OpenAI's dialect answer with: a tone of 440 Hz in every guise it was seen in."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.servers import Answer, Call, Line, Server, serving
from tts_plugins.engine import Engine
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest

SPEECH = "/v1/audio/speech"
CAPTIONED = "/dev/captioned_speech"


@dataclass(frozen=True)
class Reply:
    """A reply to a request for speech, cut as its pieces are."""

    pieces: Sequence[bytes]
    headers: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200

    @property
    def answer(self) -> Answer:
        async def answer(line: Line, call: Call) -> None:
            line.head(self.status, **self.headers)
            for piece in self.pieces:
                await line.chunk(piece)
            line.end()

        return answer


@asynccontextmanager
async def speaking(reply: Callable[[Call], Reply] | Reply) -> AsyncGenerator[Server, None]:
    """A server that speaks as told, knows no voices, and has nothing else."""

    async def answer(line: Line, call: Call) -> None:
        if call.path in (SPEECH, CAPTIONED):
            await (reply if isinstance(reply, Reply) else reply(call)).answer(line, call)
        else:
            line.json(404, {"detail": "Not Found"})

    async with serving(answer) as server:
        yield server


def sine(rate: int, seconds: float = 1.0) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(round(rate * seconds)) / rate)


def s16(rate: int = 24_000, seconds: float = 1.0) -> bytes:
    return (sine(rate, seconds) * 32767).astype("<i2").tobytes()


def cut(body: bytes, size: int = 4_801) -> list[bytes]:
    """A body in pieces; an odd size cuts samples in two."""
    return [body[start : start + size] for start in range(0, len(body), size)]


def audio(body: bytes, media_type: str, **headers: str) -> Reply:
    return Reply(cut(body), {"content_type": media_type, **headers})


def wav(rate: int = 24_000, *, riff: int = 0xFFFFFFFF, data: int = 0xFFFFFFFF) -> bytes:
    """As OpenAI and VieNeu's server send it: 44 bytes, and sizes that say nothing."""
    head = struct.pack("<4sI4s4sIHHII", b"RIFF", riff, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate)
    return head + struct.pack("<HH4sI", 2, 16, b"data", data) + s16(rate)


def wav_of_ffmpeg(rate: int = 24_000) -> bytes:
    """As Kokoro-FastAPI sends it: ffmpeg puts its name in front, so samples begin at 78."""
    name = (
        b"LIST" + struct.pack("<I", 26) + b"INFOISFT" + struct.pack("<I", 13) + b"Lavf61.7.100\0\0"
    )
    body = wav(rate)
    return body[:36] + name + body[36:]


def wav_of_floats(rate: int = 44_100) -> bytes:
    """Two channels of float32, with an extensible header."""
    channel = sine(rate).astype("<f4")
    both = np.stack([channel, channel], axis=1).tobytes()
    tag = struct.pack("<HHIIHH", 0xFFFE, 2, rate, 8 * rate, 8, 32)
    guid = struct.pack("<H", 3) + bytes.fromhex("000000001000800000aa00389b71")
    fmt = tag + struct.pack("<HHI", 22, 32, 3) + guid
    rest = b"WAVEfmt " + struct.pack("<I", 40) + fmt + b"data" + struct.pack("<I", len(both)) + both
    return b"RIFF" + struct.pack("<I", len(rest)) + rest


def encoded(codec: str, container: str, rate: int = 24_000) -> bytes:
    """As Kokoro-FastAPI encodes it."""
    import av

    file = io.BytesIO()
    # Without an ID3 in front, by which anybody would know it.
    options = {"write_xing": "0", "id3v2_version": "0"} if container == "mp3" else {}
    with av.open(file, "w", format=container, options=options) as output:
        stream: Any = output.add_stream(codec, rate=rate, layout="mono")
        stream.bit_rate = 128_000
        pcm = np.frombuffer(s16(rate), "<i2").reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(pcm, format="s16", layout="mono")
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


def events(body: bytes, *, key: str = "audio", done: bool = True, size: int = 9_600) -> Reply:
    """``stream_format: sse``, cut without regard to its events."""
    deltas = [
        {"type": "speech.audio.delta", key: base64.b64encode(piece).decode()}
        for piece in cut(body, size)
    ]
    usage = {"input_tokens": 14, "output_tokens": 101, "total_tokens": 115}
    said = [*deltas, {"type": "speech.audio.done", "usage": usage}] if done else deltas
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in said)
    return audio(text.encode(), "text/event-stream; charset=utf-8")


def caption(pcm: bytes, *stamps: tuple[str, float, float], **other: object) -> bytes:
    """A line of Kokoro-FastAPI's captioned speech, byte for byte as it writes them."""
    line = {
        "audio": base64.b64encode(pcm).decode(),
        "audio_format": "audio/pcm",
        "timestamps": [{"word": w, "start_time": s, "end_time": e} for w, s, e in stamps],
    } | other
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def captions(*lines: bytes) -> Reply:
    headers = {"content_type": "application/json", "content_disposition": "attachment"}
    return Reply(cut(b"".join(lines)), headers)


async def spoken(engine: Engine, request: SynthesisRequest) -> list[AudioChunk]:
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def joined(chunks: Sequence[AudioChunk]) -> tuple[Samples, int]:
    """All samples, and their one rate."""
    [rate] = {chunk.sample_rate for chunk in chunks}
    return np.concatenate([chunk.samples for chunk in chunks]), rate

"""What is told beside an answer, at every door."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.live import live

SPOKEN = {"text": "Hi."}

SPEECH: dict[str, Any] = {
    "/v1/audio/speech": {"json": {"input": "Hi.", "voice": "alloy"}},
    "/dev/captioned_speech": {"json": {"input": "Hi.", "voice": "alloy"}},
    "/v1/text-to-speech/tone": {"json": SPOKEN},
    "/v1/text-to-speech/tone/stream": {"json": SPOKEN},
    "/v1/text-to-speech/tone/with-timestamps": {"json": SPOKEN},
    "/v1/text-to-speech/tone/stream/with-timestamps": {"json": SPOKEN},
    "/elevenlabs/v1/text-to-speech/tone": {"json": SPOKEN},
    "/v1/tts": {"json": SPOKEN},
    "/v1/tts?": {"json": SPOKEN, "headers": {"model": "s1"}},
    "/api/speech": {"json": SPOKEN},
    "/synthesize": {"json": SPOKEN},
    "/": {"json": SPOKEN},
}

LISTS = [
    "/v1/models",
    "/v1/models/tone",
    "/v1/voices",
    "/v1/audio/voices",
    "/v2/voices",
    "/v1/voices/tone",
    "/v1/user",
    "/v1/user/subscription",
    "/elevenlabs/v1/voices",
    "/elevenlabs/v1/models",
    "/v1/references/list",
    "/model",
    "/model/tone",
    "/api/voices",
    "/api/engines",
    "/health",
    "/ready",
    "/v1/health",
    "/metrics",
]


@pytest.mark.parametrize(
    ("method", "path"),
    [*(("POST", path) for path in SPEECH), *(("GET", path) for path in LISTS)],
)
async def test_every_answer_has_a_number_of_its_own(method: str, path: str) -> None:
    asked = SPEECH[path] if method == "POST" else {}
    numbers = []
    async with live() as server:
        for _ in range(2):
            async with server.client.request(method, server.url + path, **asked) as reply:
                assert reply.status == 200
                numbers.append(reply.headers["x-request-id"])
                assert reply.headers["request-id"] == numbers[-1]
    assert all(number.startswith("req-") for number in numbers)
    assert numbers[0] != numbers[1]


async def test_a_number_is_the_one_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tts_plugins.requests")
    async with live() as server:
        _, headers, _ = await server.ask("/v1/tts", SPOKEN)
        await server.until(lambda: caplog.messages)
    assert f"id={headers['x-request-id']} dialect=fish " in caplog.messages[-1]

"""Speech over HTTP, whatever the dialect."""

from __future__ import annotations

import numpy as np

from tests.hearing import pitch
from tests.server.live import live, tones


async def test_pcm_is_spoken_at_24_khz_whatever_the_engine_has() -> None:
    for rate in (24_000, 44_100, 48_000):
        async with live(tones(sample_rate=rate)) as server:
            status, headers, body = await server.ask(
                "/v1/audio/speech",
                {
                    "model": "tts-1",
                    "input": "Hello there.",
                    "voice": "alloy",
                    "response_format": "pcm",
                },
            )
        assert status == 200
        assert headers["x-sample-rate"] == "24000"
        assert len(body) == 2 * round(0.06 * 11 * 24_000)
        assert abs(pitch(body, 24_000) - 440) < 2
        assert np.frombuffer(body, "<i2").max() > 6000

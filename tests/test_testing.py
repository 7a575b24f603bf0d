from __future__ import annotations

import math
from collections.abc import Generator, Sequence

import numpy as np
import pytest

from tts_plugins.engine import BlockingEngine
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.registry import open_engine
from tts_plugins.scheduler import Scheduler
from tts_plugins.testing import check_engine
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice


async def failures(engine: BlockingEngine) -> set[str]:
    scheduler = Scheduler(engine, max_ahead=math.inf)
    checks = await check_engine(scheduler)
    await scheduler.aclose()
    return {check.name for check in checks if not check.passed}


@pytest.mark.parametrize("name", ["tone", "hibari"])
async def test_our_engines_keep_the_contract(name: str) -> None:
    engine = open_engine(name, max_ahead=math.inf)
    checks = await check_engine(engine)
    await engine.aclose()
    assert [str(check) for check in checks if not check.passed] == []


async def test_an_engine_that_takes_anything_is_told_so() -> None:
    class Careless(ToneEngine):
        def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            return super().synthesize(SynthesisRequest(request.text or "x"))

    assert await failures(Careless()) == {
        "an absurd speed is refused",
        "an unknown option is refused",
        "an unknown voice is refused",
        "speed changes the length",
    }


async def test_wrong_samples_are_seen() -> None:
    class Integers(ToneEngine):
        def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            for chunk in super().synthesize(request):
                yield AudioChunk((chunk.samples * 32767).astype(np.int16), 24000)

    assert "samples are mono float32 in range and of one rate" in await failures(Integers())


async def test_words_that_come_late_are_seen() -> None:
    class Late(ToneEngine):
        def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            chunks = list(super().synthesize(request))
            words = tuple(word for chunk in chunks for word in chunk.words)
            for chunk in chunks[:-1]:
                yield AudioChunk(chunk.samples, 24000)
            yield AudioChunk(chunks[-1].samples, 24000, words)

    assert await failures(Late()) == {"words stand in the text and come in time"}


async def test_an_engine_that_breaks_fails_its_checks_and_not_the_checker() -> None:
    class Broken:
        def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            raise RuntimeError("no luck")
            yield

        def voices(self) -> Sequence[Voice]:
            return []

        def close(self) -> None:
            pass

    assert len(await failures(Broken())) > 8

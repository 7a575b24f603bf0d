"""What is kept of a request, and that its text isn't."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes import tone
from tests.server.live import Live, live, tones
from tts_plugins.server.ledger import Ledger, Record, Spans
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

SECRET = "Meet me at midnight."
LONG = " ".join(["secret"] * 40)


class Failing:
    """Speaks a little, and then breaks."""

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        async for chunk in tones().stream(SynthesisRequest("ab")):
            yield chunk
        raise RuntimeError("the engine broke")

    async def voices(self) -> Sequence[Voice]:
        return [Voice("failing", "und")]

    async def aclose(self) -> None:
        pass


def said(text: str, **more: object) -> dict[str, object]:
    return {"input": text, "voice": "alloy", "response_format": "pcm", **more}


async def speak(server: Live, text: str = SECRET, **headers: str) -> None:
    status, _, _ = await server.ask("/v1/audio/speech", said(text), **headers)
    assert status == 200


async def leave(server: Live) -> None:
    """Hang up in the middle."""
    url = f"{server.url}/v1/audio/speech"
    async with server.client.post(url, json=said(LONG)) as reply:
        await reply.content.readexactly(2)
        reply.close()
    await server.until(lambda: not server.house.admission.active)


async def numbers(server: Live) -> dict[str, float]:
    async with server.client.get(f"{server.url}/metrics") as reply:
        assert reply.headers["content-type"].startswith("text/plain; version=")
        lines = (await reply.text()).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def test_numbers_of_requests_that_ended_well_or_not() -> None:
    async with live(tones(max_ahead=0.5), max_streams=7) as server:
        await speak(server)
        await leave(server)
        assert (await server.ask("/v1/audio/speech", said("Hi.", voice="nobody")))[0] == 400
        found = await numbers(server)
    which = 'dialect="openai",engine="tone"'
    assert found[f'tts_requests_total{{{which},outcome="finished"}}'] == 1
    assert found[f'tts_requests_total{{{which},outcome="cancelled"}}'] == 1
    assert found[f'tts_requests_total{{{which},outcome="VoiceNotFoundError"}}'] == 1
    assert found['tts_errors_total{dialect="openai",kind="VoiceNotFoundError"}'] == 1
    assert found[f"tts_cancellations_total{{{which}}}"] == 1
    assert found[f"tts_characters_total{{{which}}}"] == len(SECRET) + len(LONG)
    assert found[f"tts_first_audio_seconds_count{{{which}}}"] == 2
    assert found[f'tts_first_audio_seconds_bucket{{{which},le="1.0"}}'] == 2
    seconds = found[f"tts_audio_seconds_total{{{which}}}"]
    assert 0.06 * 17 + 0.3 < seconds < 0.06 * 17 + 2
    assert (found["tts_streams_active"], found["tts_streams_waiting"], found["tts_slots"]) == (
        0,
        0,
        7,
    )


async def test_a_server_has_numbers_of_its_own() -> None:
    async with live() as one, live() as other:
        await speak(one)
        name = 'tts_requests_total{dialect="openai",engine="tone",outcome="finished"}'
        assert (await numbers(one))[name] == 1
        assert name not in await numbers(other)


async def test_a_listener_that_ran_out_of_audio_is_counted() -> None:
    ledger = Ledger()
    ledger.enter(Record("r", "openai", engine="tone", seconds=2.0, stalled=0.5))
    ledger.enter(Record("r", "openai", engine="tone", seconds=2.0))
    _, page = ledger.page()
    assert b'tts_underruns_total{dialect="openai",engine="tone"} 1.0' in page
    assert b'tts_underrun_seconds_total{dialect="openai",engine="tone"} 0.5' in page


class Pausing:
    """Says a second, thinks for three, and says another."""

    def __init__(self, now: list[float]) -> None:
        self._now = now

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        yield tone(1.0)
        self._now[0] += 3.0
        yield tone(1.0)

    async def voices(self) -> Sequence[Voice]:
        return []

    async def aclose(self) -> None:
        pass


async def test_a_pause_of_the_engine_is_an_underrun_and_how_long_it_was() -> None:
    now = [0.0]
    async with live(Pausing(now), clock=lambda: now[0]) as server:
        await speak(server)
        found = await numbers(server)
    which = 'dialect="openai",engine="pausing"'
    assert found[f"tts_underruns_total{{{which}}}"] == 1
    assert found[f"tts_underrun_seconds_total{{{which}}}"] == 2


async def test_prometheus_own_reader_takes_the_page() -> None:
    async with live(tones(max_ahead=0.5), max_streams=7) as server:
        await speak(server)
        await server.ask("/v1/audio/speech", said("Hi.", voice='no"body\\\n'))
        async with server.client.get(f"{server.url}/metrics") as reply:
            page = await reply.text()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    kinds = {name: each.type for name, each in families.items() if not name.endswith("_created")}
    assert kinds == {
        "tts_requests": "counter",
        "tts_errors": "counter",
        "tts_cancellations": "counter",
        "tts_characters": "counter",
        "tts_audio_seconds": "counter",
        "tts_underruns": "counter",
        "tts_underrun_seconds": "counter",
        "tts_first_audio_seconds": "histogram",
        "tts_streams_active": "gauge",
        "tts_streams_waiting": "gauge",
        "tts_slots": "gauge",
    }
    assert all(family.documentation.endswith(".") for family in families.values())
    (slots,) = families["tts_slots"].samples
    assert (slots.labels, slots.value) == ({}, 7)
    finished, refused = (s for s in families["tts_requests"].samples if s.name[-6:] == "_total")
    assert finished.labels == {"engine": "tone", "dialect": "openai", "outcome": "finished"}
    assert refused.labels["outcome"] == "VoiceNotFoundError"


async def test_one_line_for_each_request_and_its_text_in_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with live(tones(max_ahead=0.5)) as server:
        await speak(server)
        await leave(server)
        await server.ask("/v1/audio/speech", said("A secret.", speed="secret"))
        await server.ask("/v1/audio/speech", said("secret" * 2_000))
        await server.ask("/v1/audio/speech", [SECRET])
    lines = [r.getMessage() for r in caplog.records if r.name == "tts_plugins.requests"]
    told = [dict(pair.split("=", 1) for pair in line.split()) for line in lines]
    assert [(each["status"], each["outcome"]) for each in told] == [
        ("200", "finished"),
        ("200", "cancelled"),
        ("400", "InvalidRequestError"),
        ("400", told[3]["outcome"]),
        ("400", "InvalidRequestError"),
    ]
    assert told[0] | {"id": "", "first_audio": "", "took": ""} == {
        "id": "",
        "dialect": "openai",
        "engine": "tone",
        "voice": "alloy",
        "format": "audio/pcm",
        "characters": "20",
        "status": "200",
        "outcome": "finished",
        "first_audio": "",
        "audio": "1.020",
        "stalled": "0.000",
        "took": "",
        "key": "-",
    }
    for word in ("midnight", "secret"):
        assert word not in caplog.text.lower()


async def test_an_engine_that_breaks_is_in_the_log_without_what_it_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with live(Failing()) as server:
        with pytest.raises(Exception, match="payload"):
            await server.ask("/v1/audio/speech", said(SECRET))
        await server.until(lambda: "outcome=EngineError" in caplog.text)
    assert "the engine broke" in caplog.text
    assert "midnight" not in caplog.text


def test_a_line_can_be_taken_apart_whatever_clients_put_into_it() -> None:
    record = Record("req-1", "openai", voice='a "b"\ninjected id=req-2', engine="")
    line = record.line()
    assert "\n" not in line
    assert 'voice="a \\"b\\"\\ninjected id=req-2" ' in line
    assert 'engine="" ' in line


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


async def test_a_span_for_each_request_inside_the_callers_own(spans: InMemorySpanExporter) -> None:
    async with live(tones(max_ahead=0.5)) as server:
        await speak(server, traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
        await leave(server)
        await server.ask("/v1/audio/speech", said(SECRET, voice="nobody"))
    finished, cancelled, failed = spans.get_finished_spans()
    assert finished.name == "tts.speech"
    assert finished.kind is trace.SpanKind.SERVER
    assert finished.parent is not None
    assert f"{finished.parent.trace_id:x} {finished.parent.span_id:x}" == f"{'a' * 32} {'b' * 16}"
    attributes = dict(finished.attributes or {})
    assert str(attributes.pop("tts.request_id")).startswith("req-")
    assert round(float(str(attributes.pop("tts.audio_seconds"))), 2) == 1.02
    assert attributes == {
        "tts.dialect": "openai",
        "tts.engine": "tone",
        "tts.voice": "alloy",
        "tts.format": "audio/pcm",
        "tts.characters": 20,
        "tts.outcome": "finished",
        "http.response.status_code": 200,
    }
    assert [event.name for event in finished.events] == ["first_audio"]
    assert status(finished) == (trace.StatusCode.UNSET, None)
    assert status(cancelled) == (trace.StatusCode.UNSET, None)
    assert status(failed) == (trace.StatusCode.ERROR, "VoiceNotFoundError")
    assert not failed.events
    assert "midnight" not in "".join(span.to_json() for span in spans.get_finished_spans())


def status(span: ReadableSpan) -> tuple[trace.StatusCode, str | None]:
    return span.status.status_code, span.status.description


async def test_without_opentelemetry_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert Spans().start(Record("r", "openai"), {}) is None
    async with live() as server:
        await speak(server, traceparent=f"00-{'a' * 32}-{'b' * 16}-01")

"""What is kept of a request: numbers for Prometheus, a line in the log, a span. Never its text."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

logger = logging.getLogger("tts_plugins.requests")

_BUCKETS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10)


@dataclass(slots=True)
class Record:
    """One request on its way; its fields are filled in as they become known."""

    id: str
    dialect: str
    caller: str = "-"
    engine: str = "-"
    voice: str = "-"
    format: str = "-"
    characters: int = 0
    status: int = 0
    """Of the reply; 101 for what is said on a WebSocket."""
    outcome: str = "finished"
    """Or ``cancelled``, because the client left, or the name of an error."""
    first_audio: float | None = None
    """Seconds from the request to its first samples."""
    seconds: float = 0.0
    """Audio given to the client."""
    stalled: float = 0.0
    """Seconds for which a listener had run out of audio."""
    took: float = 0.0
    """Seconds from the request to its end."""

    def line(self) -> str:
        """The request as ``name=value`` pairs."""
        first = "-" if self.first_audio is None else f"{self.first_audio:.3f}"
        fields = {
            "id": self.id,
            "dialect": self.dialect,
            "engine": self.engine,
            "voice": self.voice,
            "format": self.format,
            "characters": self.characters,
            "status": self.status,
            "outcome": self.outcome,
            "first_audio": first,
            "audio": f"{self.seconds:.3f}",
            "stalled": f"{self.stalled:.3f}",
            "took": f"{self.took:.3f}",
            "key": self.caller,
        }
        return " ".join(f"{name}={_word(value)}" for name, value in fields.items())


class Ledger:
    """Keeps count of requests.

    Every app has numbers of its own. Several processes of one server add theirs up where
    ``PROMETHEUS_MULTIPROC_DIR`` names a folder, as prometheus-client has it.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        which = ("engine", "dialect")

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"tts_{name}", about, labels, registry=self._registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"tts_{name}", about, registry=self._registry, multiprocess_mode="livesum")

        self._first_audio = Histogram(
            "tts_first_audio_seconds",
            "From the request to its first samples.",
            which,
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._requests = counter("requests", "Requests, by how they ended.", *which, "outcome")
        self._errors = counter("errors", "Requests that failed or were refused.", "kind", "dialect")
        self._cancelled = counter("cancellations", "Clients that left before the end.", *which)
        self._characters = counter("characters", "Of text to speak.", *which)
        self._audio = counter("audio_seconds", "Audio given to clients.", *which)
        self._underruns = counter("underruns", "Requests whose listener ran out of audio.", *which)
        self._stalled = counter("underrun_seconds", "For how long they had none.", *which)
        self._active = gauge("streams_active", "Streams open now.")
        self._waiting = gauge("streams_waiting", "Of these, those without their first audio yet.")
        self._slots = gauge("slots", "Streams that may be open at once.")

    def level(self, *, active: int, waiting: int, slots: int) -> None:
        """How many streams there are now, and may be."""
        self._active.set(active)
        self._waiting.set(waiting)
        self._slots.set(slots)

    def enter(self, record: Record) -> None:
        """Count a request that is over, and write its line."""
        which = (record.engine, record.dialect)
        self._requests.labels(*which, record.outcome).inc()
        if record.outcome == "cancelled":
            self._cancelled.labels(*which).inc()
        elif record.outcome != "finished":
            self._errors.labels(record.outcome, record.dialect).inc()
        if record.first_audio is not None:
            self._first_audio.labels(*which).observe(record.first_audio)
        if record.seconds:
            self._audio.labels(*which).inc(record.seconds)
            self._characters.labels(*which).inc(record.characters)
        if record.stalled:
            self._underruns.labels(*which).inc()
            self._stalled.labels(*which).inc(record.stalled)
        logger.info("%s", record.line())

    def page(self) -> tuple[str, bytes]:
        """The media type and the text that Prometheus reads."""
        registry = self._registry
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return CONTENT_TYPE_LATEST, generate_latest(registry)


class Spans:
    """OpenTelemetry's spans, where that is installed; nothing where it isn't."""

    def __init__(self) -> None:
        try:
            from opentelemetry import propagate, trace
        except ImportError:
            self._tracer: Any = None
        else:
            self._tracer = trace.get_tracer("tts_plugins")
            self._propagate, self._trace = propagate, trace

    def start(self, record: Record, headers: Mapping[str, str]) -> Any:
        """A span inside the one that the headers name; None without OpenTelemetry."""
        if self._tracer is None:
            return None
        return self._tracer.start_span(
            "tts.speech",
            context=self._propagate.extract(headers),
            kind=self._trace.SpanKind.SERVER,
            attributes={"tts.request_id": record.id, "tts.dialect": record.dialect},
        )

    def heard(self, span: Any) -> None:
        """The first samples are there."""
        if span is not None:
            span.add_event("first_audio")

    def end(self, span: Any, record: Record) -> None:
        if span is None:
            return
        span.set_attributes(
            {
                "tts.engine": record.engine,
                "tts.voice": record.voice,
                "tts.format": record.format,
                "tts.characters": record.characters,
                "tts.audio_seconds": record.seconds,
                "tts.outcome": record.outcome,
                "http.response.status_code": record.status,
            }
        )
        if record.outcome not in ("finished", "cancelled"):
            span.set_status(self._trace.StatusCode.ERROR, record.outcome)
        span.end()


def _word(value: object) -> str:
    """A value of which a reader of the log can tell where it ends."""
    text = str(value)
    plain = text.isprintable() and not any(c in text for c in ' ="\\')
    return (
        text
        if plain and text
        else '"' + text.encode("unicode_escape").decode().replace('"', '\\"') + '"'
    )

"""An engine at the other end of HTTP, in any dialect.

Time limits are about progress: to connect, to the first audio, from there to more of it. How long
an utterance takes in all is nobody's business.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import math
import random
import re
from collections.abc import (
    AsyncGenerator,
    Collection,
    Generator,
    Iterator,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from tts_plugins.errors import MissingDependencyError

try:
    import aiohttp
except ModuleNotFoundError as error:
    raise MissingDependencyError("remote") from error

from tts_plugins.audio.wav import wav_file
from tts_plugins.connections import Connections
from tts_plugins.dialects.base import (
    Clip,
    CloningDialect,
    Dialect,
    HttpCall,
    HttpReply,
    ReplyReader,
    one_line,
)
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    RemoteError,
    RemoteTimeoutError,
    TTSError,
    UnreachableError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.limiter import Limiter
from tts_plugins.text.words import speakable
from tts_plugins.types import AudioChunk, Reference, SynthesisRequest, Voice

_PAUSE = 0.1
"""Seconds before a request is repeated; twice as many the next time."""

_LONGEST_PAUSE = 2.5
"""Seconds that all pauses before a request is repeated may take together. Beyond that it is better
known at once that the server is busy: another engine may be free, and nobody listens for longer."""

_SLOWEST = 10.0
"""Seconds that may pass for a second of audio, in the long run: slower is as good as silent."""

_PIECE = 8192
"""Bytes of a reply that are read at once: 170 ms of PCM at 24 kHz."""

_ANSWER = 16_000_000
"""Bytes of an answer that isn't audio."""

_SECRET = 8
"""Characters of a key that give something away."""

_ENROLMENT = 120.0
"""Seconds that a server may take to learn a voice."""


class RemoteEngine:
    """Speaks through a server. Any number of event loops may use it; each has its connections.

    Closing a stream closes its connection, which is how a server learns of a barge-in. Requests
    that ended leave theirs open for the next.

    Args:
        dialect: How the server is spoken to.
        url: Its address: ``http://host:port``, ``https://host``, or ``unix:///run/tts.sock``. The
            path may end in ``/v1`` or not.
        voice: Voice of requests that name none.
        api_key: Sent in the dialect's own header, and nowhere else.
        session: Your own aiohttp session, for proxies and the like. It stays yours to close.
        max_in_flight: Requests at a time; more wait, the most urgent first. ``None`` is what the
            dialect knows about its server.
        per_second: Requests let in within a second; more wait. Repeated ones aren't counted.
        retries: How often a request is repeated that failed before its first audio.
        connect_timeout: Seconds to connect, with TLS.
        first_audio_timeout: Seconds from asking to the first audio.
        idle_timeout: Seconds without audio after that.
        name: What errors call it; its address if ``None``.

    Raises:
        InvalidRequestError: If the address, the key or a setting can't be one.
    """

    def __init__(
        self,
        dialect: Dialect,
        url: str,
        *,
        voice: str | None = None,
        api_key: str | None = None,
        session: aiohttp.ClientSession | None = None,
        max_in_flight: int | None = None,
        per_second: float | None = None,
        retries: int = 3,
        connect_timeout: float = 5.0,
        first_audio_timeout: float = 10.0,
        idle_timeout: float = 10.0,
        name: str | None = None,
    ) -> None:
        if max_in_flight is None:
            max_in_flight = dialect.max_in_flight
        if retries < 0:
            raise InvalidRequestError(f"retries can't be {retries}")
        _above_0(max_in_flight=max_in_flight, per_second=per_second)
        _above_0(connect_timeout=connect_timeout, idle_timeout=idle_timeout)
        _above_0(first_audio_timeout=first_audio_timeout)
        self._base, self._socket = _address(url)
        if self._socket and session:
            raise InvalidRequestError("a session of your own brings its own Unix socket")
        self._key = _key(api_key)
        self.name = name or url
        self._dialect = dialect
        self._voice = voice
        self._given = session
        self._limiter = Limiter(in_flight=max_in_flight, per_second=per_second)
        self._retries = retries
        self._connect_timeout = connect_timeout
        self._first_audio_timeout = first_audio_timeout
        self._idle_timeout = idle_timeout
        self._connections: dict[asyncio.AbstractEventLoop, Connections] = {}
        self._closed = False
        self._ids: dict[str, str] = {}
        """Names of voices, and what the server calls them."""

    def __repr__(self) -> str:
        return f"RemoteEngine({self.name!r})"

    @property
    def request_options(self) -> Collection[str] | None:
        """The options of a request that the dialect knows; ``None`` where the server judges."""
        return getattr(self._dialect, "request_options", ())

    @property
    def can_clone(self) -> bool:
        """Whether the dialect has a way to."""
        return callable(getattr(self._dialect, "write_clone", None))

    def called(self, voice: str) -> str:
        """What the server calls a voice, by which another process may ask for it."""
        return self._ids.get(voice, voice)

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        if not speakable(request.text):
            raise UnspeakableTextError(f"nothing to say in {len(request.text)} characters")
        heard = False
        pauses = 0.0
        # Held while it waits to ask again: this listener came first, and whoever got in instead
        # would be refused as well.
        async with self._limiter.slot(due=request.due):
            for attempt in range(self._retries + 1):
                try:
                    async with aclosing(self._speak(await self._addressed(request))) as chunks:
                        async for chunk in chunks:
                            heard = True
                            yield chunk
                except TTSError as error:
                    pause = _pause(error, attempt)
                    if heard or pause is None or attempt == self._retries or self._is_closed:
                        raise
                    pauses += pause
                    if pauses > _LONGEST_PAUSE:
                        raise
                    await (await self._here()).rest(pause)
                else:
                    return

    async def voices(self) -> Sequence[Voice]:
        names: dict[str, list[str]] = {}
        for name, known in self._ids.items():
            if name != known:
                names.setdefault(known, []).append(name)
        # Under the names that were given here to those that were cloned here.
        return [
            replace(voice, id=name)
            for voice in await self._all()
            for name in names.get(voice.id, [voice.id])
        ]

    async def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
        """Enrol a recording under ``name``, by which requests to this engine may then ask for it.

        A recording that the server was given earlier isn't sent again, by any process.

        Args:
            name: What to call the voice.
            reference: A path to an audio file, the bytes of one, or samples.
            transcript: What is said in it, for servers that need to know.

        Raises:
            InvalidRequestError: If this server can't clone, or not that.
            RemoteError: If it refuses to.
        """
        if not self.can_clone:
            raise InvalidRequestError(f"{self.name} has no way to clone a voice")
        dialect = cast("CloningDialect", self._dialect)
        clip = await _clip(reference, transcript)
        async with (await self._here()).cloning:
            voice = dialect.find_clone(name, clip, await self._all())
            if voice is None:
                with self._translated():
                    reply = await self._fetch(dialect.write_clone(name, clip), _ENROLMENT)
                if reply.status == 409:  # another process was faster
                    voice = dialect.find_clone(name, clip, await self._all())
            if voice is None:
                with self._translated():
                    voice = dialect.read_clone(name, clip, self._checked(reply))
        self._ids[name] = self._ids[voice.id] = voice.id
        return replace(voice, id=name)

    async def prewarm(self) -> None:
        """Have a connection open, so that the first request doesn't pay for it.

        Raises:
            UnreachableError: If there is no server.
        """
        with self._translated():
            await self._fetch(self._dialect.write_ping())

    async def aclose(self) -> None:
        """End all streams and close the connections, of every event loop."""
        self._closed = True
        here = asyncio.get_running_loop()
        for loop, connections in list(self._connections.items()):
            if loop is here or loop.is_closed():
                await connections.aclose()
            elif loop.is_running():
                with suppress(RuntimeError):  # it stopped just now
                    asyncio.run_coroutine_threadsafe(connections.aclose(), loop)
            self._connections.pop(loop, None)

    @property
    def _is_closed(self) -> bool:
        return self._closed or (self._given is not None and self._given.closed)

    async def _addressed(self, request: SynthesisRequest) -> SynthesisRequest:
        """The request, with the voice as the server calls it."""
        voice = request.voice or self._voice
        if voice is None:
            return request
        if voice not in self._ids and self._dialect.accepts_any_voice:
            # This server would speak with some other voice, and not say so.
            known = await self._listed()
            if known is not None and voice not in self._ids:
                raise VoiceNotFoundError(voice, [voice.id for voice in known])
        return replace(request, voice=self._ids.get(voice, voice))

    async def _all(self) -> Sequence[Voice]:
        """The voices, as the server calls them."""
        listed = await self._listed()
        return self._dialect.read_voices(None) if listed is None else listed

    async def _listed(self) -> Sequence[Voice] | None:
        """The voices that the server lists, which may be none; None if it can't list them."""
        with self._translated():
            for call in self._dialect.write_voices():
                reply = await self._fetch(call)
                if reply.status not in (404, 405):
                    voices = self._dialect.read_voices(self._checked(reply))
                    for voice in voices:
                        self._ids.setdefault(voice.id, voice.id)
                    return voices
        return None

    def _checked(self, reply: HttpReply) -> HttpReply:
        """The reply, if it isn't a refusal."""
        if not _is_ok(reply.status):
            raise self._dialect.read_error(reply)
        return reply

    async def _speak(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        """Ask once."""
        call = self._dialect.write_call(request)
        clock = asyncio.get_running_loop().time
        began = clock()
        heard = False
        with self._translated():
            async with self._send(
                call, self._first_audio_timeout, hear_out=self._dialect.hear_out
            ) as response:
                if not _is_ok(response.status):
                    raise _asked_where(await self._refusal(response, request), response)
                reader = self._dialect.read_reply(request, _head(response))
                patience = self._first_audio_timeout - (clock() - began)
                while True:
                    # The consumer's own time isn't counted. Bytes without audio are no progress.
                    began = clock()
                    data = await _next(response, patience, self._silent(heard))
                    patience -= clock() - began
                    for chunk in _chunks(reader, data):
                        if len(chunk.samples):
                            earned = _SLOWEST * chunk.seconds if heard else self._idle_timeout
                            patience = min(self._idle_timeout, patience + earned)
                            heard = True
                        yield chunk
                    if not data:
                        break
            if not heard:
                raise RemoteError("its answer has no audio in it")

    def _silent(self, heard: bool) -> str:
        if heard:
            return f"no audio for {self._idle_timeout:g} s (idle_timeout)"
        return f"no audio within {self._first_audio_timeout:g} s (first_audio_timeout)"

    async def _refusal(
        self, response: aiohttp.ClientResponse, request: SynthesisRequest
    ) -> TTSError:
        """Why the server answered with a status that isn't 2xx."""
        reply = await self._read(response, self._idle_timeout)
        error = self._dialect.read_error(reply, request)
        if isinstance(error, VoiceNotFoundError):
            with suppress(TTSError):  # then it is told without them
                known = await self.voices()
                asked = next((n for n, i in self._ids.items() if i == error.voice), error.voice)
                return VoiceNotFoundError(asked, [voice.id for voice in known])
        return error

    async def _fetch(self, call: HttpCall, timeout: float | None = None) -> HttpReply:
        """Ask for something that isn't audio, and wait for all of it."""
        timeout = timeout or self._first_audio_timeout
        async with self._send(call, timeout) as response:
            return await self._read(response, timeout)

    async def _read(self, response: aiohttp.ClientResponse, timeout: float) -> HttpReply:
        """All of an answer; of a refusal as much as there is, for its status says enough."""
        body = bytearray()
        try:
            async with _within(timeout, "it stopped answering"):
                async for data in response.content.iter_any():
                    body += data
                    if len(body) > _ANSWER:
                        raise ValueError(f"an answer of more than {_ANSWER} bytes")  # noqa: TRY301
        except (TimeoutError, aiohttp.ClientError, ValueError):
            if _is_ok(response.status):
                raise
        return replace(_head(response), body=bytes(body))

    @asynccontextmanager
    async def _send(
        self, call: HttpCall, timeout: float, *, hear_out: bool = False
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """An answer, from its headers on. Left early, its connection is closed."""
        connections = await self._here()
        headers = {"accept-encoding": "identity", "user-agent": _NAME} | dict(call.headers)
        if self._key:
            headers |= self._dialect.authorize(self._key)
        asking = connections.session.request(
            call.method,
            self._base + call.path,
            params=call.query,
            headers=headers,
            data=_form(call) if call.form else _in_parts(call.body) or None,
            # Told of as an error, for the key would follow to another host.
            allow_redirects=False,
            raise_for_status=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
        )
        response: aiohttp.ClientResponse | None = None
        why = " (first_audio_timeout)" if timeout == self._first_audio_timeout else ""
        try:
            async with _within(timeout, f"no answer within {timeout:g} s{why}") as limit:
                connections.limits.add(limit)
                try:
                    response = await (connections.surely(asking) if hear_out else asking)
                finally:
                    connections.limits.discard(limit)
            connections.responses.add(response)
            yield response
        except aiohttp.ClientConnectorError:
            connections.forget_addresses()  # or all retries would go where nobody is any more
            raise
        except (asyncio.CancelledError, GeneratorExit):
            done = hear_out or (response and response.closed)
            # Not to a server that does one thing at a time, and would be kept from speaking.
            if self._base.startswith("https:") and self._dialect.max_in_flight != 1 and not done:
                connections.warm(self.prewarm)
            raise
        finally:
            if response:
                connections.responses.discard(response)
                if hear_out and not response.closed and not self._closed:
                    connections.read_out(response)
                else:
                    response.close()

    async def _here(self) -> Connections:
        """The connections of the running event loop."""
        if self._is_closed:
            raise EngineError("the engine was closed; open it again")
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            self._connections[loop] = Connections.open(self._given, self._socket)
            for other in list(self._connections):
                if other.is_closed() and (gone := self._connections.pop(other, None)):
                    await gone.aclose()
        return self._connections[loop]

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        """Say in our own errors what goes wrong on the way, with the name of whose fault it is."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  a dialect's code, on what a server made up
            said = self._meaning(error)
            whose = "" if isinstance(said, InvalidRequestError) else f"{self.name}: "
            said.args = (whose + self._without_key(str(said)),)
            try:
                raise said from (error.__cause__ if said is error else error)
            finally:
                if self._key:
                    # They may repeat it: aiohttp's hold what was sent, a dialect's what came.
                    said.__cause__ = said.__context__ = None

    def _meaning(self, error: Exception) -> TTSError:
        match error:
            case TTSError():
                return error
            case _ if self._closed:
                return EngineError("the engine was closed")
            case TimeoutError():
                return RemoteTimeoutError(
                    str(error) or f"no connection within {self._connect_timeout:g} s"
                )
            case aiohttp.ClientHttpProxyError():
                return UnreachableError(f"the proxy refuses: {error.status}")
            case aiohttp.ClientResponseError():
                return RemoteError(f"not HTTP: {one_line(error.message)}")
            case aiohttp.ServerDisconnectedError():  # whose message is all headers so far
                return UnreachableError("it left without an answer")
            case aiohttp.ClientPayloadError():
                return UnreachableError("its answer is cut short")
            case aiohttp.ClientError() | OSError():
                hint = " (is it http://?)" if "WRONG_VERSION_NUMBER" in str(error) else ""
                return UnreachableError(f"{error}{hint}")
            case ValueError():
                return RemoteError(str(error))
            case _:
                return RemoteError(f"its answer can't be read: {error!r}")

    def _without_key(self, text: str) -> str:
        """Some servers repeat a wrong key when they complain about it, and quotes are cut short."""
        if key := self._key:
            for length in range(len(key), min(len(key), _SECRET) - 1, -1):
                text = text.replace(key[:length], "***").replace(key[-length:], "***")
        return text


@asynccontextmanager
async def _within(seconds: float, complaint: str) -> AsyncGenerator[asyncio.Timeout, None]:
    try:
        async with asyncio.timeout(seconds) as limit:
            yield limit
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(complaint) from error


async def _next(response: aiohttp.ClientResponse, seconds: float, complaint: str) -> bytes:
    """The next bytes of the body; none at its end."""
    async with _within(max(0.0, seconds), complaint):
        return await response.content.readany()


def _chunks(reader: ReplyReader, data: bytes) -> Iterator[AudioChunk]:
    """What the next bytes mean, or the end of them.

    Piece by piece: a few thousand bytes of FLAC may be minutes of silence.
    """
    for start in range(0, len(data), _PIECE):
        yield from reader.push(data[start : start + _PIECE])
    if not data:
        yield from reader.flush()


def _asked_where(error: TTSError, response: aiohttp.ClientResponse) -> TTSError:
    """The error, with the address where it says that there is nothing there."""
    if error.status_code in (404, 405) and not isinstance(error, VoiceNotFoundError):
        error.args = (f"{error} (asked for {response.method} {response.url})",)
    return error


def _is_ok(status: int) -> bool:
    return 200 <= status < 300


def _pause(error: TTSError, attempt: int) -> float | None:
    """Seconds after which to ask again; None if that is of no use."""
    if not error.retryable or isinstance(error, RemoteTimeoutError):
        return None
    asked_for: float | None = getattr(error, "retry_after", None)
    if asked_for is not None:
        return asked_for + random.uniform(0, _PAUSE) if asked_for <= _LONGEST_PAUSE else None
    # At once the first time a connection fails: it may have been an old one, closed by the server.
    steps = 2 ** min(attempt, 6) - isinstance(error, UnreachableError)
    pause: float = _PAUSE * steps * random.uniform(1, 1.25)
    return pause


def _head(response: aiohttp.ClientResponse) -> HttpReply:
    return HttpReply(response.status, {name.lower(): v for name, v in response.headers.items()})


def _form(call: HttpCall) -> aiohttp.FormData:
    form = aiohttp.FormData()
    for part in call.form:
        content = part.content if isinstance(part.content, str) else _in_parts(part.content)
        form.add_field(part.name, content, filename=part.filename, content_type=part.media_type)
    return form


def _in_parts(content: bytes) -> bytes | io.BytesIO:
    """Something large as aiohttp wants it, who warns that it stops the event loop otherwise."""
    return io.BytesIO(content) if len(content) > 2**20 else content


async def _clip(reference: Reference, transcript: str) -> Clip:
    if isinstance(reference, bytes):
        content = reference
    elif isinstance(reference, AudioChunk):
        content = await asyncio.to_thread(wav_file, reference)
    else:
        try:
            content = await asyncio.to_thread(Path(reference).read_bytes)
        except (OSError, ValueError) as error:
            raise InvalidRequestError(f"can't read {reference}: {error}") from error
    if not content:
        raise InvalidRequestError("the recording is empty")
    return Clip(content, hashlib.sha256(content).hexdigest()[:16], transcript)


def _above_0(**settings: float | None) -> None:
    for name, value in settings.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < math.inf):
            raise InvalidRequestError(f"{name} can't be {value!r}")


_PLAIN = re.compile(r"[^\s\x00-\x1f\x7f]+")


def _address(url: str) -> tuple[str, str | None]:
    """Where requests go, without the /v1 with which their paths begin; and the socket, if any."""
    # Neither of these is repeated: they are where a key would be.
    if "@" in url:
        raise InvalidRequestError("a key doesn't belong in an address: use api_key=")
    if "?" in url or "#" in url:
        raise InvalidRequestError(
            "an address ends with its path: leave out what begins with ? or #"
        )
    try:
        parts = urlsplit(url)
        _ = parts.port  # a ValueError if it is no port
    except ValueError as error:
        raise InvalidRequestError(f"{url!r} is no address: {error}") from error
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return "http://localhost", parts.path
    if parts.scheme not in ("http", "https") or not parts.hostname or not _PLAIN.fullmatch(url):
        raise InvalidRequestError(f"{url!r} is not http://, https:// or unix:/// with a path")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}", None


def _key(key: str | None) -> str | None:
    """A key that can stand in a header. What it is, is not repeated."""
    key = key.strip() if key else None
    if key and not (key.isascii() and key.isprintable()):
        raise InvalidRequestError("the key has characters that no key has")
    return key or None


_NAME = f"tts_plugins/{version('tts-plugins')}"

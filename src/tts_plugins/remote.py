"""An engine at the other end of HTTP, in any dialect.

Time limits are about progress: to connect, to the first audio, from there to more of it. How long
an utterance takes in all is nobody's business.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import random
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from tts_plugins.errors import MissingDependencyError

try:
    import aiohttp
except ModuleNotFoundError as error:
    raise MissingDependencyError("remote") from error

from tts_plugins.dialects.base import Clip, CloningDialect, Dialect, HttpCall, HttpReply
from tts_plugins.errors import (
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
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

_KEEP_ALIVE = 75.0
"""Seconds an idle connection is kept: servers keep theirs for 60 to 120."""

_LONGEST_PAUSE = 5.0
"""Seconds of a server's Retry-After that are waited out; a listener won't wait longer."""

_SLOWEST = 10.0
"""Seconds that may pass for a second of audio, in the long run: slower is as good as silent."""

_ANSWER = 16_000_000
"""Bytes of an answer that isn't audio."""

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
        per_second: Requests started in a second; more wait.
        retries: How often a request is repeated that failed before its first audio.
        connect_timeout: Seconds to connect, with TLS.
        first_audio_timeout: Seconds from asking to the first audio.
        idle_timeout: Seconds without audio after that.
        name: What errors call it; its address if ``None``.

    Raises:
        InvalidRequestError: If the address or the key can't be one.
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
        self._base, self._socket = _address(url)
        self._key = _checked(api_key)
        self.name = name or url
        self._dialect = dialect
        self._voice = voice
        self._given = session
        self._limiter = Limiter(
            in_flight=dialect.max_in_flight if max_in_flight is None else max_in_flight,
            per_second=per_second,
        )
        self._retries = retries
        self._connect_timeout = connect_timeout
        self._first_audio_timeout = first_audio_timeout
        self._idle_timeout = idle_timeout
        self._connections: dict[asyncio.AbstractEventLoop, _Connections] = {}
        self._ids: dict[str, str] = {}
        """Names of voices, and what the server calls them."""

    def __repr__(self) -> str:
        return f"RemoteEngine({self.name!r})"

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        if not speakable(request.text):
            raise UnspeakableTextError(f"nothing to say in {len(request.text)} characters")
        request = await self._addressed(request)
        call = self._dialect.write_call(request)
        heard = False
        async with self._limiter.slot(due=request.due):
            for attempt in range(self._retries + 1):
                try:
                    async with aclosing(self._speak(call, request)) as chunks:
                        async for chunk in chunks:
                            heard = True
                            yield chunk
                except TTSError as error:
                    pause = _pause(error, attempt)
                    if heard or pause is None or attempt == self._retries:
                        raise
                    await asyncio.sleep(pause)
                else:
                    return

    async def voices(self) -> Sequence[Voice]:
        listed = await self._listed()
        return self._dialect.read_voices(None) if listed is None else listed

    async def clone(self, name: str, reference: Path | bytes, *, transcript: str = "") -> Voice:
        """Enrol a recording under ``name``, by which requests to this engine may then ask for it.

        A recording that the server was given earlier isn't sent again, by any process.

        Args:
            name: What to call the voice.
            reference: A path to an audio file, or the bytes of one.
            transcript: What is said in it, for servers that need to know.

        Raises:
            InvalidRequestError: If this server can't clone, or not that.
            RemoteError: If it refuses to.
        """
        if not hasattr(self._dialect, "write_clone"):
            raise InvalidRequestError(f"{self.name} has no way to clone a voice")
        dialect = cast("CloningDialect", self._dialect)
        clip = await _clip(reference, transcript)
        async with self._here().cloning:
            voice = dialect.find_clone(name, clip, await self.voices())
            if voice is None:
                reply = await self._fetch(dialect.write_clone(name, clip), _ENROLMENT)
                if reply.status == 409:  # another process was faster
                    voice = dialect.find_clone(name, clip, await self.voices())
            if voice is None:
                if reply.status >= 300:
                    raise self._named(dialect.read_error(reply))
                voice = dialect.read_clone(name, clip, reply)
        self._ids[name] = self._ids[voice.id] = voice.id
        return replace(voice, id=name)

    async def prewarm(self) -> None:
        """Have a connection open, so that the first request doesn't pay for it.

        Raises:
            UnreachableError: If there is no server.
        """
        await self._fetch(self._dialect.write_ping())

    async def aclose(self) -> None:
        """Close the connections, of every event loop."""
        here = asyncio.get_running_loop()
        while self._connections:
            loop, connections = self._connections.popitem()
            if loop is here:
                await connections.aclose()
            elif loop.is_running():
                with suppress(RuntimeError):  # it stopped just now
                    asyncio.run_coroutine_threadsafe(connections.aclose(), loop)

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

    async def _listed(self) -> Sequence[Voice] | None:
        """The voices that the server lists, which may be none; None if it can't list them."""
        for call in self._dialect.write_voices():
            reply = await self._fetch(call)
            if reply.status in (404, 405):
                continue
            if reply.status >= 300:
                raise self._named(self._dialect.read_error(reply))
            voices = self._dialect.read_voices(reply)
            self._ids |= {voice.id: voice.id for voice in voices}
            return voices
        return None

    async def _speak(
        self, call: HttpCall, request: SynthesisRequest
    ) -> AsyncGenerator[AudioChunk, None]:
        """Ask once."""
        clock = asyncio.get_running_loop().time
        began = clock()
        heard = False
        with self._translated():
            async with self._send(call, self._first_audio_timeout) as response:
                if response.status >= 300:
                    raise await self._refusal(response, request)
                reader = self._dialect.read_reply(request, _head(response))
                patience = self._first_audio_timeout - (clock() - began)
                while True:
                    # The consumer's own time isn't counted. Bytes without audio are no progress.
                    began = clock()
                    data = await _next(response, patience)
                    patience -= clock() - began
                    for chunk in reader.push(data) if data else reader.flush():
                        if len(chunk.samples):
                            earned = _SLOWEST * chunk.seconds if heard else self._idle_timeout
                            patience = min(self._idle_timeout, patience + earned)
                            heard = True
                        yield chunk
                    if not data:
                        break
        if not heard:
            raise RemoteError(f"{self.name}: its answer has no audio in it")

    async def _refusal(
        self, response: aiohttp.ClientResponse, request: SynthesisRequest
    ) -> TTSError:
        """Why the server answered with a status that isn't 2xx."""
        reply = await self._read(response, self._idle_timeout)
        error = self._named(self._dialect.read_error(reply, request))
        if isinstance(error, VoiceNotFoundError) and request.voice:
            with suppress(TTSError):  # then it is told without them
                known = await self.voices()
                return VoiceNotFoundError(request.voice, [voice.id for voice in known])
        return error

    async def _fetch(self, call: HttpCall, timeout: float | None = None) -> HttpReply:
        """Ask for something that isn't audio, and wait for all of it."""
        timeout = timeout or self._first_audio_timeout
        with self._translated():
            async with self._send(call, timeout) as response:
                return await self._read(response, timeout)

    async def _read(self, response: aiohttp.ClientResponse, timeout: float) -> HttpReply:
        body = bytearray()
        while data := await _next(response, timeout):
            body += data
            if len(body) > _ANSWER:
                raise ValueError(f"an answer of more than {_ANSWER} bytes")
        # Some servers repeat a wrong key when they complain about it.
        text = bytes(body).replace(self._key.encode(), b"***") if self._key else bytes(body)
        return replace(_head(response), body=text)

    @asynccontextmanager
    async def _send(
        self, call: HttpCall, timeout: float
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """An answer, from its headers on. Left early, its connection is closed."""
        connections = self._here()
        headers = dict(call.headers)
        if self._key:
            headers |= self._dialect.authorize(self._key)
        async with _within(timeout, f"no answer within {timeout:g} s"):
            response = await connections.session.request(
                call.method,
                self._base + call.path,
                params=call.query,
                headers={"accept-encoding": "identity", "user-agent": _NAME} | headers,
                data=_form(call) if call.form else call.body or None,
                # Followed by hand, or the key would follow to another host.
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
            )
        try:
            yield response
        finally:
            cut_off = not response.closed
            response.close()
            if cut_off and self._base.startswith("https"):
                connections.warm(self.prewarm)

    def _here(self) -> _Connections:
        """The connections of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            for closed in [other for other in self._connections if other.is_closed()]:
                self._connections.pop(closed, None)
            self._connections[loop] = _Connections.open(self._given, self._socket)
        return self._connections[loop]

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        """Say in our own errors what goes wrong on the way."""
        try:
            yield
        except TimeoutError as error:
            said = str(error) or f"no connection within {self._connect_timeout:g} s"
            raise RemoteTimeoutError(f"{self.name}: {said}") from error
        except aiohttp.ClientResponseError as error:
            # Without its cause, whose repr holds the headers and so the key.
            raise RemoteError(f"{self.name}: not HTTP: {error.message}") from None
        except aiohttp.ClientPayloadError as error:
            raise UnreachableError(f"{self.name}: its answer is cut short") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(f"{self.name}: {error}") from error
        except ValueError as error:
            raise RemoteError(f"{self.name}: {error}") from error
        except RemoteError as error:
            raise self._named(error) from error.__cause__

    def _named(self, error: TTSError) -> TTSError:
        """The error, with the server's name in front."""
        if not str(error).startswith(self.name):
            error.args = (f"{self.name}: {error}", *error.args[1:])
        return error


@dataclass(eq=False)
class _Connections:
    """What belongs to one event loop."""

    session: aiohttp.ClientSession
    owned: bool
    cloning: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a voice is enrolled, so that two who ask at once enrol it once."""
    _warming: asyncio.Task[None] | None = None

    @classmethod
    def open(cls, session: aiohttp.ClientSession | None, socket: str | None) -> _Connections:
        if session is not None:
            return cls(session, owned=False)
        connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(socket, limit=0, keepalive_timeout=_KEEP_ALIVE)
            if socket
            else aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE, ttl_dns_cache=300)
        )
        session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        connections = cls(session, owned=True)
        _open.add(connections)
        return connections

    def warm(self, prewarm: Callable[[], Awaitable[None]]) -> None:
        """Replace a connection that was cut off, before somebody waits for its handshake."""
        if self._warming is None or self._warming.done():
            self._warming = asyncio.create_task(_quietly(prewarm))

    async def aclose(self) -> None:
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        if self.owned:
            await self.session.close()


async def _quietly(prewarm: Callable[[], Awaitable[None]]) -> None:
    with suppress(TTSError):  # the next request will tell
        await prewarm()


@asynccontextmanager
async def _within(seconds: float, complaint: str) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(complaint) from error


async def _next(response: aiohttp.ClientResponse, seconds: float) -> bytes:
    """The next bytes of the body; none at its end."""
    async with _within(max(0.0, seconds), "it stopped answering"):
        return await response.content.readany()


def _pause(error: TTSError, attempt: int) -> float | None:
    """Seconds after which to ask again; None if that is of no use."""
    if not error.retryable or isinstance(error, RemoteTimeoutError):
        return None
    asked_for: float | None = getattr(error, "retry_after", None)
    if asked_for is not None:
        return asked_for + random.uniform(0, 0.1) if asked_for <= _LONGEST_PAUSE else None
    # At once the first time a connection fails: it may have been an old one, closed by the server.
    steps = 2**attempt - isinstance(error, UnreachableError)
    backoff: float = 0.1 * steps * random.uniform(1, 1.25)
    return backoff


def _head(response: aiohttp.ClientResponse) -> HttpReply:
    return HttpReply(response.status, {name.lower(): v for name, v in response.headers.items()})


def _form(call: HttpCall) -> aiohttp.FormData:
    form = aiohttp.FormData()
    for part in call.form:
        form.add_field(
            part.name, part.content, filename=part.filename, content_type=part.media_type
        )
    return form


async def _clip(reference: Path | bytes, transcript: str) -> Clip:
    if isinstance(reference, bytes):
        content = reference
    else:
        try:
            content = await asyncio.to_thread(Path(reference).read_bytes)
        except OSError as error:
            raise InvalidRequestError(f"can't read {reference}: {error.strerror}") from error
    if not content:
        raise InvalidRequestError("the recording is empty")
    return Clip(content, hashlib.sha256(content).hexdigest()[:16], transcript)


def _address(url: str) -> tuple[str, str | None]:
    """Where requests go, without the /v1 with which their paths begin; and the socket, if any."""
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise InvalidRequestError("a key doesn't belong in an address: use api_key=")
    if parts.query or parts.fragment:
        raise InvalidRequestError(f"{parts.hostname}: an address has no options of its own")
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return "http://localhost", parts.path
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequestError(f"{url!r} is not http://, https:// or unix:/// with a path")
    return url.rstrip("/").removesuffix("/v1"), None


def _checked(key: str | None) -> str | None:
    """A key that can stand in a header. What it is, is not repeated."""
    key = key.strip() if key else None
    if key and not (key.isascii() and key.isprintable()):
        raise InvalidRequestError("the key has characters that no key has")
    return key


_NAME = f"tts_plugins/{version('tts-plugins')}"

_open: weakref.WeakSet[_Connections] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close what nobody closed: LiveKit doesn't tell a TTS when its job is over."""
    for connections in list(_open):
        with suppress(Exception):  # their event loop is gone
            asyncio.run(connections.aclose())

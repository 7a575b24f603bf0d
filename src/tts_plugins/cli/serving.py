"""``tts-plugins serve``: what it can be told, and what it says itself.

Whatever can be found wrong before an engine is loaded is found here.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tts_plugins.errors import InvalidRequestError, MissingDependencyError
from tts_plugins.registry import check_spec

if TYPE_CHECKING:
    from tts_plugins.server.keys import Keys

_KEYS = "TTS_API_KEYS"

_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^\sA-Z/?#@]+")
"""As browsers send it: one that is written otherwise would be nobody's."""


def serve(
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="What speaks (hibari): an engine's name or a server's address, or NAME=ENGINE. "
            "Of several, requests choose one as their model; the first is the default.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 is every address of this machine.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 is any that is free.")] = 8080,
    uds: Annotated[
        Path | None, typer.Option(help="A Unix socket to listen on instead, for this user alone.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            help="Processes that share the address. Each has engines and places of its own: more "
            "than one is for an engine that leaves CPU cores idle.",
        ),
    ] = 1,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A PEM file with the certificate and its chain.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="A PEM file with its key, if that has another.")
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help=f"The environment variable with the keys that may call, between them spaces or "
            f"commas ({_KEYS}, if it is set).",
            show_default=False,
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file with these keys instead, one a line.")
    ] = None,
    voice_alias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VOICE",
            help="Another name for a voice; * is any that there isn't; may be given again.",
        ),
    ] = None,
    max_streams: Annotated[int, typer.Option(min=1, help="Streams open at once.")] = 256,
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Of these, how many may wait for their first audio.")
    ] = 64,
    max_per_key: Annotated[
        int | None, typer.Option(min=1, help="Streams open at once with one key.")
    ] = None,
    max_ahead: Annotated[
        float,
        typer.Option(
            min=0.1, help="Seconds by which audio is made before it is listened to; inf for files."
        ),
    ] = 3.0,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="A web site whose pages may call, such as https://example.com; * for all; may be "
            "given again.",
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that what is being said may take at the end.")
    ] = 25.0,
) -> None:
    """Serve engines over HTTP and WebSockets to clients of OpenAI, ElevenLabs, Fish Audio and more.

    SIGTERM or Ctrl-C lets what is being said be said, and begins nothing new; a second one ends it
    at once.
    """
    try:
        from tts_plugins.server import create_app
        from tts_plugins.server.engines import named
        from tts_plugins.server.serving import listen, listen_unix, removed_at_the_end, run
        from tts_plugins.server.workers import Workers
    except ModuleNotFoundError as error:
        raise MissingDependencyError("server") from error
    specs = named(engine or ["hibari"])
    for spec in specs.values():
        check_spec(spec)
    keys = _keys(api_key_env, api_key_file)
    aliases = _aliases(voice_alias or [])
    _check_origins(cors or [])
    _check_certificate(tls_certificate, tls_key)
    with ExitStack() as stack:
        listening = stack.enter_context(listen_unix(uds) if uds else listen(host, port))
        if uds:
            stack.enter_context(removed_at_the_end(uds))
        near = uds is None and _is_loopback(listening)
        if not (keys or uds or near):
            _say(
                f"warning: whoever can reach {host} may speak, and no key is asked for; "
                f"put some into {_KEYS}"
            )
        make_app = partial(
            create_app,
            specs,
            aliases=aliases,
            keys=keys,
            max_streams=max_streams,
            max_waiting=max_waiting,
            max_per_key=max_per_key,
            max_ahead=max_ahead,
            cors_origins=cors or (),
            allowed_hosts=_loopback_names(host) if near and not keys else None,
        )
        work = partial(
            run,
            make_app,
            listening,
            grace=grace,
            ssl_certfile=tls_certificate,
            ssl_keyfile=tls_key,
        )
        where = f"unix://{uds.absolute()}" if uds else _url(host, listening, tls_certificate)
        asked = "a key is asked for" if keys else "no key is asked for"
        ready = partial(_say, f"ready: {', '.join(specs)} at {where}; {asked}")
        status = Workers(work, workers, ready=ready).run() if workers > 1 else work(ready=ready)
    raise typer.Exit(status)


def _keys(variable: str | None, path: Path | None) -> Keys:
    from tts_plugins.server.keys import Keys

    if variable and path:
        raise InvalidRequestError("give --api-key-env or --api-key-file, not both")
    if path:
        return Keys.from_file(path)
    if variable or _KEYS in os.environ:
        return Keys.from_environment(variable or _KEYS)
    return Keys()


def _aliases(given: Sequence[str]) -> dict[str, str]:
    aliases = {}
    for each in given:
        name, equals, voice = each.partition("=")
        if not (name and equals and voice):
            raise InvalidRequestError(f"--voice-alias {each}: write NAME=VOICE")
        aliases[name] = voice
    return aliases


def _check_origins(origins: Sequence[str]) -> None:
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise InvalidRequestError(
                f"--cors {origin}: write scheme://host or scheme://host:port, in lower case and "
                "without a slash behind it, or * for all"
            )


def _check_certificate(certificate: Path | None, key: Path | None) -> None:
    if certificate is None:
        if key:
            raise InvalidRequestError("--tls-key is the key of a --tls-certificate: give both")
        return
    for path in filter(None, (certificate, key)):
        path.open("rb").close()  # whose error names the file, unlike the next
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if key is None:
            raise InvalidRequestError(
                f"{certificate} has no certificate with its key in it, as PEM: a key in another "
                "file is --tls-key"
            ) from None
        raise InvalidRequestError(
            f"{certificate} and {key} are no certificate and its key, as PEM: "
            f"{error.reason or error}"
        ) from None


def _is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def _loopback_names(host: str) -> list[str]:
    """What a browser may call it by, so that no other name can be made to point here."""
    return list(dict.fromkeys([_in_url(host.lower()), "localhost", "127.0.0.1", "[::1]"]))


def _url(host: str, listening: socket.socket, certificate: Path | None) -> str:
    scheme = "https" if certificate else "http"
    return f"{scheme}://{_in_url(host)}:{listening.getsockname()[1]}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _say(line: str) -> None:
    typer.echo(line, err=True)

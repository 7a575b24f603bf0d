"""Read what a server says went wrong, whichever shape it says it in.

Errors are the least standard part of every API: a proxy answers in place of the server, a framework
in place of the program.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

from tts_plugins.dialects.base import one_line
from tts_plugins.types import SynthesisRequest

_PREFIX = r"""['" ]*(?:[\w ]{1,40}[:,] +){0,3}(?:(?:a|the|requested|specified) )*"""
_NAME = r"""(?:'[^']+'|"[^"]+"|`[^`]+`)"""
_NO_VOICE = (
    r"(?:unknown|invalid|unsupported|unrecogni[sz]ed|no such|no) voice"
    r"""(?= *(?:$|[:;,.'"`(\[])| (?:id|name|named|called)\b)"""
)
_VOICE_NOT = (
    r"voice(?: with)?(?: (?:(?:voice_)?id|name|named|called))?:? *(?:{name})? *"
    r"(?:is |was |does |could |can |has )?(?:not(?: be)? (?:found|exist|supported|available|known"
    r"|recogni[sz]ed)|doesn't exist|isn't \w+|unknown|invalid|unsupported)\b"
)


def read_complaint(body: bytes) -> tuple[str, bool]:
    """What the body of an error says, on one line, and whether it names the voice as the cause.

    OpenAI::           {"error": {"message": "...", "param": "voice", "code": "voice_not_found"}}
    FastAPI::          {"detail": "..."}, {"detail": [{"loc": ["body", "voice"], "msg": "..."}]}
    Kokoro-FastAPI::   {"detail": {"error": "validation_error", "message": "..."}}
    others::           {"error": "..."}, {"message": "..."}, plain text, a page of HTML
    """
    try:
        return complaint(json.loads(body))
    except (ValueError, RecursionError):
        return one_line(_text(body)), False


def complaint(value: Any) -> tuple[str, bool]:
    """The same for what the JSON of such a body holds."""
    about_voice = False
    while isinstance(value, dict):
        about_voice |= value.get("code") == "voice_not_found" or value.get("param") == "voice"
        inner = [value[name] for name in ("message", "msg", "error", "detail") if value.get(name)]
        if not inner:
            break
        # {"error": "Bad Request", "message": "..."}, but {"message": "Failed", "error": {...}}
        value = next((each for each in inner if isinstance(each, dict | list)), inner[0])
    if isinstance(value, list):
        about_voice |= any("voice" in _place(item) for item in value)
        value = "; ".join(_invalid(item) for item in value)
    if value is None:
        return "", about_voice
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(said), about_voice


def _invalid(item: Any) -> str:
    """One of FastAPI's complaints: where in the request, and what."""
    place = ".".join(str(step) for step in _place(item))
    said = str(item.get("msg") or item) if isinstance(item, dict) else str(item)
    return f"{place}: {said}" if place else said


def _place(item: Any) -> list[Any]:
    place = item.get("loc") if isinstance(item, dict) else None
    return place if isinstance(place, list) else []


def _text(body: bytes) -> str:
    """Text as it is; of a page that a proxy shows to people, its title."""
    text = body[:4096].decode(errors="replace")
    if not re.match(r"\s*<(!doctype|html|head|body)", text, re.IGNORECASE):
        return text
    title = re.search(r"<title[^>]*>([^<]+)", text, re.IGNORECASE)
    return html.unescape(title[1] if title else re.sub(r"<[^>]*>", " ", text))


def voice_unknown(said: str, request: SynthesisRequest | None = None) -> bool:
    """Whether an error's message is about a voice that isn't there.

    To take another message for such a one makes a bot mute for good, so it has to begin with the
    complaint, and a complaint that stands in the spoken text is only an echo of it.
    """
    voice = request.voice if request else None
    name = f"{_NAME}|{re.escape(voice)}" if voice else _NAME
    complaint = f"{_PREFIX}({_NO_VOICE}|{_VOICE_NOT.format(name=name)})"
    found = re.match(complaint, " ".join(said.split()), re.IGNORECASE)
    echo = _letters(request.text) if request else ""
    return found is not None and _letters(found[1]) not in echo


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))

"""What requests call the engines of a server."""

from __future__ import annotations

import pytest

from tts_plugins.errors import InvalidRequestError
from tts_plugins.server.engines import named


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["hibari"], {"hibari": "hibari"}),
        (["en=hibari", "tone"], {"en": "hibari", "tone": "tone"}),
        (
            ["kokoro+http://localhost:8880?voice=af_bella"],
            {"kokoro": "kokoro+http://localhost:8880?voice=af_bella"},
        ),
        (["http://tts.example:8080"], {"tts.example": "http://tts.example:8080"}),
        (["unix:///run/tts.sock"], {"server": "unix:///run/tts.sock"}),
        (
            ["fallback:openai+http://127.0.0.1:9,hibari"],
            {"fallback": "fallback:openai+http://127.0.0.1:9,hibari"},
        ),
        (["a=openai+http://h:1?model=x"], {"a": "openai+http://h:1?model=x"}),
    ],
)
def test_an_engine_is_called_by_its_name_or_what_its_address_begins_with(
    given: list[str], expected: dict[str, str]
) -> None:
    assert named(given) == expected


def test_two_engines_cant_have_one_name() -> None:
    for second in ("tone", "tone=hibari"):
        spec = second.removeprefix("tone=")
        with pytest.raises(InvalidRequestError) as raised:
            named(["tone", second])
        assert str(raised.value) == f"two engines are called 'tone': write NAME={spec}"

"""Who has a key, and what is told to who hasn't."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from tests.server.live import live
from tts_plugins.errors import InvalidRequestError
from tts_plugins.server.keys import NOBODY, Keys
from tts_plugins.server.refusals import RefusedError

ONE, TWO = "sesame-open-1", "sesame-open-2"


def test_without_keys_anybody_may_call_and_is_nobody() -> None:
    assert not Keys()
    assert Keys().caller({}) == NOBODY
    assert Keys().caller({"authorization": "Bearer whatever"}) == NOBODY


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {ONE}"},
        {"authorization": f"bearer  {ONE} "},
        {"authorization": f"Token {ONE}"},
        {"xi-api-key": ONE},
        {"x-api-key": ONE},
        {"authorization": "Basic bm9ib2R5", "x-api-key": ONE},
        {"authorization": "Bearer ", "xi-api-key": ONE},
    ],
)
def test_a_key_is_found_wherever_clients_put_theirs(headers: dict[str, str]) -> None:
    keys = Keys([TWO, ONE])
    assert keys.caller(headers) == Keys([ONE]).caller({"x-api-key": ONE})
    assert keys.caller({}, headers) == keys.caller(headers)
    assert keys.caller(headers) != keys.caller({"x-api-key": TWO})
    assert len(keys.caller(headers)) == 8


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "no API key: send Authorization: Bearer, xi-api-key or X-API-Key"),
        ({"authorization": ONE}, "no API key: send Authorization: Bearer, xi-api-key or X-API-Key"),
        ({"authorization": f"Basic {ONE}"}, None),
        ({"x-api-key": ONE[:-1]}, "wrong API key"),
        ({"x-api-key": ONE + "1"}, "wrong API key"),
        ({"x-api-key": ONE.upper()}, "wrong API key"),
        ({"x-api-key": "\xe9\xff"}, "wrong API key"),
        ({"x-api-key": "x" * 100_000}, "wrong API key"),
        ({"authorization": "Bearer wrong-one-1", "x-api-key": ONE}, "wrong API key"),
    ],
)
def test_no_key_and_a_wrong_key_are_refused(headers: dict[str, str], message: str | None) -> None:
    with pytest.raises(RefusedError) as refused:
        Keys([ONE, TWO]).caller(headers)
    assert refused.value.status_code == 401
    assert message in (None, str(refused.value))


def test_every_key_is_compared_whole_whatever_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(known: bytes, given: bytes) -> bool:
        compared.append((len(known), len(given)))
        return known == given

    keys = Keys([ONE, TWO, "sesame-open-3"])
    monkeypatch.setattr("tts_plugins.server.keys.hmac.compare_digest", compare)
    for given in (ONE, "sesame-open-3", "s", ONE[:-1], "x" * 100_000, "\xe9"):
        compared.clear()
        try:
            keys.caller({"x-api-key": given})
        except RefusedError:
            assert given not in (ONE, "sesame-open-3")
        assert compared == [(32, 32)] * 3


@pytest.mark.parametrize(
    "key", ["", "1234567", "has a space", "tab\tinside", "schlüssel", "key\n12345"]
)
def test_what_cannot_be_a_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        Keys([key])
    assert str(refused.value) == "a key has at least 8 visible ASCII characters, no space"


def test_keys_come_from_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"\n# ours\n  {ONE}  \n{TWO}\n")
    one = Keys([ONE]).caller({"x-api-key": ONE})
    assert Keys.from_file(path).caller({"x-api-key": ONE}) == one
    for value in (f"{TWO},{ONE}", f" {TWO}  {ONE}\n", f"{TWO}, {ONE},"):
        monkeypatch.setenv("KEYS", value)
        assert Keys.from_environment("KEYS").caller({"x-api-key": ONE}) == one


def test_a_place_without_keys_does_not_open_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"# nobody\n")
    with pytest.raises(InvalidRequestError, match=f"there is no key in {path}"):
        Keys.from_file(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequestError, match="can't read the keys in"):
        Keys.from_file(path)
    monkeypatch.setenv("KEYS", " , ")
    for name in ("KEYS", "KEYS_THAT_ARE_NOT_SET"):
        with pytest.raises(InvalidRequestError, match=f"there is no key in {name}"):
            Keys.from_environment(name)


def test_a_key_is_kept_nowhere() -> None:
    keys = Keys([ONE])
    assert ONE not in repr(keys)
    assert ONE not in repr(vars(keys))
    assert ONE.encode() not in pickle.dumps(keys)


async def test_a_key_is_in_no_line_and_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tts_plugins")
    speech = {"input": "Hi.", "voice": "alloy", "response_format": "pcm"}
    async with live(keys=[ONE]) as server:
        for path in ("/v1/audio/speech", "/metrics", "/v1/models", "/v1/voices"):
            for key, expected in ((ONE, 200), (ONE[:-1], 401)):
                method = "POST" if path == "/v1/audio/speech" else "GET"
                async with server.client.request(
                    method, server.url + path, json=speech, headers={"x-api-key": key}
                ) as reply:
                    assert reply.status == expected
                    assert key.encode() not in await reply.read()
                    if expected == 401:
                        assert reply.headers["www-authenticate"] == "Bearer"
        for path in ("/health", "/ready"):
            async with server.client.get(server.url + path) as reply:
                assert reply.status == 200
    assert f"key={Keys([ONE]).caller({'x-api-key': ONE})}" in caplog.text
    assert ONE[:-1] not in caplog.text

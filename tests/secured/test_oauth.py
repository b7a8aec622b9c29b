"""Tokens: asked for as RFC 6749 says, kept for most of their life, and never shown."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from secured import oauth
from secured.errors import AccessError, Cause
from secured.hidden import Secret
from secured.oauth import OAuth, claims, first_message, reason_in, renewal
from tests.secured.token_endpoint import TokenEndpoint, token, token_endpoint

SECRET = "hunter2:secret/of+the client"


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint() as opened:
        yield opened


def client(url: str, **more: Any) -> OAuth:
    values: dict[str, Any] = {"client_id": "a b", "client_secret": Secret(SECRET), "scope": "kafka", "extensions": {}, "trusted": None} | more
    return OAuth(source="client.properties", endpoint=url, **values)


def soon() -> float:
    return time.monotonic() + 20


def test_client_credentials_are_sent_as_the_standard_says(endpoint: TokenEndpoint) -> None:
    assert claims(client(endpoint.url).token(soon()).reveal())["sub"] == "token"
    ((headers, fields),) = endpoint.requests
    assert fields == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    login = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert login == "a%20b:hunter2%3Asecret%2Fof%2Bthe%20client"


def test_a_token_is_kept_until_most_of_its_life_is_over(endpoint: TokenEndpoint) -> None:
    login = client(endpoint.url)
    first = login.token(soon()).reveal()
    assert login.token(soon()).reveal() == first
    assert len(endpoint.requests) == 1
    login.forget()
    login.token(soon())
    assert len(endpoint.requests) == 2
    endpoint.reply = lambda: (200, json.dumps({"access_token": "short", "expires_in": 0}))
    login.forget()
    assert [login.token(soon()).reveal() for _ in range(2)] == ["short", "short"]
    assert len(endpoint.requests) == 4


@pytest.mark.parametrize(
    ("expires_in", "made", "seconds"),
    [(10_000, 90_000, 8_000), (None, 10_000, 8_000), (None, None, 0), (True, None, 0), ("100", -5, 0)],
)
def test_when_a_token_is_renewed(expires_in: object, made: int | None, seconds: float) -> None:
    text = "opaque" if made is None else token(seconds=made)
    assert abs(renewal(text, expires_in) - time.monotonic() - seconds) < 100


def test_a_token_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{token('file')}\n")
    for url in (f"file:{tmp_path}/token", f"file://{tmp_path}/token"):
        assert claims(client(url).token(soon()).reveal())["sub"] == "file"
    with pytest.raises(AccessError, match="no such file"):
        client("file:/nowhere/token").token(soon())


@pytest.mark.parametrize(
    ("status", "text", "cause", "line"),
    [
        (401, '{"error": "invalid_client"}', Cause.TOKEN, "answers with status 401 (invalid_client): check the client id and secret"),
        (400, f'{{"error": "no {SECRET}"}}', Cause.TOKEN, "answers with status 400: check the client id and secret"),
        (302, "", Cause.TOKEN, "answers with status 302: check the client id and secret"),
        (500, "no json", Cause.TOKEN, "answers with status 500: check the client id and secret"),
        (200, "no json", Cause.TOKEN, "does not answer with JSON: check the URL"),
        (200, "[]", Cause.TOKEN, "does not answer with JSON: check the URL"),
        (200, "{}", Cause.TOKEN, "answers without an access_token: check the URL"),
        (200, '{"access_token": "a\\u0001b"}', Cause.TOKEN, "answers with an access_token that is none: check the URL"),
    ],
)
def test_an_endpoint_without_a_token(endpoint: TokenEndpoint, status: int, text: str, cause: Cause, line: str) -> None:
    endpoint.reply = lambda: (status, text)
    with pytest.raises(AccessError) as raised:
        client(endpoint.url).token(soon())
    assert (raised.value.cause, raised.value.line) == (cause, f"no token for the login: {endpoint.url} {line}")
    assert len(endpoint.requests) == 1, "the credentials are not sent on to the address of a redirect"


@pytest.mark.parametrize(
    ("url", "more", "cause", "line"),
    [
        ("", {}, Cause.SETTINGS, "client.properties has no sasl.oauthbearer.token.endpoint.url"),
        ("ftp://a/b", {}, Cause.SETTINGS, "is no URL of https"),
        ("https:///b", {}, Cause.SETTINGS, "is no URL of https"),
        ("http://id.example/token", {}, Cause.SETTINGS, "would send the client's secret without encryption"),
        ("https://id.example/token", {"client_secret": Secret("")}, Cause.SETTINGS, "has no client id or secret"),
        ("http://127.0.0.1:1/token", {}, Cause.PROVIDER, "no token for the login: http://127.0.0.1:1/token: "),
    ],
)
def test_an_endpoint_that_cannot_be_asked(url: str, more: dict[str, Any], cause: Cause, line: str) -> None:
    with pytest.raises(AccessError) as raised:
        client(url, **more).token(soon())
    assert raised.value.cause == cause
    assert line in raised.value.line
    assert "hunter2" not in raised.value.line


def test_an_endpoint_that_is_silent_does_not_hold_up_the_command(endpoint: TokenEndpoint) -> None:
    answered = threading.Event()
    endpoint.reply = lambda: (200, str(answered.wait(10)))
    began = time.monotonic()
    with pytest.raises(AccessError, match="does not answer in time"):
        client(endpoint.url).token(time.monotonic() + 0.2)
    assert time.monotonic() - began < 5
    answered.set()


def test_the_messages_to_the_broker() -> None:
    assert first_message(Secret("t"), {"logicalCluster": "l"}) == b"n,,\x01auth=Bearer t\x01logicalCluster=l\x01\x01"
    assert (reason_in(b'{"status":"invalid_token"}'), reason_in(b"x"), reason_in(b"[]"), reason_in(b'{"status":"a\\nb"}')) == ("invalid_token", "", "", "")
    assert "hunter2" not in repr(client("https://a"))
    assert oauth.RENEWED_AT < 1

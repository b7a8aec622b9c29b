"""SCRAM, with the exchanges of RFC 5802 and RFC 7677, and against false servers."""

from __future__ import annotations

import base64

import pytest

from secured import scram
from secured.hidden import Secret
from secured.scram import Scram, ScramError

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(password: str = "pencil") -> Scram:
    return Scram("SCRAM-SHA-256", "user", Secret(password), NONCE)


def test_the_exchange_of_rfc_7677() -> None:
    login = exchange()
    assert login.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert login.final(SERVER_FIRST) == f"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p={proof}".encode()
    login.check(SERVER_FINAL)


def test_the_exchange_of_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram, "HASHES", {"SCRAM-SHA-1": "sha1"})
    login = Scram("SCRAM-SHA-1", "user", Secret("pencil"), "fyko+d2lbbFgONRv9qkxdawL")
    assert login.first() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    final = login.final(b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096")
    assert final == b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    login.check(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


def test_commas_and_equals_signs_in_a_name_are_written_otherwise() -> None:
    assert Scram("SCRAM-SHA-512", "a=b,c=2C", Secret("x"), "n").first() == b"n,,n=a=3Db=2Cc=3D2C,r=n"


@pytest.mark.parametrize(
    "final", [b"", b"v=", b"v=AAAA", b"e=other-error", SERVER_FINAL[:-3], b"v=" + base64.b64encode(bytes(32)), b"x=1", b"v=\xff", SERVER_FINAL + b"!"]
)
def test_a_server_that_does_not_know_the_password_is_not_believed(final: bytes) -> None:
    login = exchange()
    login.final(SERVER_FIRST)
    with pytest.raises(ScramError):
        login.check(final)


def test_a_signature_before_the_proof_is_not_believed() -> None:
    with pytest.raises(ScramError):
        exchange().check(b"v=")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        b"r=other,s=W22Z,i=4096",
        f"r={NONCE},s=W22Z,i=4096".encode(),  # nothing added to our nonce
        f"r={NONCE}x,s=W22Z,i=4095".encode(),
        f"r={NONCE}x,s=W22Z,i=1000001".encode(),
        f"r={NONCE}x,s=W22Z,i=99999999999999".encode(),
        f"r={NONCE}x,s=W22Z,i=-4096".encode(),
        f"r={NONCE}x,s=W22Z".encode(),
        f"r={NONCE}x,s=*,i=4096".encode(),
    ],
)
def test_a_wrong_first_answer_ends_the_login(first: bytes) -> None:
    with pytest.raises(ScramError):
        exchange().final(first)

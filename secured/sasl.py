"""The login (SASL) on a connection whose versions are known: SaslHandshake, then SaslAuthenticate."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from struct import Struct, error, pack, unpack_from
from typing import Final

from secured.errors import AccessError, other_listener, refused_login
from secured.hidden import Secret
from secured.oauth import OAuth, first_message, reason_in
from secured.probing import mechanisms_in, printable
from secured.scram import HASHES, Scram, ScramError

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
NONE, UNSUPPORTED_MECHANISM, ILLEGAL_STATE, AUTHENTICATION_FAILED = 0, 33, 34, 58
RENEWED_AT: Final = 0.85  # of a session's life, as Kafka's clients do
NO_LOGIN: Final = "asks for no login"
NONCE_BYTES: Final = 24

Exchange = Callable[[int, int, bytes], bytes]  # key, version and body of a request -> the body of its reply
Versions = Mapping[int, tuple[int, int]]
_short: Final = Struct(">h")


class OtherMechanism(Exception):
    """The broker does not offer the mechanism that was tried first, and closes the connection; `Sasl.chosen` is the one to try next."""


@dataclass(frozen=True)
class Sasl:
    mechanism: str  # "": one that the broker offers, SCRAM first, PLAIN only over TLS
    user: str
    password: Secret
    oauth: OAuth | None
    where: str  # the setting with the user and the password, for messages
    encrypted: bool  # the connection has TLS
    chosen: list[str] = field(default_factory=list, compare=False)

    def secrets(self) -> set[str]:
        found = {self.password.reveal(), self.oauth.client_secret.reveal() if self.oauth else ""}
        return {text for text in found if text}


def log_in(sasl: Sasl, exchange: Exchange, versions: Versions, deadline: float) -> float | None:
    """Log in; returns the seconds after which to log in again (None: never). Raises AccessError, OtherMechanism, and what `exchange` raises."""
    if SASL_HANDSHAKE not in versions or SASL_AUTHENTICATE not in versions:
        raise no_login(sasl)
    mechanism = sasl.mechanism or (sasl.chosen or [next(iter(HASHES))])[0]
    try:
        shake_hands(sasl, mechanism, exchange)
        version = min(1, versions[SASL_AUTHENTICATE][1])
        steps = steps_of(sasl, mechanism, deadline)
        message = next(steps)
        while True:
            code, reason, answer, lifetime_ms = authenticate(exchange(SASL_AUTHENTICATE, version, pack(">i", len(message)) + message), version)
            if code:
                raise refused(sasl, code, reason)
            try:
                message = steps.send(answer)
            except StopIteration:
                return lifetime_ms / 1000 * RENEWED_AT if lifetime_ms > 0 else None
    except ScramError as wrong:
        raise refused_login(f"did not prove that it knows the password: {wrong}", "is this the cluster that you mean?") from wrong
    except (error, IndexError, UnicodeDecodeError):
        raise other_listener("answers the login with a reply that is none of Kafka's") from None


def no_login(sasl: Sasl) -> AccessError:
    return other_listener(NO_LOGIN, f"set security.protocol={'SSL' if sasl.encrypted else 'PLAINTEXT'} for this listener")


def shake_hands(sasl: Sasl, mechanism: str, exchange: Exchange) -> None:
    reply = exchange(SASL_HANDSHAKE, 1, pack(">h", len(mechanism)) + mechanism.encode())
    (code,) = _short.unpack_from(reply)
    if code == ILLEGAL_STATE:
        raise no_login(sasl)
    if code == UNSUPPORTED_MECHANISM:
        offered = mechanisms_in(reply)
        usable = [name for name in (*HASHES, PLAIN) if name in offered and (name != PLAIN or sasl.encrypted)]
        if not sasl.mechanism and not sasl.chosen and usable:
            sasl.chosen.append(usable[0])
            raise OtherMechanism
        known = [name for name in offered if name in MECHANISMS]
        remedy = f"set sasl.mechanism={known[0]}" if known else "name a listener with one of those that this command has: " + ", ".join(MECHANISMS)
        asked = mechanism if sasl.mechanism else "SCRAM"
        raise other_listener(f"offers {', '.join(map(printable, offered)) or 'no mechanism'}, not {asked}", remedy)
    if code:
        raise other_listener(f"answers SaslHandshake with error {code}")


def steps_of(sasl: Sasl, mechanism: str, deadline: float) -> Generator[bytes, bytes, None]:
    """The messages of the mechanism. It is sent the broker's answers, and ends when the login is complete."""
    if mechanism in HASHES:
        scram = Scram(mechanism, sasl.user, sasl.password, secrets.token_urlsafe(NONCE_BYTES))
        answer = yield scram.first()
        answer = yield scram.final(answer)
        scram.check(answer)
    elif mechanism == OAUTHBEARER:
        assert sasl.oauth is not None
        answer = yield first_message(sasl.oauth.token(deadline), sasl.oauth.extensions)
        if answer:  # an error document; to the next message the broker answers with the error
            sasl.oauth.forget()
            yield b"\x01"
            raise refused(sasl, AUTHENTICATION_FAILED, reason_in(answer))
    else:
        yield f"\0{sasl.user}\0{sasl.password.reveal()}".encode()


def authenticate(reply: bytes, version: int) -> tuple[int, str, bytes, int]:
    """The error code, the broker's reason, its message and the session's lifetime in ms, in a reply to SaslAuthenticate."""
    code, size = unpack_from(">hh", reply)
    at = 4 + max(0, size)
    reason = reply[4:at].decode("utf-8", "replace")
    (size,) = unpack_from(">i", reply, at)
    end = at + 4 + max(0, size)
    (lifetime_ms,) = unpack_from(">q", reply, end) if version else (0,)
    return code, reason, reply[at + 4 : end], lifetime_ms


def refused(sasl: Sasl, code: int, reason: str) -> AccessError:
    if code == ILLEGAL_STATE:
        return no_login(sasl)
    if sasl.oauth is not None:
        sasl.oauth.forget()
        said = f" ({printable(reason)})" if reason else ""
        return refused_login(f"does not accept the token{said}", "check its audience, issuer and scope against what the broker expects")
    if code == AUTHENTICATION_FAILED:
        return refused_login(f"refuses the login: wrong user or password for {printable(sasl.user)}", f"check {sasl.where}")
    return refused_login(f"refuses the login with error {code}")

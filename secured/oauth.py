"""Tokens for OAUTHBEARER: from a token endpoint by client credentials (RFC 6749, 4.4), or from a file."""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from secured.deadline import remaining
from secured.errors import AccessError, Cause, wrong_settings
from secured.hidden import Secret
from secured.values import content

if TYPE_CHECKING:
    import ssl

    from secured.tls import Tls

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
FILE: Final = "file:"
REPLY_BYTES_MAX: Final = 1 << 20
SHOWN_MAX: Final = 200
RENEWED_AT: Final = 0.8  # of a token's life, as Kafka's clients do
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class OAuth:
    source: str
    endpoint: str
    client_id: str
    client_secret: Secret
    scope: str
    extensions: dict[str, str]
    trusted: Tls | None  # its authorities, besides those of the system
    _tokens: list[tuple[Secret, float]] = field(default_factory=list, repr=False, compare=False)  # the newest token, and when to renew it
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def token(self, deadline: float) -> Secret:
        """A token that is valid for a while. Raises AccessError."""
        with self._lock:
            if not self._tokens or time.monotonic() >= self._tokens[0][1]:
                self._tokens[:] = [self._fetch(deadline)]
            return self._tokens[0][0]

    def forget(self) -> None:
        """The broker refuses the token: get another one for the next login."""
        self._tokens.clear()

    def _fetch(self, deadline: float) -> tuple[Secret, float]:
        if not self.endpoint:
            raise wrong_settings(f"{self.source} has no {ENDPOINT}", "set it to the URL where the identity provider gives tokens")
        if self.endpoint.startswith(FILE):
            path = self.endpoint.removeprefix(FILE)
            token = content("/" + path.lstrip("/") if path.startswith("//") else path, f"{ENDPOINT} in {self.source}").strip()
            return Secret(token), renewal(token, None)
        if not self.client_id or not self.client_secret:
            raise wrong_settings(
                f"{self.source} has no client id or secret for its token endpoint",
                "set sasl.oauthbearer.client.credentials.client.id and .secret, or clientId and clientSecret in sasl.jaas.config",
            )
        reply = self._request(deadline)
        issued = reply.get("access_token")
        if not isinstance(issued, str) or not issued:
            raise no_token(f"{self.endpoint} answers without an access_token")
        if any(char.isspace() or not char.isprintable() for char in issued):
            raise no_token(f"{self.endpoint} answers with an access_token that is none")
        return Secret(issued), renewal(issued, reply.get("expires_in"))

    def _request(self, deadline: float) -> dict[str, Any]:
        """The endpoint's reply. urllib has no deadline for name, handshake and reply together, so it runs in a thread."""
        results: list[dict[str, Any] | Exception] = []

        def ask() -> None:
            try:
                results.append(self._ask(remaining(deadline)))
            except Exception as error:
                results.append(error)

        thread = threading.Thread(target=ask, daemon=True, name="token")
        thread.start()
        thread.join(remaining(deadline))
        if not results:
            raise no_provider(f"{self.endpoint} does not answer in time")
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    def _ask(self, seconds: float) -> dict[str, Any]:
        from urllib.error import HTTPError, URLError
        from urllib.parse import quote, urlencode, urlsplit
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

        class NoRedirects(HTTPRedirectHandler):
            """A redirect would send the credentials somewhere else."""

            def redirect_request(self, *arguments: Any, **more: Any) -> None:
                return None

        url = urlsplit(self.endpoint)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise wrong_settings(f"{ENDPOINT} in {self.source} is no URL of https", "write https://HOST/PATH, or file:PATH for a token in a file")
        if url.scheme == "http" and url.hostname not in LOOPBACK:
            raise wrong_settings(f"{ENDPOINT} in {self.source} would send the client's secret without encryption", "write https://")
        fields = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        login = base64.b64encode(f"{quote(self.client_id, safe='')}:{quote(self.client_secret.reveal(), safe='')}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        request = Request(self.endpoint, urlencode(fields).encode(), headers, method="POST")
        try:
            with build_opener(NoRedirects, HTTPSHandler(context=self._context())).open(request, timeout=seconds) as reply:
                data = reply.read(REPLY_BYTES_MAX)
        except HTTPError as error:
            raise no_token(f"{self.endpoint} answers with status {error.code}{self._reason(error)}", "check the client id and secret") from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            words = getattr(reason, "verify_message", None) or getattr(reason, "strerror", None) or str(reason)
            raise no_provider(f"{self.endpoint}: {words.lower()}") from None
        try:
            document = json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise no_token(f"{self.endpoint} does not answer with JSON", "check the URL")
        return document

    def _context(self) -> ssl.SSLContext:
        """The system's authorities, and those of the file."""
        import ssl

        from secured.tls import load_trusted

        context = ssl.create_default_context()
        if self.trusted is not None and (self.trusted.trusted_file or self.trusted.trusted_text):
            load_trusted(context, self.trusted)
        return context

    def _reason(self, error: Any) -> str:
        """The `error` of an OAuth error reply, such as invalid_client; never other words, as they may repeat what was sent."""
        try:
            with error:
                code = json.loads(error.read(REPLY_BYTES_MAX)).get("error")
        except (OSError, ValueError, AttributeError):
            return ""
        return f" ({code})" if isinstance(code, str) and code.replace("_", "").isalpha() and len(code) < 60 else ""


def no_token(problem: str, remedy: str = "check the URL") -> AccessError:
    return AccessError(Cause.TOKEN, f"no token for the login: {problem}", remedy)


def no_provider(problem: str) -> AccessError:
    return AccessError(Cause.PROVIDER, f"no token for the login: {problem}", f"check {ENDPOINT}")


def renewal(token: str, expires_in: object) -> float:
    """When to get the next token: after a share of the time that this one is valid."""
    seconds = float(expires_in) if isinstance(expires_in, int | float) and not isinstance(expires_in, bool) else None
    if seconds is None:
        expiry = claims(token).get("exp")
        seconds = float(expiry) - time.time() if isinstance(expiry, int | float) else 0.0
    return time.monotonic() + max(0.0, seconds) * RENEWED_AT


def claims(token: str) -> dict[str, Any]:
    """The claims of a JWT; none of an opaque token."""
    part = f"{token}..".split(".")[1]
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return found if isinstance(found, dict) else {}


def first_message(token: Secret, extensions: dict[str, str]) -> bytes:
    """RFC 7628: the token and the extensions, which Kafka sends to its login modules."""
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    return f"n,,\x01auth=Bearer {token.reveal()}\x01{pairs}\x01".encode()


def reason_in(message: bytes) -> str:
    """The `status` of the broker's error document, such as invalid_token."""
    try:
        status = json.loads(message).get("status")
    except (ValueError, AttributeError):
        return ""
    return status if isinstance(status, str) and status.isprintable() and len(status) <= SHOWN_MAX else ""

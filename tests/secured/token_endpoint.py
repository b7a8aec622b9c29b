"""A token endpoint on loopback that gives unsigned tokens, as Kafka's default validator of tokens accepts them."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs


def token(subject: str = "token", seconds: float = 60.0) -> str:
    now = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + seconds, "scope": "kafka"})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


class TokenEndpoint:
    """`reply`: makes status and body of each answer; `requests`: headers and fields of those that came."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, list[str]]]] = []
        self.reply: Any = lambda: (200, json.dumps({"access_token": token(), "expires_in": 60, "token_type": "Bearer"}))
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.requests.append((dict(self.headers), parse_qs(body)))
                status, text = endpoint.reply()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", endpoint.url)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def token_endpoint() -> Iterator[TokenEndpoint]:
    opened = TokenEndpoint()
    try:
        yield opened
    finally:
        opened.close()

"""The client of the test control: HTTP and JSON over one connection for each thread. Standard library only."""

from __future__ import annotations

import http.client
import json
import os
import threading
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

SECONDS = 30.0  # more than any verb takes besides the time that it is told to wait


class ControlError(Exception):
    """The control refused a call: `status`, `error`, `hint`, and the whole `document`."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        self.status = status
        self.document = document
        self.error = str(document.get("error", ""))
        self.hint = str(document.get("hint", ""))
        super().__init__(f"{self.error} ({self.hint})" if self.hint else self.error)


class NotReached(ControlError, AssertionError):
    """What was waited for has not come; `state` is what was reached instead."""

    @property
    def state(self) -> Any:
        return self.document.get("state")


class Control:
    """Calls by method and path. Thread-safe; refuses to be used in a forked child, whose connections would be its parent's."""

    def __init__(self, url: str, token: str, *, own_thread: int | None = None) -> None:
        """`own_thread`: the thread that serves it, if it is one of this process: that thread cannot wait for itself."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or not parts.port:
            raise ValueError(f"{url!r} is no address of a test control: http://HOST:PORT")
        self.url = url.rstrip("/")
        self.token = token
        self._address = parts.hostname, parts.port
        self._local = threading.local()
        self._open: set[http.client.HTTPConnection] = set()  # of all threads
        self._pid = os.getpid()
        self._own_thread = own_thread

    @classmethod
    def of(cls, text: str) -> Control:
        """From `http://TOKEN@HOST:PORT`, as --tenure and $TENURE_CONTROL take it."""
        parts = urlsplit(text)
        if not parts.username:
            raise ValueError(f"{text!r}: the token is missing: http://TOKEN@HOST:PORT")
        return cls(f"{parts.scheme}://{parts.hostname}:{parts.port}", parts.username)

    @property
    def address(self) -> str:
        """As `of` takes it."""
        return self.url.replace("http://", f"http://{self.token}@", 1)

    def get(self, path: str, **query: Any) -> Any:
        given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items() if value is not None}
        return self.call("GET", f"{path}?{urlencode(given)}" if given else path)

    def post(self, path: str, document: Any = None, *, seconds: float = SECONDS) -> Any:
        return self.call("POST", path, {} if document is None else document, seconds=seconds)

    def delete(self, path: str) -> Any:
        return self.call("DELETE", path)

    def call(self, method: str, path: str, document: Any = None, *, seconds: float = SECONDS) -> Any:
        self.refuse_in_fork()
        if self._own_thread == threading.get_ident():
            raise RuntimeError("this is the thread of the broker's own loop, which would wait for itself for ever: call from another thread")
        body = None if document is None else json.dumps(document).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        for attempt in (1, 2):
            connection = self._connection(seconds)
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                data = answer.read()
                break
            except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError) as error:
                self.close()
                if attempt == 2:
                    raise ConnectionError(f"the test control at {self.url} does not answer: has the broker ended? ({error})") from error
        parsed = json.loads(data) if data else {}
        if answer.status >= 400:
            raise (NotReached if answer.status == 408 else ControlError)(answer.status, parsed)
        return parsed

    def refuse_in_fork(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("this process was forked from the one that started the broker: start a broker of its own, or use its address alone")

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection(*self._address, timeout=seconds)
            self._open.add(connection)
        connection.timeout = seconds
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        return connection

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._open.discard(connection)
            self._local.connection = None

    def close_all(self) -> None:
        """Close the connections of all threads."""
        if os.getpid() != self._pid:
            return  # they are its parent's
        while self._open:
            self._open.pop().close()
        self._local = threading.local()


def path_of(cluster: str, *parts: str) -> str:
    return "/".join(["/v1/clusters", quote(cluster, safe=""), *parts])

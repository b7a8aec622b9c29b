"""A connected socket, plain or encrypted, whose calls end at a deadline."""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING

from secured.deadline import remaining

if TYPE_CHECKING:
    import ssl

READ_BYTES = 1 << 18
RECORD_BYTES = 1 << 14  # of TLS


class Channel:
    __slots__ = ("_socket",)

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, data: bytes, deadline: float) -> None:
        self._socket.settimeout(remaining(deadline))
        self._socket.sendall(data)

    def receive(self, size: int, deadline: float) -> bytes:
        """At most `size` bytes; none at the end of the stream."""
        self._socket.settimeout(remaining(deadline))
        return self._socket.recv(min(size, READ_BYTES))

    def receive_exactly(self, size: int, deadline: float) -> bytes:
        """Raises EOFError at the end of the stream."""
        data = bytearray()
        while len(data) < size:
            piece = self.receive(size - len(data), deadline)
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def arrived(self, seconds: float) -> bool:
        """Whether `receive` would return at once, after waiting for it."""
        return readable(self._socket, seconds)

    def fileno(self) -> int:
        """The descriptor, for polling several channels; `arrived` says whether it had data."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class TlsChannel(Channel):
    """Bytes on the socket need not be data for the caller (a session ticket), and decrypted data no longer shows on the socket: `arrived` reads ahead."""

    __slots__ = ("_ahead", "_ended", "_tls")

    def __init__(self, encrypted: ssl.SSLSocket) -> None:
        super().__init__(encrypted)
        self._tls = encrypted
        self._ahead = b""
        self._ended: OSError | None = None

    def send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._tls.settimeout(remaining(deadline))
            try:
                view = view[self._tls.send(view[:RECORD_BYTES]) :]
            except TimeoutError:
                raise
            except OSError as error:
                raise self._alert_or(error, deadline) from error

    def _alert_or(self, error: OSError, deadline: float) -> OSError:
        """The alert that the peer sent before it closed the connection, if there is one, else the error."""
        import ssl

        try:
            self._tls.settimeout(remaining(deadline))
            self._tls.recv(1)
        except ssl.SSLError as alert:
            return alert
        except OSError:
            pass
        return error

    def receive(self, size: int, deadline: float) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        if self._ended is not None:
            raise self._ended
        return super().receive(size, deadline)

    def arrived(self, seconds: float) -> bool:
        import ssl

        until = time.monotonic() + seconds
        while not self._ahead and self._ended is None:
            self._tls.settimeout(0)
            try:
                self._ahead = self._tls.recv(READ_BYTES)
                return True
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except OSError as error:
                self._ended = error
                return True
            left = until - time.monotonic()
            if left <= 0 or not readable(self._tls, left):
                return False
        return True


def readable(connected: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))

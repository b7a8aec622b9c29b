"""Bound the bytes of incomplete requests over all connections (`connections.partial.requests.max.bytes`).

Only received bytes count, not the size that a request announces. Above the bound, connections are closed until an eighth of the bound
is free. Candidates are those whose incomplete request has at least the average size, except the connection that has just sent; the
longest inactive are closed first. So active clients complete their requests. Pausing connections instead could deadlock: each would keep
its bytes and wait until the others free theirs.
"""

from __future__ import annotations

from typing import Protocol


class Receiving(Protocol):
    """A connection in the middle of a request."""

    last_active: int

    def close(self, reason: str) -> None: ...


class PartialRequests:
    __slots__ = ("_bytes_max", "_reason", "bytes", "sizes")

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` is at least the largest request with its length, so that a single request always fits."""
        self.bytes = 0
        self.sizes: dict[Receiving, int] = {}
        self._bytes_max = bytes_max
        self._reason = (
            f"the incomplete requests of all connections have more than {bytes_max} bytes "
            "(connections.partial.requests.max.bytes), and this large request was inactive longest"
        )

    def set_received_bytes(self, connection: Receiving, size: int) -> None:
        """Set the received bytes of the connection's incomplete request; 0: none."""
        self.bytes += size - self.sizes.pop(connection, 0)
        if size:
            self.sizes[connection] = size
            if self.bytes > self._bytes_max:
                self._close_largest(connection)

    def _close_largest(self, newest: Receiving) -> None:
        target = self._bytes_max - self._bytes_max // 8
        while self.bytes > target and len(self.sizes) > 1:
            average = (self.bytes - self.sizes[newest]) / (len(self.sizes) - 1)
            large = [connection for connection, size in self.sizes.items() if size >= average and connection is not newest]
            for connection in sorted(large, key=_last_active):
                if self.bytes <= target:
                    return
                self.set_received_bytes(connection, 0)
                connection.close(self._reason)


def _last_active(connection: Receiving) -> int:
    return connection.last_active

"""The bytes of requests that have not arrived in full, of all connections together (`connections.partial.requests.max.bytes`).

What counts is what was received: a length that is only announced takes nothing. Beyond the bound connections are closed until
an eighth of it is free: of those that hold at least the average, the ones heard from longest ago, and never the one that sends
just now. So clients that send on come to the end of their requests, whatever others hold and let lie; nobody is paused, and
nothing can wait for itself.
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
        """`bytes_max` is at least the largest request with its length: one alone is never too much."""
        self.bytes = 0
        self.sizes: dict[Receiving, int] = {}
        self._bytes_max = bytes_max
        self._reason = (
            f"the requests that have not arrived in full take more than {bytes_max} bytes together "
            "(connections.partial.requests.max.bytes), and this one was among the large ones and waited longest"
        )

    def changed(self, connection: Receiving, size: int) -> None:
        """So much has arrived of its request by now; 0: it is whole, or given up."""
        self.bytes += size - self.sizes.pop(connection, 0)
        if size:
            self.sizes[connection] = size
            if self.bytes > self._bytes_max:
                self._free(connection)

    def _free(self, newest: Receiving) -> None:
        wanted = self._bytes_max - self._bytes_max // 8
        while self.bytes > wanted and len(self.sizes) > 1:
            average = (self.bytes - self.sizes[newest]) / (len(self.sizes) - 1)
            large = [connection for connection, size in self.sizes.items() if size >= average and connection is not newest]
            for connection in sorted(large, key=_last_active):
                if self.bytes <= wanted:
                    return
                self.changed(connection, 0)
                connection.close(self._reason)


def _last_active(connection: Receiving) -> int:
    return connection.last_active

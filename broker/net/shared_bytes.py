"""Bound the bytes that all connections together hold: incomplete requests (`connections.partial.requests.max.bytes`), and replies that are
being built or wait for their readers (`connections.unread.replies.max.bytes`).

Of requests only received bytes count, not the size that a request announces. Above the bound, connections are closed until an eighth of the bound
is free. Candidates are those that hold at least the average size, except the connection that has just grown; the longest inactive are closed
first. So active clients complete their requests. Pausing connections instead could deadlock: each would keep its bytes and wait until the others
free theirs.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A connection in the middle of a request or reply."""

    last_active: int

    def close(self, reason: str) -> None: ...

    def abort(self, reason: str) -> None: ...


class SharedBytes:
    __slots__ = ("_abort", "_bytes_max", "_reason", "bytes", "sizes")

    def __init__(self, bytes_max: int, reason: str, abort: bool) -> None:
        """`bytes_max` is at least the most that one connection may hold, so that a single one always fits.

        `reason`: for the log, of a closed connection. `abort`: drop its unsent bytes.
        """
        self.bytes = 0
        self.sizes: dict[Holder, int] = {}
        self._bytes_max = bytes_max
        self._reason = reason
        self._abort = abort

    def set_bytes(self, connection: Holder, size: int) -> None:
        """Set the bytes that the connection holds; 0: none."""
        self.bytes += size - self.sizes.pop(connection, 0)
        if size:
            self.sizes[connection] = size
            if self.bytes > self._bytes_max:
                self._close_largest(connection)

    def _close_largest(self, newest: Holder) -> None:
        target = self._bytes_max - self._bytes_max // 8
        while self.bytes > target and len(self.sizes) > 1:
            average = (self.bytes - self.sizes[newest]) / (len(self.sizes) - 1)
            large = [connection for connection, size in self.sizes.items() if size >= average and connection is not newest]
            for connection in sorted(large, key=_last_active):
                if self.bytes <= target:
                    return
                self.set_bytes(connection, 0)
                if self._abort:
                    connection.abort(self._reason)
                else:
                    connection.close(self._reason)


def partial_requests(bytes_max: int) -> SharedBytes:
    return SharedBytes(
        bytes_max,
        f"the incomplete requests of all connections have more than {bytes_max} bytes "
        "(connections.partial.requests.max.bytes), and this large request was inactive longest",
        abort=False,
    )


def unread_replies(bytes_max: int) -> SharedBytes:
    return SharedBytes(
        bytes_max,
        f"the unread replies of all connections have more than {bytes_max} bytes "
        "(connections.unread.replies.max.bytes), and the client of this large reply was inactive longest",
        abort=True,
    )


def _last_active(connection: Holder) -> int:
    return connection.last_active

"""A transport that checks before each write whether this node may still answer: another node may have taken its logs.

If the node may not answer, the connection is closed without the reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.net.reply_writer import Transport


class GuardedTransport:
    """Has the methods of a transport that a connection calls."""

    def __init__(self, transport: Transport, may_answer: Callable[[], bool]) -> None:
        self._transport = transport
        self._may_answer = may_answer
        self.close = transport.close
        self.abort = transport.abort
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.is_closing = transport.is_closing
        self.set_write_buffer_limits = transport.set_write_buffer_limits

    def write(self, data: bytes) -> None:
        if self._may_answer():
            self._transport.write(data)
        else:
            self._transport.abort()

    def writelines(self, parts: list[bytes]) -> None:
        if self._may_answer():
            self._transport.writelines(parts)
        else:
            self._transport.abort()

    def get_extra_info(self, name: str) -> Any:
        """Hide the socket: long replies would be written to it directly, without the check."""
        return None if name == "socket" else self._transport.get_extra_info(name)

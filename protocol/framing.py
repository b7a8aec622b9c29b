"""Split a byte stream into length-prefixed frames.

What has arrived of a frame grows in one buffer until it is whole: 100 MB that are announced cost nothing, and 100 MB
that come in chunks of a few bytes cost 100 MB, where a list of the chunks would cost many times as much.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol.errors import ProtocolError

frame_size: Final = Struct(">i").unpack_from
frame_size_bytes: Final = Struct(">i").pack


class Framer:
    """Frames of one connection, without their lengths; `frame_bytes_max` is the largest that is read."""

    __slots__ = ("_buffer", "_frame_bytes_max", "_need", "pending")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self.pending = 0  # bytes of a frame that is not whole yet
        self._need = 4  # bytes missing for the next length or frame

    def clear(self) -> None:
        """Drop the bytes of an incomplete frame."""
        self._buffer = bytearray()
        self.pending = 0
        self._need = 4

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes. Raises ProtocolError for an invalid length; feed nothing after it."""
        frames: list[bytes] = []
        if self.pending:
            self._buffer += data
            self.pending += len(data)
            if self.pending < self._need:
                return frames
            have = memoryview(self._buffer)
            self._buffer = bytearray()
            self.pending = 0
            if self._need > 4:  # copied once, as it may be large
                frames.append(bytes(have[4 : self._need]))
                data = bytes(have[self._need :])
            else:
                data = bytes(have)
        at = 0
        end = len(data)
        while end - at >= 4:
            (size,) = frame_size(data, at)
            if size < 0 or size > self._frame_bytes_max:
                raise ProtocolError(f"a request of {size} bytes, allowed are 0 to {self._frame_bytes_max} (socket.request.max.bytes)")
            next_at = at + 4 + size
            if next_at > end:
                self._need = 4 + size
                break
            frames.append(data[at + 4 : next_at])
            at = next_at
        else:
            self._need = 4
        if at < end:
            self._buffer += data[at:]
            self.pending = end - at
        return frames

"""A byte stream into length-prefixed frames.

Chunks are kept as they came until a frame is whole: a frame that announces 100 MB costs what has arrived of it, and
is joined once.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol.errors import ProtocolError

frame_size: Final = Struct(">i").unpack_from


class Framer:
    """Frames of one connection, without their lengths; `frame_bytes_max` is the largest that is read."""

    __slots__ = ("_chunks", "_frame_bytes_max", "_need", "pending")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._chunks: list[bytes] = []
        self.pending = 0  # bytes of a frame that is not whole yet
        self._need = 4  # bytes until there is more to know: a length, or a whole frame

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes. ProtocolError: a length that cannot be; nothing more comes from here."""
        if self.pending:
            self._chunks.append(data)
            self.pending += len(data)
            if self.pending < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
            self.pending = 0
        frames: list[bytes] = []
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
            rest = data[at:] if at else data
            self._chunks.append(rest)
            self.pending = len(rest)
        return frames

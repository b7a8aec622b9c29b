"""Split a byte stream into length-prefixed frames.

The parts of an incomplete frame are joined once, when it is complete. A part of less than 1 KiB is merged with the next chunk: 100 MB in
chunks of a few bytes take 100 MB of memory, without a `bytes` object for each chunk. An announced length takes no memory.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol.errors import ProtocolError

frame_size: Final = Struct(">i").unpack_from


PART_BYTES_MIN: Final = 1_024  # smaller chunks are merged


class Framer:
    """Frames of one connection, with their lengths; a frame of more than `frame_bytes_max` raises ProtocolError."""

    __slots__ = ("_frame_bytes_max", "_need", "_parts", "pending")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._parts: list[bytes] = []  # of the incomplete frame, or of its length
        self.pending = 0  # received bytes of an incomplete frame, including its length
        self._need = 4  # the size of the next frame's length field, or of the frame including it

    def clear(self) -> None:
        """Drop the bytes of an incomplete frame."""
        self._parts = []
        self.pending = 0
        self._need = 4

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes. Raises ProtocolError for an invalid length; nothing may be fed after that."""
        frames: list[bytes] = []
        at = 0
        end = len(data)
        if self.pending:
            missing = self._need - self.pending
            if end < missing:
                self.pending += end
                self._keep_chunk(data)
                return frames
            parts = self._parts
            self._parts = []
            self.pending = 0
            if self._need == 4:
                data = b"".join(parts) + data
                end = len(data)
            else:
                at = missing
                parts.append(data if at == end else data[:at])
                frames.append(b"".join(parts))
        while end - at >= 4:
            (size,) = frame_size(data, at)
            if size < 0 or size > self._frame_bytes_max:
                raise ProtocolError(f"a request of {size} bytes, allowed are 0 to {self._frame_bytes_max} (socket.request.max.bytes)")
            next_at = at + 4 + size
            if next_at > end:
                self._need = 4 + size
                break
            frames.append(data[at:next_at])
            at = next_at
        else:
            self._need = 4
        if at < end:
            self.pending = end - at
            self._parts.append(data[at:])
        return frames

    def _keep_chunk(self, data: bytes) -> None:
        parts = self._parts
        if len(parts[-1]) < PART_BYTES_MIN:
            parts[-1] += data
        else:
            parts.append(data)

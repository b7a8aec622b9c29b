"""Reads lines of standard input or a file, as many as are available at a time: so typed lines are sent at once, others in large batches."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cli.failure import Exit, Failure

GROUP_BYTES: Final = 1 << 20
READ_BYTES: Final = 1 << 16
LINE_BYTES_MAX: Final = 100 << 20  # as the largest request that a broker accepts (socket.request.max.bytes)


@contextmanager
def open_input(path: str | None) -> Iterator[int | bytes]:
    """The descriptor of a file or of standard input; the bytes of standard input if it has no descriptor."""
    if path is None or path == "-":
        yield standard_input()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def unreadable(path: str | None, error: OSError) -> Failure:
    return Failure(Exit.MISSING, f"{path or 'standard input'}: {(error.strerror or str(error)).lower()}")


def standard_input() -> int | bytes:
    if sys.stdin is None:
        return b""
    try:
        return sys.stdin.fileno()
    except (OSError, ValueError):
        return sys.stdin.buffer.read()


def line_groups(source: int | bytes, name: str | None = None) -> Iterator[list[bytes]]:
    """Yield groups of lines, without their line feeds. Text after the last line feed is also a line. `name`: of the file, for errors."""
    if isinstance(source, bytes):
        lines = source.split(b"\n")
        if not lines[-1]:
            lines.pop()
        if lines:
            yield lines
        return
    parts: list[bytes] = []  # of an incomplete line
    size = 0
    ended = False
    while not ended:
        try:
            piece, ended = read_available(source)
        except OSError as error:
            raise unreadable(name, error) from error
        begin, line_feed, remainder = piece.partition(b"\n")
        if not line_feed:
            parts.append(piece)
            size += len(piece)
            if size > LINE_BYTES_MAX:
                raise Failure(Exit.DAMAGED, f"a line of more than {LINE_BYTES_MAX >> 20} MiB; no broker accepts such a record")
            continue
        lines = [b"".join((*parts, begin)), *remainder.split(b"\n")]
        parts = [lines.pop()]
        size = len(parts[0])
        yield lines
    if size:
        yield [b"".join(parts)]


def read_available(descriptor: int) -> tuple[bytes, bool]:
    """Wait for bytes; return those that are available, and whether the input has ended. A terminal reports its end (Ctrl-D) only once."""
    pieces = [os.read(descriptor, READ_BYTES)]
    size = len(pieces[0])
    while pieces[-1] and size < GROUP_BYTES and select.select([descriptor], [], [], 0)[0]:
        pieces.append(os.read(descriptor, READ_BYTES))
        size += len(pieces[-1])
    return b"".join(pieces), not pieces[-1]

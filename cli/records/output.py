"""The output of `tenure consume`: bytes, a limited number of records, each chunk at once."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Final

from cli.client import EXIT, Failure
from cli.records.batches import Chunk
from cli.records.layout import LONG, LONG_COLOURED, Found, Layout, as_bytes, as_safe_text, as_text, document
from cli.shown import Screen

TOGETHER: Final = 200  # lines in one write: a closed pipe is noticed soon, and a slow reader is not flooded


class Output:
    def __init__(self, options: argparse.Namespace, screen: Screen) -> None:
        self.left: int | None = options.limit
        self._line = printer(options, screen)

    @property
    def done(self) -> bool:
        return self.left == 0

    def put(self, chunk: Chunk, printed: Callable[[int], None]) -> None:
        """Print the records; `printed` gets the next offset whenever everything before it has been printed."""
        found = chunk.found if self.left is None else chunk.found[: self.left]
        for at in range(0, len(found), TOGETHER):
            some = found[at : at + TOGETHER]
            sys.stdout.flush()
            sys.stdout.buffer.write(b"".join(map(self._line, some)))
            sys.stdout.buffer.flush()
            if self.left is not None:
                self.left -= len(some)
            printed(some[-1].record.offset + 1)
        if len(found) == len(chunk.found):
            printed(chunk.next_offset)


def printer(options: argparse.Namespace, screen: Screen) -> Callable[[Found], bytes]:
    terminal = sys.stdout.isatty()
    if screen.json:
        return safe_json_line if terminal else json_line
    template = (LONG_COLOURED if screen.colour else LONG) if options.long else options.format or "{value}"
    text = as_bytes if options.raw else as_safe_text if terminal else as_text
    try:
        return Layout(template, text).line
    except ValueError as error:
        raise Failure(EXIT.USAGE, f"--format: {error}") from error


def json_line(found: Found) -> bytes:
    return json.dumps(document(found), ensure_ascii=False).encode() + b"\n"


def safe_json_line(found: Found) -> bytes:
    """The same, with control characters escaped that JSON would leave unescaped."""
    text = json.dumps(document(found), ensure_ascii=False)
    if text.isprintable():
        return text.encode() + b"\n"
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text).encode() + b"\n"

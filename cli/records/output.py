"""The output of `tenure consume`, up to a limited number of records."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Final

from cli.client import Exit, Failure
from cli.records.batches import Chunk
from cli.records.layout import LONG, LONG_COLOURED, ConsumedRecord, Layout, as_bytes, as_safe_text, as_text, document
from cli.shown import Screen

LINES_PER_WRITE: Final = 200  # few, to notice a closed pipe soon


class Output:
    def __init__(self, options: argparse.Namespace, screen: Screen) -> None:
        self.records_left: int | None = options.limit
        self._line = formatter_of(options, screen)

    @property
    def done(self) -> bool:
        return self.records_left == 0

    def print_records(self, chunk: Chunk, printed: Callable[[int], None]) -> None:
        """Print records; call `printed` with the next offset after each write."""
        records = chunk.records if self.records_left is None else chunk.records[: self.records_left]
        for at in range(0, len(records), LINES_PER_WRITE):
            records_written = records[at : at + LINES_PER_WRITE]
            sys.stdout.flush()
            sys.stdout.buffer.write(b"".join(map(self._line, records_written)))
            sys.stdout.buffer.flush()
            if self.records_left is not None:
                self.records_left -= len(records_written)
            printed(records_written[-1].record.offset + 1)
        if len(records) == len(chunk.records):
            printed(chunk.next_offset)


def formatter_of(options: argparse.Namespace, screen: Screen) -> Callable[[ConsumedRecord], bytes]:
    terminal = sys.stdout.isatty()
    if screen.json:
        return safe_json_line if terminal else json_line
    template = (LONG_COLOURED if screen.colour else LONG) if options.long else options.format or "{value}"
    text = as_bytes if options.raw else as_safe_text if terminal else as_text
    try:
        return Layout(template, text).line
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--format: {error}") from error


def json_line(record: ConsumedRecord) -> bytes:
    return json.dumps(document(record), ensure_ascii=False).encode() + b"\n"


def safe_json_line(record: ConsumedRecord) -> bytes:
    """The JSON line of a record for a terminal: also escapes the control characters that JSON leaves unescaped."""
    text = json.dumps(document(record), ensure_ascii=False)
    if text.isprintable():
        return text.encode() + b"\n"
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text).encode() + b"\n"

"""`tenure log dump`: the records of segments, logs or a whole data directory, in order, as text or as JSON lines."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from cli.logs.directory import NewerFormat, refuse_newer_format
from cli.logs.files import (
    Batch,
    Damage,
    InputError,
    LogFolder,
    SegmentFile,
    directory_around,
    holder,
    is_data_directory,
    is_log,
    log_folder,
    logs_of,
    named,
    open_for_reading,
    scan,
    segment_file,
    segments_of,
    why_nothing,
)
from cli.logs.records import NOTES_LOG, OFFSETS_LOG, REGISTRY_LOG, Decoded, decode, shown_bytes
from cli.logs.run import DAMAGED, DISK, NO_INPUT, Output
from cli.logs.text import batch_fields, batch_line, record_lines, shown
from protocol.batch import CorruptBatch, Record, records

KINDS = {"offsets": "offset", "groups": "group", "notes": "note", "topics": "topic", "records": "record"}
# Where records of a kind can be: other logs need not be read for them.
LOGS_OF_KINDS = {"offset": OFFSETS_LOG, "group": OFFSETS_LOG, "note": NOTES_LOG, "topic": REGISTRY_LOG}


class Enough(Exception):
    """As many records are printed as were asked for."""


def run(options: argparse.Namespace, output: Output) -> None:
    dump = Dump(options, output)
    try:
        for path in options.paths:
            try:
                dump.path(path)
            except NewerFormat as error:
                output.complain(str(error), DAMAGED)
            except InputError as error:
                output.complain(str(error), NO_INPUT)
    except Enough:
        pass
    if not dump.printed and (dump.filtered or dump.first) and options.limit != 0 and not output.code:
        output.complain("no record there is about that")


class Dump:
    def __init__(self, options: argparse.Namespace, output: Output) -> None:
        self.json: bool = options.json
        self.batches: bool = options.batches
        self.group: str | None = options.group
        self.topic: str | None = options.topic
        self.kind: str | None = KINDS[options.kind] if options.kind else None
        self.first: int = options.from_offset
        self.left: int = options.limit if options.limit is not None else -1
        self.as_log: str | None = named_log(options.log)
        self.output = output
        self.in_use = False
        self.printed = False
        self._heading = ""

    def path(self, path: str) -> None:
        if not os.path.lexists(path):
            raise InputError(f"{path} does not exist")
        if not os.path.isdir(path):
            self.one_file(path)
        elif is_log(path):
            self.inside(directory_around(path))
            self.whole_log(log_folder(path))
        elif is_data_directory(path):
            self.directory(path)
        else:
            raise why_nothing(path)

    def directory(self, path: str) -> None:
        self.inside(path)
        logs = logs_of(path)
        if not logs:
            raise InputError(f"{path} has no logs yet")
        for log in logs:
            if self.may_hold(log.name):
                self.whole_log(log)

    def inside(self, directory: str) -> None:
        """The data directory of the next output, or "" for none."""
        refuse_newer_format(directory)
        self.in_use = bool(directory) and holder(directory) is not None

    def may_hold(self, log: str) -> bool:
        """Whether the filters leave anything of the log."""
        if self.as_log is not None:
            log = self.as_log
        if self.kind == "record":
            return log not in LOGS_OF_KINDS.values()
        if self.kind is not None:
            return log == LOGS_OF_KINDS[self.kind]
        if self.group is not None:
            return log in (OFFSETS_LOG, NOTES_LOG)
        return self.topic is None or log == self.topic or log in LOGS_OF_KINDS.values()

    def whole_log(self, log: LogFolder) -> None:
        segments = segments_of(log.path)
        for number, segment in enumerate(segments):
            last = number + 1 == len(segments)
            if not last and segments[number + 1].base <= self.first:
                continue
            try:
                self.segment(log, segment, last)
            except FileNotFoundError:
                if not self.in_use:
                    raise
                self.output.complain(f"{segment.path} was removed by the broker meanwhile")

    def one_file(self, path: str) -> None:
        if path.endswith((".index", ".timeindex")):
            raise InputError(f"{path} is an index: give the .log beside it, and tenure log verify for both")
        if not os.path.isfile(path):
            raise InputError(f"{path} is neither a file nor a folder")
        segment = segment_file(path)
        folder = os.path.dirname(os.path.abspath(path))
        self.inside(directory_around(path))
        last = segment.base < 0 or segments_of(folder)[-1].base == segment.base
        self.segment(LogFolder(folder, *named(folder)), segment, last)

    def segment(self, log: LogFolder, segment: SegmentFile, last: bool) -> None:
        file = open_for_reading(segment.path)
        try:
            if segment.base < 0 and file.size() and not holds_a_batch(file.read(0, 17)):
                raise InputError(f"{segment.path} is no segment: it does not begin with a record batch")
            for found in scan(file, max(segment.base, 0)):
                if isinstance(found, Damage):
                    self.damage(segment, found, last)
                elif found.header.last_offset >= self.first:
                    self.batch(log, segment, found)
        except OSError as error:
            if error.filename is None:
                error.filename = segment.path
            if isinstance(error, FileNotFoundError):
                raise
            self.output.complain(f"{segment.path}: {error.strerror}", DISK)
        finally:
            file.close()

    def damage(self, segment: SegmentFile, found: Damage, last: bool) -> None:
        if found.torn and last and self.in_use:
            self.output.complain(f"{segment.path}: from byte {found.position} on the broker is writing; read again for what comes")
            return
        if not found.torn:
            what = f"{found.size} bytes left out, what follows them is sound"
        elif last:
            what = f"a torn end of {found.size} bytes, no sound batch follows"
        else:
            what = f"no sound batch follows in the {found.size} bytes to the end of the file, which is not the last of its log"
        self.output.complain(f"{segment.path} is damaged at byte {found.position}: {found.reason}; {what}", DAMAGED)

    def batch(self, log: LogFolder, segment: SegmentFile, batch: Batch) -> None:
        header = batch.header
        try:
            inside = records(batch.data, batch.at)
        except CorruptBatch as error:
            offsets = f"offsets {header.base_offset} to {header.last_offset}"
            self.output.complain(f"{segment.path}: the batch at byte {batch.position} ({offsets}) cannot be read: {error}", DAMAGED)
            return
        name = self.as_log or log.name
        wanted = [(record, found) for record in inside for found in (decode(name, record, header.is_control),) if self.wants(name, record, found)]
        if self.batches and (wanted or not self.filtered):
            self.print(log, segment, batch_fields(batch.position, header), [batch_line(batch.position, header)])
        for record, found in wanted:
            if self.left == 0:
                raise Enough
            self.left -= 1
            self.print(log, segment, record_fields(record, found), lines_of(record, found))
            if found.unreadable:
                self.output.fail(DAMAGED, f"{segment.path}: the record at offset {record.offset} cannot be read: {found.remark}")
        if self.left == 0:
            raise Enough

    @property
    def filtered(self) -> bool:
        return self.group is not None or self.topic is not None or self.kind is not None

    def wants(self, log: str, record: Record, found: Decoded) -> bool:
        return (
            record.offset >= self.first
            and (self.kind is None or found.kind == self.kind or (self.kind == "record" and found.kind == "control"))
            and (self.group is None or found.group == self.group)
            and (self.topic is None or (found.topic or (log if found.kind in ("record", "control") else None)) == self.topic)
        )

    def print(self, log: LogFolder, segment: SegmentFile, fields: dict[str, Any], lines: Iterator[str] | list[str]) -> None:
        self.printed = True
        if self.json:
            place = {"log": log.name or None, "partition": log.partition if log.name else None, "segment": os.path.basename(segment.path)}
            self.output.line(json.dumps(place | fields, ensure_ascii=False))
            return
        if segment.path != self._heading:
            self.output.line(f"{'' if not self._heading else chr(10)}{segment.path}")
            self._heading = segment.path
        for line in lines:
            self.output.line(line)


def record_fields(record: Record, found: Decoded) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": found.kind, "offset": record.offset, "timestamp": record.timestamp, "key": found.key, "value": found.value}
    if record.headers:
        fields["headers"] = [[shown_bytes(name), shown_bytes(value)] for name, value in record.headers]
    if found.remark:
        fields["remark"] = found.remark
    return fields


def lines_of(record: Record, found: Decoded) -> Iterator[str]:
    first, *below = record_lines(record.offset, record.timestamp, found)
    headers = ", ".join(f"{shown(shown_bytes(name))}={shown(shown_bytes(value))}" for name, value in record.headers)
    yield f"{first}  headers {headers}" if headers else first
    yield from below


def holds_a_batch(data: bytes) -> bool:
    """The magic byte is that of a batch; of older formats too, which a scan then names."""
    return len(data) == 17 and data[16] in (0, 1, 2) and data[:2] in (b"\0\0", b"\0\1")


def named_log(name: str | None) -> str | None:
    """Also for an internal log named by its folder, with the number of the partition."""
    found = re.fullmatch(r"(.+)-\d+", name or "")
    return found[1] if found and found[1] in LOGS_OF_KINDS.values() else name

"""`tenure log dump`: the records of segments, logs or a whole data directory, in order, as text or as JSON lines."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from cli.logs.directory import NewerFormat, nodes_of, refuse_newer_format, user_of
from cli.logs.files import (
    Batch,
    Damage,
    InputError,
    LogFolder,
    SegmentFile,
    directory_around,
    is_data_directory,
    is_log,
    log_folder,
    logs_of,
    nothing_to_read,
    open_for_reading,
    scan,
    segment_file,
    segments_of,
    topic_and_partition,
)
from cli.logs.records import NOTES_LOG, OFFSETS_LOG, REGISTRY_LOG, Decoded, decode, shown_bytes
from cli.logs.run import DAMAGED, DISK, NO_INPUT, Output
from cli.logs.text import batch_fields, batch_line, record_lines, shown
from protocol.batch import CorruptBatch, Record, records

KINDS = {"offsets": "offset", "groups": "group", "notes": "note", "topics": "topic", "records": "record"}
# For each kind the only log that has such records. With --kind the command reads no other logs.
LOGS_OF_KINDS = {"offset": OFFSETS_LOG, "group": OFFSETS_LOG, "note": NOTES_LOG, "topic": REGISTRY_LOG}


class LimitReached(Exception):
    """The number of records in --limit is printed."""


def run(options: argparse.Namespace, output: Output) -> None:
    dump = Dump(options, output)
    try:
        for path in options.paths:
            try:
                dump.dump_path(path)
            except NewerFormat as error:
                output.report(str(error), DAMAGED)
            except InputError as error:
                output.report(str(error), NO_INPUT)
    except LimitReached:
        pass
    if not dump.printed and (dump.filtered or dump.from_offset) and options.limit != 0 and not output.code:
        output.report("no record matches")


class Dump:
    def __init__(self, options: argparse.Namespace, output: Output) -> None:
        self.json: bool = options.json
        self.batches: bool = options.batches
        self.group: str | None = options.group
        self.topic: str | None = options.topic
        self.kind: str | None = KINDS[options.kind] if options.kind else None
        self.from_offset: int = options.from_offset
        self.records_left: int = options.limit if options.limit is not None else -1
        self.as_log: str | None = log_name(options.log)
        self.output = output
        self.in_use = False
        self.printed = False
        self._heading = ""

    def dump_path(self, path: str) -> None:
        if not os.path.lexists(path):
            raise InputError(f"{path} does not exist")
        if not os.path.isdir(path):
            self.dump_file(path)
        elif is_log(path):
            self.check_directory(directory_around(path))
            self.dump_log(log_folder(path))
        elif is_data_directory(path):
            self.dump_directory(path)
        else:
            raise nothing_to_read(path)

    def dump_directory(self, path: str) -> None:
        self.check_directory(path)
        logs = logs_of(path)
        if not logs:
            raise InputError(f"{path} has no logs yet")
        for log in logs:
            if self.may_match(log.name):
                self.dump_log(log)

    def check_directory(self, directory: str) -> None:
        """Check the data directory around the logs that are read next ("": none): its format, and whether a broker uses it."""
        refuse_newer_format(directory)
        self.in_use = bool(directory) and user_of(directory, nodes_of(directory)) is not None

    def may_match(self, log: str) -> bool:
        """Whether the log can contain records that match the filters."""
        if self.as_log is not None:
            log = self.as_log
        if self.kind == "record":
            return log not in LOGS_OF_KINDS.values()
        if self.kind is not None:
            return log == LOGS_OF_KINDS[self.kind]
        if self.group is not None:
            return log in (OFFSETS_LOG, NOTES_LOG)
        return self.topic is None or log == self.topic or log in LOGS_OF_KINDS.values()

    def dump_log(self, log: LogFolder) -> None:
        segments = segments_of(log.path)
        for number, segment in enumerate(segments):
            last = number + 1 == len(segments)
            if not last and segments[number + 1].base <= self.from_offset:
                continue
            try:
                self.dump_segment(log, segment, last)
            except FileNotFoundError:
                if not self.in_use:
                    raise
                self.output.report(f"{segment.path} was removed by the broker meanwhile")

    def dump_file(self, path: str) -> None:
        if path.endswith((".index", ".timeindex")):
            raise InputError(f"{path} is an index: name its .log file, or run tenure log verify on the folder")
        if not os.path.isfile(path):
            raise InputError(f"{path} is neither a file nor a folder")
        segment = segment_file(path)
        folder = os.path.dirname(os.path.abspath(path))
        self.check_directory(directory_around(path))
        last = segment.base < 0 or segments_of(folder)[-1].base == segment.base
        self.dump_segment(LogFolder(folder, *topic_and_partition(folder)), segment, last)

    def dump_segment(self, log: LogFolder, segment: SegmentFile, last: bool) -> None:
        file = open_for_reading(segment.path)
        try:
            if segment.base < 0 and file.size() and not holds_a_batch(file.read(0, 17)):
                raise InputError(f"{segment.path} is no segment: it does not begin with a record batch")
            for item in scan(file, max(segment.base, 0)):
                if isinstance(item, Damage):
                    self.report_damage(segment, item, last)
                elif item.header.last_offset >= self.from_offset:
                    self.print_batch(log, segment, item)
        except OSError as error:
            if error.filename is None:
                error.filename = segment.path
            if isinstance(error, FileNotFoundError):
                raise
            self.output.report(f"{segment.path}: {error.strerror}", DISK)
        finally:
            file.close()

    def report_damage(self, segment: SegmentFile, damage: Damage, last: bool) -> None:
        if damage.torn and last and self.in_use:
            self.output.report(f"{segment.path}: from byte {damage.position} on the broker is writing; run it again for newer records")
            return
        if not damage.torn:
            extent = f"{damage.size} bytes are skipped, sound batches follow"
        elif last:
            extent = f"a torn end of {damage.size} bytes, no sound batch follows"
        else:
            extent = f"no sound batch follows in the {damage.size} bytes to the end of the file, which is not the last of its log"
        self.output.report(f"{segment.path} is damaged at byte {damage.position}: {damage.reason}; {extent}", DAMAGED)

    def print_batch(self, log: LogFolder, segment: SegmentFile, batch: Batch) -> None:
        header = batch.header
        try:
            batch_records = records(batch.data, batch.at)
        except CorruptBatch as error:
            offsets = f"offsets {header.base_offset} to {header.last_offset}"
            self.output.report(f"{segment.path}: the batch at byte {batch.position} ({offsets}) cannot be read: {error}", DAMAGED)
            return
        name = self.as_log or log.name
        decoded_records = [(record, decode(name, record, header.is_control)) for record in batch_records]
        matching = [(record, decoded) for record, decoded in decoded_records if self.matches(name, record, decoded)]
        if self.batches and (matching or not self.filtered):
            self.print(log, segment, batch_fields(batch.position, header), [batch_line(batch.position, header)])
        for record, decoded in matching:
            if self.records_left == 0:
                raise LimitReached
            self.records_left -= 1
            self.print(log, segment, record_fields(record, decoded), lines_of(record, decoded))
            if decoded.unreadable:
                self.output.fail(DAMAGED, f"{segment.path}: the record at offset {record.offset} cannot be read: {decoded.remark}")
        if self.records_left == 0:
            raise LimitReached

    @property
    def filtered(self) -> bool:
        return self.group is not None or self.topic is not None or self.kind is not None

    def matches(self, log: str, record: Record, decoded: Decoded) -> bool:
        return (
            record.offset >= self.from_offset
            and (self.kind is None or decoded.kind == self.kind or (self.kind == "record" and decoded.kind == "control"))
            and (self.group is None or decoded.group == self.group)
            and (self.topic is None or (decoded.topic or (log if decoded.kind in ("record", "control") else None)) == self.topic)
        )

    def print(self, log: LogFolder, segment: SegmentFile, fields: dict[str, Any], lines: Iterator[str] | list[str]) -> None:
        self.printed = True
        if self.json:
            source = {"log": log.name or None, "partition": log.partition if log.name else None, "segment": os.path.basename(segment.path)}
            self.output.line(json.dumps(source | fields, ensure_ascii=False))
            return
        if segment.path != self._heading:
            self.output.line(f"{'' if not self._heading else chr(10)}{segment.path}")
            self._heading = segment.path
        for line in lines:
            self.output.line(line)


def record_fields(record: Record, decoded: Decoded) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": decoded.kind, "offset": record.offset, "timestamp": record.timestamp, "key": decoded.key, "value": decoded.value}
    if record.headers:
        fields["headers"] = [[shown_bytes(name), shown_bytes(value)] for name, value in record.headers]
    if decoded.remark:
        fields["remark"] = decoded.remark
    return fields


def lines_of(record: Record, decoded: Decoded) -> Iterator[str]:
    first_line, *below = record_lines(record.offset, record.timestamp, decoded)
    headers = ", ".join(f"{shown(shown_bytes(name))}={shown(shown_bytes(value))}" for name, value in record.headers)
    yield f"{first_line}  headers {headers}" if headers else first_line
    yield from below


def holds_a_batch(data: bytes) -> bool:
    """Whether the first 17 bytes look like those of a batch, also of an older format: by the magic byte and the base offset."""
    return len(data) == 17 and data[16] in (0, 1, 2) and data[:2] in (b"\0\0", b"\0\1")


def log_name(name: str | None) -> str | None:
    """The log that --log names. For an internal topic the name of a partition's folder is also accepted."""
    match = re.fullmatch(r"(.+)-\d+", name or "")
    return match[1] if match and match[1] in LOGS_OF_KINDS.values() else name

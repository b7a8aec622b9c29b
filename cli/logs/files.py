"""The input of `tenure log`: logs and segments of a folder, and batches of a segment.

Nothing is opened for writing or locked, so a broker may run on the directory, and may remove files meanwhile. A segment is read a MiB at
a time. After damage the reader searches the next sound batch: if there is none, the end of the file is torn.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

from protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header, validate
from storage.disk import OsFile
from storage.opening import REWRITING
from storage.tearing import BATCH_BYTES_MAX, CHUNK_BYTES, RELATIVE_OFFSET_MAX, find_sound_batch, is_torn

SEGMENT = re.compile(r"(\d{20})\.log", re.ASCII)
LOG_FOLDER = re.compile(r"(.+)-(\d{1,10})", re.ASCII)
DIRECTORY_FILES = ("meta.properties", "tenure.format")
# Endings of the files in a log's folder, Kafka's and Tenure's.
KNOWN_ENDINGS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".deleted", ".cleaned", ".swap", REWRITING)


class InputError(Exception):
    """A path has nothing to read; the text is the message for the user."""


class LogFolder(NamedTuple):
    path: str
    name: str  # "" if the folder is not named TOPIC-PARTITION
    partition: int

    def __str__(self) -> str:
        return f"{self.name}-{self.partition}" if self.name else self.path


class SegmentFile(NamedTuple):
    path: str
    base: int  # -1 if the file is not named by an offset


class Batch(NamedTuple):
    """A sound batch, whose bytes begin at `at` in `data`."""

    position: int
    header: BatchHeader
    data: bytes
    at: int


class Damage(NamedTuple):
    """Bytes that are not a sound batch. `torn`: no sound batch follows in the file; `interrupted`: an interrupted write may have left them."""

    position: int
    size: int
    reason: str
    torn: bool
    interrupted: bool = False


# Folders and files


def topic_and_partition(path: str) -> tuple[str, int]:
    """Topic and partition of a log folder's name; ("", 0) for any other name."""
    match = LOG_FOLDER.fullmatch(os.path.basename(path))
    return (match[1], int(match[2])) if match else ("", 0)


def log_folder(path: str) -> LogFolder:
    return LogFolder(path, *topic_and_partition(os.path.abspath(path)))


def segment_file(path: str) -> SegmentFile:
    match = SEGMENT.fullmatch(os.path.basename(path))
    return SegmentFile(path, int(match[1]) if match else -1)


def segments_of(folder: str) -> list[SegmentFile]:
    """The segments of a log, in order."""
    return [SegmentFile(os.path.join(folder, name), int(name[:20])) for name in sorted(os.listdir(folder)) if SEGMENT.fullmatch(name)]


def logs_of(directory: str) -> list[LogFolder]:
    """The logs in a data directory: folders named TOPIC-PARTITION, as brokers find them. Elsewhere, as in a copy of some logs, only those with segments."""
    folders = [entry.path for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=True) and LOG_FOLDER.fullmatch(entry.name)]
    if not has_directory_files(directory):
        folders = [folder for folder in folders if any(map(SEGMENT.match, os.listdir(folder)))]
    return sorted(map(log_folder, folders), key=lambda log: (log.name, log.partition))


def is_data_directory(path: str) -> bool:
    return has_directory_files(path) or bool(logs_of(path))


def has_directory_files(path: str) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in DIRECTORY_FILES)


def is_log(path: str) -> bool:
    """Whether the folder has segments, or is named like a log and has other files of logs."""
    names = os.listdir(path)
    if any(SEGMENT.fullmatch(name) for name in names):
        return True
    checkpoints = ("leader-epoch-checkpoint", "partition.metadata")
    return bool(topic_and_partition(os.path.abspath(path))[0] and any(name in checkpoints or (name[:20].isdecimal() and name.endswith(KNOWN_ENDINGS)) for name in names))


def nothing_to_read(path: str) -> InputError:
    """The error for a folder with nothing to read."""
    if not os.listdir(path):
        return InputError(f"{path} is empty")
    return InputError(f"{path} is neither a data directory nor a log: it contains no segment, and no folder NAME-PARTITION with segments")


# Running brokers


def lock_holder(directory: str) -> str | None:
    """The process that has locked the data directory, as its lock file describes it; None if it is not locked.

    Only asks for the lock: to take it, even for a moment, could make a starting broker fail.
    """
    path = os.path.join(directory, ".lock")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    file = OsFile(descriptor)
    try:
        if not _is_locked(descriptor):
            return None
        return " ".join(file.read(0, 1000).decode("utf-8", "replace").split()) or "another process"
    finally:
        file.close()


def _is_locked(descriptor: int) -> bool:
    """Whether a process holds a POSIX record lock on the file. Kafka (Java) takes such a lock, and Tenure one beside its flock."""
    darwin = sys.platform == "darwin"
    layout = struct.Struct("qqihh" if darwin else "hhqqi0q")
    query = layout.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET) if darwin else layout.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        answer = layout.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, query))
    except OSError:
        return False
    return bool(answer[3 if darwin else 0] != fcntl.F_UNLCK)


def directory_around(path: str) -> str:
    """The data directory around a segment or a log's folder, if there is one; else ""."""
    folder = os.path.abspath(path)
    for _ in range(2):
        folder = os.path.dirname(folder)
        if any(os.path.lexists(os.path.join(folder, name)) for name in (*DIRECTORY_FILES, ".lock")):
            return folder
    return ""


# Contents of a segment


def open_for_reading(path: str) -> OsFile:
    return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def scan(file: OsFile, base: int = 0) -> Iterator[Batch | Damage]:
    """The batches up to the current end of the file, with each run of damaged bytes as one item."""
    reader = _Reader(file)
    damage: Damage | None = None
    while reader.at < reader.end:
        batch = reader.next(base)
        if isinstance(batch, Damage):
            if damage is not None:
                batch = batch._replace(position=damage.position, size=batch.position + batch.size - damage.position, reason=damage.reason)
            damage = batch
            continue
        if damage is not None:
            yield damage._replace(torn=False, interrupted=False)
            damage = None
        yield batch
    if damage is not None:
        yield damage._replace(torn=True)


class _Reader:
    """Reads the batches of a segment in order."""

    def __init__(self, file: OsFile) -> None:
        self.file = file
        self.at = 0
        self.end = file.size()
        self._chunk = b""
        self._chunk_at = 0
        self._next_offset = -1

    def next(self, base: int) -> Batch | Damage:
        at = self.at
        lowest = max(self._next_offset, base)
        try:
            batch = self._read()
        except CorruptBatch as error:
            reason = str(error) if any(self._peek(at, HEADER_BYTES)) else "zeros instead of a batch"
            self.at = find_sound_batch(self.file, at + 1, self.end, lowest)
            torn = self.at >= self.end
            return Damage(at, self.at - at, reason, torn, torn and is_torn(self.file, at, self.end, lowest))
        self.at = at + batch.header.size
        first, last = batch.header.base_offset, batch.header.last_offset
        if first < lowest:
            return Damage(at, batch.header.size, f"offset {first} is below {lowest}, the lowest possible", self.at >= self.end)
        if last - base > RELATIVE_OFFSET_MAX:
            return Damage(at, batch.header.size, f"offset {last} is too far from the segment's first, {base}", self.at >= self.end)
        self._next_offset = last + 1
        return batch

    def _read(self) -> Batch:
        at = self.at
        if len(self._chunk) - (at - self._chunk_at) < HEADER_BYTES:
            self._fill(CHUNK_BYTES)
        header = read_header(self._chunk, at - self._chunk_at)
        if header.size > BATCH_BYTES_MAX:
            raise CorruptBatch(f"a batch of {header.size} bytes, more than a request can contain")
        if header.size > self.end - at:
            raise CorruptBatch(f"a batch of {header.size} bytes is cut short after {self.end - at}")
        if len(self._chunk) - (at - self._chunk_at) < header.size:
            self._fill(max(CHUNK_BYTES, header.size))
        validate(self._chunk, at - self._chunk_at, len(self._chunk))
        return Batch(at, header, self._chunk, at - self._chunk_at)

    def _fill(self, size: int) -> None:
        self._chunk = self.file.read(self.at, min(size, self.end - self.at))
        self._chunk_at = self.at

    def _peek(self, at: int, size: int) -> bytes:
        return self.file.read(at, min(size, self.end - at))

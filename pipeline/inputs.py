"""The input: data directories of Tenure or Kafka, and their log segments.

Nothing is opened for writing or locked, so a broker may run on a directory, and its cleaner may replace segments meanwhile: the folder is
listed again after the files are opened, until nothing has changed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from protocol.batch_record import INT64_MAX
from secured.errors import AccessError
from storage.checkpoints import CLEANER_POINTS, HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from storage.directory import META_FILE
from storage.disk import OsDisk, OsFile
from storage.segment import segment_bases, segment_name

OFFSETS_TOPIC: Final = "__consumer_offsets"
NOTES_TOPIC: Final = "__coordinator_notes"
LOGS: Final = {OFFSETS_TOPIC: "offsets", NOTES_TOPIC: "notes"}
WIRE: Final = "kafka://"
QUARANTINE: Final = "quarantine"
FAIL: Final = "fail"
NO_CLUSTER: Final = "unknown"
LISTINGS_MAX: Final = 20  # of a folder that changes

_LOG_FOLDER: Final = re.compile(r"(.+)-(\d{1,10})", re.ASCII)


class BadInput(Exception):
    """An input cannot be read; the text is the reason, in one line."""


class NoAnswer(BadInput):
    """No broker answers at the given address."""


class NotLetIn(BadInput):
    """The cluster does not let this client in, or the file with its settings is wrong: a retry is useless."""

    def __init__(self, line: str, reason: AccessError) -> None:
        super().__init__(line)
        self.reason = reason


class NoSuchLog(BadInput):
    """No source has a log that the command names."""


@dataclass(frozen=True)
class Inputs:
    """`offsets`: data directories, folders of single logs, or kafka://host:port, to read both topics from; `notes`: sources to read only notes from."""

    offsets: tuple[str, ...]
    notes: tuple[str, ...] = ()
    cluster: str = ""  # a name in place of the cluster's id
    on_corrupt: str = QUARANTINE
    until: Mapping[int, int] = field(default_factory=dict)  # by partition of __consumer_offsets: the offset to stop at
    offsets_retention_ms: int | None = None  # offsets.retention.minutes of the cluster, which its logs do not contain
    config: str = ""  # the file with the settings for secured clusters: every process reads it where it connects

    @classmethod
    def of(
        cls,
        offsets: Sequence[str],
        notes: Sequence[str] = (),
        *,
        cluster: str | None = None,
        on_corrupt: str = QUARANTINE,
        until: Mapping[int, int] | None = None,
        offsets_retention_ms: int | None = None,
        config: str = "",
    ) -> Inputs:
        return cls(tuple(map(str, offsets)), tuple(map(str, notes)), cluster or "", on_corrupt, dict(until or {}), offsets_retention_ms, config)

    @property
    def directories(self) -> list[tuple[str, tuple[str, ...]]]:
        """The directories, each with the topics to read from it."""
        return [(source, topics) for source, topics in self._sources if not is_wire(source)]

    @property
    def brokers(self) -> list[tuple[str, tuple[str, ...]]]:
        """The live clusters, each with the topics to read from it."""
        return [(source, topics) for source, topics in self._sources if is_wire(source)]

    @property
    def _sources(self) -> list[tuple[str, tuple[str, ...]]]:
        return [*((source, tuple(LOGS)) for source in self.offsets), *((source, (NOTES_TOPIC,)) for source in self.notes)]


def is_wire(source: str) -> bool:
    return source.startswith(WIRE)


class LogId(NamedTuple):
    cluster: str
    log: str  # offsets, notes
    partition: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.log}-{self.partition}"

    @classmethod
    def from_text(cls, text: str) -> LogId:
        cluster, _, name = text.rpartition("/")
        log, _, partition = name.rpartition("-")
        return cls(cluster, log, int(partition))


class Folder(NamedTuple):
    """One replica of one log."""

    id: LogId
    path: str
    name: str  # topic-partition
    until: int  # the offset to stop at; -1: none
    cleaned: int  # compaction has removed no record from this offset on; -1: unknown
    end: int  # the log had records up to this offset, by a checkpoint file; -1: unknown


class SegmentFile(NamedTuple):
    path: str
    name: str  # folder/file, as in bronze
    base: int
    descriptor: int
    file: OsFile  # owns the descriptor
    size: int


def open_for_reading(path: str, _flags: int = 0) -> int:
    """Open a regular file; opening a pipe would wait for a writer. Also usable as the opener of `open`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return descriptor


class PlainFiles(OsDisk):
    """A disk that reads only regular files, for directories that other programs have written."""

    def read_text(self, path: str) -> str:
        with open(path, encoding="utf-8", opener=open_for_reading) as file:
            return file.read()


def folders_of(inputs: Inputs) -> list[Folder]:
    """The folders of coordinator logs. Raises BadInput for a directory without any."""
    folders: dict[str, Folder] = {}
    for source, topics in inputs.directories:
        source_folders = _folders(os.path.abspath(source), topics, inputs)
        if not source_folders:
            raise BadInput(_no_logs_text(source, topics))
        for folder in source_folders:
            folders[os.path.realpath(folder.path)] = folder
    return sorted(folders.values())


def _folders(source: str, topics: Sequence[str], inputs: Inputs) -> list[Folder]:
    try:
        if _log_of(source, topics) is not None:
            os.listdir(source)
            return [_folder(source, os.path.dirname(source), inputs)]
        entries = sorted((entry for entry in os.scandir(source) if _log_of(entry.name, topics) is not None), key=lambda entry: entry.name)
        for entry in entries:
            if not entry.is_dir():  # skipping it silently would give wrong results
                raise BadInput(f"{entry.path}: has the name of a log, but is not a folder")
    except OSError as error:
        raise BadInput(f"{error.filename or source}: {error.strerror}") from None
    return [_folder(entry.path, source, inputs) for entry in entries]


def _folder(path: str, directory: str, inputs: Inputs) -> Folder:
    topic_and_partition = _log_of(path, tuple(LOGS))
    assert topic_and_partition is not None
    topic, partition = topic_and_partition
    cleaned, *ends = (
        read_offsets(PlainFiles(), os.path.join(directory, name)).get((topic, partition), -1) for name in (CLEANER_POINTS, RECOVERY_POINTS, HIGH_WATERMARKS)
    )
    id = LogId(inputs.cluster or cluster_of(directory), LOGS[topic], partition)
    until = inputs.until.get(partition, -1) if topic == OFFSETS_TOPIC else -1
    return Folder(id, path, f"{topic}-{partition}", until, cleaned, max(ends))


def _log_of(path: str, topics: Sequence[str]) -> tuple[str, int] | None:
    match = _LOG_FOLDER.fullmatch(os.path.basename(path))
    return (match[1], int(match[2])) if match is not None and match[1] in topics else None


def cluster_of(directory: str) -> str:
    try:
        with open(os.path.join(directory, META_FILE), encoding="utf-8", errors="replace", opener=open_for_reading) as file:
            for line in file:
                name, _, value = line.partition("=")
                if name.strip() == "cluster.id" and value.strip():
                    return value.strip()
    except OSError:
        pass
    return NO_CLUSTER


def _no_logs_text(source: str, topics: Sequence[str]) -> str:
    remedy = "name the data directory of a broker (log.dirs), or a copy of it"
    if not os.listdir(source):
        return f"{source}: is empty; {remedy}"
    return f"{source}: contains no folder {' or '.join(f'{name}-N' for name in topics)}; {remedy}"


def segments_of(folder: Folder, opened: ExitStack) -> list[SegmentFile]:
    """The segments in order, from a consistent listing; `opened` closes them."""
    disk = OsDisk()
    for _ in range(LISTINGS_MAX):
        attempt = ExitStack()
        try:
            bases = segment_bases(disk, folder.path)
            if bases and bases[-1] > INT64_MAX:
                raise BadInput(f"{folder.path}/{segment_name(bases[-1])}.log: its name is not an offset")
            segments = [_open_segment(folder, base, attempt) for base in bases]
            if segment_bases(disk, folder.path) == bases and all(_has_its_name(segment) for segment in segments):
                opened.push(attempt.pop_all())
                return segments
        except FileNotFoundError:
            pass  # replaced or deleted since the listing
        except OSError as error:
            raise BadInput(f"{error.filename or folder.path}: {error.strerror}") from None
        finally:
            attempt.close()
    raise BadInput(f"{folder.path}: its segments are replaced faster than they can be opened; copy the folder, or stop the broker")


def _open_segment(folder: Folder, base: int, attempt: ExitStack) -> SegmentFile:
    name = f"{segment_name(base)}.log"
    path = os.path.join(folder.path, name)
    descriptor = open_for_reading(path)
    file = OsFile(descriptor)
    attempt.callback(file.close)
    return SegmentFile(path, f"{folder.name}/{name}", base, descriptor, file, file.size())


def _has_its_name(segment: SegmentFile) -> bool:
    """Whether the name still belongs to this file: a cleaner replaces files."""
    return os.path.samestat(os.stat(segment.path), os.fstat(segment.descriptor))


def replicas(folders: Sequence[Folder]) -> dict[LogId, list[Folder]]:
    folders_by_log: dict[LogId, list[Folder]] = {}
    for folder in folders:
        folders_by_log.setdefault(folder.id, []).append(folder)
    return folders_by_log

"""The input: data directories of Tenure or Kafka, and the log segments in them.

Nothing is opened for writing and no lock is taken, so a broker may run on a directory. Its cleaner exchanges segments meanwhile:
files are opened first and the folder is listed again, until both say the same.
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
from storage.checkpoints import CLEANER_POINTS, read_offsets
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
LISTINGS_MAX: Final = 20  # listings of a folder that changes during cleaning

_LOG_FOLDER: Final = re.compile(r"(.+)-(\d{1,10})", re.ASCII)


class BadInput(Exception):
    """An input cannot be read; the text says why in one line."""


class NoAnswer(BadInput):
    """No broker answers at the given address."""


@dataclass(frozen=True)
class Inputs:
    """`offsets`: data directories, folders of single logs, or kafka://host:port, with both logs; `notes`: where notes alone are."""

    offsets: tuple[str, ...]
    notes: tuple[str, ...] = ()
    cluster: str = ""  # the cluster's name, instead of its id
    on_corrupt: str = QUARANTINE
    until: Mapping[int, int] = field(default_factory=dict)  # by partition: nothing of __consumer_offsets is read from this offset on

    @classmethod
    def of(
        cls,
        offsets: Sequence[str],
        notes: Sequence[str] = (),
        *,
        cluster: str | None = None,
        on_corrupt: str = QUARANTINE,
        until: Mapping[int, int] | None = None,
    ) -> Inputs:
        return cls(tuple(map(str, offsets)), tuple(map(str, notes)), cluster or "", on_corrupt, dict(until or {}))

    @property
    def directories(self) -> list[tuple[str, tuple[str, ...]]]:
        """Each directory with the topics to read from it."""
        both = [(source, tuple(LOGS)) for source in self.offsets]
        return [(source, topics) for source, topics in both + [(source, (NOTES_TOPIC,)) for source in self.notes] if not is_wire(source)]

    @property
    def brokers(self) -> list[tuple[str, tuple[str, ...]]]:
        both = [(source, tuple(LOGS)) for source in self.offsets]
        return [(source, topics) for source, topics in both + [(source, (NOTES_TOPIC,)) for source in self.notes] if is_wire(source)]


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

    @property
    def bucket(self) -> str:
        """The bucket: offsets and notes of a group are in partitions with the same number."""
        return f"{self.cluster}/{self.partition}"


class Folder(NamedTuple):
    """One replica of one log."""

    id: LogId
    path: str
    name: str  # of the folder: topic-partition
    until: int  # nothing is read from this offset on; -1: no bound
    cleaned: int  # compaction may have been before this offset; -1: anywhere


class SegmentFile(NamedTuple):
    path: str
    name: str  # with its folder, as bronze has it
    base: int
    descriptor: int
    file: OsFile  # which closes it
    size: int


def open_for_reading(path: str, _flags: int = 0) -> int:
    """Open an ordinary file; opening a pipe of that name would wait for a writer. Also an opener for `open`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no ordinary file", path)
    return descriptor


class PlainFiles(OsDisk):
    """A disk that reads ordinary files only, for directories that others have written."""

    def read_text(self, path: str) -> str:
        with open(path, encoding="utf-8", opener=open_for_reading) as file:
            return file.read()


def folders_of(inputs: Inputs) -> list[Folder]:
    """Raises BadInput for a directory in which no coordinator log is."""
    found: dict[str, Folder] = {}
    for source, topics in inputs.directories:
        here = _folders(os.path.abspath(source), topics, inputs)
        if not here:
            raise BadInput(_why_nothing(source, topics))
        for folder in here:
            found[os.path.realpath(folder.path)] = folder
    return sorted(found.values())


def _folders(source: str, topics: Sequence[str], inputs: Inputs) -> list[Folder]:
    try:
        if _log_of(source, topics) is not None:
            os.listdir(source)
            return [_folder(source, os.path.dirname(source), inputs)]
        named = sorted((entry for entry in os.scandir(source) if _log_of(entry.name, topics) is not None), key=lambda entry: entry.name)
        for entry in named:
            if not entry.is_dir():  # or a dangling link: skipping a log silently would give a wrong answer
                raise BadInput(f"{entry.path}: is no folder, and the name is that of a log")
    except OSError as error:
        raise BadInput(f"{error.filename or source}: {error.strerror}") from None
    return [_folder(entry.path, source, inputs) for entry in named]


def _folder(path: str, directory: str, inputs: Inputs) -> Folder:
    named = _log_of(path, tuple(LOGS))
    assert named is not None
    topic, partition = named
    cleaned = read_offsets(PlainFiles(), os.path.join(directory, CLEANER_POINTS)).get((topic, partition), -1)
    id = LogId(inputs.cluster or cluster_of(directory), LOGS[topic], partition)
    until = inputs.until.get(partition, -1) if topic == OFFSETS_TOPIC else -1
    return Folder(id, path, f"{topic}-{partition}", until, cleaned)


def _log_of(path: str, topics: Sequence[str]) -> tuple[str, int] | None:
    found = _LOG_FOLDER.fullmatch(os.path.basename(path))
    return (found[1], int(found[2])) if found is not None and found[1] in topics else None


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


def _why_nothing(source: str, topics: Sequence[str]) -> str:
    remedy = "give the data directory of a broker (log.dirs), or a copy of it"
    if not os.listdir(source):
        return f"{source}: is empty; {remedy}"
    return f"{source}: has no folder {' or '.join(f'{name}-N' for name in topics)}; {remedy}"


def segments_of(folder: Folder, opened: ExitStack) -> list[SegmentFile]:
    """The segments in order, a consistent listing; `opened` closes them."""
    disk = OsDisk()
    for _ in range(LISTINGS_MAX):
        held = ExitStack()
        try:
            bases = segment_bases(disk, folder.path)
            if bases and bases[-1] > INT64_MAX:
                raise BadInput(f"{folder.path}/{segment_name(bases[-1])}.log: its name is no offset")
            found = [_open_segment(folder, base, held) for base in bases]
            if segment_bases(disk, folder.path) == bases and all(_is_there(one) for one in found):
                opened.push(held.pop_all())
                return found
        except FileNotFoundError:
            pass  # exchanged or dropped since its name was read
        except OSError as error:
            raise BadInput(f"{error.filename or folder.path}: {error.strerror}") from None
        finally:
            held.close()
    raise BadInput(f"{folder.path}: its segments are exchanged faster than they can be opened; copy the folder, or stop the broker")


def _open_segment(folder: Folder, base: int, held: ExitStack) -> SegmentFile:
    name = f"{segment_name(base)}.log"
    path = os.path.join(folder.path, name)
    descriptor = open_for_reading(path)
    file = OsFile(descriptor)
    held.callback(file.close)
    return SegmentFile(path, f"{folder.name}/{name}", base, descriptor, file, file.size())


def _is_there(segment: SegmentFile) -> bool:
    """Whether the file still has its name: a cleaner replaces the file."""
    return os.path.samestat(os.stat(segment.path), os.fstat(segment.descriptor))


def replicas(folders: Sequence[Folder]) -> dict[LogId, list[Folder]]:
    found: dict[LogId, list[Folder]] = {}
    for folder in folders:
        found.setdefault(folder.id, []).append(folder)
    return found

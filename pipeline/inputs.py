"""What is read: data directories of brokers, ours or Kafka's, and which segments of which logs are in them.

Nothing is opened for writing and no lock is taken, so a broker may run on a directory. Its cleaner exchanges segments meanwhile:
files are opened first and the folder is listed again, until both say the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, NamedTuple

from storage.checkpoints import CLEANER_POINTS, read_offsets
from storage.directory import META_FILE
from storage.disk import OsDisk, OsFile
from storage.segment import segment_bases, segment_name

LOGS: Final = {"__consumer_offsets": "offsets", "__coordinator_notes": "notes"}
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
NO_CLUSTER: Final = "unknown"
LISTINGS_MAX: Final = 20  # of a folder whose cleaner is at work

_LOG_FOLDER: Final = re.compile(r"(.+)-(\d{1,10})", re.ASCII)


class InputError(Exception):
    """In one line for people: what cannot be read, and why."""


@dataclass(frozen=True)
class Inputs:
    """`sources`: data directories, folders of single logs, or kafka://host:port."""

    sources: tuple[str, ...]
    cluster: str = ""  # what to call the cluster, instead of the id in meta.properties
    on_corrupt: str = "quarantine"  # or fail
    until_high_watermark: bool = False  # as the directory's checkpoint has it: what is behind may be undone


class LogId(NamedTuple):
    cluster: str
    log: str  # offsets, notes
    partition: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.log}-{self.partition}"


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


def open_for_reading(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def folders_of(inputs: Inputs) -> list[Folder]:
    """Raises InputError for a directory in which no coordinator log is."""
    found: dict[str, Folder] = {}
    for source in inputs.sources:
        if source.startswith("kafka://"):
            continue
        here = _folders(os.path.abspath(source), inputs)
        if not here:
            raise InputError(_why_nothing(source))
        for folder in here:
            found[os.path.realpath(folder.path)] = folder
    return sorted(found.values())


def _folders(source: str, inputs: Inputs) -> list[Folder]:
    try:
        if _log_of(source) is not None:
            return [_folder(source, os.path.dirname(source), inputs)]
        names = sorted(entry.name for entry in os.scandir(source) if entry.is_dir() and _log_of(entry.name) is not None)
    except OSError as error:
        raise InputError(f"{source}: {error.strerror}") from None
    return [_folder(os.path.join(source, name), source, inputs) for name in names]


def _folder(path: str, directory: str, inputs: Inputs) -> Folder:
    named = _log_of(path)
    assert named is not None
    topic, partition = named
    disk = OsDisk()
    until = -1
    if inputs.until_high_watermark:
        until = read_offsets(disk, os.path.join(directory, HIGH_WATERMARKS)).get((topic, partition), -1)
    cleaned = read_offsets(disk, os.path.join(directory, CLEANER_POINTS)).get((topic, partition), -1)
    id = LogId(inputs.cluster or _cluster_of(directory), LOGS[topic], partition)
    return Folder(id, path, f"{topic}-{partition}", until, cleaned)


def _log_of(path: str) -> tuple[str, int] | None:
    found = _LOG_FOLDER.fullmatch(os.path.basename(path))
    return (found[1], int(found[2])) if found is not None and found[1] in LOGS else None


def _cluster_of(directory: str) -> str:
    try:
        with open(os.path.join(directory, META_FILE), encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition("=")
                if name.strip() == "cluster.id" and value.strip():
                    return value.strip()
    except OSError:
        pass
    return NO_CLUSTER


def _why_nothing(source: str) -> str:
    try:
        empty = not os.listdir(source)
    except OSError as error:
        return f"{source}: {error.strerror}"
    if empty:
        return f"{source}: is empty; give the data directory of a broker (log.dirs), or a copy of it"
    return f"{source}: has no folder {' or '.join(f'{name}-N' for name in LOGS)}; give the data directory of a broker (log.dirs), or a copy of it"


def segments_of(folder: Folder, opened: ExitStack) -> list[SegmentFile]:
    """In order, as they were all there at one moment; `opened` closes them."""
    disk = OsDisk()
    for _ in range(LISTINGS_MAX):
        held = ExitStack()
        try:
            bases = segment_bases(disk, folder.path)
            found = [_open_segment(folder, base, held) for base in bases]
            if segment_bases(disk, folder.path) == bases and all(_is_there(one) for one in found):
                opened.push(held.pop_all())
                return found
        except FileNotFoundError:
            pass  # exchanged or dropped since its name was read
        except OSError as error:
            raise InputError(f"{error.filename or folder.path}: {error.strerror}") from None
        finally:
            held.close()
    raise InputError(f"{folder.path}: its segments are exchanged faster than they can be opened; copy the folder, or stop the broker")


def _open_segment(folder: Folder, base: int, held: ExitStack) -> SegmentFile:
    name = f"{segment_name(base)}.log"
    path = os.path.join(folder.path, name)
    descriptor = open_for_reading(path)
    file = OsFile(descriptor)
    held.callback(file.close)
    return SegmentFile(path, f"{folder.name}/{name}", base, descriptor, file, file.size())


def _is_there(segment: SegmentFile) -> bool:
    """Still under its name: a cleaner puts another file there."""
    return os.path.samestat(os.stat(segment.path), os.fstat(segment.descriptor))


def replicas(folders: Sequence[Folder]) -> dict[LogId, list[Folder]]:
    found: dict[LogId, list[Folder]] = {}
    for folder in folders:
        found.setdefault(folder.id, []).append(folder)
    return found

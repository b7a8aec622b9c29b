"""Copies of bytes that have to be cut off a log: `DATA/set-aside`, one folder for each opening that cut something.

The newest ten folders are kept, as far as they have 64 MiB together; the newest is always kept. Without a copy nothing is
cut: if the disk has no room for it, the log stays closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from storage.disk import Disk

FOLDER: Final = "set-aside"
ENTRIES_MAX: Final = 10
BYTES_MAX: Final = 64 << 20
CHUNK_BYTES: Final = 1 << 20
NAME_MAX: Final = 255
_NUMBER_DIGITS: Final = 6


def set_aside_bytes(disk: Disk, log_folder: str, cuts: Sequence[tuple[str, int]]) -> str:
    """Copy the end of each file from its position on; return the folder of the copies. On OSError it is removed again."""
    data, _, name = log_folder.rpartition("/")
    around = f"{data}/{FOLDER}"
    disk.make_folder(around)
    number = max([_number(entry) for entry in disk.list(around)], default=0) + 1
    made = f"{around}/{number:0{_NUMBER_DIGITS}d}-{name[-(NAME_MAX - _NUMBER_DIGITS - 1) :]}"
    try:
        disk.make_folder(made)
        for path, position in cuts:
            _copy(disk, path, position, f"{made}/{path.rpartition('/')[2]}.from-{position}")
        disk.sync_folder(made)
    except OSError:
        with contextlib.suppress(OSError):
            _remove(disk, made)
        raise
    with contextlib.suppress(OSError):  # older copies can go the next time
        _keep_newest(disk, around)
    return made


def _copy(disk: Disk, path: str, position: int, copy: str) -> None:
    source = disk.open(path)
    try:
        file = disk.open(copy, create=True)
        try:
            at = position
            while data := source.read(at, CHUNK_BYTES):
                file.write(at - position, data)
                at += len(data)
            file.sync()
        finally:
            file.close()
    finally:
        source.close()


def _keep_newest(disk: Disk, around: str) -> None:
    size = 0
    kept = 0
    for entry in sorted(disk.list(around), key=_number, reverse=True):
        if not _number(entry):
            continue  # not made by this module
        path = f"{around}/{entry}"
        size += _size(disk, path)
        if kept and (kept >= ENTRIES_MAX or size > BYTES_MAX):
            _remove(disk, path)
        else:
            kept += 1


def _size(disk: Disk, folder: str) -> int:
    size = 0
    for name in disk.list(folder):
        file = disk.open(f"{folder}/{name}")
        size += file.size()
        file.close()
    return size


def _remove(disk: Disk, folder: str) -> None:
    for name in disk.list(folder):
        disk.remove(f"{folder}/{name}")
    disk.remove_folder(folder)


def _number(entry: str) -> int:
    """The entry's number; 0 for a name that this module does not make."""
    number, _, name = entry.partition("-")
    return int(number) if name and number.isascii() and number.isdigit() else 0

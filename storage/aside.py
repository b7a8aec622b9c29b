"""Copies of bytes that are cut off a log, in `DATA/set-aside`: one folder for each opening or repair that cuts more than a torn end.

The newest ten folders are kept, up to 64 MiB in total; the newest is always kept. A torn end is cut without a copy. Otherwise, if
the disk has no room for a copy, the log stays closed.
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


def copy_cut_bytes(disk: Disk, log_folder: str, cuts: Sequence[tuple[str, int]]) -> str:
    """Copy the end of each file from its position on; return the folder of the copies. On OSError the folder is removed again."""
    data, _, name = log_folder.rpartition("/")
    parent = f"{data}/{FOLDER}"
    disk.make_folder(parent)
    number = max([_number(entry) for entry in disk.list(parent)], default=0) + 1
    folder = f"{parent}/{number:0{_NUMBER_DIGITS}d}-{name[-(NAME_MAX - _NUMBER_DIGITS - 1) :]}"
    try:
        disk.make_folder(folder)
        for path, position in cuts:
            _copy(disk, path, position, f"{folder}/{path.rpartition('/')[2]}.from-{position}")
        disk.sync_folder(folder)
    except OSError:
        with contextlib.suppress(OSError):
            _remove(disk, folder)
        raise
    with contextlib.suppress(OSError):  # the next call removes older copies
        _keep_newest(disk, parent)
    return folder


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


def _keep_newest(disk: Disk, parent: str) -> None:
    size = 0
    kept_count = 0
    for entry in sorted(disk.list(parent), key=_number, reverse=True):
        if not _number(entry):
            continue  # not made by this module
        path = f"{parent}/{entry}"
        size += _size(disk, path)
        if kept_count and (kept_count >= ENTRIES_MAX or size > BYTES_MAX):
            _remove(disk, path)
        else:
            kept_count += 1


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

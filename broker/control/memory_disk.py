"""A Disk in memory, for brokers whose data ends with their process. Files live as long as the disk, whatever becomes of the broker on it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from storage.disk import ByteLocks, SharedBytes

Entry = TypeVar("Entry")


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def move_paths(entries: dict[str, Entry], old: str, new: str) -> None:
    """Rename a folder and all that is below it."""
    for path in [path for path in entries if path == old or path.startswith(f"{old}/")]:
        entries[new + path[len(old) :]] = entries.pop(path)


class MemoryFile:
    """An open file; its bytes are those of every other opened file of the path."""

    __slots__ = ("_bytes", "_disk", "path")
    descriptor = -1

    def __init__(self, disk: MemoryDisk, path: str, content: bytearray) -> None:
        self._disk = disk
        self._bytes = content
        self.path = path

    def read(self, at: int, size: int) -> bytes:
        return bytes(self._bytes[at : at + size])

    def write(self, at: int, data: bytes | bytearray) -> None:
        if self._disk.trouble is not None:
            self._disk.trouble(self.path)
        if not data:
            return
        content = self._bytes
        if at > len(content):
            content += bytes(at - len(content))
        content[at : at + len(data)] = data

    def size(self) -> int:
        return len(self._bytes)

    def truncate(self, size: int) -> None:
        content = self._bytes
        if size > len(content):
            content += bytes(size - len(content))
        else:
            del content[size:]

    def sync(self) -> None:
        if self._disk.trouble is not None:
            self._disk.trouble(self.path)

    def close(self) -> None: ...


class MemoryLock:
    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.pop(self._path, None)


class MemoryDisk:
    """`trouble`: called before each write and sync of a file; what it raises is what the system answers."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._folders: dict[str, set[str]] = {"": set()}  # path -> names
        self._files: dict[str, bytearray] = {}
        self._modified: dict[str, int] = {}
        self.locks: dict[str, str] = {}  # path -> holder
        self.trouble: Callable[[str], None] | None = None

    def _names(self, folder: str) -> set[str]:
        names = self._folders.get(folder.rstrip("/"))
        if names is None:
            raise system_error(errno.ENOTDIR if folder in self._files else errno.ENOENT)
        return names

    def _content(self, path: str) -> bytearray:
        content = self._files.get(path)
        if content is None:
            raise system_error(errno.EISDIR if path in self._folders else errno.ENOENT)
        return content

    def open(self, path: str, create: bool = False) -> MemoryFile:
        if create and path not in self._files and path not in self._folders:
            folder, _, name = path.rpartition("/")
            self._names(folder).add(name)
            self._files[path] = bytearray()
            self._modified[path] = self._now_ms()
        return MemoryFile(self, path, self._content(path))

    def exists(self, path: str) -> bool:
        return path in self._files or path.rstrip("/") in self._folders

    def real_path(self, path: str) -> str:
        return path

    def list(self, folder: str) -> list[str]:
        return sorted(self._names(folder))

    def make_folder(self, path: str, durable: bool = True) -> None:
        parent = ""
        for name in path.split("/")[1:]:
            folder = f"{parent}/{name}"
            if folder in self._files:
                raise system_error(errno.ENOTDIR)
            if folder not in self._folders:
                self._folders[folder] = set()
                self._names(parent).add(name)
            parent = folder

    def read_text(self, path: str) -> str:
        return self._content(path).decode("utf-8", "replace")

    def replace_text(self, path: str, text: str, durable: bool = True) -> None:
        if path in self._folders:
            raise system_error(errno.EISDIR)
        folder, _, name = path.rpartition("/")
        self._names(folder).add(name)
        self._files[path] = bytearray(text.encode())
        self._modified[path] = self._now_ms()

    def rename(self, old: str, new: str) -> None:
        if not self.exists(old):
            raise system_error(errno.ENOENT)
        folder, _, name = new.rpartition("/")
        self._names(folder)
        if old in self._files:
            if new in self._folders:
                raise system_error(errno.EISDIR)
            self._files[new] = self._files.pop(old)
            self._modified[new] = self._modified.pop(old, 0)
        else:
            if new in self._files:
                raise system_error(errno.ENOTDIR)
            if self._folders.get(new):
                raise system_error(errno.ENOTEMPTY)
            move_paths(self._folders, old, new)
            move_paths(self._files, old, new)
            move_paths(self._modified, old, new)
        old_folder, _, old_name = old.rpartition("/")
        self._names(old_folder).discard(old_name)
        self._names(folder).add(name)

    def remove(self, path: str) -> None:
        self._content(path)
        del self._files[path]
        self._modified.pop(path, None)
        folder, _, name = path.rpartition("/")
        self._names(folder).discard(name)

    def remove_folder(self, path: str) -> None:
        if self._names(path):
            raise system_error(errno.ENOTEMPTY)
        del self._folders[path.rstrip("/")]
        folder, _, name = path.rstrip("/").rpartition("/")
        self._names(folder).discard(name)

    def modified_ms(self, path: str) -> int:
        if path in self._folders:
            return self._now_ms()
        self._content(path)
        return self._modified[path]

    def sync_folder(self, path: str) -> None:
        self._names(path)

    def lock(self, path: str, holder: str) -> MemoryLock | str:
        if path in self.locks:
            return self.locks[path]
        self.open(path, create=True)
        self.locks[path] = holder
        return MemoryLock(self, path)

    def byte_locks(self, path: str) -> ByteLocks:
        raise system_error(errno.ENOTSUP)  # several nodes need a directory that they share

    def shared_bytes(self, path: str, size: int) -> SharedBytes:
        raise system_error(errno.ENOTSUP)

"""The Disk port: what logs need of a file system, and the real one. The only file here that knows `os`."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Callable
from typing import Protocol


class File(Protocol):
    """An open file. Reading past its end gives what there is; writing puts down everything or raises OSError."""

    def read(self, at: int, size: int) -> bytes: ...

    def write(self, at: int, data: bytes | bytearray) -> None: ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Its data, and its size, safe against power loss. May run in another thread than the rest."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock that ends with the process, whatever becomes of it."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Files by path. Every method raises OSError as the system does."""

    def open(self, path: str, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, folder: str) -> list[str]: ...

    def make_folder(self, path: str, safe: bool = True) -> None:
        """With the folders above it; each name safe against power loss, unless that comes later (not `safe`)."""
        ...

    def read_text(self, path: str) -> str: ...

    def replace_text(self, path: str, text: str, safe: bool = True) -> None:
        """The whole file at once: after a crash it has the old text or the new one. Not `safe`: anything may be there."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """An empty one."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file was written last, in milliseconds since 1970."""
        ...

    def sync_folder(self, path: str) -> None:
        """Names made, renamed or removed in it, safe against power loss."""
        ...

    def lock(self, path: str, holder: str) -> Lock | str:
        """The lock, with `holder` written into it for others to read, or what its present holder wrote."""
        ...


if sys.platform == "darwin":

    def _sync(descriptor: int) -> None:
        # fsync there leaves the data in the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:
    _sync = os.fdatasync


_EXHAUSTED = (errno.EMFILE, errno.ENFILE)


class OsFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, at: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, at)
        if len(data) == size or not data:
            return data
        parts = [data]  # a signal or a large size may cut one call short of the end of the file
        have = len(data)
        while have < size:
            more = os.pread(self._descriptor, size - have, at + have)
            if not more:
                break
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def write(self, at: int, data: bytes | bytearray) -> None:
        written = os.pwrite(self._descriptor, data, at)
        if written != len(data):
            rest = memoryview(data)
            while written < len(data):
                written += os.pwrite(self._descriptor, rest[written:], at + written)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        _sync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def __del__(self) -> None:
        """Whoever gives up a log without closing it leaves no descriptor behind."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


class OsLock:
    def __init__(self, file: OsFile) -> None:
        self._file = file

    def release(self) -> None:
        self._file.close()


class OsDisk:
    """The file system of this machine. Where no descriptor is left it asks `make_room` for one, and tries again."""

    def __init__(self) -> None:
        self.make_room: Callable[[], bool] = lambda: False  # in any thread; whether there may be a descriptor now

    def open(self, path: str, create: bool = False) -> OsFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return OsFile(self._descriptor(path, flags))

    def _descriptor(self, path: str, flags: int) -> int:
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in _EXHAUSTED or not self.make_room():
                raise
        return os.open(path, flags, 0o644)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def list(self, folder: str) -> list[str]:
        descriptor = self._descriptor(folder, os.O_RDONLY)
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)

    def make_folder(self, path: str, safe: bool = True) -> None:
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            try:
                os.mkdir(folder)
            except FileExistsError:  # a file, where "File exists" would not say what is wrong
                raise NotADirectoryError(errno.ENOTDIR, "not a directory" if folder == missing[0] else f"{folder} is not a directory") from None
            if safe:
                self.sync_folder(os.path.dirname(folder))

    def read_text(self, path: str) -> str:
        with open(self._descriptor(path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
            return file.read()

    def replace_text(self, path: str, text: str, safe: bool = True) -> None:
        new = f"{path}.new"
        try:
            with contextlib.closing(self.open(new, create=True)) as file:
                file.truncate(0)
                file.write(0, text.encode())
                if safe:
                    file.sync()
            os.replace(new, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise
        if safe:
            self.sync_folder(os.path.dirname(path))

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def sync_folder(self, path: str) -> None:
        descriptor = self._descriptor(path or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str, holder: str) -> OsLock | str:
        # Kafka locks the same file, in the other of the two ways that know nothing of each other.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        file = OsFile(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            file.write(0, holder.encode())
        except OSError as error:
            with contextlib.closing(file):
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    return file.read(0, 1000).decode("utf-8", "replace").strip()
            raise
        return OsLock(file)

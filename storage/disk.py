"""The Disk port, the file system that logs need, and its real implementation. Only this file imports `os`."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Callable
from typing import Protocol


class File(Protocol):
    """An open file. A read past its end returns fewer bytes; a write writes all bytes or raises OSError."""

    def read(self, at: int, size: int) -> bytes: ...

    def write(self, at: int, data: bytes | bytearray) -> None: ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make data and size safe against power loss. May run in another thread."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock that the system releases when the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Files by path. Every method raises OSError as the system does."""

    def open(self, path: str, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, folder: str) -> list[str]: ...

    def make_folder(self, path: str, safe: bool = True) -> None:
        """Create it and its parents. `safe`: sync each parent folder, so that the name survives power loss."""
        ...

    def read_text(self, path: str) -> str: ...

    def replace_text(self, path: str, text: str, safe: bool = True) -> None:
        """Replace the file atomically: a crash leaves the old text or the new one. Not `safe`: power loss may leave anything."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def modified_ms(self, path: str) -> int:
        """The file's modification time, in milliseconds since 1970."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make names created, renamed or removed in the folder safe against power loss."""
        ...

    def lock(self, path: str, holder: str) -> Lock | str:
        """Take the lock and write `holder` into the file; or return the text of the present holder."""
        ...


if sys.platform == "darwin":

    def _sync(descriptor: int) -> None:
        # On macOS fsync leaves the data in the drive's cache.
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
        parts = [data]  # one call may return fewer bytes before the end of the file
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
        """Close the descriptor of a file that was dropped without `close`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


class OsLock:
    def __init__(self, file: OsFile) -> None:
        self._file = file

    def release(self) -> None:
        self._file.close()


class OsDisk:
    """The real file system. When descriptors run out, `open` calls `make_room` to close some, and tries again."""

    def __init__(self) -> None:
        self.make_room: Callable[[], bool] = lambda: False  # called in any thread; True: try again

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
            except FileExistsError:  # a file has that name
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
        # flock and lockf do not see each other: lockf, also used by Java, excludes Kafka; flock excludes this process too.
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

"""The Disk port, the file system that logs need, and its real implementation. Only this file imports `os`."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, Protocol


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

    @property
    def descriptor(self) -> int:
        """For system calls; -1 if the file has none."""
        ...


class Lock(Protocol):
    """A lock that the system releases when the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Files by path. Every method raises OSError as the system does."""

    def open(self, path: str, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def real_path(self, path: str) -> str:
        """The absolute path without symbolic links; the path need not exist."""
        ...

    def list(self, folder: str) -> list[str]: ...

    def make_folder(self, path: str, durable: bool = True) -> None:
        """Create the folder and its parents. `durable`: sync each parent folder, so that the name survives power loss."""
        ...

    def read_text(self, path: str) -> str: ...

    def replace_text(self, path: str, text: str, durable: bool = True) -> None:
        """Replace the file atomically: a crash leaves the old text or the new one. Not `durable`: power loss may leave anything."""
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
        """Take the lock and write `holder` into the file; if it is locked, return the text of its holder."""
        ...


class ByteLocks(Protocol):
    """Locks on single bytes of a file. The system drops them when the process ends, however it ends."""

    def lock(self, at: int) -> bool:
        """Lock the byte; False: another process has it."""
        ...

    def drop(self, at: int) -> None: ...

    def are_supported(self, at: int) -> bool:
        """Whether the file system supports such locks. Locks the byte `at`, which no other process uses, to find out."""
        ...

    def close(self) -> None:
        """Drop all locks."""
        ...


class SharedBytes(Protocol):
    """A file of fixed size in the memory of all processes that open it."""

    def read(self, at: int, size: int) -> bytes: ...

    def write(self, at: int, data: bytes) -> None: ...

    def exclusive(self) -> AbstractContextManager[None]:
        """A block that only one process runs at a time."""
        ...

    def sync(self) -> None:
        """Make the bytes safe against power loss. May run in another thread."""
        ...

    def close(self) -> None: ...


class SharedDisk(Disk, Protocol):
    """A disk that several processes use at once."""

    def byte_locks(self, path: str) -> ByteLocks: ...

    def shared_bytes(self, path: str, size: int) -> SharedBytes: ...


if sys.platform == "darwin":

    def _sync(descriptor: int) -> None:
        # On macOS fsync leaves the data in the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:
    _sync = os.fdatasync


_EXHAUSTED = (errno.EMFILE, errno.ENFILE)


class OsFile:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def read(self, at: int, size: int) -> bytes:
        data = os.pread(self.descriptor, size, at)
        if len(data) == size or not data:
            return data
        parts = [data]  # one call may return fewer bytes before the end of the file
        have = len(data)
        while have < size:
            more = os.pread(self.descriptor, size - have, at + have)
            if not more:
                break
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def write(self, at: int, data: bytes | bytearray) -> None:
        written = os.pwrite(self.descriptor, data, at)
        if written != len(data):
            view = memoryview(data)
            while written < len(data):
                written += os.pwrite(self.descriptor, view[written:], at + written)

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor, size)

    def sync(self) -> None:
        _sync(self.descriptor)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        os.close(descriptor)

    def __del__(self) -> None:
        """Close the descriptor of a file that was dropped without `close`."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


class OsLock:
    def __init__(self, file: OsFile) -> None:
        self._file = file

    def release(self) -> None:
        self._file.close()


class OsByteLocks:
    """Uses open-file-description locks, which belong to this object alone, where the system has them.

    Elsewhere it uses process locks, which the system drops when the process closes any descriptor of the file. The bytes are spread over
    several files, because the system scans all locks of a file in each call: with 10,000 logs in one file that takes a third of the
    broker's start.
    """

    def __init__(self, path: str) -> None:
        self._paths = [path, *(f"{path}.{number}" for number in range(1, LOCK_FILES))]
        self._descriptors: list[int] = []
        try:
            for lock_path in self._paths:
                self._descriptors.append(os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o644))
        except BaseException:
            self.close()
            raise

    def lock(self, at: int) -> bool:
        return _lock_byte(self._descriptors[file_of(at)], fcntl.F_WRLCK, at)

    def drop(self, at: int) -> None:
        _lock_byte(self._descriptors[file_of(at)], fcntl.F_UNLCK, at)

    def are_supported(self, at: int) -> bool:
        if _OFD_SETLK is None:  # process locks: a second lock by the same process always succeeds, so it shows nothing
            return self.lock(at)
        other = os.open(self._paths[file_of(at)], os.O_RDWR)
        try:
            return self.lock(at) and not _lock_byte(other, fcntl.F_WRLCK, at)
        except OSError:
            return False
        finally:
            os.close(other)
            with contextlib.suppress(OSError):
                self.drop(at)

    def close(self) -> None:
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)


LOCK_FILES: Final = 16  # must not change: nodes of two versions must lock a log in the same file


def file_of(at: int) -> int:
    """The number of the file in which this byte is locked. The lowest bit, which `owners.lock_byte_of` always sets, does not count."""
    return (at >> 1) % LOCK_FILES


_OFD_SETLK: Final = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" and sys.maxsize > 1 << 32 else None
_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux


def _lock_byte(descriptor: int, kind: int, at: int) -> bool:
    try:
        if _OFD_SETLK is not None:
            fcntl.fcntl(descriptor, _OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, at, 1, 0))
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
    except (BlockingIOError, PermissionError):
        return False
    return True


class OsSharedBytes:
    def __init__(self, path: str, size: int) -> None:
        if not os.path.exists(path):
            _allocate(path, size)
        self._descriptor = os.open(path, os.O_RDWR)
        try:
            if os.fstat(self._descriptor).st_size != size:
                raise OSError(errno.EIO, f"{path} has {os.fstat(self._descriptor).st_size} bytes instead of {size}: restore it from a backup")
            self._bytes = mmap.mmap(self._descriptor, size)
        except BaseException:
            os.close(self._descriptor)
            raise

    def read(self, at: int, size: int) -> bytes:
        return self._bytes[at : at + size]

    def write(self, at: int, data: bytes) -> None:
        self._bytes[at : at + len(data)] = data

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def sync(self) -> None:
        self._bytes.flush()

    def close(self) -> None:
        if self._descriptor >= 0:
            self._bytes.close()
            os.close(self._descriptor)
            self._descriptor = -1


def _allocate(path: str, size: int) -> None:
    """Create a file of zeros whose blocks are all allocated: a write to a mapped hole of a full disk would end the process by SIGBUS."""
    new = f"{path}.{os.getpid()}"
    try:
        with open(new, "xb") as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process has just created it
            os.link(new, path)
    except OSError as error:
        raise OSError(error.errno, f"{size} bytes for {path} cannot be allocated: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(new)


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

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def list(self, folder: str) -> list[str]:
        descriptor = self._descriptor(folder, os.O_RDONLY)
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)

    def make_folder(self, path: str, durable: bool = True) -> None:
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            try:
                os.mkdir(folder)
            except FileExistsError:
                if os.path.isdir(folder):  # another process has just made it
                    continue
                raise NotADirectoryError(errno.ENOTDIR, "not a directory" if folder == missing[0] else f"{folder} is not a directory") from None
            if durable:
                self.sync_folder(os.path.dirname(folder))

    def read_text(self, path: str) -> str:
        with open(self._descriptor(path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
            return file.read()

    def replace_text(self, path: str, text: str, durable: bool = True) -> None:
        new = f"{path}.new"
        try:
            with contextlib.closing(self.open(new, create=True)) as file:
                file.truncate(0)
                file.write(0, text.encode())
                if durable:
                    file.sync()
            os.replace(new, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise
        if durable:
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
        # Two independent locks: lockf, which Java uses too, excludes Kafka; flock also excludes a second lock of this process.
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

    def byte_locks(self, path: str) -> OsByteLocks:
        return OsByteLocks(path)

    def shared_bytes(self, path: str, size: int) -> OsSharedBytes:
        return OsSharedBytes(path, size)

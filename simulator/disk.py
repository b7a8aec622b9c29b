"""A Disk in memory that fails as real disks do: a power failure may lose all or part of the unsynced data.

Programs read the cache. After a power failure a file has its synced content and the first few of the later writes; the last of these is
torn at any byte, or has sectors that read as zeros. In the same way a folder keeps the first few changes of names (created, renamed,
removed) since it was synced. Faults to plant: a failed sync (programs can still read its data, but a power failure loses them), a full
disk, read errors, wrong bytes, a read-only disk, and a crash at the n-th change. Tests of the storage also use this disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from storage.disk import SharedDisk


class Crashed(BaseException):
    """The process dies at this change, or the power fails. Only a test or the simulator may catch it."""


NAME_MAX = 255  # of most file systems
PAGE = 4096
# As in storage/tearing.py, but not imported from there: the simulator must notice if those values change.
SECTOR = 512
ZEROS_MIN = 32  # only this many zeros at the end of a file show an interrupted write


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Content:
    """The content of a file: cached, durable, and the pending changes between them."""

    def __init__(self) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []  # (position, data) or (size, None) for a cut
        self.mapped = False  # whether the file is mapped into memory: then the system writes its pages in any order
        self.failed_syncs = 0

    def change(self, at: int, data: bytes | None) -> None:
        apply(self.cached, at, data)
        self.pending.append((at, data))

    def sync(self) -> None:
        """Make pending changes durable; changes that a failed sync dropped stay lost."""
        for at, data in self.pending:
            apply(self.durable, at, data)
        self.pending.clear()

    def drop_pending_writes(self) -> None:
        """Lose pending writes for good; truncations are metadata and survive."""
        self.pending = [(at, data) for at, data in self.pending if data is None]

    def crash(self, random: Random) -> None:
        image = self.durable
        if self.mapped:
            self._lose_pages(random)
        survivors = random.randint(0, len(self.pending))
        for at, data in self.pending[:survivors]:
            apply(image, at, data)
        if survivors < len(self.pending):
            at, data = self.pending[survivors]
            if data is not None:
                written = random.randint(0, len(data))
                apply(image, at, with_empty_sectors(data, at, written) if at == len(image) else data[:written])
        self.cached = bytearray(image)
        self.pending.clear()

    def _lose_pages(self, random: Random) -> None:
        """Make durable, for each page, the first few of its pending writes: the system writes pages in any order."""
        pages: dict[int, list[tuple[int, bytes]]] = {}
        for at, data in self.pending:
            if data is not None:
                pages.setdefault(at // PAGE, []).append((at, data))
        self.pending = [(at, data) for at, data in self.pending if data is None]
        for writes in pages.values():
            for at, data in writes[: random.randint(0, len(writes))]:
                apply(self.durable, at, data)

    def write_back(self) -> None:
        self.sync()


def with_empty_sectors(data: bytes, at: int, written: int) -> bytes:
    """What remains of a write of `data` at `at` if `written` bytes reach the disk: sometimes the full size, with zeros for unwritten sectors."""
    sector = -(-(at + written) // SECTOR) * SECTOR - at  # a sector is written whole or not at all
    if len(data) % 3 or len(data) - sector < ZEROS_MIN:
        return data[:written]
    return data[:sector] + bytes(len(data) - sector)


def apply(image: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        if len(image) > at:
            del image[at:]
        else:
            image.extend(bytes(at - len(image)))
    else:
        if len(image) < at and data:
            image.extend(bytes(at - len(image)))
        image[at : at + len(data)] = data


class Folder:
    """The names of a folder: cached, durable, and the pending changes between them."""

    def __init__(self) -> None:
        self.cached: dict[str, Content | Folder] = {}
        self.durable: dict[str, Content | Folder] = {}
        self.pending: list[dict[str, Content | Folder]] = []  # the whole listing after each change

    def change(self, remove: str = "", put: str = "", content: Content | Folder | None = None) -> None:
        if len(put.encode()) > NAME_MAX:
            raise system_error(errno.ENAMETOOLONG)
        self.cached.pop(remove, None)
        if content is not None:
            self.cached[put] = content
        self.pending.append(dict(self.cached))

    def sync(self) -> None:
        self.durable = dict(self.cached)
        self.pending.clear()

    def crash(self, random: Random) -> None:
        survivors = random.randint(0, len(self.pending))
        if survivors:
            self.durable = self.pending[survivors - 1]
        self.cached = dict(self.durable)
        self.pending.clear()
        for entry in self.cached.values():
            entry.crash(random)

    def write_back(self) -> None:
        if self.pending:
            self.sync()
        for entry in self.cached.values():
            if entry.pending or type(entry) is Folder:
                entry.write_back()


class SimFile:
    def __init__(self, disk: SimDisk, path: str, content: Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._life = disk.life
        self._failed_syncs = content.failed_syncs  # the failed syncs that this open file has reported, or that happened before it was opened
        disk.opened += 1
        self.descriptor = -1

    def _check(self) -> None:
        if self._life != self._disk.life:
            raise system_error(errno.EBADF)

    def read(self, at: int, size: int) -> bytes:
        self._check()
        self._disk.refuse_reading(self._path)
        if self._disk.recording:
            self._disk.reads.append((self._path, size))
        return bytes(memoryview(self._content.cached)[at : at + size])

    def write(self, at: int, data: bytes | bytearray) -> None:
        self._check()
        disk = self._disk
        if disk.changes_until_crash == 0 and disk.stays_down and not disk.down:  # the write is torn
            self._content.change(at, bytes(data[: disk.random.randint(0, len(data))]))
        disk.begin_change(self._path)
        if disk.recording:
            disk.writes.append(len(data))
        if disk.fail_writes:
            disk.fail_writes -= 1
            self._content.change(at, bytes(data[: len(data) // 2]))
            raise system_error(errno.EIO)
        if disk.corrupts and disk.corrupts in self._path:
            data = data[:-1] + bytes([data[-1] ^ 1])
        room = disk.room_for(self._content, at, len(data))
        self._content.change(at, bytes(data[:room]))
        if room < len(data):
            raise system_error(errno.ENOSPC)

    def size(self) -> int:
        self._check()
        return len(self._content.cached)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.begin_change(self._path)
        if self._disk.fail_truncates:
            self._disk.fail_truncates -= 1
            raise system_error(errno.EIO)
        self._content.change(size, None)

    def sync(self) -> None:
        self._check()
        self._disk.begin_change(self._path)
        self._disk.syncs += 1
        if self._disk.fail_syncs and self._disk.fails_in in self._path:
            self._disk.fail_syncs -= 1
            if self._disk.stays_down and not self._disk.changes_until_crash:
                self._disk.changes_until_crash = 1  # at the next change, so that the process learns of the failed sync before it dies
            self._disk.sync_failed(self._path)
            if self._disk.failed_sync_loses:
                self._content.drop_pending_writes()
            self._content.failed_syncs += 1
        else:
            self._content.sync()
        if self._failed_syncs < self._content.failed_syncs:  # as in Linux, each open file reports a failed sync once, also of another descriptor
            self._failed_syncs = self._content.failed_syncs
            raise system_error(errno.EIO)

    def close(self) -> None:
        if self._life == self._disk.life:
            self._life = -1
            self._disk.opened -= 1


class SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._life = disk.life

    def release(self) -> None:
        if self._life == self._disk.life:
            self._disk.locks.pop(self._path, None)


class SimByteLocks:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._life = disk.life

    def lock(self, at: int) -> bool:
        if self._life != self._disk.life:
            raise system_error(errno.EBADF)
        is_own = self._disk.byte_owners.setdefault((self._path, at), self._disk) is self._disk
        if is_own:
            self._disk.byte_locked(at)
        return is_own

    def drop(self, at: int) -> None:
        if self._life == self._disk.life and self._disk.byte_owners.get((self._path, at)) is self._disk:
            self._disk.byte_unlocked(at)
            del self._disk.byte_owners[self._path, at]

    def are_supported(self, at: int) -> bool:
        return True

    def close(self) -> None:
        if self._life == self._disk.life:
            self._disk.drop_bytes(self._path)


class SimSharedBytes:
    """A file mapped into memory: reads and writes never fail, and the process may die between any two writes."""

    def __init__(self, disk: SimDisk, path: str, size: int) -> None:
        self._disk = disk
        self._path = path
        self._file = disk.open(path, create=True)
        if self._file.size() < size:
            self._file.truncate(size)
        self._life = disk.life
        self._content = disk.content(path)
        self._content.mapped = True

    def read(self, at: int, size: int) -> bytes:
        return bytes(memoryview(self._content.cached)[at : at + size])

    def write(self, at: int, data: bytes) -> None:
        if self._life != self._disk.life:
            raise system_error(errno.EBADF)
        self._disk.begin_change(self._path)
        end = at + len(data)
        while at < end:
            part = data[: PAGE - at % PAGE]
            self._content.change(at, part)
            at, data = at + len(part), data[len(part) :]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        yield

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class SimDisk:
    """Paths begin with "/"; the root exists. Attributes plant faults."""

    def __init__(self, random: Random | None = None, shared: SimDisk | None = None) -> None:
        """`shared`: another process's view of the disk, whose files the new one shares."""
        self.random = random or Random(0)
        self.root: Folder = Folder() if shared is None else shared.root
        self.life: int = 0  # number of the current process; the next one cannot use its open files
        self.opened: int = 0
        self.room: int | None = None  # free bytes; None: unlimited
        self.fail_writes = 0  # how many of the next writes fail halfway
        self.fail_syncs = 0
        self.fails_in = ""  # only syncs of paths that contain this fail
        self.fail_folder_syncs = 0
        self.fail_truncates = 0
        self.failed_sync_loses = True
        self.sync_failed: Callable[[str], object] = lambda path: None  # called before a planted sync failure is raised
        self.unreadable = ""  # reads of paths that contain this fail
        self.corrupts = ""  # writes to paths that contain this store a wrong last byte
        self.read_only = False
        self.byte_locked: Callable[[int], object] = lambda at: None  # called after this process has locked a byte
        self.byte_unlocked: Callable[[int], object] = lambda at: None  # called before this process unlocks a byte
        self.changing: Callable[[str], object] = lambda path: None  # called before each change
        self.changes_until_crash = -1  # crash before this many more changes
        self.changes_until_refusal = -1  # after this many more changes, every change fails
        self.stays_down = False  # whether after a planted crash every change fails until `crash` or `kill`
        self.down = False
        self.recording = True  # collect `changes`, `reads` and `writes`
        self.syncs = 0
        self.time = 0  # modification time of every file
        self.changes: list[str] = []  # the path of each change
        self.reads: list[tuple[str, int]] = []  # path and requested size of each read
        self.writes: list[int] = []  # the size of each write
        self.locks: dict[str, str] = {}  # path -> holder, for the files that this process has locked
        self._processes: list[SimDisk] = [] if shared is None else shared._processes
        self._processes.append(self)
        self.byte_owners: dict[tuple[str, int], SimDisk] = {} if shared is None else shared.byte_owners

    def for_another_process(self) -> SimDisk:
        """The same files for another process, with its own open files, locks and planted faults."""
        return SimDisk(self.random, self)

    # Faults

    def crash(self) -> None:
        """Lose and restore power, for all processes; clear planted faults as `kill` does."""
        for process in self._processes:
            process.kill()
        self.root.crash(self.random)

    def kill(self) -> None:
        """End the process that uses the disk; its writes stay in the cache.

        Clears a planted crash and planted failures of writes, syncs and truncations. Other planted faults stay, such as a full disk.
        """
        self.life += 1
        self.down = False
        self.opened = 0
        self.changes_until_crash = -1
        self.fail_writes = self.fail_syncs = self.fail_folder_syncs = self.fail_truncates = 0
        self.locks.clear()
        self.drop_bytes()

    def drop_bytes(self, path: str = "") -> None:
        """Drop the byte locks of this process on one file, or on all files."""
        for key in [key for key, owner in self.byte_owners.items() if owner is self and path in ("", key[0])]:
            del self.byte_owners[key]

    def write_back(self) -> None:
        """Make everything durable, as an operating system does after a while."""
        self.root.write_back()

    def begin_change(self, path: str) -> None:
        if self.read_only:
            raise system_error(errno.EROFS)
        if self.changes_until_crash == 0 or self.down:
            self.down = self.stays_down
            raise Crashed
        self.changes_until_crash -= 1
        self.changing(path)
        if self.changes_until_refusal == 0:
            raise system_error(errno.EIO)
        self.changes_until_refusal -= 1
        if self.recording:
            self.changes.append(path)

    def room_for(self, content: Content, at: int, size: int) -> int:
        """Take the room for a write; return how many of its bytes fit. Overwriting old bytes needs no room."""
        if self.room is None:
            return size
        new = max(0, at + size - max(at, len(content.cached)))
        written = min(new, self.room)
        self.room -= written
        return size - new + written

    def refuse_reading(self, path: str) -> None:
        if self.unreadable and self.unreadable in path:
            raise system_error(errno.EIO)

    # Names

    def folder(self, path: str) -> Folder:
        folder = self.root
        for name in path.split("/")[1:]:
            if name:
                entry = folder.cached.get(name)
                if entry is None:
                    raise system_error(errno.ENOENT)
                if not isinstance(entry, Folder):
                    raise system_error(errno.ENOTDIR)
                folder = entry
        return folder

    def content(self, path: str) -> Content:
        folder, _, name = path.rpartition("/")
        entry = self.folder(folder).cached.get(name)
        if entry is None:
            raise system_error(errno.ENOENT)
        if not isinstance(entry, Content):
            raise system_error(errno.EISDIR)
        return entry

    # The port

    def open(self, path: str, create: bool = False) -> SimFile:
        if self.read_only:
            raise system_error(errno.EROFS)
        if create and not self.exists(path):
            self.begin_change(path)
            folder, _, name = path.rpartition("/")
            self.folder(folder).change(put=name, content=Content())
        return SimFile(self, path, self.content(path))

    def exists(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        try:
            return name in self.folder(folder).cached
        except OSError:
            return False

    def real_path(self, path: str) -> str:
        return path

    def list(self, folder: str) -> list[str]:
        self.refuse_reading(folder)
        return sorted(self.folder(folder).cached)

    def make_folder(self, path: str, durable: bool = True) -> None:
        parent = ""
        for name in path.split("/")[1:]:
            if not self.exists(f"{parent}/{name}"):
                self.begin_change(f"{parent}/{name}")
                self.folder(parent).change(put=name, content=Folder())
                if durable:
                    self.sync_folder(parent)
            parent = f"{parent}/{name}"
        self.folder(path)

    def read_text(self, path: str) -> str:
        self.refuse_reading(path)
        return bytes(self.content(path).cached).decode("utf-8", "replace")

    def replace_text(self, path: str, text: str, durable: bool = True) -> None:
        file = self.open(f"{path}.new", create=True)
        try:
            file.truncate(0)
            file.write(0, text.encode())
            if durable:
                file.sync()
        finally:
            file.close()
        self.rename(f"{path}.new", path)
        if durable:
            self.sync_folder(path.rpartition("/")[0])

    def rename(self, old: str, new: str) -> None:
        self.begin_change(new)
        folder, _, name = old.rpartition("/")
        new_folder, _, new_name = new.rpartition("/")
        content = self.folder(folder).cached.get(name)
        if content is None:
            raise system_error(errno.ENOENT)
        if folder == new_folder:
            self.folder(folder).change(remove=name, put=new_name, content=content)
        else:  # one change in the file system's journal: a crash may leave both names, but never none
            self.folder(new_folder).change(put=new_name, content=content)
            self.folder(new_folder).durable[new_name] = content
            self.folder(folder).change(remove=name)

    def remove(self, path: str) -> None:
        self.begin_change(path)
        self.content(path)
        folder, _, name = path.rpartition("/")
        self.folder(folder).change(remove=name)

    def remove_folder(self, path: str) -> None:
        self.begin_change(path)
        if self.folder(path).cached:
            raise system_error(errno.ENOTEMPTY)
        folder, _, name = path.rpartition("/")
        self.folder(folder).change(remove=name)

    def modified_ms(self, path: str) -> int:
        self.content(path)
        return self.time

    def sync_folder(self, path: str) -> None:
        self.begin_change(path)
        if self.fail_folder_syncs:
            self.fail_folder_syncs -= 1
            raise system_error(errno.EIO)
        self.folder(path).sync()

    def lock(self, path: str, holder: str) -> SimLock | str:
        for process in self._processes:
            if path in process.locks:
                return process.locks[path]
        self.open(path, create=True).close()
        self.locks[path] = holder
        return SimLock(self, path)

    def is_locked(self, path: str) -> bool:
        """Whether a process has the file locked."""
        return any(path in process.locks for process in self._processes)

    def byte_locks(self, path: str) -> SimByteLocks:
        return SimByteLocks(self, path)

    def shared_bytes(self, path: str, size: int) -> SimSharedBytes:
        return SimSharedBytes(self, path, size)


class NothingSurvives(Random):
    """The worst case: a power failure loses everything unsynced."""

    def randint(self, a: int, b: int) -> int:
        return a


def data_disk(random: Random | int = 0) -> SimDisk:
    """A disk with an empty folder /data; `random`, or its seed, decides what a power failure leaves."""
    disk = SimDisk(random if isinstance(random, Random) else Random(random))
    disk.make_folder("/data")
    return disk


_: SharedDisk = SimDisk()

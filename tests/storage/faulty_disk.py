"""A Disk in memory that fails like a real one: at a crash everything unsynced may vanish, in part or whole.

What a program reads is the cache. What a crash leaves is what was synced, and of what was not a prefix of the writes, the
last one torn at any byte; names made, renamed or removed since their folder was synced likewise. Planted: a sync that
fails (its data may be lost for good although it can still be read), a full disk, reading errors, a read-only disk, and a
crash at the n-th change.
"""

from __future__ import annotations

import errno
import os
from random import Random

from storage.disk import Disk


class Crashed(BaseException):
    """A power failure; only the test may catch it."""


NAME_MAX = 255  # of most file systems


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Content:
    """The content of a file: cached, durable, and the pending changes between them."""

    def __init__(self) -> None:
        self.cached = bytearray()
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []  # (position, data) or (size, None) for a cut

    def change(self, at: int, data: bytes | None) -> None:
        apply(self.cached, at, data)
        self.pending.append((at, data))

    def sync(self) -> None:
        """Make pending changes durable; changes given up by a failed sync stay lost."""
        image = bytearray(self.durable)
        for at, data in self.pending:
            apply(image, at, data)
        self.durable = bytes(image)
        self.pending.clear()

    def give_up(self) -> None:
        """Lose pending writes for good; the file size is metadata and survives."""
        self.pending = [(at, data) for at, data in self.pending if data is None]

    def crash(self, random: Random) -> None:
        image = bytearray(self.durable)
        survivors = random.randint(0, len(self.pending))
        for at, data in self.pending[:survivors]:
            apply(image, at, data)
        if survivors < len(self.pending):
            at, data = self.pending[survivors]
            if data is not None:
                apply(image, at, data[: random.randint(0, len(data))])
        self.durable = bytes(image)
        self.cached = image
        self.pending.clear()


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

    def change(self, remove: str = "", put: str = "", what: Content | Folder | None = None) -> None:
        if len(put.encode()) > NAME_MAX:
            raise system_error(errno.ENAMETOOLONG)
        self.cached.pop(remove, None)
        if what is not None:
            self.cached[put] = what
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


class FaultyFile:
    def __init__(self, disk: FaultyDisk, path: str, content: Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._life = disk.life
        disk.opened += 1

    def _check(self) -> None:
        if self._life != self._disk.life:
            raise system_error(errno.EBADF)

    def read(self, at: int, size: int) -> bytes:
        self._check()
        self._disk.refuse_reading(self._path)
        self._disk.reads.append((self._path, size))
        return bytes(self._content.cached[at : at + size])

    def write(self, at: int, data: bytes | bytearray) -> None:
        self._check()
        self._disk.step(self._path)
        self._disk.writes.append(len(data))
        if self._disk.fail_writes:
            self._disk.fail_writes -= 1
            self._content.change(at, bytes(data[: len(data) // 2]))
            raise system_error(errno.EIO)
        room = self._disk.room_for(self._content, at, len(data))
        self._content.change(at, bytes(data[:room]))
        if room < len(data):
            raise system_error(errno.ENOSPC)

    def size(self) -> int:
        self._check()
        return len(self._content.cached)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.step(self._path)
        if self._disk.fail_truncates:
            self._disk.fail_truncates -= 1
            raise system_error(errno.EIO)
        self._content.change(size, None)

    def sync(self) -> None:
        self._check()
        self._disk.step(self._path)
        self._disk.syncs += 1
        if self._disk.fail_syncs:
            self._disk.fail_syncs -= 1
            if self._disk.failed_sync_loses:
                self._content.give_up()
            raise system_error(errno.EIO)
        self._content.sync()

    def close(self) -> None:
        if self._life == self._disk.life:
            self._life = -1
            self._disk.opened -= 1


class FaultyLock:
    def __init__(self, locks: dict[str, str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.pop(self._path, None)


class FaultyDisk:
    """Paths begin with "/"; the root is there. Attributes plant faults."""

    def __init__(self, random: Random | None = None) -> None:
        self.random = random or Random(0)
        self.root = Folder()
        self.life = 0  # a crash ends it, and with it every open file
        self.opened = 0
        self.room: int | None = None  # bytes that may still be written before the disk is full
        self.fail_writes = 0  # so many next writes fail halfway
        self.fail_syncs = 0
        self.fail_folder_syncs = 0
        self.fail_truncates = 0
        self.failed_sync_loses = True
        self.unreadable = ""  # reads of paths that contain this fail
        self.read_only = False
        self.crash_at = -1  # crash before this many more changes
        self.refuse_at = -1  # after this many more changes, every change fails
        self.syncs = 0
        self.time = 0  # modification time of every file
        self.changes: list[str] = []  # paths, as they were changed
        self.reads: list[tuple[str, int]] = []  # of files, with the size that was asked for
        self.writes: list[int] = []  # sizes
        self.locks: dict[str, str] = {}

    # Faults

    def crash(self) -> None:
        """Lose and restore power; planted faults are cleared."""
        self.life += 1
        self.opened = 0
        self.crash_at = -1
        self.fail_writes = self.fail_syncs = self.fail_folder_syncs = self.fail_truncates = 0
        self.locks.clear()
        self.root.crash(self.random)

    def step(self, path: str) -> None:
        if self.read_only:
            raise system_error(errno.EROFS)
        if self.crash_at == 0:
            raise Crashed
        self.crash_at -= 1
        if self.refuse_at == 0:
            raise system_error(errno.EIO)
        self.refuse_at -= 1
        self.changes.append(path)

    def room_for(self, content: Content, at: int, size: int) -> int:
        """How many of `size` bytes fit; overwriting takes no room."""
        if self.room is None:
            return size
        new = max(0, at + size - max(at, len(content.cached)))
        fits = min(new, self.room)
        self.room -= fits
        return size - new + fits

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

    def _content(self, path: str) -> Content:
        folder, _, name = path.rpartition("/")
        entry = self.folder(folder).cached.get(name)
        if entry is None:
            raise system_error(errno.ENOENT)
        if not isinstance(entry, Content):
            raise system_error(errno.EISDIR)
        return entry

    # The port

    def open(self, path: str, create: bool = False) -> FaultyFile:
        if self.read_only:
            raise system_error(errno.EROFS)
        if create and not self.exists(path):
            self.step(path)
            folder, _, name = path.rpartition("/")
            self.folder(folder).change(put=name, what=Content())
        return FaultyFile(self, path, self._content(path))

    def exists(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        try:
            return name in self.folder(folder).cached
        except OSError:
            return False

    def list(self, folder: str) -> list[str]:
        self.refuse_reading(folder)
        return sorted(self.folder(folder).cached)

    def make_folder(self, path: str, safe: bool = True) -> None:
        parent = ""
        for name in path.split("/")[1:]:
            if not self.exists(f"{parent}/{name}"):
                self.step(f"{parent}/{name}")
                self.folder(parent).change(put=name, what=Folder())
                if safe:
                    self.sync_folder(parent)
            parent = f"{parent}/{name}"
        self.folder(path)

    def read_text(self, path: str) -> str:
        self.refuse_reading(path)
        return bytes(self._content(path).cached).decode("utf-8", "replace")

    def replace_text(self, path: str, text: str, safe: bool = True) -> None:
        file = self.open(f"{path}.new", create=True)
        try:
            file.truncate(0)
            file.write(0, text.encode())
            if safe:
                file.sync()
        finally:
            file.close()
        self.rename(f"{path}.new", path)
        if safe:
            self.sync_folder(path.rpartition("/")[0])

    def rename(self, old: str, new: str) -> None:
        self.step(new)
        folder, _, name = old.rpartition("/")
        new_folder, _, new_name = new.rpartition("/")
        assert folder == new_folder
        content = self.folder(folder).cached.get(name)
        if content is None:
            raise system_error(errno.ENOENT)
        self.folder(folder).change(remove=name, put=new_name, what=content)

    def remove(self, path: str) -> None:
        self.step(path)
        self._content(path)
        folder, _, name = path.rpartition("/")
        self.folder(folder).change(remove=name)

    def remove_folder(self, path: str) -> None:
        self.step(path)
        if self.folder(path).cached:
            raise system_error(errno.ENOTEMPTY)
        folder, _, name = path.rpartition("/")
        self.folder(folder).change(remove=name)

    def modified_ms(self, path: str) -> int:
        self._content(path)
        return self.time

    def sync_folder(self, path: str) -> None:
        self.step(path)
        if self.fail_folder_syncs:
            self.fail_folder_syncs -= 1
            raise system_error(errno.EIO)
        self.folder(path).sync()

    def lock(self, path: str, holder: str) -> FaultyLock | str:
        if path in self.locks:
            return self.locks[path]
        self.open(path, create=True).close()
        self.locks[path] = holder
        return FaultyLock(self.locks, path)


class NothingSurvives(Random):
    """The worst chance: a crash leaves nothing of what was not synced."""

    def randint(self, a: int, b: int) -> int:
        return a


def data_disk(random: Random | int = 0) -> FaultyDisk:
    """A disk with an empty folder /data; `random`, or its seed, chooses what a crash leaves."""
    disk = FaultyDisk(random if isinstance(random, Random) else Random(random))
    disk.make_folder("/data")
    return disk


_: Disk = FaultyDisk()

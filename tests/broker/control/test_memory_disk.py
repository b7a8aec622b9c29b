"""The disk in memory does what the real file system does, for long random sequences of calls on the same files."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.control.memory_disk import MemoryDisk
from storage import OsDisk
from storage.disk import Disk

NAMES = ("a", "b", "c")


class Tried:
    """Calls a disk below one folder, and answers what it returned, or the number of the error."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root

    def path(self, relative: str) -> str:
        return f"{self._root}/{relative}" if relative else self._root

    def __call__(self, verb: str, *arguments: Any) -> Any:
        try:
            return getattr(self, verb)(*arguments)
        except OSError as error:
            return "error", error.errno

    def write(self, path: str, at: int, data: bytes) -> int:
        file = self._disk.open(self.path(path), create=True)
        try:
            file.write(at, data)
            return file.size()
        finally:
            file.close()

    def truncate(self, path: str, size: int) -> int:
        file = self._disk.open(self.path(path))
        try:
            file.truncate(size)
            file.sync()
            return file.size()
        finally:
            file.close()

    def read(self, path: str, at: int, size: int) -> bytes:
        file = self._disk.open(self.path(path))
        try:
            return file.read(at, size)
        finally:
            file.close()

    def exists(self, path: str) -> bool:
        return self._disk.exists(self.path(path))

    def names(self, path: str) -> list[str]:
        return self._disk.list(self.path(path))

    def make(self, path: str) -> None:
        self._disk.make_folder(self.path(path))

    def text(self, path: str) -> str:
        return self._disk.read_text(self.path(path))

    def replace(self, path: str, text: str) -> None:
        self._disk.replace_text(self.path(path), text)

    def rename(self, old: str, new: str) -> None:
        self._disk.rename(self.path(old), self.path(new))

    def remove(self, path: str) -> None:
        self._disk.remove(self.path(path))

    def remove_folder(self, path: str) -> None:
        self._disk.remove_folder(self.path(path))

    def age(self, path: str) -> bool:
        return abs(self._disk.modified_ms(self.path(path)) - time.time() * 1000) < 60_000


def drawn(random: Random) -> tuple[Any, ...]:
    def path(depth: int = 3) -> str:
        return "/".join(random.choice(NAMES) for _ in range(random.randint(1, depth)))

    verb = random.choice(["write", "write", "truncate", "read", "exists", "names", "make", "text", "replace", "rename", "remove", "remove_folder", "age"])
    match verb:
        case "write":
            return verb, path(), random.randint(0, 30), bytes(random.choices(range(32, 127), k=random.randint(0, 20)))
        case "truncate":
            return verb, path(), random.randint(0, 40)
        case "read":
            return verb, path(), random.randint(0, 40), random.randint(0, 40)
        case "replace":
            return verb, path(), random.choice(["", "text"])
        case "rename":
            return verb, path(), path()
    return verb, path()


@pytest.mark.parametrize("seed", range(12))
def test_it_behaves_as_the_real_file_system(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    memory = MemoryDisk(lambda: int(time.time() * 1000))
    memory.make_folder("/data")
    real, ours = Tried(OsDisk(), str(tmp_path)), Tried(memory, "/data")
    done = []
    for _ in range(300):
        call = drawn(random)
        if call[0] == "rename" and (call[2] == call[1] or call[2].startswith(f"{call[1]}/") or call[1].startswith(f"{call[2]}/")):
            continue  # into itself: no caller does it
        done.append(call)
        expected, got = real(*call), ours(*call)
        if isinstance(expected, tuple) and expected[:1] == ("error",):
            assert isinstance(got, tuple), (done[-8:], expected, got)
            assert got[:1] == ("error",), (done[-8:], expected, got)
        else:
            assert got == expected, (done[-8:], expected, got)


def test_a_lock_is_held_until_it_is_released() -> None:
    disk = MemoryDisk(lambda: 0)
    disk.make_folder("/data")
    lock = disk.lock("/data/.lock", "first")
    assert disk.lock("/data/.lock", "second") == "first"
    assert not isinstance(lock, str)
    lock.release()
    assert not isinstance(disk.lock("/data/.lock", "second"), str)


def test_trouble_is_what_the_system_answers() -> None:
    disk = MemoryDisk(lambda: 0)
    disk.make_folder("/data")
    file = disk.open("/data/00.log", create=True)

    def full(path: str) -> None:
        raise OSError(28, path)

    disk.trouble = full
    with pytest.raises(OSError, match=r"/data/00\.log"):
        file.write(0, b"x")
    with pytest.raises(OSError, match=r"/data/00\.log"):
        file.sync()
    disk.trouble = None
    file.write(0, b"x")
    assert file.read(0, 5) == b"x"

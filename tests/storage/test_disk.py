"""The real file system under the Disk port: short reads and writes, syncs, descriptors, locks."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage import OsDisk
from storage.disk import OsFile
from tests.storage.logs import overwrite, read

FOLDER_OF_DESCRIPTORS = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


def descriptors() -> int:
    return len(os.listdir(FOLDER_OF_DESCRIPTORS))


class Synced:
    """Records synced files and folders by name, with the renames done by then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.names: list[str] = []
        self._folder = folder
        replace = os.replace

        def renamed(old: str, new: str) -> None:
            self.names.append(f"{Path(old).name} -> {Path(new).name}")
            replace(old, new)

        monkeypatch.setattr("storage.disk._sync", self._sync)
        monkeypatch.setattr(os, "fsync", self._sync)
        monkeypatch.setattr(os, "replace", renamed)

    def _sync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        for path in [self._folder, *self._folder.rglob("*")]:
            if path.stat().st_ino == inode:
                self.names.append(path.name if path != self._folder else ".")


@pytest.mark.parametrize("most", [1, 2, 3, 7, 10])
def test_short_reads_and_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: pread(descriptor, min(size, most), at))
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: pwrite(descriptor, data[:most], at))
    file = OsDisk().open(str(tmp_path / "file"), create=True)
    file.write(0, b"abcdefghij")
    file.write(4, bytearray(b"EFGH"))
    assert (tmp_path / "file").read_bytes() == b"abcdEFGHij"
    assert [file.read(at, size) for at, size in ((0, 10), (3, 6), (0, 11), (8, 100), (9, 1), (10, 1), (11, 5), (2, 0))] == [
        *(b"abcdEFGHij", b"dEFGHi", b"abcdEFGHij", b"ij", b"j", b"", b"", b""),
    ]
    file.close()


def test_reading_makes_no_superfluous_system_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    file = OsDisk().open(str(tmp_path / "file"))
    reads = []
    pread = os.pread

    def counted(descriptor: int, size: int, at: int) -> bytes:
        reads.append((size, at))
        return pread(descriptor, size, at)

    monkeypatch.setattr(os, "pread", counted)
    assert file.read(1, 3) == b"bcd"
    assert file.read(6, 3) == b""
    assert reads == [(3, 1), (3, 6)]
    assert file.read(4, 5) == b"ef"
    assert reads[2:] == [(5, 4), (3, 6)]
    file.close()


def test_a_file_is_cut_and_grows_with_zeros_and_has_the_time_of_its_last_write(tmp_path: Path) -> None:
    disk = OsDisk()
    path = str(tmp_path / "file")
    file = disk.open(path, create=True)
    file.write(0, b"abcdef")
    file.truncate(2)
    assert (file.size(), read(disk, path)) == (2, b"ab")
    file.truncate(4)
    assert (file.size(), read(disk, path)) == (4, b"ab\0\0")
    file.close()
    os.utime(path, ns=(0, 1_234_567_899_999))
    assert disk.modified_ms(path) == 1_234_567
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "none"))
    assert not disk.exists(str(tmp_path / "none"))
    os.symlink("nowhere", tmp_path / "link")
    assert disk.exists(str(tmp_path / "link"))


def test_new_files_are_writable_by_the_owner_and_readable_by_all(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        disk = OsDisk()
        disk.open(str(tmp_path / "file"), create=True).close()
        lock = disk.lock(str(tmp_path / "lock"), "me")
        assert not isinstance(lock, str)
        lock.release()
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "lock")] == [0o644, 0o644]


def test_a_file_is_closed_once_also_when_it_is_garbage(tmp_path: Path) -> None:
    disk = OsDisk()
    before = descriptors()
    file = disk.open(str(tmp_path / "file"), create=True)
    assert descriptors() == before + 1
    file.close()
    second_descriptor = os.open(tmp_path / "file", os.O_RDONLY)  # has the number that was freed
    del file
    os.fstat(second_descriptor)
    os.close(second_descriptor)
    disk.open(str(tmp_path / "file"))
    assert descriptors() == before


def test_the_file_with_the_lowest_descriptor_of_all_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon started without standard input gets 0 for its first file."""
    closed: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", closed.append)
        file = OsFile(0)
        del file
    assert closed == [0]


def test_without_a_descriptor_and_without_idle_files_the_error_is_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def refusing(*arguments: object) -> int:
        calls.append(arguments)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        OsDisk().open(str(tmp_path / "file"))
    assert len(calls) == 1


def test_a_file_created_at_the_second_attempt_equals_one_created_at_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk()
    disk.make_room = lambda: True
    system = os.open
    tries = []

    def refusing(*arguments: object) -> int:
        tries.append(arguments)
        if len(tries) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return system(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    disk.open(str(tmp_path / "file"), create=True).close()
    assert tries[0] == tries[1]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_descriptors_idle_files_are_closed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    (tmp_path / "file").write_text("text")
    disk = OsDisk()
    failures = 0
    asked_for_room = []
    system = os.open

    def refusing(*arguments: object) -> int:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(number, os.strerror(number))
        return system(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    path = str(tmp_path / "file")
    for use in (
        lambda: disk.open(path).close(),
        lambda: disk.read_text(path),
        lambda: disk.list(str(tmp_path)),
        lambda: disk.sync_folder(str(tmp_path)),
    ):
        disk.make_room = lambda: asked_for_room.append(1) or True  # type: ignore[func-returns-value]
        failures = 1
        use()
        assert (len(asked_for_room), failures) == (1, 0)
        failures = 2
        with pytest.raises(OSError, match=os.strerror(number)):
            use()
        assert (len(asked_for_room), failures) == (2, 0)
        disk.make_room = lambda: False
        failures = 1
        with pytest.raises(OSError, match=os.strerror(number)):
            use()
        assert failures == 0
        asked_for_room.clear()


def test_idle_files_are_closed_only_for_a_lack_of_descriptors(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.make_room = lambda: pytest.fail("make_room was called")
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        disk.list(str(tmp_path / "none"))


def test_listing_and_syncing_folders_leave_no_open_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk()
    for name in ("b", "c", "a"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(os, "listdir", lambda descriptor, system=os.listdir: sorted(system(descriptor), reverse=True))
    before = descriptors()
    assert disk.list(str(tmp_path)) == ["a", "b", "c"]
    disk.sync_folder(str(tmp_path))
    assert disk.read_text(str(tmp_path / "a")) == "a"
    assert descriptors() == before


def test_invalid_utf8_is_read_with_replacement_characters(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\xff\xc3\xa4")
    assert OsDisk().read_text(str(tmp_path / "file")) == "a\N{REPLACEMENT CHARACTER}\N{LATIN SMALL LETTER A WITH DIAERESIS}"


def test_a_folder_is_created_with_its_parents_each_name_synced_from_the_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk()
    synced = Synced(monkeypatch, tmp_path)
    disk.make_folder(str(tmp_path / "a/b/c"))
    assert (tmp_path / "a/b/c").is_dir()
    assert synced.names == [".", "a", "b"]
    disk.make_folder(str(tmp_path / "a/b/c"))
    assert synced.names == [".", "a", "b"]
    disk.make_folder(str(tmp_path / "a/b/d/e"), durable=False)
    assert (tmp_path / "a/b/d/e").is_dir()
    assert synced.names == [".", "a", "b"]


def test_a_folder_of_a_relative_path_is_made_and_synced_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    synced = Synced(monkeypatch, tmp_path)
    OsDisk().make_folder("a/b")
    assert (tmp_path / "a/b").is_dir()
    assert synced.names == [".", "a"]


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError) as caught:
        OsDisk().make_folder(str(tmp_path / "file"))
    assert (caught.value.errno, caught.value.strerror) == (errno.ENOTDIR, "not a directory")
    with pytest.raises(NotADirectoryError) as caught:
        OsDisk().make_folder(str(tmp_path / "file/below"))
    assert (caught.value.errno, caught.value.strerror) == (errno.ENOTDIR, f"{tmp_path}/file is not a directory")


def test_replacing_a_text_syncs_in_an_order_that_survives_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk()
    path = str(tmp_path / "file")
    synced = Synced(monkeypatch, tmp_path)
    overwrite(disk, f"{path}.new", b"a longer text that an earlier process left")
    synced.names.clear()
    disk.replace_text(path, "one")
    assert (read(disk, path), os.listdir(tmp_path)) == (b"one", ["file"])
    assert synced.names == ["file.new", "file.new -> file", "."]
    disk.replace_text(path, "two", durable=False)
    assert (read(disk, path), os.listdir(tmp_path)) == (b"two", ["file"])
    assert synced.names[3:] == ["file.new -> file"]


@pytest.mark.parametrize("call", ["pwrite", "replace"])
def test_a_failed_text_replacement_leaves_the_old_text_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    disk = OsDisk()
    path = str(tmp_path / "file")
    disk.replace_text(path, "old")
    before = descriptors()

    def failing(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(OSError, match="No space left"):
        disk.replace_text(path, "new")
    assert (disk.read_text(path), os.listdir(tmp_path), descriptors()) == ("old", ["file"], before)
    with pytest.raises(FileNotFoundError):  # and the first error is raised if there is nothing to remove
        disk.replace_text(str(tmp_path / "none/file"), "new")


def test_files_are_renamed_and_removed(tmp_path: Path) -> None:
    disk = OsDisk()
    for name in "ab":
        overwrite(disk, str(tmp_path / name), name.encode())
    disk.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (disk.list(str(tmp_path)), read(disk, str(tmp_path / "b"))) == (["b"], b"a")
    disk.remove(str(tmp_path / "b"))
    disk.make_folder(str(tmp_path / "c"))
    disk.remove_folder(str(tmp_path / "c"))
    assert disk.list(str(tmp_path)) == []


def test_a_lock_names_its_holder_until_it_is_released(tmp_path: Path) -> None:
    disk = OsDisk()
    path = str(tmp_path / "lock")
    overwrite(disk, path, b"a longer text of a holder that was before")
    before = descriptors()
    first = disk.lock(path, "process 7")
    assert not isinstance(first, str)
    assert read(disk, path) == b"process 7"
    assert disk.lock(path, "process 8") == "process 7"
    assert disk.lock(path, "process 9") == "process 7"
    assert descriptors() == before + 1
    (tmp_path / "lock").write_bytes(b" process \xff\n")  # as another program may have written it
    assert disk.lock(path, "process 8") == "process \N{REPLACEMENT CHARACTER}"
    (tmp_path / "lock").write_bytes(b"x" * 2_000)
    assert disk.lock(path, "process 8") == "x" * 1_000
    first.release()
    assert descriptors() == before
    lock_again = disk.lock(path, "process 8")
    assert not isinstance(lock_again, str)
    assert read(disk, path) == b"process 8"
    lock_again.release()


def test_a_lock_is_held_against_programs_of_either_kind(tmp_path: Path) -> None:
    """flock and POSIX locks do not affect each other; Java uses the latter."""
    lock = OsDisk().lock(str(tmp_path / "lock"), "me")
    assert not isinstance(lock, str)
    script = """
import fcntl
file = open("lock", "r+")
for take in (fcntl.flock, fcntl.lockf):
    try:
        take(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("free")
    except OSError:
        print("held")
"""
    for expected in ("held", "free"):
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=20)
        assert done.stdout.split() == [expected] * 2
        if expected == "held":
            lock.release()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_a_lock_held_only_by_javas_method_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    (tmp_path / "lock").write_text("a Kafka\n")

    def held(descriptor: int, operation: int) -> None:
        assert operation == fcntl.LOCK_EX | fcntl.LOCK_NB
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", held)
    before = descriptors()
    assert OsDisk().lock(str(tmp_path / "lock"), "me") == "a Kafka"
    assert ((tmp_path / "lock").read_text(), descriptors()) == ("a Kafka\n", before)


def test_a_file_system_without_locks_is_an_error_and_no_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refusing)
    before = descriptors()
    with pytest.raises(OSError, match=os.strerror(errno.ENOLCK)):
        OsDisk().lock(str(tmp_path / "lock"), "me")
    assert descriptors() == before


def test_syncing_a_file_reaches_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = Synced(monkeypatch, tmp_path)
    file = OsDisk().open(str(tmp_path / "file"), create=True)
    assert isinstance(file, OsFile)
    file.sync()
    assert synced.names == ["file"]
    file.close()

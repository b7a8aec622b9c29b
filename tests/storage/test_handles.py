"""Open file handles: the limit, pins and idle files."""

from __future__ import annotations

import pytest

from simulator.disk import SimDisk, SimFile
from storage import Handles


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    for name in "abcd":
        disk.open(f"/{name}", create=True).close()
    return disk


def test_no_more_files_are_open_than_allowed(disk: SimDisk) -> None:
    handles = Handles(disk, 2)
    for name in "abcdabcd":
        handles.file(f"/{name}")
        assert disk.opened <= 2
    handles.close()
    assert disk.opened == 0


def test_the_least_recently_used_file_is_closed_first(disk: SimDisk) -> None:
    handles = Handles(disk, 2)
    first = handles.file("/a")
    handles.file("/b")
    assert handles.file("/a") is first
    handles.file("/c")
    assert handles.file("/a") is first


def test_a_pinned_file_stays_open_until_it_is_unpinned_as_often(disk: SimDisk) -> None:
    handles = Handles(disk, 1)
    file = handles.pin("/a")
    assert handles.pin("/a") is file
    handles.file("/b")
    handles.forget("/a")
    handles.unpin(file)
    file.sync()
    assert disk.opened == 2
    handles.unpin(file)
    assert disk.opened == 1
    assert not handles._forgotten


def test_a_pinned_file_is_not_closed_for_another(disk: SimDisk) -> None:
    handles = Handles(disk, 2)
    file = handles.pin("/a")
    for name in "bcd":
        handles.file(f"/{name}")
    assert handles.file("/a") is file
    assert disk.opened == 2


def test_a_pin_outlives_its_name(disk: SimDisk) -> None:
    handles = Handles(disk)
    old = handles.pin("/a")
    handles.forget("/a")
    disk.rename("/b", "/a")
    new = handles.pin("/a")
    assert new is not old
    handles.unpin(old)
    assert handles.file("/a") is new
    handles.unpin(new)
    assert handles.file("/a") is new


def test_a_file_that_cannot_be_opened_uses_no_descriptor(disk: SimDisk) -> None:
    handles = Handles(disk, 2)
    for _ in range(3):
        with pytest.raises(OSError, match="No such file"):
            handles.file("/missing")
    assert handles.file("/a").size() == 0


def test_idle_files_release_their_descriptors_and_pinned_files_stay_open() -> None:
    disk = SimDisk()
    handles = Handles(disk, 10)
    for name in "abc":
        handles.file(f"/{name}", create=True)
    pinned = handles.pin("/b")
    assert handles.close_idle()
    assert disk.opened == 1
    pinned.write(0, b"x")
    assert not handles.close_idle()
    handles.unpin(pinned)
    assert handles.close_idle()
    assert disk.opened == 0


def test_room_is_made_before_a_file_is_opened(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle file is closed first, as the process may have no free descriptor."""
    handles = Handles(disk, 2)
    opened = disk.open

    def noted(path: str, create: bool = False) -> SimFile:
        assert disk.opened < 2
        return opened(path, create)

    monkeypatch.setattr(disk, "open", noted)
    for name in "abcdab":
        handles.file(f"/{name}")

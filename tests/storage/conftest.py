from __future__ import annotations

from pathlib import Path

import pytest

from storage import Disk, OsDisk
from tests.storage.faulty_disk import FaultyDisk, data_disk


class Place:
    """A disk and an empty folder on it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path


@pytest.fixture(params=("system", "memory"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The same tests over the real file system and the one that can fail."""
    if request.param == "system":
        return Place(OsDisk(), str(tmp_path))
    return Place(data_disk(), "/data")


def in_memory() -> tuple[FaultyDisk, Place]:
    disk = data_disk()
    return disk, Place(disk, "/data")


@pytest.fixture
def disk() -> FaultyDisk:
    """With an empty folder /data."""
    return data_disk()

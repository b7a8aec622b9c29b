from __future__ import annotations

from pathlib import Path

import pytest

from storage import Disk, OsDisk
from tests.storage.faulty_disk import FaultyDisk


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
    disk = FaultyDisk()
    disk.make_folder("/data")
    return Place(disk, "/data")

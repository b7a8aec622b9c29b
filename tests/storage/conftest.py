from __future__ import annotations

from pathlib import Path

import pytest

from simulator.disk import SimDisk, data_disk
from storage import Disk, OsDisk


class DataFolder:
    """A disk and an empty folder on it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path


@pytest.fixture(params=("system", "memory"))
def data_folder(request: pytest.FixtureRequest, tmp_path: Path) -> DataFolder:
    """Run the same tests over the real file system and over the faulty disk."""
    if request.param == "system":
        return DataFolder(OsDisk(), str(tmp_path))
    return DataFolder(data_disk(), "/data")


def in_memory() -> tuple[SimDisk, DataFolder]:
    disk = data_disk()
    return disk, DataFolder(disk, "/data")


@pytest.fixture
def disk() -> SimDisk:
    """A faulty disk with an empty folder /data."""
    return data_disk()

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.disk import SimDisk, data_disk
from storage import Disk, OsDisk


class Place:
    """A disk and an empty folder on it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path


@pytest.fixture(params=("system", "memory"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Run the same tests over the real file system and over the faulty disk."""
    if request.param == "system":
        return Place(OsDisk(), str(tmp_path))
    return Place(data_disk(), "/data")


def in_memory() -> tuple[SimDisk, Place]:
    disk = data_disk()
    return disk, Place(disk, "/data")


@pytest.fixture
def disk() -> SimDisk:
    """A faulty disk with an empty folder /data."""
    return data_disk()

"""Removal of a deleted log's folder, as in Kafka: renamed at once, its files removed later."""

from __future__ import annotations

import re
from typing import Final

from storage.disk import Disk

NAME_MAX: Final = 255
DELETE: Final = "delete"
STRAY: Final = "stray"  # Kafka's word for a folder of an unknown topic; it is not removed
_SET_ASIDE: Final = re.compile(r".+\.[0-9a-f]{32}-delete")


def set_folder_aside(disk: Disk, folder: str, token: str, suffix: str = DELETE) -> str:
    """Rename the folder, so that its name is free; return the new path. `token` is 32 hexadecimal digits."""
    parent, _, name = folder.rpartition("/")
    topic, _, partition = name.rpartition("-")
    ending = f"-{partition}.{token}-{suffix}"
    moved = f"{parent}/{topic[: NAME_MAX - len(ending)]}{ending}"
    disk.rename(folder, moved)
    return moved


def is_set_aside(name: str) -> bool:
    return _SET_ASIDE.fullmatch(name) is not None


def folders_set_aside(disk: Disk, data_directory: str) -> list[str]:
    """The folders that wait for removal."""
    return [f"{data_directory}/{name}" for name in disk.list(data_directory) if is_set_aside(name)]


def remove_folder(disk: Disk, folder: str) -> None:
    """Remove the folder and its files. Blocks for the disk; may be repeated after a failure."""
    assert is_set_aside(folder.rpartition("/")[2])
    for name in disk.list(folder):
        disk.remove(f"{folder}/{name}")
    disk.remove_folder(folder)

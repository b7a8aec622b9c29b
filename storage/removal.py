"""The folder of a log that is not wanted any more, removed in Kafka's way: renamed at once, its files go later."""

from __future__ import annotations

import re
from typing import Final

from storage.disk import Disk

NAME_MAX: Final = 255
DELETE: Final = "delete"
STRAY: Final = "stray"  # Kafka's word for what belongs to no topic that is known: nobody removes it
_SET_ASIDE: Final = re.compile(r".+\.[0-9a-f]{32}-delete")


def set_folder_aside(disk: Disk, folder: str, token: str, why: str = DELETE) -> str:
    """Where the folder is now; `token` is 32 hexadecimal digits. A log of the same name may begin anew at once."""
    parent, _, name = folder.rpartition("/")
    topic, _, partition = name.rpartition("-")
    ending = f"-{partition}.{token}-{why}"
    moved = f"{parent}/{topic[: NAME_MAX - len(ending)]}{ending}"
    disk.rename(folder, moved)
    return moved


def is_set_aside(name: str) -> bool:
    return _SET_ASIDE.fullmatch(name) is not None


def folders_set_aside(disk: Disk, data_directory: str) -> list[str]:
    """Those that nobody has removed yet."""
    return [f"{data_directory}/{name}" for name in disk.list(data_directory) if is_set_aside(name)]


def remove_folder(disk: Disk, folder: str) -> None:
    """With what is in it; blocks for the disk, and may be called again after a failure."""
    assert is_set_aside(folder.rpartition("/")[2])
    for name in disk.list(folder):
        disk.remove(f"{folder}/{name}")
    disk.remove_folder(folder)

"""A bounded cache of open files: thousands of partitions must not need thousands of descriptors."""

from __future__ import annotations

from storage.disk import Disk, File


class Handles:
    """Files by path, opened on use; the least recently used one is closed first, unless it is pinned.

    Not thread-safe: another thread gets a pinned file or separate Handles.
    """

    def __init__(self, disk: Disk, open_max: int = 512) -> None:
        self.disk = disk
        self._open_max = open_max
        self._files: dict[str, File] = {}  # in the order of use
        self._pins: dict[File, int] = {}
        self._forgotten: set[File] = set()  # files to close when they are unpinned

    def file(self, path: str, create: bool = False) -> File:
        """The open file, valid until the next call here; pin it to keep it longer."""
        file = self._files.pop(path, None)
        if file is None:
            self._make_room()
            file = self.disk.open(path, create)
        self._files[path] = file
        return file

    def pin(self, path: str) -> File:
        """Keep the file open until `unpin`, even if it is renamed or removed: a flush in another thread uses it."""
        file = self.file(path)
        self._pins[file] = self._pins.get(file, 0) + 1
        return file

    def unpin(self, file: File) -> None:
        pins = self._pins.pop(file) - 1
        if pins:
            self._pins[file] = pins
        elif file in self._forgotten:
            self._forgotten.remove(file)
            file.close()

    def close_idle(self) -> bool:
        """Close all unpinned files, since descriptors ran out; return whether there were any."""
        idle = [path for path, file in self._files.items() if file not in self._pins]
        for path in idle:
            self.forget(path)
        return bool(idle)

    def forget(self, path: str) -> None:
        """Close a file that is removed or renamed, or whose log closes; a pinned one is closed at `unpin`."""
        file = self._files.pop(path, None)
        if file is None:
            return
        if file in self._pins:
            self._forgotten.add(file)
        else:
            file.close()

    def close(self) -> None:
        for path in list(self._files):
            self.forget(path)

    def _make_room(self) -> None:
        if len(self._files) < self._open_max:
            return
        for path, file in self._files.items():
            if file not in self._pins:
                self.forget(path)
                return

"""A small disk of its own, which a test may fill."""

from __future__ import annotations

from pathlib import Path


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler

"""The folder of the tables, judged without the packages that open them: whether it may be one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

LAYERS: Final = ("bronze", "silver", "gold", "state")
PROGRESS: Final = "progress"


class TablesError(Exception):
    """The tables are unusable; the text has the remedy, in one line."""


def check_folder(folder: Path, create: bool) -> None:
    """Raise TablesError for the folder of something else, and unless tables may be created, for one without tables."""
    try:
        if not folder.exists():
            if not create:
                raise TablesError(f"{folder}: there is no such folder; `tenure analyze run` or `ingest` creates it")
            return
        inside = {path.name for path in folder.iterdir()}
        is_ours = (folder / "state" / PROGRESS).exists()  # what others have put beside the tables is theirs
    except OSError as error:
        raise TablesError(f"{error.filename}: {error.strerror}") from None
    if {"FORMAT", "CURRENT.json"} & inside:
        raise TablesError(f"{folder}: its tables are of another version of Tenure; use another --out")
    if inside - set(LAYERS) and not is_ours:
        raise TablesError(f"{folder}: not the folder of an analysis, and not empty; use another --out")
    if not create and not is_ours:
        raise TablesError(f"{folder}: empty; `tenure analyze run` or `ingest` fills it")

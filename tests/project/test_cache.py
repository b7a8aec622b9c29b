"""The cache of files that tests fetch or build once: `tests/support/cache.py`."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from tests.support.cache import cached

pytestmark = pytest.mark.once

PROCESSES = 4


def make(temporary: Path) -> Path:
    with (temporary.parent / "made").open("a") as made:
        made.write("once\n")
    time.sleep(0.2)
    (temporary / "complete").mkdir()
    (temporary / "complete" / "file").write_text("text")
    return temporary / "complete"


def read(folder: Path) -> str:
    return (cached(folder, make) / "file").read_text()


def test_only_one_of_several_processes_makes_the_folder(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        assert pool.map(read, [tmp_path / "cache" / "folder"] * PROCESSES, chunksize=1) == ["text"] * PROCESSES
    assert (tmp_path / "cache" / "made").read_text() == "once\n"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["folder", "made"]


def test_a_folder_is_made_by_the_next_process_after_a_failure(tmp_path: Path) -> None:
    def fail(temporary: Path) -> Path:
        (temporary / "part").write_text("part")
        raise OSError("no such jar")

    with pytest.raises(OSError, match="no such jar"):
        cached(tmp_path / "folder", fail)
    assert not list(tmp_path.iterdir())
    assert read(tmp_path / "folder") == "text"

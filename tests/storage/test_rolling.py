"""A new segment that the disk refuses: the log goes on in the one that it has."""

from __future__ import annotations

import pytest

from storage import AppendFailed
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.logs import batch, names, reopen


@pytest.mark.parametrize("padding", [0, 200])  # it fits where the others are, or goes where that could not begin
@pytest.mark.parametrize("removing_fails", [False, True])
def test_a_segment_that_could_not_be_begun_is_not_left_behind(removing_fails: bool, padding: int) -> None:
    disk = FaultyDisk()
    disk.make_folder("/data")
    log, _ = reopen(disk, "/data", segment_bytes=300)
    for number in range(3):
        log.append(batch(f"b{number}"), log.epoch)
    log.flush()
    disk.fail_folder_syncs = 2 if removing_fails else 1
    with pytest.raises(AppendFailed):
        log.append(batch("large", padding=200), log.epoch)
    assert log.usable != removing_fails
    if removing_fails:
        log.recover(keep_unflushed=True)
    log.append(batch("next", padding=padding), log.epoch)
    log.flush()
    for clean in (False, True):
        log, _ = reopen(disk, "/data", clean=clean)
        assert names(log) == ["b0.0", "b1.0", "b2.0", "next.0"]

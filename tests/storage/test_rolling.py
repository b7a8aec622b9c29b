"""A new segment that the disk refuses: the log goes on in the one that it has."""

from __future__ import annotations

import pytest

from storage import AppendFailed
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.logs import batch, names, reopen


@pytest.mark.parametrize("padding", [0, 200])  # it fits where the others are, or goes where that could not begin
@pytest.mark.parametrize("early", [False, True])
def test_a_segment_that_could_not_be_begun_is_begun_later_or_not_needed(early: bool, padding: int) -> None:
    for step in range(20):
        disk = FaultyDisk()
        disk.make_folder("/data")
        log, _ = reopen(disk, "/data", segment_bytes=300)
        for number in range(3):
            log.append(batch(f"b{number}"), log.epoch)
        log.flush()
        disk.refuse_at = step
        try:
            if early:
                log.roll(0)
            else:
                log.append(batch("large", padding=200), log.epoch)
        except AppendFailed:
            disk.refuse_at = -1
        else:
            assert step > 2
            return
        assert log.usable
        log.append(batch("next", padding=padding), log.epoch)
        log.flush()
        for clean in (False, True):
            log, _ = reopen(disk, "/data", clean=clean)
            assert names(log) == ["b0.0", "b1.0", "b2.0", "next.0"]
    raise AssertionError("it never ended")

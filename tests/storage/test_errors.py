"""Error messages for disk failures and damaged logs."""

from __future__ import annotations

import errno
import os

from storage import DamagedLog, describe_error


def test_an_error_is_described_in_one_line() -> None:
    damaged = DamagedLog("/data/a-0/0.log", 61, "a batch has magic 1, not 2")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert describe_error(full, "/data/a-0") == "the disk of /data/a-0 is full"
    assert describe_error(OSError(errno.EIO, "Input/output error", "/data/a-0/0.log"), "/data/a-0") == "/data/a-0: Input/output error"
    assert describe_error(OSError("no number"), "/data/a-0") == "/data/a-0: no number"
    assert describe_error(ValueError("odd"), "/data/a-0") == "/data/a-0: odd"
    assert describe_error(damaged, "/data/a-0") == str(damaged)


def test_damage_names_its_position_and_the_remedy() -> None:
    damaged = DamagedLog("/data/a-0/0.log", 61, "a batch has magic 1, not 2")
    assert (damaged.path, damaged.position, damaged.reason) == ("/data/a-0/0.log", 61, "a batch has magic 1, not 2")
    assert str(damaged).startswith("/data/a-0/0.log is damaged at byte 61: a batch has magic 1, not 2; restore the file")

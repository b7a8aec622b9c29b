"""A file system without locks, or with locks that do not exclude other processes, is refused at the start."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.runtime.start import ExitCode, StartError
from storage import LogId
from tests.stores.nodes import NodesOverOsDisk


def granted(descriptor: int, kind: int, at: int) -> bool:
    return True


def unsupported(descriptor: int, kind: int, at: int) -> bool:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize("lock", [granted, unsupported])
def test_a_file_system_without_working_locks_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: object) -> None:
    nodes = NodesOverOsDisk(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("storage.disk._lock_byte", lock)
        with pytest.raises(StartError, match="several nodes need file locks, which its file system lacks") as refused:
            nodes.start(1)
    assert refused.value.code == ExitCode.DIRECTORY
    nodes.start(1).own(LogId("orders", 0))  # succeeds, so the refused start left no lock

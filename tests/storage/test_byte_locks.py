"""Locks on bytes of a file, between processes: open file description locks, and POSIX process locks for systems without those."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from storage import LogId
from storage.disk import LOCK_FILES, OsByteLocks, file_of
from storage.owners import lock_byte_of
from tests.running import environment

pytestmark = [pytest.mark.once, pytest.mark.plain, pytest.mark.skipif(sys.platform != "linux", reason="several nodes run on Linux")]

SECONDS = 20.0
FIRST, SECOND = lock_byte_of(LogId("orders", 0)), lock_byte_of(LogId("orders", 1))
# Reads commands on standard input, one a line, and prints the result of each.
PROGRAM = """
import sys
import storage.disk
if sys.argv[2] == "process":
    storage.disk._OFD_SETLK = None
locks = storage.disk.OsByteLocks(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    name, _, at = line.strip().partition(" ")
    print(getattr(locks, name)(*([int(at)] if at else [])), flush=True)
"""


class Holder:
    """A process that acquires and releases locks."""

    def __init__(self, file: Path, kind: str) -> None:
        command = [sys.executable, "-c", PROGRAM, str(file), kind]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __call__(self, command: str, at: int | None = None) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(command if at is None else f"{command} {at}")
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture(params=["description", "process"])
def hold(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Holder]]:
    with ExitStack() as stack:

        def start() -> Holder:
            holder = Holder(tmp_path / "locks", request.param)
            stack.callback(holder.kill)
            return holder

        yield start


def test_a_byte_is_held_by_one_process(hold: Callable[[], Holder]) -> None:
    first, second = hold(), hold()
    assert first("lock", FIRST) == "True"
    assert second("lock", FIRST) == "False"
    assert second("lock", SECOND) == "True"
    assert first("lock", SECOND) == "False"
    assert first("lock", FIRST) == "True"


def test_a_released_byte_is_free_and_other_bytes_stay_locked(hold: Callable[[], Holder]) -> None:
    first, second = hold(), hold()
    for at in (FIRST, SECOND):
        assert first("lock", at) == "True"
    first("drop", FIRST)
    assert second("lock", FIRST) == "True"
    assert second("lock", SECOND) == "False"
    second("drop", SECOND)
    assert second("lock", SECOND) == "False", "a process releases only its own locks"


@pytest.mark.parametrize("killed", [True, False])
def test_locks_of_a_killed_process_and_closed_locks_are_free(hold: Callable[[], Holder], killed: bool) -> None:
    first, second = hold(), hold()
    assert first("lock", FIRST) == "True"
    if killed:
        first.kill()
    else:
        first("close")
        first("close")
    assert second("lock", FIRST) == "True"


def test_a_file_system_with_locks_is_detected_and_a_probe_drops_no_other_lock(hold: Callable[[], Holder]) -> None:
    first, second = hold(), hold()
    assert first("lock", FIRST) == "True"
    assert first("are_supported", SECOND) == "True"
    assert second("lock", FIRST) == "False"
    first("drop", SECOND)
    assert second("lock", SECOND) == "True"
    assert first("are_supported", SECOND) == "False", "another process holds the byte"


def test_locks_of_many_logs_are_spread_evenly_over_files(tmp_path: Path) -> None:
    """The operating system scans all locks of a file at each call."""
    bytes_of_logs = [lock_byte_of(LogId("orders", number)) for number in range(100 * LOCK_FILES)]
    numbers = [file_of(at) for at in bytes_of_logs]
    assert max(numbers.count(number) for number in range(LOCK_FILES)) < 150
    locks = OsByteLocks(str(tmp_path / "locks"))
    assert all(map(locks.lock, bytes_of_logs))
    locks.close()
    assert len(list(tmp_path.iterdir())) == LOCK_FILES


def test_the_file_of_a_byte_never_changes() -> None:
    """During an upgrade, nodes of different versions share a directory."""
    assert (LOCK_FILES, file_of(FIRST), file_of(SECOND)) == (16, (FIRST >> 1) % 16, (SECOND >> 1) % 16)

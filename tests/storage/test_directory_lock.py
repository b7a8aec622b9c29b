"""The lock of the data directory against another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storage import DirectoryLocked, OsDisk
from tests.running import environment
from tests.storage.conftest import Place
from tests.storage.test_directory import opened, stopped

LOCKER = """
import fcntl, sys
file = open(sys.argv[1], "w")
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX)
file.write("process of another kind")
file.flush()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["flock", "lockf"])  # ours, and the one of Java and so of Kafka
def test_another_process_keeps_it_while_it_lives(tmp_path: Path, way: str) -> None:
    place = Place(OsDisk(), str(tmp_path))
    stopped(place)
    command = [sys.executable, "-c", LOCKER, str(tmp_path / "data/.lock"), way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        for _ in range(2):
            with pytest.raises(DirectoryLocked, match="in use by process of another kind"):
                opened(place)
        other.kill()
    opened(place).close()

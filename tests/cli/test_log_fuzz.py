"""For any bytes in a data directory `tenure log` reports the same problems as the storage."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from storage import DamagedLog, Handles, Log, OsDisk
from storage.checkpoints import read_offsets
from tests.cli.log_folders import Command, Folder
from tests.storage.logs import scan

pytestmark = pytest.mark.once  # bytes and disks do not depend on the Python version

SEEDS = 20
DAMAGE = {"damaged", "damaged-end", "torn-end", "segment-overlap", "read-failed"}


def spoil(random: random.Random, data: bytearray) -> None:
    """Change one place, mostly near the beginning, where headers are."""
    at = random.randrange(min(len(data), 90) + 1) if random.random() < 0.6 else random.randrange(len(data) + 1)
    match random.randrange(6):
        case 0:
            data[at : at + 1] = bytes(byte ^ 1 << random.randrange(8) for byte in data[at : at + 1])
        case 1:
            data[at:at] = random.randbytes(random.randrange(1, 50))
        case 2:
            del data[at : at + random.randrange(1, 400)]
        case 3:
            del data[at:]
        case 4:
            data[at : at + 30] = bytes(30)
        case _:
            data += data[:at]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_dump_and_verify_report_arbitrary_damage_as_the_storage_sees_it(seed: int, folder: Folder, command: Command) -> None:
    chance = random.Random(seed)
    clean = chance.random() < 0.5
    if not clean:
        (folder.path / ".kafka_cleanshutdown").unlink()
    files = sorted(path for path in folder.path.rglob("*") if path.is_file())
    file = chance.choice([path for path in files if path.suffix == ".log"] if chance.random() < 0.6 else files)
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 4)):
        spoil(chance, data)
    changed = bytes(data) != file.read_bytes()
    file.write_bytes(data)
    code, problems, _ = command.verify()
    assert code in (0, 65)
    dumped, _ = command.run("dump", folder.path, "--json", "--batches")
    assert dumped in (0, 65)
    if file.suffix != ".log":
        return
    kinds = {problem["problem"] for problem in problems}
    if changed:
        assert kinds
    verdict = opened(folder.path, file.parent.name, clean)
    if verdict == "sound":  # segments may still overlap, as an interrupted repair leaves them; an opening after a crash removes the overlap
        assert not kinds & DAMAGE or (kinds & DAMAGE == {"segment-overlap"} and not clean)
    else:
        assert kinds & DAMAGE


def opened(data: Path, log: str, clean: bool) -> str:
    """Open a copy of the log with the storage package: "sound", or the kind of failure."""
    shutil.copytree(data / log, data / "copies" / log)
    name, _, partition = log.rpartition("-")
    points = read_offsets(OsDisk(), str(data / "recovery-point-offset-checkpoint"))
    try:
        read, recovery = Log.open(Handles(OsDisk()), str(data / "copies" / log), 1 << 20, points.get((name, int(partition)), 0), clean)
        for _ in scan(read):
            pass
    except DamagedLog:
        return "damaged"
    return "cut" if recovery.cut_bytes else "sound"

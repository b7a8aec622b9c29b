"""A data directory with very many stored offsets, written quickly: each group gets one built batch and copies with other numbers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from struct import Struct
from zlib import crc32

import google_crc32c

from coordinator import partition_of
from coordinator.facts import offset_key, offset_key_prefix, offset_value
from protocol.batch import CRC_FROM, build_facts, stamp
from tests.running import environment

NOW_MS = 1_700_000_000_000
TOPIC = "orders"
CRC = Struct(">I")
PARTITION = Struct(">i")
OFFSET = Struct(">q")
OFFSET_AT = 2  # position of the offset in a value: after the version
BATCH = Struct(">qi")  # base offset, and length of the rest of the batch
MARK = 0x7A7B7C7D  # a partition number that marks its place in the template batch


def write_offsets(data: Path, groups: int, offsets_per_group: int, per_batch: int, partitions: int) -> dict[str, int]:
    """Write offset n for partition n of each group. Return the groups, each with its partition of the offsets topic."""
    assert offsets_per_group % per_batch == 0, "every batch is full"
    places = {f"group-{number:06}": 0 for number in range(groups)}
    logs: dict[int, bytearray] = {}
    ends: dict[int, int] = {}
    for group in places:
        place = places[group] = partition_of(group, partitions)
        out, end = logs.setdefault(place, bytearray()), ends.get(place, 0)
        form, spots = form_of(group, per_batch)
        size = len(form)
        for first in range(0, offsets_per_group, per_batch):
            for number, (key, value) in enumerate(spots, first):
                PARTITION.pack_into(form, key, number)
                OFFSET.pack_into(form, value, number)
            CRC.pack_into(form, CRC_FROM - CRC.size, google_crc32c.value(bytes(form[CRC_FROM:])))
            stamp(form, 0, end, 0)
            out += form
            end += per_batch
        assert len(form) == size
        ends[place] = end
    for place, out in logs.items():
        folder = data / f"__consumer_offsets-{place}"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(out)
    return places


def form_of(group: str, records: int) -> tuple[bytearray, list[tuple[int, int]]]:
    """A batch, and the positions of partition and offset in each record."""
    prefix = offset_key_prefix(group, TOPIC)
    value = offset_value(MARK, -1, b"", NOW_MS)
    form = bytearray(build_facts([(offset_key(prefix, MARK), value) for _ in range(records)], NOW_MS))
    spots = []
    at = 0
    for _ in range(records):
        key = form.index(PARTITION.pack(MARK), at)
        at = form.index(value, key) + len(value)
        spots.append((key, at - len(value) + OFFSET_AT))
    return form, spots


class StoredBatch:
    __slots__ = ("number", "place", "rest")

    def __init__(self, place: int, number: int, content: str) -> None:
        self.place, self.number, self.rest = place, number, content


def plain_reading(data: Path) -> float:
    """The processor seconds of a process that reads these logs in the plainest way and keeps one object for each batch: a yardstick.

    On a machine that is slow or busy, this reading slows down by the same factor as the loading that a test measures.
    """
    command = [sys.executable, "-P", "-m", __name__, str(data)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment(), timeout=120).stdout)


def read_plainly(data: Path) -> dict[str, dict[int, StoredBatch]]:
    batches: dict[str, dict[int, StoredBatch]] = {}
    for path in sorted(data.glob("__consumer_offsets-*/*.log")):
        log, at = path.read_bytes(), 0
        while at < len(log):
            number, size = BATCH.unpack_from(log, at)
            batch = log[at + BATCH.size : at + BATCH.size + size]
            crc32(batch[CRC_FROM - BATCH.size :])
            batches.setdefault(path.parent.name, {})[number] = StoredBatch(at, number, batch.hex())
            at += BATCH.size + size
    return batches


if __name__ == "__main__":
    begin = time.process_time()
    read_plainly(Path(sys.argv[1]))
    print(time.process_time() - begin)

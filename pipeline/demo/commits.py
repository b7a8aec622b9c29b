"""`write_commits`: many commits of many groups, for benchmarks. Batches are copies of a template with other offsets and times."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from coordinator import Fact, partition_of
from coordinator.facts import GROUP_VALUE_VERSION, group_key, offset_key, offset_key_prefix, offset_value
from pipeline.demo.directory import OFFSETS_LOG
from pipeline.virtual.assigning import assignment_bytes, subscription_bytes
from protocol.batch import CRC_FROM, HEADER_BYTES, build_facts
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata
from protocol.records import with_version
from storage import Handles, Log, OsDisk

START_MS: Final = 1_760_918_400_000
EVERY_MS: Final = 5_000  # Java's auto.commit.interval.ms
ROUNDS_AT_ONCE: Final = 256
CRC_AT: Final = 17
TIMES_AT: Final = (27, 35)
SEGMENT_BYTES: Final = 100 << 20
PLACEHOLDER: Final = 0x5A5A5A5A5A5A5A5A  # in a template, for offset and time

Bytes = npt.NDArray[np.uint8]


class Committer:
    """One group whose members commit all their partitions at once, at a fixed interval."""

    def __init__(self, number: int, group: str, partitions: int) -> None:
        self.partitions = partitions
        self.rate = 10 + number % 90  # records between two commits
        prefix = offset_key_prefix(group, f"topic-{number % 50}")
        value = offset_value(PLACEHOLDER, -1, b"", PLACEHOLDER)
        template = build_facts([(offset_key(prefix, partition), value) for partition in range(partitions)], START_MS)
        self.template: Bytes = np.frombuffer(template, dtype=np.uint8)
        self.commit_at: list[int] = []
        at = HEADER_BYTES
        for _ in range(partitions):
            at = template.index(value, at) + 2  # after its version
            self.commit_at.append(at)
        self.time_at = [at + 8 + 4 + 2 for at in self.commit_at]

    def batches(self, first: int, rounds: int, lead_ms: int) -> Bytes:
        """One batch for each round, as rows of bytes. Base offset and checksum are set later."""
        rows = np.repeat(self.template[np.newaxis, :], rounds, axis=0)
        number = np.arange(first, first + rounds, dtype=np.int64)
        time = _big(START_MS + lead_ms + number * EVERY_MS)
        for at in (*TIMES_AT, *self.time_at):
            rows[:, at : at + 8] = time
        for partition, at in enumerate(self.commit_at):
            rows[:, at : at + 8] = _big((number + 1) * (self.rate + partition % 3))
        return rows


def _big(values: npt.NDArray[np.int64]) -> Bytes:
    return values.astype(">i8").view(np.uint8).reshape(-1, 8)


def write_commits(directory: str | Path, records: int = 1_000_000, groups: int = 400, per_batch: int = 14, partitions: int = 8) -> int:
    """Write at least `records` records of `__consumer_offsets`, with a group record for each group; return their number."""
    per_round = groups * per_batch
    rounds = -(-records // per_round)
    shared: dict[int, list[tuple[int, str]]] = {}
    for number in range(groups):
        name = f"service-{number}"
        shared.setdefault(partition_of(name, partitions), []).append((number, name))
    written = 0
    for partition, members in sorted(shared.items()):
        written += _write_partition(Path(directory, f"{OFFSETS_LOG}-{partition}"), members, rounds, per_batch)
    return written


def _write_partition(folder: Path, groups: list[tuple[int, str]], rounds: int, per_batch: int) -> int:
    folder.mkdir(parents=True)
    committers = [Committer(number, name, per_batch) for number, name in groups]
    begins = list(accumulate([len(committer.template) for committer in committers], initial=0))
    offset = len(groups)
    path = _segment(folder, 0)
    path.write_bytes(build_facts([_group_record(number, name, per_batch) for number, name in groups], START_MS - EVERY_MS))
    for begin in range(0, rounds, ROUNDS_AT_ONCE):
        count = min(ROUNDS_AT_ONCE, rounds - begin)
        rows = np.concatenate([committer.batches(begin, count, place) for place, committer in enumerate(committers)], axis=1)
        for place, (at, end) in enumerate(pairwise(begins)):
            rows[:, at + CRC_AT : at + CRC_AT + 4] = _checksums(rows[:, at + CRC_FROM : end])
            first = offset + np.arange(count, dtype=np.int64) * (per_batch * len(groups)) + place * per_batch
            rows[:, at : at + 8] = _big(first)
        if path.stat().st_size + rows.size > SEGMENT_BYTES:
            path = _segment(folder, offset)
        with path.open("ab") as file:
            file.write(rows.tobytes())
        offset += count * per_batch * len(groups)
    _write_indexes(folder)
    return offset


def _segment(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.log"


def _checksums(bodies: Bytes) -> Bytes:
    crcs = [google_crc32c.value(body.tobytes()) for body in bodies]
    return np.array(crcs, dtype=">u4").view(np.uint8).reshape(-1, 4)


def _group_record(number: int, group: str, partitions: int) -> Fact:
    """A group metadata record with one member that owns all partitions."""
    topic = f"topic-{number % 50}"
    assignment = assignment_bytes([(topic, partition) for partition in range(partitions)])
    member = MemberMetadata(f"{group}-1", None, group, "/10.0.0.1", 300_000, 45_000, subscription_bytes([topic], []), assignment)
    return group_key(group), with_version(GroupMetadataValue("consumer", 1, "range", member.member_id, START_MS, [member]), GROUP_VALUE_VERSION)


def _write_indexes(folder: Path) -> None:
    """Rebuild the indexes, as a broker does when they are missing."""
    handles = Handles(OsDisk())
    log, recovery = Log.open(handles, str(folder), SEGMENT_BYTES, 0, False, deferred=True)
    assert not recovery.cut_bytes, recovery
    log.close()
    handles.close()

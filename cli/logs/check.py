"""Check one log from its first byte to its last: segments, batches, records, and the files beside them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from cli.logs.beside import EpochCheck, IndexCheck, OffsetIndexCheck, TimeIndexCheck
from cli.logs.files import SEGMENT, Batch, Damage, LogFolder, SegmentFile, open_for_reading, scan, segments_of
from cli.logs.problems import Problems
from cli.logs.records import NOTES_LOG, OFFSETS_LOG, REGISTRY_LOG, Decoded, decode, topic_id_text
from cli.logs.text import shown
from coordinator.placement import partition_of
from protocol.batch import CorruptBatch, records
from protocol.messages.consumer_offsets import GroupMetadataValue
from protocol.messages.topics_registry import TopicValue
from storage.opening import PROBE, REWRITING

COMPACTED = "compacted"
WHOLE = "whole"  # every offset since its first is there
UNKNOWN = "unknown"

OUR_LOGS = (OFFSETS_LOG, NOTES_LOG, REGISTRY_LOG)
LEFTOVERS = (REWRITING, PROBE, ".new", ".cleaned", ".swap", ".deleted")
REPLACEMENT = "\ufffd"  # a name that was no UTF-8: its hash cannot be computed any more


@dataclass(slots=True)
class Expected:
    """Facts about a log from other files of the data directory."""

    in_use: bool = False  # a broker is at work on it
    clean: bool = False  # the last stop was orderly: the end cannot be torn by a crash
    partitions: int = 0  # of a log that has its groups by hash; 0 where that is not known
    policy: str = UNKNOWN
    recovery_point: int = 0
    log_start: int = -1  # as the checkpoint of an orderly stop has it; -1 where that is not known
    cleaned_to: int = -1  # no compaction from this offset on; -1 where that is not known


@dataclass(slots=True)
class Found:
    """The result of checking one log."""

    problems: Problems = field(default_factory=Problems)
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    next_offset: int = 0  # after the last sound batch
    topics: dict[str, tuple[int, str, str]] = field(default_factory=dict)  # of the registry: partitions, policy and id


class LogCheck:
    def __init__(self, log: LogFolder, expected: Expected) -> None:
        self.log = log
        self.expected = expected
        self.found = Found()
        self.problems = self.found.problems
        self._epochs = EpochCheck(self.problems)
        self._last_base = 0  # of the segment that grows
        self._next_offset = -1  # where the next batch should begin; -1 where that is not known
        self._placed = ""  # the group of the previous record: commits of a group come in runs
        self._misplaced: set[str] = set()
        self._twice: dict[str, tuple[str, int, str]] = {}  # groups whose last group record is bad: file, position, problem

    def run(self) -> Found:
        segments = segments_of(self.log.path)
        self._last_base = segments[-1].base if segments else 0
        for number, segment in enumerate(segments):
            after = segments[number + 1] if number + 1 < len(segments) else None
            self._segment(segment, after)
        for file, position, what in self._twice.values():
            self.problems.add("instance-twice", file, position, what)
        self._epochs.compare(self.log.path, self.expected.log_start)
        self._other_files()
        return self.found

    # Segments

    def _segment(self, segment: SegmentFile, after: SegmentFile | None) -> None:
        self.found.segments += 1
        try:
            file = open_for_reading(segment.path)
        except OSError as error:
            # In a log that is in use it may have been dropped or compacted since its name was read.
            if not (self.expected.in_use and isinstance(error, FileNotFoundError)):
                self.problems.add("read-failed", segment.path, None, error.strerror or str(error))
            self._next_offset = -1
            return
        indexes: list[IndexCheck] = []
        try:
            self.found.bytes += file.size()
            indexes = [check(segment.path, segment.base, self.problems) for check in (OffsetIndexCheck, TimeIndexCheck)]
            self._begin(segment, after)
            for one in scan(file, segment.base):
                if isinstance(one, Damage):
                    self._damage(segment, one, after)
                    for index in indexes:
                        index.stop()
                else:
                    self._batch(segment, one, after)
                    for index in indexes:
                        index.batch(one)
        except OSError as error:
            self.problems.add("read-failed", segment.path, None, error.strerror or str(error))
            self._next_offset = -1
        else:
            self._end(segment, indexes, after)
        finally:
            for index in indexes:
                index.stop()
            file.close()

    def _begin(self, segment: SegmentFile, after: SegmentFile | None) -> None:
        if self._next_offset > segment.base:
            self._next_offset = segment.base  # reported as an overlap where it was seen
        self._gap(segment, 0, segment.base, after)
        self._next_offset = self.found.next_offset = segment.base

    def _end(self, segment: SegmentFile, indexes: list[IndexCheck], after: SegmentFile | None) -> None:
        for index in indexes:
            if after is None and self.expected.in_use:
                index.stop()
            elif not index.exists and after is not None:
                self.problems.add("index-missing", index.path, None, "there is no such file")
            index.finish()

    def _damage(self, segment: SegmentFile, damage: Damage, after: SegmentFile | None) -> None:
        last_offset = self._next_offset
        self._next_offset = -1
        extent = f"{damage.size} bytes"
        if not damage.torn:
            extent += ", sound batches follow"
        elif after is not None:
            extent += " to the end of the segment, which is not the last"
        elif not damage.interrupted:
            extent += " to the end, not what an interrupted write leaves"
        what = f"{damage.reason} ({extent})"
        if after is not None and after.base == self._last_base == last_offset and damage.torn and not self.expected.clean:
            # A repair first writes the end again, into a new segment, and then cuts off the old one.
            kind = "segment-overlap"
            what += f"; {os.path.basename(after.path)} goes on where the sound part ends"
        elif after is not None:
            kind = "damaged"
        elif self.expected.in_use and damage.torn:
            kind = "being-written"
        elif 0 <= last_offset < self.expected.recovery_point:
            kind = "damaged"
            what += f"; everything before offset {self.expected.recovery_point} was on the disk once, and from {last_offset} on it is not"
        elif self.expected.clean:
            kind = "damaged"
            what += "; the broker had stopped in order, so this came later"
        else:
            kind = "torn-end" if damage.interrupted else "damaged-end"
        self.problems.add(kind, segment.path, damage.position, what)

    # Batches

    def _batch(self, segment: SegmentFile, batch: Batch, after: SegmentFile | None) -> None:
        header = batch.header
        if after is not None and header.last_offset >= after.base:
            what = f"offset {header.last_offset}, but {os.path.basename(after.path)} begins at {after.base}"
            self.problems.add("segment-overlap", segment.path, batch.position, what)
        self._gap(segment, batch.position, header.base_offset, after)
        self._next_offset = self.found.next_offset = header.last_offset + 1
        self._epochs.batch(segment.path, batch)
        self.found.batches += 1
        self.found.records += header.record_count
        try:
            inside = records(batch.data, batch.at)
        except CorruptBatch as error:
            what = f"offsets {header.base_offset} to {header.last_offset}: {error}"
            self.problems.add("batch-unreadable", segment.path, batch.position, what)
            return
        if self.log.name in OUR_LOGS:
            for record in inside:
                self._record(segment.path, batch.position, record.offset, decode(self.log.name, record, header.is_control))

    def _gap(self, segment: SegmentFile, position: int, offset: int, after: SegmentFile | None) -> None:
        """No record between `_next_offset` and this offset; offsets removed by compaction are no gap."""
        before = self._next_offset
        if before < 0 or offset <= before:
            return
        what = f"offsets {before} to {offset - 1} are not there"
        policy = self.expected.policy
        if policy == WHOLE and offset <= self.expected.cleaned_to:
            return  # its topic was compacted before its cleanup.policy was changed
        if policy == WHOLE:
            self.problems.add("offsets-missing", segment.path, position, what)
        elif policy == UNKNOWN:
            self.problems.add("offsets-skipped", segment.path, position, what)
        elif after is None and position > 0 and offset > self.expected.cleaned_to:
            # Only segments that do not grow any more are compacted.
            self.problems.add("offsets-missing", segment.path, position, f"{what}, and this segment was never compacted")

    # Records

    def _record(self, file: str, position: int, offset: int, record: Decoded) -> None:
        if record.remark:
            kind = "record-unreadable" if record.unreadable else "record-newer" if record.newer else "record-unknown"
            self.problems.add(kind, file, position, f"offset {offset}: {record.remark}")
        if record.kind in ("group", "offset", "note") and record.group:
            self._placement(file, position, offset, record.group)
        if record.kind == "group" and record.group is not None:
            self._instances(file, position, offset, record)
        if record.kind == "topic" and record.topic is not None:
            self._topic(record)

    def _placement(self, file: str, position: int, offset: int, group: str) -> None:
        partitions = self.expected.partitions
        if not partitions or group == self._placed or group in self._misplaced or REPLACEMENT in group:
            return
        self._placed = group
        partition = partition_of(group, partitions)
        if partition != self.log.partition:
            if len(self._misplaced) < 100_000:  # or a folder of the wrong name would keep every group in memory
                self._misplaced.add(group)
            self.problems.add("wrong-partition", file, position, f"offset {offset}: group {shown(group)} belongs to partition {partition} of {partitions}")

    def _instances(self, file: str, position: int, offset: int, record: Decoded) -> None:
        """Only a group's last image counts."""
        assert record.group is not None
        self._twice.pop(record.group, None)
        owners: dict[str, str] = {}
        if not isinstance(record.message, GroupMetadataValue):
            return
        for one in record.message.members:
            member, instance = one.member_id, one.group_instance_id
            if instance is None:
                continue
            if instance in owners:
                what = f"offset {offset}: members {shown(owners[instance])} and {shown(member)} of group {shown(record.group)} both are instance {shown(instance)}"
                self._twice[record.group] = (file, position, what)
                return
            owners[instance] = member

    def _topic(self, record: Decoded) -> None:
        assert record.topic is not None
        self.found.topics.pop(record.topic, None)
        if isinstance(record.message, TopicValue):
            settings = {setting.name: setting.value for setting in record.message.settings}
            policy = COMPACTED if "compact" in (settings.get("cleanup.policy") or "") else WHOLE
            self.found.topics[record.topic] = (record.message.partitions, policy, topic_id_text(record.message.topic_id) or "")

    # Files

    def _other_files(self) -> None:
        for name in sorted(os.listdir(self.log.path)):
            path = os.path.join(self.log.path, name)
            if name.endswith(LEFTOVERS):
                self._leftover(path)
            elif name.endswith(".log") and not SEGMENT.fullmatch(name):
                self.problems.add("unknown-name", path, None, "a segment is named by twenty digits")
            elif name.endswith((".index", ".timeindex")) and not self.expected.in_use and not os.path.lexists(path.rpartition(".")[0] + ".log"):
                self.problems.add("unknown-name", path, None, "an index without its segment")

    def _leftover(self, path: str) -> None:
        if not self.expected.in_use:
            self.problems.add("leftover", path, None, "left behind by work that was interrupted")

"""Checks one log from its first byte to its last: segments, batches, records, indexes and checkpoints."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from cli.logs.derived_files import EpochCheck, IndexCheck, OffsetIndexCheck, TimeIndexCheck
from cli.logs.files import SEGMENT, Batch, Damage, LogFolder, SegmentFile, open_for_reading, scan, segments_of
from cli.logs.problems import Problems
from cli.logs.records import NOTES_LOG, OFFSETS_LOG, REGISTRY_LOG, Decoded, decode
from cli.logs.text import shown
from cli.shown import topic_id_text
from coordinator.group_partition import partition_of
from protocol.batch import CorruptBatch, records
from protocol.messages.consumer_offsets import GroupMetadataValue
from protocol.messages.topics_registry import TopicValue
from storage.opening import PROBE, REWRITING

COMPACTED = "compacted"
CONTIGUOUS = "contiguous"  # no gaps between offsets
UNKNOWN = "unknown"

OUR_LOGS = (OFFSETS_LOG, NOTES_LOG, REGISTRY_LOG)
LEFTOVERS = (REWRITING, PROBE, ".new", ".cleaned", ".swap", ".deleted")  # endings of temporary files
REPLACEMENT = "\ufffd"  # in a group id that was not UTF-8: its hash, and so its partition, is unknown


@dataclass(slots=True)
class Expected:
    """What other files of the data directory say about a log."""

    in_use: bool = False  # a broker has it open
    clean: bool = False  # the last stop was orderly: no crash has torn the end
    partitions: int = 0  # of __consumer_offsets, in which the hash of a group id gives the partition; 0 if unknown
    policy: str = UNKNOWN
    recovery_point: int = 0
    log_start: int = -1  # in the checkpoint of the last orderly stop; -1 if unknown
    cleaned_to: int = -1  # records from this offset on were never compacted; -1 if unknown


@dataclass(slots=True)
class CheckResult:
    """The result of checking one log."""

    problems: Problems = field(default_factory=Problems)
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    next_offset: int = 0  # after the last sound batch
    topics: dict[str, tuple[int, str, str]] = field(default_factory=dict)  # in the topic registry: partitions, policy and id


class LogCheck:
    def __init__(self, log: LogFolder, expected: Expected) -> None:
        self.log = log
        self.expected = expected
        self.result = CheckResult()
        self.problems = self.result.problems
        self._epochs = EpochCheck(self.problems)
        self._last_base = 0  # base offset of the active segment
        self._next_offset = -1  # the expected base offset of the next batch; -1 if unknown
        self._last_group = ""  # the group of the previous record, which is often also that of the next one
        self._misplaced: set[str] = set()
        self._duplicates: dict[str, tuple[str, int, str]] = {}  # group whose last record has an instance id twice -> file, position, problem

    def run(self) -> CheckResult:
        segments = segments_of(self.log.path)
        self._last_base = segments[-1].base if segments else 0
        for number, segment in enumerate(segments):
            following = segments[number + 1] if number + 1 < len(segments) else None
            self._check_segment(segment, following)
        for file, position, text in self._duplicates.values():
            self.problems.add("instance-twice", file, position, text)
        self._epochs.compare(self.log.path, self.expected.log_start)
        self._check_other_files()
        return self.result

    # Segments

    def _check_segment(self, segment: SegmentFile, following: SegmentFile | None) -> None:
        self.result.segments += 1
        try:
            file = open_for_reading(segment.path)
        except OSError as error:
            # A running broker may have deleted the segment since its name was read.
            if not (self.expected.in_use and isinstance(error, FileNotFoundError)):
                self.problems.add("read-failed", segment.path, None, error.strerror or str(error))
            self._next_offset = -1
            return
        indexes: list[IndexCheck] = []
        try:
            self.result.bytes += file.size()
            indexes = [check(segment.path, segment.base, self.problems) for check in (OffsetIndexCheck, TimeIndexCheck)]
            self._begin_segment(segment, following)
            for item in scan(file, segment.base):
                if isinstance(item, Damage):
                    self._report_damage(segment, item, following)
                    for index in indexes:
                        index.stop()
                else:
                    self._check_batch(segment, item, following)
                    for index in indexes:
                        index.check_batch(item)
        except OSError as error:
            self.problems.add("read-failed", segment.path, None, error.strerror or str(error))
            self._next_offset = -1
        else:
            self._end_segment(segment, indexes, following)
        finally:
            for index in indexes:
                index.stop()
            file.close()

    def _begin_segment(self, segment: SegmentFile, following: SegmentFile | None) -> None:
        if self._next_offset > segment.base:
            self._next_offset = segment.base  # already reported as an overlap
        self._report_gap(segment, 0, segment.base, following)
        self._next_offset = self.result.next_offset = segment.base

    def _end_segment(self, segment: SegmentFile, indexes: list[IndexCheck], following: SegmentFile | None) -> None:
        for index in indexes:
            if following is None and self.expected.in_use:
                index.stop()
            elif not index.exists and following is not None and not self._was_deleted(segment):
                self.problems.add("index-missing", index.path, None, "there is no such file")
            index.finish()

    def _was_deleted(self, segment: SegmentFile) -> bool:
        """Whether a running broker has deleted the segment since its name was read; the segment's open file can still be read."""
        return self.expected.in_use and not os.path.lexists(segment.path)

    def _report_damage(self, segment: SegmentFile, damage: Damage, following: SegmentFile | None) -> None:
        last_offset = self._next_offset
        self._next_offset = -1
        extent = f"{damage.size} bytes"
        if not damage.torn:
            extent += ", sound batches follow"
        elif following is not None:
            extent += " to the end of the segment, which is not the last"
        elif not damage.interrupted:
            extent += " to the end, which is not the remainder of an interrupted write"
        text = f"{damage.reason} ({extent})"
        if following is not None and following.base == self._last_base == last_offset and damage.torn and not self.expected.clean:
            # A repair writes the end into a new segment first, then truncates the old one.
            kind = "segment-overlap"
            text += f"; {os.path.basename(following.path)} continues after the sound part"
        elif following is not None:
            kind = "damaged"
        elif self.expected.in_use and damage.torn:
            kind = "being-written"
        elif 0 <= last_offset < self.expected.recovery_point:
            kind = "damaged"
            text += f"; everything before offset {self.expected.recovery_point} had been flushed, but the log is damaged from {last_offset} on"
        elif self.expected.clean:
            kind = "damaged"
            text += "; the broker had stopped in order, so this happened later"
        else:
            kind = "torn-end" if damage.interrupted else "damaged-end"
        self.problems.add(kind, segment.path, damage.position, text)

    # Batches

    def _check_batch(self, segment: SegmentFile, batch: Batch, following: SegmentFile | None) -> None:
        header = batch.header
        if following is not None and header.last_offset >= following.base:
            text = f"offset {header.last_offset}, but {os.path.basename(following.path)} begins at {following.base}"
            self.problems.add("segment-overlap", segment.path, batch.position, text)
        self._report_gap(segment, batch.position, header.base_offset, following)
        self._next_offset = self.result.next_offset = header.last_offset + 1
        self._epochs.check_batch(segment.path, batch)
        self.result.batches += 1
        self.result.records += header.record_count
        try:
            inside = records(batch.data, batch.at)
        except CorruptBatch as error:
            text = f"offsets {header.base_offset} to {header.last_offset}: {error}"
            self.problems.add("batch-unreadable", segment.path, batch.position, text)
            return
        if self.log.name in OUR_LOGS:
            for record in inside:
                self._check_record(segment.path, batch.position, record.offset, decode(self.log.name, record, header.is_control))

    def _report_gap(self, segment: SegmentFile, position: int, offset: int, following: SegmentFile | None) -> None:
        """Report missing offsets between `_next_offset` and `offset`, unless compaction removed them."""
        before = self._next_offset
        if before < 0 or offset <= before:
            return
        text = f"offsets {before} to {offset - 1} are missing"
        policy = self.expected.policy
        if policy == CONTIGUOUS and offset <= self.expected.cleaned_to:
            return  # compaction removed them, before the topic's cleanup.policy was changed
        if policy == CONTIGUOUS:
            self.problems.add("offsets-missing", segment.path, position, text)
        elif policy == UNKNOWN:
            self.problems.add("offsets-skipped", segment.path, position, text)
        elif following is None and position > 0 and offset > self.expected.cleaned_to:
            # The active segment is never compacted.
            self.problems.add("offsets-missing", segment.path, position, f"{text}, and this segment was never compacted")

    # Records

    def _check_record(self, file: str, position: int, offset: int, record: Decoded) -> None:
        if record.remark:
            kind = "record-unreadable" if record.unreadable else "record-newer" if record.newer else "record-unknown"
            self.problems.add(kind, file, position, f"offset {offset}: {record.remark}")
        if record.group:
            self._check_placement(file, position, offset, record.group)
        if record.kind == "group" and record.group is not None:
            self._collect_duplicates(file, position, offset, record)
        if record.kind == "topic" and record.topic is not None:
            self._collect_topic(record)

    def _check_placement(self, file: str, position: int, offset: int, group: str) -> None:
        partitions = self.expected.partitions
        if not partitions or group == self._last_group or group in self._misplaced or REPLACEMENT in group:
            return
        self._last_group = group
        partition = partition_of(group, partitions)
        if partition != self.log.partition:
            if len(self._misplaced) < 100_000:  # a limit, as all groups are misplaced if the folder has the wrong name
                self._misplaced.add(group)
            self.problems.add("wrong-partition", file, position, f"offset {offset}: group {shown(group)} belongs to partition {partition} of {partitions}")

    def _collect_duplicates(self, file: str, position: int, offset: int, record: Decoded) -> None:
        """Remember whether a group record has an instance id twice. Only the group's last record counts."""
        assert record.group is not None
        self._duplicates.pop(record.group, None)
        owners: dict[str, str] = {}
        if not isinstance(record.message, GroupMetadataValue):
            return
        for member_metadata in record.message.members:
            member, instance = member_metadata.member_id, member_metadata.group_instance_id
            if instance is None:
                continue
            if instance in owners:
                text = f"offset {offset}: members {shown(owners[instance])} and {shown(member)} of group {shown(record.group)} both have instance {shown(instance)}"
                self._duplicates[record.group] = (file, position, text)
                return
            owners[instance] = member

    def _collect_topic(self, record: Decoded) -> None:
        assert record.topic is not None
        self.result.topics.pop(record.topic, None)
        if isinstance(record.message, TopicValue):
            settings = {setting.name: setting.value for setting in record.message.settings}
            policy = COMPACTED if "compact" in (settings.get("cleanup.policy") or "") else CONTIGUOUS
            self.result.topics[record.topic] = (record.message.partitions, policy, topic_id_text(record.message.topic_id) or "")

    # Files

    def _check_other_files(self) -> None:
        for name in sorted(os.listdir(self.log.path)):
            path = os.path.join(self.log.path, name)
            if name.endswith(LEFTOVERS):
                self._report_leftover(path)
            elif name.endswith(".log") and not SEGMENT.fullmatch(name):
                self.problems.add("unknown-name", path, None, "the name of a segment has twenty digits")
            elif name.endswith((".index", ".timeindex")) and not self.expected.in_use and not os.path.lexists(path.rpartition(".")[0] + ".log"):
                self.problems.add("unknown-name", path, None, "an index without its segment")

    def _report_leftover(self, path: str) -> None:
        if not self.expected.in_use:
            self.problems.add("leftover", path, None, "left by interrupted work")

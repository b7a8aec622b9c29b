"""A data directory with every kind of log that a copy must preserve, and the contents that must be equal in the copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from coordinator.policies.door import policies_key, policies_value
from protocol.batch import Fact, Record, build, build_facts, read_header, stamp
from protocol.messages.topics_registry import ProducerIdsKey, ProducerIdsValue, TopicKey, TopicSetting, TopicValue
from protocol.records import with_version
from storage import DataDirectory, Handles, Log, OsDisk, Producers
from storage.checkpoints import LOG_STARTS, read_offsets
from storage.epochs import write_epochs
from storage.flush import read_topic_id
from storage.log_files import LogFiles
from storage.segment import Segment
from tests.cli.log_folders import MOMENT, PARTITIONS, group_record, groups_of, member, offset, state_change

OFFSETS, NOTES, REGISTRY = "__consumer_offsets", "__coordinator_notes", "__tenure_topics"
IDS = {OFFSETS: bytes([1] * 16), "orders": bytes([2] * 16), "state": bytes([3] * 16), "late": bytes([4] * 16), "emptied": bytes([5] * 16)}
CLUSTER_ID = "k8Zc0TzLT1mUfzoPcd2m1A"


def topic(name: str, partitions: int, **settings: str) -> Fact:
    value = TopicValue(IDS[name], partitions, MOMENT, [TopicSetting(key.replace("_", "."), text) for key, text in settings.items()])
    return topic_key(name), with_version(value, 0)


def topic_key(name: str) -> bytes:
    return with_version(TopicKey(name), 0)


def records(number: int, count: int, size: int = 100) -> bytes:
    return build([Record(at, MOMENT + number, b"k%d" % at, bytes([number % 256]) * size) for at in range(count)])


class ClusterFolder:
    """A data directory written by the storage package, as by a broker that stopped in order."""

    def __init__(self, path: Path, batches: int = 40) -> None:
        self.path = path
        self.directory = DataDirectory.open(OsDisk(), str(path), 1, CLUSTER_ID, "process 7", lambda: "id")
        self.directory.remove_clean_marker()
        self.ends: dict[tuple[str, int], int] = {}
        registry = [topic(OFFSETS, PARTITIONS), topic("orders", 2), topic("state", 1, cleanup_policy="compact"), topic("late", 1), topic("emptied", 1)]
        self.append(REGISTRY, 0, [*registry, (with_version(ProducerIdsKey(0), 1), with_version(ProducerIdsValue(3_000), 0))])
        self.groups = [groups_of(partition, 1)[0] for partition in range(PARTITIONS)]
        for partition, group in enumerate(self.groups):
            self.append(OFFSETS, partition, [group_record(group, [member("a", "i1"), member("b")]), offset(group, 0, 20 + partition)])
            self.append(OFFSETS, partition, [offset(group, 0, 30, "late"), (policies_key(group), policies_value({"target.group.size": "2"}))])
            self.append(NOTES, partition, [state_change(group)])
        self._orders(batches)
        self._state()
        self._late_start()
        self._emptied()
        self.directory.checkpoint(self.ends)
        self.directory.mark_clean()
        self.directory.close()

    def append(self, name: str, partition: int, facts: list[Fact]) -> None:
        log, _ = Log.open(Handles(OsDisk()), f"{self.path}/{name}-{partition}", 1 << 20, 0, True)
        log.append(build_facts(facts, MOMENT), log.epoch)
        log.flush()
        log.close()
        self.ends[name, partition] = log.next_offset

    def _orders(self, batches: int) -> None:
        """Several segments and epochs, with idempotent producers; the second partition has one batch."""
        folder = f"{self.path}/orders-0"
        producers = Producers()
        for epoch in range(3):
            log, _ = Log.open(Handles(OsDisk()), folder, 5_000, 0, True, deferred=True, producers=producers)
            for number in range(batches):
                batch = bytearray(build([Record(at, MOMENT + number, b"k", b"v" * 60) for at in range(3)], producer_id=1_000 + epoch, producer_epoch=0, base_sequence=3 * number))
                producers.note(read_header(batch, 0), log.append(batch, log.epoch))
            log.flush()
            log.close()
        self.ends["orders", 0] = log.next_offset
        self.append("orders", 1, [(b"k", b"v")])

    def _state(self) -> None:
        """A log with gaps as left by compaction: at its start, within a segment and between segments; the active segment is empty."""
        self.segments("state", {0: [(4, 2), (11, 1)], 20: [(23, 3), (40, 1)], 41: []}, [(0, 0), (2, 21)])

    def _late_start(self) -> None:
        """A log whose start offset is within its first segment."""
        self.segments("late", {25: [(25, 10), (35, 5)]}, [(1, 25)])
        self.directory.checkpoint_starts({("late", 0): 29})

    def _emptied(self) -> None:
        """A log whose records were all deleted."""
        self.segments("emptied", {77: []}, [])
        self.directory.checkpoint_starts({("emptied", 0): 77})

    def segments(self, name: str, contents: dict[int, list[tuple[int, int]]], epochs: list[tuple[int, int]]) -> None:
        handles = Handles(OsDisk())
        folder = f"{self.path}/{name}-0"
        handles.disk.make_folder(folder)
        for base, batches in contents.items():
            segment = Segment(handles, folder, base)
            handles.file(segment.log_path, create=True)
            for first, count in batches:
                batch = bytearray(records(first, count))
                stamp(batch, 0, first, max((epoch for epoch, start in epochs if start <= first), default=0))
                segment.append_stamped(bytes(batch), read_header(batch, 0))
            segment.save_index()
            segment.close()
            self.ends[name, 0] = segment.next_offset
        write_epochs(handles.disk, folder, epochs)


class Content(NamedTuple):
    """The contents of a log that must be equal in a copy."""

    start: int
    end: int
    batches: bytes
    epochs: list[tuple[int, int]]
    next_epoch: int
    producers: dict[int, Any]


def contents(path: Path | str) -> dict[str, Content]:
    """The contents of each log of a directory that was stopped in order, as a broker reads them."""
    disk = OsDisk()
    starts = read_offsets(disk, f"{path}/{LOG_STARTS}")
    contents_by_log = {}
    for folder in sorted(Path(path).iterdir()):
        name, _, partition = folder.name.rpartition("-")
        if not folder.is_dir() or not partition.isdigit():
            continue
        files = LogFiles.open(disk, str(folder), False)
        assert files is not None
        data = b"".join(batch for _, _, batch in files.batches())
        files.close()
        producers = Producers()
        handles = Handles(disk)
        internal = name.startswith("__")
        start = starts.get((name, int(partition)), 0)
        log, _ = Log.open(handles, str(folder), 1 << 20, 0, True, deferred=not internal, start_offset=start, producers=None if internal else producers)
        producer_states = {id: described(producers, id) for id in producers}
        epochs = [epoch for epoch in log._epochs if epoch[1] < log.next_offset]
        contents_by_log[folder.name] = Content(log.start_offset, log.next_offset, data, epochs, log.epoch, producer_states)
        handles.close()
    return contents_by_log


def described(producers: Producers, id: int) -> Any:
    producer = producers.get(id)
    assert producer is not None
    return producer.epoch, producer.last_timestamp, list(producer.batches)


def topic_ids(path: Path) -> dict[str, str]:
    return {folder.name: read_topic_id(OsDisk(), str(folder)) for folder in sorted(path.iterdir()) if folder.is_dir()}



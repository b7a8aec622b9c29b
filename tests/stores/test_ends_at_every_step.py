"""An owner that ends at each step of its work, by kill -9 or with the power of the machine: the next owner finds all acknowledged records.

The work: the start of the process, a take-over of logs whose last owner was killed or has released them, appends, a new segment,
deleted records, hand-overs, an orderly stop. Each change of a file or of the table of owners is a step.
"""

from __future__ import annotations

from functools import partial

import pytest

from broker.stores.turn_flushes import LOGS_MIN
from protocol.batch import build_facts, facts_of
from simulator.disk import Crashed, SimDisk
from storage import AppendFailed, HeldBy, LogId, OwnedLog, TopicLog, Unreadable
from tests.stores.nodes import DirectoryNode, NodesOverSimDisk, delete_before, keys
from tests.support.cases import some

pytestmark = pytest.mark.once

GROUPS = [LogId("__consumer_offsets", number) for number in range(LOGS_MIN + 1)]  # enough logs for appends of one turn to go to a file `turns.N`
TOPIC = LogId("orders", 0)
DELETED = 2  # how many records of the topic are deleted
STEPS_MAX = 2_000
TESTS = 8  # the number of tests over which the steps are divided


class Course:
    """A series of owners, and the records that they acknowledged."""

    def __init__(self, seed: int) -> None:
        self.nodes = NodesOverSimDisk(seed)
        self.appended: dict[LogId, list[bytes]] = {id: [] for id in (*GROUPS, TOPIC)}
        self.acknowledged: dict[LogId, set[bytes]] = {id: set() for id in (*GROUPS, TOPIC)}
        self.epochs = dict.fromkeys((*GROUPS, TOPIC), -1)
        self.start_saved = False
        self.power_failed = False

    def start(self, id: int, disk: SimDisk | None = None) -> DirectoryNode:
        return DirectoryNode(id, disk or self.new_disk(), "/data", "always")

    def new_disk(self, crash_at: int = -1) -> SimDisk:
        """The disk for a new process, which crashes before its change number `crash_at`; -1: never."""
        disk = self.nodes.disk.for_another_process()
        disk.recording, disk.stays_down, disk.changes_until_crash = False, True, crash_at
        return disk

    def end(self, disk: SimDisk, power_fails: bool) -> None:
        self.power_failed |= power_fails
        if power_fails:
            self.nodes.lose_power()
        else:
            disk.kill()

    # The actions of an owner.

    def own(self, node: DirectoryNode) -> tuple[list[OwnedLog], TopicLog]:
        """Acquire all logs, and check that they have the acknowledged records."""
        logs: list[OwnedLog] = []
        for id, log in zip(GROUPS, node.acquire_all(GROUPS), strict=True):
            assert not isinstance(log, HeldBy | Unreadable), log
            self.check_epoch(id, log.epoch)
            self.check_records(id, keys(log))
            logs.append(log)
        return logs, self.acquired_topic(node)

    def acquired_topic(self, node: DirectoryNode) -> TopicLog:
        log = node.acquired_topic(TOPIC)
        self.check_epoch(TOPIC, log.epoch)
        start = log.records.start_offset
        assert start == DELETED if self.start_saved else start in (0, DELETED)
        log_keys: list[bytes] = []
        while start + len(log_keys) < log.records.next_offset:  # one read does not go beyond a segment
            log_keys += [key for key, _ in facts_of(log.records.read(start + len(log_keys), 1 << 20))]
        self.check_records(TOPIC, self.appended[TOPIC][:start] + log_keys)
        return log

    def check_epoch(self, id: LogId, epoch: int) -> None:
        assert epoch > self.epochs[id], "an epoch was used twice"
        self.epochs[id] = epoch

    def check_records(self, id: LogId, log_keys: list[bytes]) -> None:
        if id != TOPIC or not self.power_failed:  # as in Kafka, records of topics are acknowledged before they are flushed, so a power failure may lose them
            assert self.acknowledged[id] <= set(log_keys), "an acknowledged record is gone"
        assert self.appended[id][: len(log_keys)] == log_keys, "there are other records"
        self.appended[id] = log_keys
        self.acknowledged[id] &= set(log_keys)

    def append(self, node: DirectoryNode, logs: list[OwnedLog], topic: TopicLog | None = None) -> None:
        """Append a record to each log in the same turn."""
        for id, log in zip(GROUPS, logs, strict=False):
            key = self.next_key(id)
            log.append(build_facts([(key, b"1")], 1), 1, partial(self.appended_to, id, key))
        if topic is not None:
            key = self.next_key(TOPIC)
            self.appended_to(TOPIC, key, topic.append(bytearray(build_facts([(key, b"1")], 1)), lambda result: None))
        node.run()

    def next_key(self, id: LogId) -> bytes:
        key = b"%d" % len(self.appended[id])
        self.appended[id].append(key)
        return key

    def appended_to(self, id: LogId, key: bytes, result: int | AppendFailed) -> None:
        assert isinstance(result, int), result
        self.acknowledged[id].add(key)

    def save_start(self, node: DirectoryNode, topic: TopicLog) -> None:
        delete_before(node, TOPIC, topic, DELETED)
        self.start_saved = True

    def work(self, node: DirectoryNode) -> None:
        """All that an owner does from its first take-over to an orderly stop."""
        logs, topic = self.own(node)
        self.append(node, logs, topic)
        self.append(node, logs, topic)
        self.save_start(node, topic)
        topic.set_segment_limits(1, 1 << 40)  # the next record goes into a new segment
        self.append(node, logs, topic)
        for released in (GROUPS[0], TOPIC):
            node.release(released)
        acquired = node.own(GROUPS[0])
        self.check_epoch(GROUPS[0], acquired.epoch)
        self.check_records(GROUPS[0], keys(acquired))
        self.append(node, [acquired, *logs[1:]], self.acquired_topic(node))
        node.stop()


def owned_before(course: Course, ended: str, power_fails: bool) -> SimDisk:
    """Let node 2 write to all logs and end, or release them; returns its disk."""
    disk = course.new_disk()
    node = course.start(2, disk)
    logs, topic = course.own(node)
    course.append(node, logs, topic)
    if ended == "with all logs released":
        for id in (*GROUPS, TOPIC):
            node.release(id)
    else:
        course.end(disk, power_fails)
    return disk


@pytest.mark.parametrize("first_step", some(2, range(TESTS)))
@pytest.mark.parametrize("power_fails", [False, True])
@pytest.mark.parametrize("ended", ["with all logs released", "at once"])
def test_the_next_owner_finds_acknowledged_records_after_an_end_at_any_step(ended: str, power_fails: bool, first_step: int) -> None:
    for step in range(first_step, STEPS_MAX, TESTS):
        course = Course(step)
        before = owned_before(course, ended, power_fails)
        disk = course.new_disk(step)
        try:
            course.work(course.start(1, disk))
            return
        except Crashed:
            course.end(disk, power_fails)
        before.kill()
        for id in (3, 1, 2):
            disk = course.new_disk()
            node = course.start(id, disk)
            logs, topic = course.own(node)
            course.append(node, logs, topic)
            course.end(disk, power_fails)
    pytest.fail(f"the work has more than {STEPS_MAX} steps")

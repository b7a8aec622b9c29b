"""A started broker with a briefly wrong wall clock: no data is lost then or later, and old data expires in the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.health import probe
from protocol.batch import Record, build
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.running import PACKAGES, Broker, Client
from tests.support.peers import becomes_true
from tests.support.restartable import COMMIT_VERSION, RestartableBroker, stored_offsets

pytestmark = pytest.mark.once  # tests clocks, which do not depend on the Python version

DAY = 86_400
SETTLE_MS = 1_500
FAKE_CLOCK = """\
import os, time
real_wall, real_seconds, real_clock, real_clock_ns = time.time_ns, time.time, time.clock_gettime, time.clock_gettime_ns
def fake(name):
    with open(os.path.join({folder!r}, name)) as file:
        return int(file.read() or 0)
def clock_gettime_ns(id):
    return real_clock_ns(id) + (fake("slept") * 10**9 if id == time.CLOCK_BOOTTIME else 0)
time.time_ns = lambda: real_wall() + fake("wall") * 10**9
time.time = lambda: time.time_ns() / 1e9
time.clock_gettime_ns = clock_gettime_ns
"""


class ClockedBroker:
    """A started broker whose clocks the test sets. It knows which records and offsets must never be deleted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set_clock(0)
        self.sleep_for(0)
        (folder / "code").mkdir()
        (folder / "code/sitecustomize.py").write_text(FAKE_CLOCK.format(folder=str(folder)))
        self.restartable = RestartableBroker(
            folder / "data",
            f"clock.settle.ms={SETTLE_MS}",
            "log.retention.check.interval.ms=100",
            "offsets.retention.check.interval.ms=100",
            "producer.id.expiration.check.interval.ms=100",
            "log.segment.delete.delay.ms=0",
        )
        self.groups: list[str] = []
        self.records = 0

    def _write_control(self, name: str, seconds: int) -> None:
        (self.folder / f"{name}.new").write_text(str(seconds))
        os.replace(self.folder / f"{name}.new", self.folder / name)

    def set_clock(self, ahead: int) -> None:
        self.ahead = ahead
        self._write_control("wall", ahead)

    def sleep_for(self, seconds: int) -> None:
        self._write_control("slept", seconds)

    def start(self) -> Broker:
        return self.restartable.start(PYTHONPATH=f"{self.folder / 'code'}{os.pathsep}{PACKAGES}")

    def create(self, name: str, **settings: str) -> None:
        configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in settings.items()]
        with Client(self.restartable.port) as client:
            assert client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1, [], configs)], 5_000), 5).topics[0].error_code == 0

    def write(self, topic: str, age_seconds: int = 0, sequence: int = -1) -> int:
        """Write one record of this age by the correct clock; returns its offset."""
        record = Record(0, int((time.time() - age_seconds) * 1000), b"k", b"v", [])
        batch = build([record], producer_id=77, producer_epoch=0, base_sequence=sequence) if sequence >= 0 else build([record])
        with Client(self.restartable.port) as client:
            request = ProduceRequest(None, -1, 5_000, [TopicProduceData(topic, [PartitionProduceData(0, bytes(batch))])])
            reply = client.ask(request, 7).responses[0].partition_responses[0]
            while reply.error_code == 6:  # it is still being opened
                reply = client.ask(request, 7).responses[0].partition_responses[0]
        assert reply.error_code == 0, reply
        return int(reply.base_offset)

    def use(self) -> None:
        """Write records and offsets that must stay, made now, whatever time the broker sees."""
        for topic in ("plain", "stamped"):
            self.write(topic)
        self.records += 1
        group = f"group-{len(self.groups)}"
        with Client(self.restartable.port) as client:
            committed = OffsetCommitRequestTopic("plain", [OffsetCommitRequestPartition(0, self.records, -1, "")])
            reply = client.ask(OffsetCommitRequest(group, -1, "", None, -1, [committed]), COMMIT_VERSION)
        assert reply.topics[0].partitions[0].error_code == 0
        self.groups.append(group)

    def ends(self, topic: str) -> tuple[int, int]:
        """The log start offset and the end offset."""
        partitions = []
        with Client(self.restartable.port) as client:
            for timestamp in (-2, -1):
                request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])], 500)
                partitions.append(client.ask(request, 5).topics[0].partitions[0])
        return (partitions[0].offset, partitions[1].offset) if not any(partition.error_code for partition in partitions) else (-1, -1)

    def check_everything_kept(self) -> None:
        for topic in ("plain", "stamped"):
            assert becomes_true(lambda topic=topic: self.ends(topic)[0] >= 0)  # type: ignore[misc]
            assert self.ends(topic) == (0, self.records)
        for number, group in enumerate(self.groups):
            assert stored_offsets(self.restartable.port, group) == {("plain", 0): (number + 1, "")}, group

    def pass_time(self, seconds: float) -> None:
        """Let retention rounds pass, and check that everything that must stay is there."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check_everything_kept()
            time.sleep(0.1)

    def health(self) -> str:
        return probe("127.0.0.1", self.restartable.port, 5.0)[1]

    def settles(self) -> None:
        assert becomes_true(lambda: self.health() == "is ready")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ClockedBroker]:
    broker = ClockedBroker(tmp_path)
    try:
        broker.start()
        broker.create("plain")
        broker.create("stamped", message_timestamp_type="LogAppendTime")
        broker.use()
        yield broker
    finally:
        broker.restartable.kill()


COURSES = {
    "ahead": (8 * DAY, None),
    "back": (-8 * DAY, None),
    "ahead, killed and started while it is wrong": (8 * DAY, "wrong"),
    "back, killed and started while it is wrong": (-8 * DAY, "wrong"),
    "ahead, killed and started when it is right again": (8 * DAY, "right"),
    "back, stopped and started when it is right again": (-8 * DAY, "stopped"),
}


IN_EACH_RUN = "ahead, killed and started while it is wrong"


@pytest.mark.parametrize("course", [IN_EACH_RUN, *(pytest.param(course, marks=pytest.mark.clients) for course in COURSES if course != IN_EACH_RUN)])
def test_a_briefly_wrong_clock_deletes_no_data(broker: ClockedBroker, course: str) -> None:
    ahead, restart = COURSES[course]
    broker.set_clock(ahead)
    assert becomes_true(lambda: "deletion by time is suspended until" in broker.health())
    broker.use()
    broker.pass_time(0.3)
    if restart == "wrong":
        broker.restartable.kill()
        log_lines = broker.start()
        log_lines.await_line("deletion by time is suspended: the clock is far from when the data directory was last in use")
        broker.use()
        broker.pass_time(0.3)
    broker.set_clock(0)
    if restart in ("right", "stopped"):
        broker.restartable.kill() if restart == "right" else broker.restartable.stop()
        broker.start()
    broker.use()
    broker.pass_time(0.3)
    broker.settles()
    broker.pass_time(0.3)
    broker.restartable.stop()
    broker.start()
    broker.use()
    broker.pass_time(0.3)


@pytest.mark.clients
def test_the_new_time_is_trusted_after_the_wait(broker: ClockedBroker) -> None:
    """After the correction of the clock and the wait, exactly the data that is old by the correct clock expires."""
    broker.create("old")
    broker.set_clock(-30 * DAY)
    assert becomes_true(lambda: "suspended" in broker.health())
    for age in (30 * DAY, 9 * DAY):
        broker.write("old", age)
    broker.pass_time(0.3)
    assert broker.ends("old") == (0, 2)
    broker.set_clock(0)
    broker.health()
    broker.pass_time(SETTLE_MS / 1000 - 1)
    assert broker.ends("old") == (0, 2)
    broker.settles()
    assert becomes_true(lambda: broker.ends("old") == (2, 2))
    broker.check_everything_kept()


@pytest.mark.clients
def test_expired_data_is_deleted_at_once_after_machine_sleep(broker: ClockedBroker) -> None:
    broker.create("old")
    broker.write("old", 6 * DAY)
    broker.sleep_for(2 * DAY)
    broker.set_clock(2 * DAY)
    assert becomes_true(lambda: broker.ends("old") == (1, 1))
    assert broker.health() == "is ready"
    broker.check_everything_kept()


def test_a_batch_of_a_backfill_that_is_sent_twice_is_stored_once(broker: ClockedBroker) -> None:
    broker.create("orders", retention_ms="-1")
    first = broker.write("orders", 30 * DAY, sequence=0)
    time.sleep(0.5)  # some rounds of producer expiry
    assert broker.write("orders", 30 * DAY, sequence=0) == first
    broker.restartable.kill()
    broker.start()
    time.sleep(0.5)
    assert broker.write("orders", 30 * DAY, sequence=0) == first
    assert broker.write("orders", 30 * DAY, sequence=1) == first + 1
    assert broker.ends("orders") == (0, 2)

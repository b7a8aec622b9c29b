"""Fetch: what is found, what is refused, and what is put into the reply."""

from __future__ import annotations

import pytest

from broker.net.dispatch import Call
from broker.security.authorizer import Operation, Resource
from protocol.errors import ErrorCode
from protocol.messages.fetch import EpochEndOffset, LeaderIdAndEpoch, NodeEndpoint
from storage.swap import remove_deleted
from tests.storage.faulty_disk import FaultyFile
from tests.support.fetch_desk import NO_ID, FetchDesk, fetch, from_, of, offsets_in, records_batch, told
from tests.support.topic_logs import disk_log

SIZE = len(records_batch())
EVERY_VERSION = range(4, 18)


@pytest.fixture
def desk() -> FetchDesk:
    """Topic t of two partitions; five batches of one record in the first."""
    desk = FetchDesk()
    desk.make("t", 2)
    desk.append("t", 0, *[records_batch()] * 5)
    return desk


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_what_stands_in_the_log_is_answered_in_every_version(desk: FetchDesk, version: int) -> None:
    topic = of("t" if version < 13 else desk.topics.by_name["t"].id, from_(2), from_(0, 1))
    reply = desk.ask(fetch(topic), version)
    assert (reply.error_code, reply.session_id, reply.node_endpoints) == (0, 0, [])
    (answered,) = reply.responses
    assert (answered.topic, answered.topic_id) == (topic.topic, topic.topic_id)
    full, empty = answered.partitions
    assert (full.partition_index, full.error_code, full.high_watermark, full.last_stable_offset) == (0, 0, 5, 5)
    assert full.log_start_offset == (0 if version >= 5 else -1)
    assert full.records == desk.partition("t").read(2, 1 << 20)
    assert offsets_in(full.records) == [2, 3, 4]
    assert (empty.partition_index, empty.error_code, empty.high_watermark, empty.records) == (1, 0, 0, b"")
    for one in (full, empty):
        assert one.aborted_transactions is None
        assert one.preferred_read_replica == -1
        assert (one.diverging_epoch, one.current_leader, one.snapshot_id) == (None, None, None)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_what_is_wrong_is_answered_in_every_version(desk: FetchDesk, version: int) -> None:
    ids = version >= 13
    topic = desk.topics.by_name["t"].id if ids else "t"
    reply = desk.ask(fetch(of(topic, from_(9)), of(b"?" * 16 if ids else "?", from_(0))), version)
    first, second = reply.responses
    assert [one.error_code for one in first.partitions] == [ErrorCode.OFFSET_OUT_OF_RANGE]
    assert [one.error_code for one in second.partitions] == [
        ErrorCode.UNKNOWN_TOPIC_ID if ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    for one, transactions in ((first.partitions[0], None), (second.partitions[0], [])):
        assert (one.high_watermark, one.last_stable_offset, one.log_start_offset, one.records) == (-1, -1, -1, b"")
        assert one.aborted_transactions == transactions


def test_no_session_is_ever_opened(desk: FetchDesk) -> None:
    for epoch in (0, -1):
        assert desk.ask(fetch(of("t", from_(0)), session_id=9, session_epoch=epoch), 12).session_id == 0
    reply = desk.ask(fetch(of("t", from_(0)), session_id=9, session_epoch=1), 12)
    assert (reply.error_code, reply.session_id, reply.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])


def test_who_reads_committed_gets_everything_and_an_empty_list_of_transactions(desk: FetchDesk) -> None:
    reply = desk.ask(fetch(of("t", from_(0), from_(0, 1), from_(7, 1)), level=1), 12)
    assert [one.aborted_transactions for one in reply.responses[0].partitions] == [[], None]
    assert offsets_in(reply.responses[0].partitions[0].records) == [0, 1, 2, 3, 4]


def test_another_isolation_level_fails_the_request(desk: FetchDesk) -> None:
    named = desk.ask(fetch(of("t", from_(0)), level=2), 12)
    assert named.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert told(named) == [(0, -1, -1, 0)]
    assert desk.ask(fetch(of(desk.topics.by_name["t"].id, from_(0)), level=2), 13).responses == []


# Limits.


@pytest.mark.parametrize(("most", "batches"), [(0, 1), (1, 1), (SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (1 << 31 - 1, 5)])
def test_the_limit_of_a_partition_is_kept_but_for_a_first_batch(desk: FetchDesk, most: int, batches: int) -> None:
    assert told(desk.ask(fetch(of("t", from_(0, most=most))), 12)) == [(0, 0, 5, batches * SIZE)]
    assert told(desk.ask(fetch(of("t", from_(0)), most=most), 12)) == [(0, 0, 5, batches * SIZE)]


def test_only_the_first_partition_that_has_something_may_exceed_the_limit(desk: FetchDesk) -> None:
    desk.append("t", 1)
    desk.make("empty")
    wanted = of("empty", from_(0)), of("t", from_(0), from_(0, 1))
    assert told(desk.ask(fetch(*wanted, most=1), 12)) == [(0, 0, 0, 0), (0, 0, 5, SIZE), (1, 0, 1, 0)]
    assert told(desk.ask(fetch(*wanted, most=5 * SIZE), 12)) == [(0, 0, 0, 0), (0, 0, 5, 5 * SIZE), (1, 0, 1, 0)]
    assert told(desk.ask(fetch(*wanted, most=6 * SIZE), 12)) == [(0, 0, 0, 0), (0, 0, 5, 5 * SIZE), (1, 0, 1, SIZE)]


def test_the_brokers_own_limit_comes_before_the_requests() -> None:
    desk = FetchDesk(bytes_max=7 * SIZE)
    desk.make("t", 2)
    for index in range(2):
        desk.append("t", index, *[records_batch()] * 5)
    wanted = of("t", from_(0), from_(0, 1))
    assert told(desk.ask(fetch(wanted, most=1 << 30), 12)) == [(0, 0, 5, 5 * SIZE), (1, 0, 5, 2 * SIZE)]
    # More than it sends at all need not be waited for.
    assert told(desk.ask(fetch(wanted, most=1 << 30, least=1 << 30, wait=500), 12)) == [(0, 0, 5, 5 * SIZE), (1, 0, 5, 2 * SIZE)]


def test_a_negative_limit_is_an_error_where_there_is_something(desk: FetchDesk) -> None:
    assert told(desk.ask(fetch(of("t", from_(0, most=-1), from_(0, 1, most=-1))), 12)) == [(0, -1, -1, 0), (1, 0, 0, 0)]
    # The first partition spends the negative limit of all, whatever it has.
    assert told(desk.ask(fetch(of("t", from_(0)), most=-1), 12)) == [(0, -1, -1, 0)]
    assert told(desk.ask(fetch(of("t", from_(0, 1), from_(0)), most=-1), 12)) == [(1, 0, 0, 0), (0, 0, 5, SIZE)]


# Offsets and epochs.


def test_offsets_before_the_start_and_behind_the_end_are_out_of_range(desk: FetchDesk) -> None:
    disk_log(desk.partition("t")).delete_before(2)
    for offset, error in ((-1, 1), (0, 1), (1, 1), (2, 0), (4, 0), (5, 0), (6, 1), (1 << 62, 1)):
        assert [one[1] for one in told(desk.ask(fetch(of("t", from_(offset))), 12))] == [error], offset
    (one,) = desk.ask(fetch(of("t", from_(3))), 12).responses[0].partitions
    assert (one.log_start_offset, one.high_watermark, offsets_in(one.records)) == (2, 5, [3, 4])


def test_a_current_epoch_that_is_not_is_told(desk: FetchDesk) -> None:
    epoch = desk.new_epoch("t")
    for current, error in ((epoch, 0), (-1, 0), (-9, 0), (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH), (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert [one[1] for one in told(desk.ask(fetch(of("t", from_(0, current=current))), 12))] == [error]


def test_who_is_fenced_is_told_who_leads(desk: FetchDesk) -> None:
    epoch = desk.new_epoch("t")
    topic = of(desk.topics.by_name["t"].id, from_(0, current=epoch - 1), from_(0, 1, current=epoch + 7))
    reply = desk.ask(fetch(topic), 16)
    assert [one.current_leader for one in reply.responses[0].partitions] == [LeaderIdAndEpoch(1, epoch), None]
    assert reply.node_endpoints == [NodeEndpoint(1, "127.0.0.1", 9092, None)]
    assert desk.ask(fetch(topic), 15).node_endpoints == []


def test_where_the_fetched_epoch_ended_elsewhere_that_is_told(desk: FetchDesk) -> None:
    first = desk.partition("t").leader_epoch
    second = desk.new_epoch("t")
    third = desk.new_epoch("t")
    desk.append("t")
    for offset, fetched, expected in (
        (5, first, None),
        (6, first, (first, 5)),
        (2, second, (first, 5)),
        (6, third, None),
        (2, third, None),
    ):
        (one,) = desk.ask(fetch(of("t", from_(offset, fetched=fetched))), 12).responses[0].partitions
        assert one.diverging_epoch == (None if expected is None else EpochEndOffset(*expected)), (offset, fetched)
        assert bool(one.records) == (expected is None and offset < 6)
        assert (one.error_code, one.high_watermark) == (0, 6)
    assert told(desk.ask(fetch(of("t", from_(2, fetched=third + 1))), 12)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, 0)]
    disk_log(desk.partition("t")).delete_before(3)
    assert told(desk.ask(fetch(of("t", from_(2, fetched=first))), 12)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, 0)]


def test_what_is_not_durable_yet_is_neither_sent_nor_out_of_range(desk: FetchDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in __consumer_offsets, whose end is what is durable."""
    monkeypatch.setattr(type(desk.partition("t")), "end_offset", property(lambda self: 3))
    for offset, error, size in ((1, 0, 2 * SIZE), (3, 0, 0), (4, 0, 0), (5, 0, 0), (6, ErrorCode.OFFSET_OUT_OF_RANGE, 0)):
        assert told(desk.ask(fetch(of("t", from_(offset))), 12)) == [(0, error, -1 if error else 3, size)]


# What is asked for.


def test_a_partition_asked_for_twice_is_answered_once_by_the_last_word(desk: FetchDesk) -> None:
    reply = desk.ask(fetch(of("t", from_(0), from_(3)), of("t", from_(0, 1), from_(4))), 12)
    (topic,) = reply.responses
    assert [(one.partition_index, offsets_in(one.records)) for one in topic.partitions] == [(0, [4]), (1, [])]


def test_what_is_not_looked_at_comes_behind_what_is(desk: FetchDesk) -> None:
    reply = desk.ask(fetch(of("?", from_(0)), of("t", from_(0, 7), from_(0)), of("?", from_(0, 1))), 12)
    assert [(topic.topic, [one.partition_index for one in topic.partitions]) for topic in reply.responses] == [
        ("t", [0]),
        ("?", [0]),
        ("t", [7]),
        ("?", [1]),
    ]


def test_nothing_is_answered_with_nothing(desk: FetchDesk) -> None:
    assert desk.ask(fetch(wait=500), 12).responses == []
    assert desk.ask(fetch(of("t")), 12).responses == []


def test_an_id_of_zeros_is_unknown(desk: FetchDesk) -> None:
    assert told(desk.ask(fetch(of(NO_ID, from_(0))), 13)) == [(0, ErrorCode.UNKNOWN_TOPIC_ID, -1, 0)]


def test_followers_are_no_replicas_here(desk: FetchDesk) -> None:
    for version in (12, 17):
        topic = "t" if version == 12 else desk.topics.by_name["t"].id
        assert told(desk.ask(fetch(of(topic, from_(0)), replica=2), version)) == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 0)]
        assert told(desk.ask(fetch(of(topic, from_(0)), replica=-2), version)) == [(0, 0, 5, 5 * SIZE)]


def test_a_partition_that_is_not_open_yet_says_so_and_comes_sooner(desk: FetchDesk) -> None:
    desk.partition("t", 1).error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told(desk.ask(fetch(of("t", from_(0, 1)), wait=500), 12)) == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 0)]
    assert desk.finder.asked == ["t-1"]


class Strict:
    """Nobody may read `secret`, nobody is a follower."""

    open = False

    def allows(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
        return resource == Resource.TOPIC and operation == Operation.READ and name != "secret"


def test_topics_that_may_not_be_read_are_refused() -> None:
    desk = FetchDesk(authorizer=Strict())
    for name in ("open", "secret"):
        desk.make(name)
        desk.append(name)
    reply = desk.ask(fetch(of("secret", from_(0)), of("open", from_(0))), 12)
    assert told(reply) == [(0, 0, 1, SIZE), (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, 0)]
    reply = desk.ask(fetch(of("open", from_(0)), replica=3), 12)
    assert told(reply) == [(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, 0)]
    by_id = [of(desk.topics.by_name[name].id, from_(0)) for name in ("secret", "open")]
    assert [one[1] for one in told(desk.ask(fetch(*by_id), 13))] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


# Replies of any length.


def test_a_long_reply_is_what_a_short_one_would_be(desk: FetchDesk) -> None:
    desk.make("much", 3)
    for index in range(3):
        desk.append("much", index, *[records_batch(padding=90_000)] * 20)
    for version in (4, 11, 12, 17):
        topic = "much" if version < 13 else desk.topics.by_name["much"].id
        reply = desk.ask(fetch(of(topic, *[from_(2, index, 1 << 30) for index in range(3)]), most=1 << 30), version)
        for one in reply.responses[0].partitions:
            assert offsets_in(one.records) == list(range(2, 20))
            assert one.records == desk.partition("much", one.partition_index).read(2, 1 << 30)


def test_a_long_reply_goes_on_when_its_segment_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.net.long_replies.PIECE_BYTES", 100_000)
    desk = FetchDesk(segment_bytes=1_000_000)
    desk.make("t")
    desk.append("t", 0, *[records_batch(padding=90_000)] * 20)
    log = disk_log(desk.partition("t"))
    expected = log.read(0, 1 << 30)
    desk.consumer.send(fetch(of("t", from_(0, most=1 << 30)), most=1 << 30), 12)
    desk.turn_ends()
    segment = log._segments[0]
    remove_deleted(desk.disk, log.folder, log.drop_old(5_000, 0, 0))
    assert not desk.disk.exists(segment.log_path)
    for _ in range(20):
        desk.turn_ends()
    (reply,) = desk.consumer.replies()
    assert reply.responses[0].partitions[0].records == expected
    assert segment.readers == 0


def test_records_are_read_once_and_handed_on_as_they_are(desk: FetchDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = records_batch(padding=10_000)
    desk.append("t", 1, *[batch] * 100)
    first = desk.ask(fetch(of("t", from_(0, 1, 500_000))), 12).responses[0].partitions[0].records
    read: list[int] = []
    written: list[list[int]] = []
    plainly = FaultyFile.read

    def counted(file: FaultyFile, at: int, size: int) -> bytes:
        read.append(size)
        return plainly(file, at, size)

    monkeypatch.setattr(FaultyFile, "read", counted)
    desk.consumer.wire.writelines = lambda parts: written.append([len(part) for part in parts])  # type: ignore[method-assign]
    desk.consumer.send(fetch(of("t", from_(offsets_in(first)[-1] + 1, 1, 500_000))), 12)
    desk.turn_ends()
    assert [len(parts) for parts in written] == [3], "what stands before, the records, what stands behind"
    assert read == [61, written[0][1]], "a batch that the index names is looked at before it is believed"


def test_a_disk_that_does_not_read_is_told(desk: FetchDesk) -> None:
    desk.disk.unreadable = "t-0"
    assert told(desk.ask(fetch(of("t", from_(0), from_(0, 1))), 12)) == [(0, ErrorCode.KAFKA_STORAGE_ERROR, -1, 0), (1, 0, 0, 0)]


def test_a_long_reply_whose_records_are_gone_ends_the_connection(desk: FetchDesk) -> None:
    desk.append("t", 1, *[records_batch(padding=1 << 20)] * 3)
    desk.consumer.send(fetch(of("t", from_(0, 1, 1 << 30)), most=1 << 30), 12)
    file = desk.disk.open("/data/t-1/00000000000000000000.log")
    file.truncate(1 << 20)
    for _ in range(5):
        desk.turn_ends()
    assert not desk.consumer.wire.open
    desk.consumer.lose()
    assert "cannot be read any further" in desk.consumer.connection.reason

"""Replies come back in the order of the requests, however each of them was made: over real sockets, all kinds in one chunk."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from struct import pack, unpack_from
from typing import Any

import pytest

from protocol.batch import Record, build
from protocol.headers import encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.running import ANSWER_SECONDS, Broker, broker
from tests.support.lasting import Actor, create_topic
from tests.support.peers import defects, on

TOPIC, LARGE = "order", "large"
BATCH = build([Record(0, 0, None, b"value")])
SEATS = 8  # chunks on their way at a time
NO_REPLY = "produce without reply"

Kind = tuple[int, int, Any]  # API key, version, body


@pytest.fixture(scope="module")
def ours() -> Iterator[Broker]:
    with broker(*on("uvloop", "group.initial.rebalance.delay.ms=0")) as started:
        create_topic(started.port, TOPIC, 1)
        create_topic(started.port, LARGE, 1)
        with socket.create_connection(("127.0.0.1", started.port), ANSWER_SECONDS) as sock:
            large = producing(build([Record(0, 0, None, b"x" * 80_000)]), LARGE)
            sock.sendall(encode_request(0, 9, 1, "c", large.encode(9)))
            assert sock.recv(1000)
        yield started
        assert defects(started) == []


def producing(batch: bytes, topic: str = TOPIC, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(None, acks, 5_000, [TopicProduceData(topic, [PartitionProduceData(0, batch)])])


def fetching(topic: str, **more: int) -> FetchRequest:
    wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
    return FetchRequest(replica_id=-1, max_bytes=1 << 20, session_epoch=-1, topics=[wanted], **more)


class Seat:
    """One connection: a member of two groups. In one it joins again and again, in the other it stays."""

    def __init__(self, port: int, name: str, seed: int) -> None:
        self.port = port
        self.name = name
        self.random = Random(seed)
        self.sock = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self.number = 0
        self.asked: list[int] = []
        self.joins: set[int] = set()
        staying, rejoining = Actor(port, f"{name}-stays"), Actor(port, f"{name}-joins")
        for actor in (staying, rejoining):
            actor.take_id()
        assert staying.join().error_code == staying.sync().error_code == staying.beat() == 0
        for actor in (staying, rejoining):
            actor.close()  # members live by their sessions
        self.rejoining = rejoining
        self.requests: dict[str, tuple[int, Any]] = {
            "heartbeat": (4, HeartbeatRequest(staying.group, staying.generation, staying.member_id)),
            "commit": (8, self.committing(staying)),
            "fetch offsets": (8, self.fetching_offsets(staying)),
            "join": (9, self.joining(rejoining)),
            "sync": (5, self.syncing(rejoining)),
            "produce": (9, producing(BATCH)),
            NO_REPLY: (9, producing(BATCH, acks=0)),
            "refused produce": (9, producing(BATCH, "no-such-topic")),
            "metadata": (12, MetadataRequest([MetadataRequestTopic(bytes(16), TOPIC)], False)),
            "versions": (3, ApiVersionsRequest("test", "1")),
            "newer versions": (99, None),
            "coordinator": (4, FindCoordinatorRequest(coordinator_keys=[staying.group])),
            "list offsets": (7, ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, -1)])])),
            "fetch": (11, fetching(TOPIC, max_wait_ms=0, min_bytes=1)),
            "long poll": (11, fetching(TOPIC, max_wait_ms=1, min_bytes=1 << 20)),
            "long reply": (11, fetching(LARGE, max_wait_ms=0, min_bytes=1)),
            "leave": (5, LeaveGroupRequest(staying.group, members=[MemberIdentity("a stranger")])),
            "describe": (5, DescribeGroupsRequest([staying.group])),
            "list groups": (4, ListGroupsRequest([])),
        }
        self.bodies = {kind: self._body(*asked) for kind, asked in self.requests.items()}

    @staticmethod
    def _body(version: int, request: Any) -> Kind:
        return (18, version, b"") if request is None else (request.API_KEY, version, request.encode(version))

    def committing(self, actor: Actor) -> OffsetCommitRequest:
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 7, -1, committed_metadata="")])]
        return OffsetCommitRequest(actor.group, actor.generation, actor.member_id, topics=topics)

    def fetching_offsets(self, actor: Actor) -> OffsetFetchRequest:
        group = OffsetFetchRequestGroup(actor.group, topics=[OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])])
        return OffsetFetchRequest(groups=[group], require_stable=False)

    def joining(self, actor: Actor) -> JoinGroupRequest:
        return JoinGroupRequest(actor.group, 60_000, 60_000, actor.member_id, None, "consumer", [JoinGroupRequestProtocol("one", b"")])

    def syncing(self, actor: Actor) -> SyncGroupRequest:
        mine = [SyncGroupRequestAssignment(actor.member_id, b"all")]
        return SyncGroupRequest(actor.group, actor.generation, actor.member_id, None, "consumer", "one", mine)

    def connect_anew(self) -> None:
        """As one of whom nothing is remembered."""
        self.sock.close()
        self.sock = socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS)

    def chunk(self, kinds: Sequence[str]) -> bytes:
        data = b""
        for kind in kinds:
            self.number += 1
            key, version, body = self.bodies[kind]
            data += encode_request(key, version, self.number, "test", body) if version != 99 else newer(self.number)
            if kind != NO_REPLY:
                self.asked.append(self.number)
            if kind == "join":
                self.joins.add(self.number)
        return data

    def send(self, kinds: Sequence[str], split: bool = False) -> None:
        data = self.chunk(kinds)
        if split:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            at = self.random.randrange(1, len(data))
            self.sock.sendall(data[:at])
            data = data[at:]
        self.sock.sendall(data)

    def answered(self) -> list[int]:
        """The correlation ids of as many replies as are due."""
        data = b""
        got: list[int] = []
        wanted, self.asked = self.asked, []
        at = 0
        while len(got) < len(wanted):
            if len(data) - at >= 8:
                size, number = unpack_from(">ii", data, at)
                if len(data) - at >= 4 + size:
                    got.append(number)
                    if number in self.joins:
                        self._joined(data, at + 8)
                    at += 4 + size
                    continue
            chunk = self.sock.recv(1 << 18)
            assert chunk, f"closed after {got} of {wanted}"
            data += chunk
        assert at == len(data), "more than was asked for"
        return [number - wanted[0] for number in got] if got != wanted else []

    def _joined(self, data: bytes, at: int) -> None:
        """The next SyncGroup is of the generation that was told: no tags, throttle time, error, generation."""
        error, generation = unpack_from(">hi", data, at + 5)
        if not error:
            self.rejoining.generation = generation
            self.bodies["sync"] = self._body(5, self.syncing(self.rejoining))
        self.joins.clear()

    def warm_up(self) -> None:
        """Everything that a connection remembers comes twice."""
        for kind in ("heartbeat", "commit", "fetch offsets", "join", "sync", "produce") * 3:
            self.send([kind])
            assert self.answered() == []


def newer(number: int) -> bytes:
    """ApiVersions of a version that is not known yet."""
    return pack(">ihhihB", 11, 18, 99, number, 0, 0)


@pytest.fixture(scope="module")
def seats(ours: Broker) -> Iterator[list[Seat]]:
    made = [Seat(ours.port, f"seat-{number}", number) for number in range(SEATS)]
    for seat in made:
        seat.warm_up()
    yield made
    for seat in made:
        seat.sock.close()


KINDS = (
    "heartbeat", "commit", "fetch offsets", "join", "sync", "produce", NO_REPLY, "refused produce", "metadata", "versions", "newer versions",
    "coordinator", "list offsets", "fetch", "long poll", "long reply", "leave", "describe", "list groups",
)  # fmt: skip


def out_of_order(seats: list[Seat], chunks: Sequence[Sequence[str]], *, anew: bool = False, split: bool = False) -> list[object]:
    """The chunks whose replies did not come in order."""
    wrong: list[object] = []
    for at in range(0, len(chunks), len(seats)):
        some = list(zip(seats, chunks[at : at + len(seats)], strict=False))
        for seat, kinds in some:
            if anew:
                seat.connect_anew()
            seat.send(kinds, split)
        for seat, kinds in some:
            got = seat.answered()
            if got:
                wrong.append((kinds, got))
    return wrong


def test_every_pair_of_kinds_in_one_chunk(seats: list[Seat]) -> None:
    assert out_of_order(seats, list(product(KINDS, repeat=2))) == []


def test_every_three_kinds_in_one_chunk(seats: list[Seat]) -> None:
    assert out_of_order(seats, list(product(KINDS, repeat=3))) == []


def test_chunks_that_end_within_a_request(seats: list[Seat]) -> None:
    chunks = [[seats[0].random.choice(KINDS) for _ in range(4)] for _ in range(400)]
    assert out_of_order(seats, chunks, split=True) == []


def test_more_requests_than_one_turn_works(seats: list[Seat]) -> None:
    chunks = [[seats[0].random.choice(KINDS) for _ in range(100)] for _ in range(40)]
    assert out_of_order(seats, chunks) == []


def test_every_pair_of_kinds_where_nothing_is_remembered(seats: list[Seat]) -> None:
    try:
        assert out_of_order(seats, list(product(KINDS, repeat=2)), anew=True) == []
    finally:
        for seat in seats:
            seat.warm_up()


@pytest.mark.clients
def test_every_three_kinds_where_nothing_is_remembered(seats: list[Seat]) -> None:
    try:
        assert out_of_order(seats, list(product(KINDS, repeat=3)), anew=True) == []
    finally:
        for seat in seats:
            seat.warm_up()


# Malformed requests.

REMEMBERED = ("heartbeat", "commit", "fetch offsets", "join", "sync", "produce", NO_REPLY)
OVERLONG = b"\x80\x80\x80\x80\x80\x80\x01"  # a varint of more than five bytes


def spoiled(random: Random, frame: bytes) -> bytes:
    """The request with something wrong in it; it keeps its size, or says its new one, or a wrong one."""
    body = bytearray(frame[4:])
    at = random.randrange(8 if random.random() < 0.8 else 0, len(body))
    match random.randrange(6):
        case 0:
            body[at] ^= 1 << random.randrange(8)
        case 1:
            body[at : at + len(OVERLONG)] = OVERLONG
        case 2:
            body[at:at] = random.choice((OVERLONG, b"\xff", b"\0"))
        case 3:
            del body[at:]
        case 4:
            del body[at : at + random.randrange(1, 5)]
        case _:
            body += random.randbytes(random.randrange(1, 20))
    said = len(body) if random.random() < 0.9 else max(0, len(body) - random.randrange(1, 4))
    return pack(">i", said) + bytes(body)


def survive(seats: list[Seat], random: Random, kind: str) -> None:
    """A malformed request behind and in front of others; whoever sent it may be closed, nobody else may notice."""
    culprit, *others = seats
    frame = culprit.chunk([kind])
    wrong = spoiled(random, frame) if random.random() < 0.9 else spoiled(random, spoiled(random, frame))
    around = [culprit.chunk([random.choice(REMEMBERED) for _ in range(random.randrange(4))]) for _ in range(2)]
    half = len(others) // 2
    for seat in others[:half]:
        seat.send(random.choices(KINDS, k=3))
    culprit.sock.sendall(around[0] + wrong + around[1])
    for seat in others[half:]:
        seat.send(random.choices(KINDS, k=3))
    for seat in others:
        assert seat.answered() == [], (kind, wrong)
    culprit.sock.close()
    culprit.asked.clear()
    culprit.connect_anew()


@pytest.mark.parametrize("kind", REMEMBERED)
def test_a_malformed_request_is_noticed_by_nobody_else(ours: Broker, seats: list[Seat], kind: str) -> None:
    random = Random(kind)
    culprit = seats[0]
    for _ in range(40):
        for _ in range(3):
            culprit.send([kind])
            assert culprit.answered() == []
        survive(seats, random, kind)
    culprit.warm_up()
    assert defects(ours) == []


def test_an_overlong_varint_in_a_remembered_produce_is_noticed_by_nobody_else(ours: Broker, seats: list[Seat]) -> None:
    """Its turn comes with others behind it: at the end of a turn, for it had more requests than one turn works."""
    culprit, *others = seats
    for _ in range(3):
        culprit.send(["produce"])
        assert culprit.answered() == []
    good = culprit.chunk(["produce"])
    at = good.index(BATCH)
    wrong = bytearray(good[4:])
    wrong[at - 5 : at - 4] = OVERLONG
    others[0].send(["heartbeat"] * 200)
    culprit.sock.sendall(good * 40 + pack(">i", len(wrong)) + wrong + good)
    for seat in others[1:]:
        seat.send(["heartbeat"] * 200)
    for seat in others:
        assert seat.answered() == []
    culprit.asked.clear()
    culprit.connect_anew()
    culprit.warm_up()
    assert defects(ours) == []

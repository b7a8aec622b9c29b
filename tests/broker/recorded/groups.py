"""Every group request with every field at its extremes, and the replies of Apache Kafka.

`python -m tests.broker.recorded.groups all` sends them to a real Kafka and records its replies in groups.json, to which the broker's are
compared; it takes some minutes. Without `all` only new cases are sent. Each case has a group of its own; all groups are in one partition of the offsets topic, hence in one shard.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from protocol.errors import ErrorCode
from protocol.message import Part
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.recorded.extremes import (
    CHANGES,
    CLOSED,
    LONGEST,
    NOTHING,
    Change,
    answer_frame,
    blobs,
    decoded,
    extremes,
    framed,
    known_answers,
    readable,
    short_text,
    shortened,
    write_answers,
)
from tests.broker.recorded.fields import recorded_fields
from tests.kafka_process import kafka
from tests.running import Client

ANSWERS = Path(__file__).with_name("groups.json")
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
TOPIC = "extremes"
PARTITIONS = 3
KNOWN_SECONDS = 20
SILENCE_SECONDS = 15  # a longer silence of Kafka means that it will never answer


class OwnGroup(NamedTuple):
    """The group of one case, and its only member, in generation 1."""

    group: str
    member: str
    instance: str | None = "instance"


DRY = OwnGroup("group", "member")

# Requests without an extreme field.


def join(own: OwnGroup) -> Any:
    subscription = bytes.fromhex("0001000000010008") + TOPIC.encode() + bytes(4)
    protocols = [JoinGroupRequestProtocol("range", subscription)]
    return JoinGroupRequest(own.group, 30_000, 30_000, "", None, "consumer", protocols, "why")


def sync(own: OwnGroup) -> Any:
    assignments = [SyncGroupRequestAssignment(own.member, b"all")]
    return SyncGroupRequest(own.group, 1, own.member, "instance", "consumer", "range", assignments)


def heartbeat(own: OwnGroup) -> Any:
    return HeartbeatRequest(own.group, 1, own.member, "instance")


def leave(own: OwnGroup) -> Any:
    return LeaveGroupRequest(own.group, [MemberIdentity(own.member, "instance", "why")], own.member)


def commit(own: OwnGroup) -> Any:
    topics = [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(1, 42, 7, "metadata")])]
    return OffsetCommitRequest(own.group, 1, own.member, "instance", -1, topics)


def fetch(own: OwnGroup) -> Any:
    groups = [OffsetFetchRequestGroup(own.group, None, -1, [OffsetFetchRequestTopics(TOPIC, [0])])]
    return OffsetFetchRequest(groups, own.group, [OffsetFetchRequestTopic(TOPIC, [0])], True)


def delete_offsets(own: OwnGroup) -> Any:
    return OffsetDeleteRequest(own.group, [OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(0)])])


def describe(own: OwnGroup) -> Any:
    return DescribeGroupsRequest([own.group], True)


def list_groups(own: OwnGroup) -> Any:
    return ListGroupsRequest(["Stable"], ["classic"])


def delete_groups(own: OwnGroup) -> Any:
    return DeleteGroupsRequest([own.group])


def find(own: OwnGroup) -> Any:
    return FindCoordinatorRequest(own.group, 0, [own.group])


Request = Callable[[OwnGroup], Any]

# The versions to send: the newest, and those that encode or place a field differently.
ASKED: list[tuple[Request, tuple[int, ...]]] = [
    (join, (9, 5, 0)),
    (sync, (5, 3)),
    (heartbeat, (4, 3)),
    (leave, (5, 3, 2)),
    (commit, (9, 7, 4)),
    (fetch, (9, 7, 5)),
    (delete_offsets, (0,)),
    (describe, (6, 4)),
    (list_groups, (5, 2)),
    (delete_groups, (2, 1)),
    (find, (6, 3, 2)),
]

# The expected state of an unchanged group.
UNTOUCHED = [
    ["Stable", 1],
    [
        {
            "name": TOPIC,
            "partitions": [
                {"partition_index": 0, "committed_offset": 11, "committed_leader_epoch": -1, "metadata": "settled", "error_code": 0}
            ],
        }
    ],
]

class Case(NamedTuple):
    name: str
    request: Request
    version: int
    body: Callable[[OwnGroup], bytes]
    client_id: bytes | None = b"client"

    @property
    def key(self) -> int:
        key: int = self.request(DRY).API_KEY
        return key


def every_case() -> Iterator[Case]:
    for request, versions in ASKED:
        for version in versions:
            yield from cases(request, version, versions[0])
    for name, client_id in {"null": None, "empty": b"", "of the greatest length": b"c" * LONGEST, "not UTF-8": b"c\xff\xfe"}.items():
        yield Case(f"join v9 client id: {name}", join, 9, lambda own: join(own).encode(9), client_id)
    yield Case("commit v9: larger than a batch", commit, 9, lambda own: much_committed(own).encode(9))
    yield Case("join v9: 2 MiB of unparsed metadata", join, 9, lambda own: large_metadata(own).encode(9))


def much_committed(own: OwnGroup) -> Any:
    request = commit(own)
    request.topics[0].partitions = [OffsetCommitRequestPartition(number % PARTITIONS, 42, 7, "m" * 4_000) for number in range(300)]
    return request


def large_metadata(own: OwnGroup) -> Any:
    """A JoinGroup of another protocol type with 2 MiB of zeros as metadata, which only a group of consumers would parse."""
    request = join(own)
    request.protocol_type = "connect"
    request.protocols[0].metadata = bytes(2 << 20)
    return request


def cases(request: Request, version: int, newest: int) -> Iterator[Case]:
    title = request.__name__
    yield Case(f"{title} v{version}", request, version, lambda own: request(own).encode(version))
    for extreme in extremes(request(DRY), title, version, CHANGES | {"bytes": blobs}):
        if version == newest or not extreme.many:  # ten thousand items are slow, and their reply is the same in every version
            yield Case(extreme.name, request, version, body_of(request, extreme.change, version))


def body_of(request: Request, change: Change, version: int) -> Callable[[OwnGroup], bytes]:
    return lambda own: change(request(own), version)


# Requests.


class Peer:
    """Sends cases to a broker, each on its own connection, because a broker closes the connection of many cases."""

    def __init__(self, port: int, seconds: float) -> None:
        self.port = port
        self.seconds = seconds
        self._cases = 0

    def prepare(self) -> None:
        until = time.monotonic() + KNOWN_SECONDS
        with Client(self.port) as client:
            client.ask(CreateTopicsRequest([CreatableTopic(TOPIC, PARTITIONS, 1, [], [])], 5000), 5)
            codes = [-1]
            while any(codes):
                assert time.monotonic() < until, codes
                codes = [client.ask(FindCoordinatorRequest("extremes"), 2).error_code]
                if not any(codes):
                    topics = [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(partition, 1) for partition in range(PARTITIONS)])]
                    reply = client.ask(OffsetCommitRequest("extremes", -1, "", None, -1, topics), 7)
                    codes = [part.error_code for part in reply.topics[0].partitions]
                time.sleep(0.02)

    def settle(self, client: Client, group: str, request_of: Request) -> OwnGroup:
        """Make a Stable group of one static member and one offset; for a case of SyncGroup, a group that awaits it."""
        protocols = join(DRY).protocols
        request = JoinGroupRequest(group, 30_000, 30_000, "", "instance", "consumer", protocols)
        reply = client.ask(request, 9)
        assert (reply.error_code, reply.generation_id) == (0, 1), reply
        own = OwnGroup(group, reply.member_id)
        if request_of is sync:
            return own
        assert client.ask(sync(own), 5).error_code == 0
        topics = [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(0, 11, -1, "settled")])]
        reply = client.ask(OffsetCommitRequest(group, 1, own.member, "instance", -1, topics), 9)
        assert reply.topics[0].partitions[0].error_code == 0
        return own

    def ask(self, case: Case) -> dict[str, Any]:
        """Send the case; returns the reply, and the state of the case's group afterwards."""
        self._cases += 1
        group = f"x{self._cases:05}"
        with Client(self.port) as client:
            client.socket.settimeout(2 * SILENCE_SECONDS)
            own = OwnGroup(group, "") if case.request is join else self.settle(client, group, case.request)
            reply = self.reply_to(client, case, own)
            answer = {"answer": reply if isinstance(reply, str) else plain(reply, own)}
            if not isinstance(reply, str):
                own = own._replace(member=getattr(reply, "member_id", own.member))
        with Client(self.port) as client:
            client.socket.settimeout(self.seconds)
            try:
                answer["then"] = list(AFTERWARDS.get(case.request, group_state)(client, case, own, reply))
            except OSError as error:
                answer["then"] = NOTHING if isinstance(error, TimeoutError) else CLOSED
        if answer["then"] == UNTOUCHED:
            del answer["then"]
        return answer

    def reply_to(self, client: Client, case: Case, own: OwnGroup) -> Any:
        client.socket.settimeout(self.seconds)
        frame = answer_frame(client, framed(case.key, case.version, case.body(own), case.client_id))
        return frame if isinstance(frame, str) else decoded(case.key, case.version, frame)


def group_state(client: Client, case: Case, own: OwnGroup, reply: Any) -> Iterator[Any]:
    """The group's state, its members and its offsets."""
    described = client.ask(DescribeGroupsRequest([own.group]), 5).groups[0]
    yield [described.group_state, len(described.members)]
    fetched = client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(own.group, None, -1, None)]), 9).groups[0]
    for topic in fetched.topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)
    yield plain(sorted(fetched.topics, key=lambda topic: topic.name), own)


def joined(client: Client, case: Case, own: OwnGroup, reply: Any) -> Iterator[Any]:
    """Join with the received member id, sync and describe: the result for a member that sent this JoinGroup."""
    unreadable = case.name.endswith("half a surrogate")  # half a surrogate encodes to different text each time, so the reply cannot be compared
    if isinstance(reply, str) or unreadable or reply.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
        return
    request, _ = JoinGroupRequest.decode(case.body(own), 0, case.version)
    request.member_id = reply.member_id
    if reply.error_code:
        reply = client.ask(request, 9)
        yield plain(reply, own)
        if reply.error_code:
            return
    if request.rebalance_timeout_ms <= 0 and case.version:
        return  # a member without time to sync may be removed before it does
    type, name = request.protocol_type, reply.protocol_name
    assignments = [SyncGroupRequestAssignment(reply.member_id, b"all")]
    instance = request.group_instance_id
    synced = client.ask(SyncGroupRequest(request.group_id, reply.generation_id, reply.member_id, instance, type, name, assignments), 5)
    yield plain(synced, own)
    yield client.ask(HeartbeatRequest(request.group_id, reply.generation_id, reply.member_id, instance), 4).error_code


AFTERWARDS: dict[Request, Callable[[Client, Case, OwnGroup, Any], Iterator[Any]]] = {join: joined}


# Recording.


def plain(value: Any, own: OwnGroup) -> Any:
    """The reply as JSON values, with names for generated ids, and shortened texts and lists."""
    if isinstance(value, Part):
        names = [name for name in recorded_fields(type(value)) if name not in ("throttle_time_ms", "port", "error_message")]
        return {name: plain(getattr(value, name), own) for name in names}
    if isinstance(value, list):
        visible = [item for item in value if not is_of_others(item, own)]
        return shortened([plain(item, own) for item in visible])
    if isinstance(value, bytes):
        return f"{value[:16].hex()}... ({len(value)} bytes)" if len(value) > 16 else value.hex()
    if isinstance(value, str):
        value = readable(value.replace(own.group, "<group>"))
        if own.member:
            value = value.replace(own.member, "<member>")
        value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>", value)
        return short_text(value)
    return value


def is_of_others(item: Any, own: OwnGroup) -> bool:
    """Whether this is a group of another case, which ListGroups lists too."""
    return type(item).__name__ == "ListedGroup" and item.group_id != own.group


def breaks_partition(case: Case) -> bool:
    """Whether Kafka's whole partition becomes slow or stops answering after this case."""
    return case.request in (join, delete_offsets) and case.name.endswith(("alike", "twice the same"))


def ask_kafka(cases: list[Case], answers: dict[str, Any]) -> None:
    with kafka(**{name.replace(".", "_"): value for name, value in SETTINGS.items()}) as port:
        peer = Peer(port, SILENCE_SECONDS)
        peer.prepare()
        for case in cases:
            assert case.name not in answers, case.name
            answers[case.name] = peer.ask(case)
            print(f"{len(answers)} {case.name}: {json.dumps(answers[case.name])[:150]}", file=sys.stderr)


def main() -> None:
    """Send the new cases to Kafka, or with `all` every case, and record its replies."""
    answers = known_answers(ANSWERS)
    cases = [case for case in every_case() if case.name not in answers]
    ask_kafka([case for case in cases if not breaks_partition(case)], answers)
    for case in cases:
        if breaks_partition(case):
            ask_kafka([case], answers)
    write_answers(ANSWERS, answers)


if __name__ == "__main__":
    main()

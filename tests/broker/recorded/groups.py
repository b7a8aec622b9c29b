"""Every field of every group request at its extremes, and what Apache Kafka answers to that.

`python -m tests.broker.recorded.groups all` asks a real Kafka and writes its answers to groups.json, to which the broker's are
compared; it takes some minutes. Without `all` only new cases are asked. Each case has a group of its own; all groups are in one partition of the offsets topic, hence in one shard.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

from protocol.apis import APIS
from protocol.errors import EncodeError, ErrorCode
from protocol.message import Part, fields_of
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
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.wire import uvarint_bytes
from tests.kafka_process import kafka
from tests.running import Client
from tests.support.headers import response_header_version

ANSWERS = Path(__file__).with_name("groups.json")
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
TOPIC = "extremes"
PARTITIONS = 3
MANY = 10_000
KNOWN_SECONDS = 20
SILENCE_SECONDS = 15  # Kafka is quiet for longer only where it will never answer
LONGEST = 32_767
MARK = "<a text that is replaced>"
NOTHING, CLOSED = "no reply", "closed"


class Place(NamedTuple):
    """One case's own group, and its only member, of generation 1."""

    group: str
    member: str
    instance: str | None = "instance"


DRY = Place("group", "member")

# What is asked where nothing is extreme.


def join(place: Place) -> Any:
    subscription = bytes.fromhex("0001000000010008") + TOPIC.encode() + bytes(4)
    protocols = [JoinGroupRequestProtocol("range", subscription)]
    return JoinGroupRequest(place.group, 30_000, 30_000, "", None, "consumer", protocols, "why")


def sync(place: Place) -> Any:
    assignments = [SyncGroupRequestAssignment(place.member, b"all")]
    return SyncGroupRequest(place.group, 1, place.member, "instance", "consumer", "range", assignments)


def heartbeat(place: Place) -> Any:
    return HeartbeatRequest(place.group, 1, place.member, "instance")


def leave(place: Place) -> Any:
    return LeaveGroupRequest(place.group, [MemberIdentity(place.member, "instance", "why")], place.member)


def commit(place: Place) -> Any:
    topics = [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(1, 42, 7, "metadata")])]
    return OffsetCommitRequest(place.group, 1, place.member, "instance", -1, topics)


def fetch(place: Place) -> Any:
    groups = [OffsetFetchRequestGroup(place.group, None, -1, [OffsetFetchRequestTopics(TOPIC, [0])])]
    return OffsetFetchRequest(groups, place.group, [OffsetFetchRequestTopic(TOPIC, [0])], True)


def delete_offsets(place: Place) -> Any:
    return OffsetDeleteRequest(place.group, [OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(0)])])


def describe(place: Place) -> Any:
    return DescribeGroupsRequest([place.group], True)


def list_groups(place: Place) -> Any:
    return ListGroupsRequest(["Stable"], ["classic"])


def delete_groups(place: Place) -> Any:
    return DeleteGroupsRequest([place.group])


def find(place: Place) -> Any:
    return FindCoordinatorRequest(place.group, 0, [place.group])


Request = Callable[[Place], Any]

# The newest version and those in which a field is encoded in another way, or stands elsewhere.
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

# What is found afterwards of a group that nothing has happened to.
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

# The way to a field: names, and positions in lists.
Way = tuple[str | int, ...]
Change = Callable[[Any, int], bytes]  # the request and a version -> the body, with the field changed


class Case(NamedTuple):
    name: str
    request: Request
    version: int
    body: Callable[[Place], bytes]
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
        yield Case(f"join v9 client id: {name}", join, 9, lambda place: join(place).encode(9), client_id)
    yield Case("commit v9: more than a batch", commit, 9, lambda place: much_committed(place).encode(9))
    yield Case("join v9: two MiB that nobody reads", join, 9, lambda place: much_said(place).encode(9))


def much_committed(place: Place) -> Any:
    request = commit(place)
    request.topics[0].partitions = [OffsetCommitRequestPartition(number % PARTITIONS, 42, 7, "m" * 4_000) for number in range(300)]
    return request


def much_said(place: Place) -> Any:
    """Only metadata of consumers is looked at."""
    request = join(place)
    request.protocol_type = "connect"
    request.protocols[0].metadata = bytes(2 << 20)
    return request


def cases(request: Request, version: int, newest: int) -> Iterator[Case]:
    base = request(DRY)
    plain = base.encode(version)
    yield Case(f"{request.__name__} v{version}", request, version, lambda place: request(place).encode(version))
    for way, kind in fields(base):
        changes = CHANGES[kind](way, version >= base.FLEXIBLE_FROM)
        for name, change in changes.items():
            if name.startswith(str(MANY)) and version != newest:
                continue  # it takes long, and says the same in every version
            tried = changes["twice the same"] if name.startswith(str(MANY)) else change  # tells as much, in no time
            if tried(base, version) != plain:
                where = ".".join(str(part) for part in way if isinstance(part, str)) + "[0]" * isinstance(way[-1], int)
                yield Case(f"{request.__name__} v{version} {where}: {name}", request, version, body_of(request, change, version))


def body_of(request: Request, change: Change, version: int) -> Callable[[Place], bytes]:
    return lambda place: change(request(place), version)


def fields(part: Part, way: Way = ()) -> Iterator[tuple[Way, str]]:
    """Every field of a message, and of the first of each list in it, with the kind of its value."""
    for name in fields_of(type(part)):
        value = getattr(part, name)
        if isinstance(value, list):
            yield (*way, name), "list"
            if isinstance(value[0], Part):
                yield from fields(value[0], (*way, name, 0))
            else:
                yield (*way, name, 0), type(value[0]).__name__
        else:
            yield (*way, name), "str" if value is None else type(value).__name__


# What may be extreme about a value.


def changed(request: Any, way: Way, value: Any) -> Any:
    request = copy.deepcopy(request)
    holder = request
    for part in way[:-1]:
        holder = holder[part] if isinstance(part, int) else getattr(holder, part)
    last = way[-1]
    if callable(value):
        value = value(holder[last] if isinstance(last, int) else getattr(holder, str(last)))
    if isinstance(last, int):
        holder[last] = value
    else:
        setattr(holder, last, value)
    return request


def to(way: Way, value: Any) -> Change:
    return lambda request, version: bytes(changed(request, way, value).encode(version))


def to_bytes(way: Way, data: Callable[[bytes], bytes | None], flexible: bool, width: int = 2) -> Change:
    """Bytes that no message of ours would write, made of those that are there; their length is an int16 or int32."""

    def sized(data: bytes | None) -> bytes:
        if flexible:
            return uvarint_bytes(0 if data is None else len(data) + 1) + (data or b"")
        return pack(">h" if width == 2 else ">i", -1 if data is None else len(data)) + (data or b"")

    def change(request: Any, version: int) -> bytes:
        found: list[bytes] = []

        def mark(value: Any) -> Any:
            found.append(value if isinstance(value, bytes) else (value or "").encode())
            return MARK if width == 2 else MARK.encode()

        marked = bytes(changed(request, way, mark).encode(version))
        return marked.replace(sized(MARK.encode()), sized(data(found[0])))

    return change


def no_list(way: Way, flexible: bool) -> Change:
    """Null in place of the list: its count is the first that differs between one element and two."""

    def change(request: Any, version: int) -> bytes:
        none = bytes(changed(request, way, []).encode(version))
        one = bytes(changed(request, way, lambda items: items[:1]).encode(version))
        if none == one:
            return bytes(request.encode(version))
        at = next(at for at in range(len(one)) if at == len(none) or none[at] != one[at])
        return none[:at] + b"\0" + none[at + 1 :] if flexible else none[: at - 3] + b"\xff" * 4 + none[at + 1 :]

    return change


def texts(way: Way, flexible: bool) -> dict[str, Change]:
    """Each begins with what is there, so that a case's group stays its own."""
    found = {
        "empty": to(way, ""),
        "null": to_bytes(way, lambda value: None, flexible),
        "of the greatest length": to(way, lambda value: (value or "").ljust(LONGEST, "l")),
        "of a great length in UTF-16": to(way, lambda value: (value or "") + "\N{SNOWMAN}" * ((LONGEST - len(value or "")) // 3)),
        "control characters": to(way, lambda value: (value or "") + "\0\n\x7f"),
        "white space": to(way, lambda value: (value or "") + " \t "),
        "not UTF-8": to_bytes(way, lambda value: value + b"\xff\xfet", flexible),
        "half a surrogate": to_bytes(way, lambda value: value + b"\xed\xa0\x80f", flexible),
    }
    if flexible:
        found["too long"] = to_bytes(way, lambda value: value.ljust(LONGEST + 1, b"t"), True)
    return found


def numbers(way: Way, flexible: bool) -> dict[str, Change]:
    least, greatest = [(lambda request, version, sign=sign: widest(request, version, way, sign)) for sign in (-1, 1)]
    return {"0": to(way, 0), "-1": to(way, -1), "the least": least, "the greatest": greatest}


def widest(request: Any, version: int, way: Way, sign: int) -> bytes:
    """The extreme of as many bits as the field has."""
    for bits in (63, 31, 15):
        try:
            return bytes(changed(request, way, -(1 << bits) if sign < 0 else (1 << bits) - 1).encode(version))
        except EncodeError:
            pass
    return bytes(changed(request, way, -128 if sign < 0 else 127).encode(version))


def blobs(way: Way, flexible: bool) -> dict[str, Change]:
    return {
        "empty": to(way, b""),
        "one byte": to(way, b"\0"),
        "40,000 bytes": to(way, bytes(40_000)),
        "two MiB": to(way, b"m" * (2 << 20)),
        "null": to_bytes(way, lambda value: None, flexible, 4),
    }


def booleans(way: Way, flexible: bool) -> dict[str, Change]:
    return {"the other": to(way, lambda value: not value)}


def lists(way: Way, flexible: bool) -> dict[str, Change]:
    return {
        "empty": to(way, []),
        "null": no_list(way, flexible),
        "twice the same": to(way, lambda items: items[:1] * 2),
        f"{MANY} alike": to(way, lambda items: items[:1] * MANY),
        f"{MANY} different": to(way, lambda items: [different(items[0], number) for number in range(MANY)]),
    }


def different(item: Any, number: int) -> Any:
    if isinstance(item, Part):
        item = copy.copy(item)
        first = fields_of(type(item))[0]
        setattr(item, first, different(getattr(item, first), number))
        return item
    return f"{item}-{number}" if isinstance(item, str) else number


CHANGES: dict[str, Callable[[Way, bool], dict[str, Change]]] = {
    "str": texts,
    "int": numbers,
    "bytes": blobs,
    "bool": booleans,
    "list": lists,
}


# Asking.


class Peer:
    """A broker that is asked; each case on a connection of its own, for many end with it."""

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
                    topics = [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(one, 1) for one in range(PARTITIONS)])]
                    reply = client.ask(OffsetCommitRequest("extremes", -1, "", None, -1, topics), 7)
                    codes = [part.error_code for part in reply.topics[0].partitions]
                time.sleep(0.02)

    def settle(self, client: Client, group: str, request_of: Request) -> Place:
        """A group of one static member, Stable with one offset; for a SyncGroup it is still Completing."""
        protocols = join(DRY).protocols
        request = JoinGroupRequest(group, 30_000, 30_000, "", "instance", "consumer", protocols)
        reply = client.ask(request, 9)
        assert (reply.error_code, reply.generation_id) == (0, 1), reply
        place = Place(group, reply.member_id)
        if request_of is sync:
            return place
        assert client.ask(sync(place), 5).error_code == 0
        topics = [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(0, 11, -1, "settled")])]
        reply = client.ask(OffsetCommitRequest(group, 1, place.member, "instance", -1, topics), 9)
        assert reply.topics[0].partitions[0].error_code == 0
        return place

    def ask(self, case: Case) -> dict[str, Any]:
        """The answer to the case, and what is seen of its group afterwards."""
        self._cases += 1
        group = f"x{self._cases:05}"
        with Client(self.port) as client:
            client.socket.settimeout(2 * SILENCE_SECONDS)
            place = Place(group, "") if case.request is join else self.settle(client, group, case.request)
            reply = self.reply_to(client, case, place)
            answer = {"answer": reply if isinstance(reply, str) else plain(reply, place)}
            if not isinstance(reply, str):
                place = place._replace(member=getattr(reply, "member_id", place.member))
        with Client(self.port) as client:
            client.socket.settimeout(self.seconds)
            try:
                answer["then"] = list(AFTERWARDS.get(case.request, what_is_there)(client, case, place, reply))
            except OSError as error:
                answer["then"] = NOTHING if isinstance(error, TimeoutError) else CLOSED
        if answer["then"] == UNTOUCHED:
            del answer["then"]
        return answer

    def reply_to(self, client: Client, case: Case, place: Place) -> Any:
        id = case.client_id
        head = pack(">hhih", case.key, case.version, 7, -1 if id is None else len(id)) + (id or b"")
        flexible = case.version >= APIS[case.key].flexible_from
        client.socket.settimeout(self.seconds)
        try:
            client.send_frame(head + b"\0" * flexible + case.body(place))
            frame = client.frame()
        except OSError as error:
            return NOTHING if isinstance(error, TimeoutError) else CLOSED
        at = 4 + response_header_version(case.key, case.version)
        reply, end = APIS[case.key].response.decode(frame, at, case.version)
        assert end == len(frame)
        return reply


def what_is_there(client: Client, case: Case, place: Place, reply: Any) -> Iterator[Any]:
    """The group's state, its members and its offsets."""
    described = client.ask(DescribeGroupsRequest([place.group]), 5).groups[0]
    yield [described.group_state, len(described.members)]
    fetched = client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(place.group, None, -1, None)]), 9).groups[0]
    for topic in fetched.topics:
        topic.partitions.sort(key=lambda one: one.partition_index)
    yield plain(sorted(fetched.topics, key=lambda topic: topic.name), place)


def joined(client: Client, case: Case, place: Place, reply: Any) -> Iterator[Any]:
    """What becomes of a member that joined so: it joins with its id, brings its assignment and is described."""
    unreadable = case.name.endswith("half a surrogate")  # sent again it is another text
    if isinstance(reply, str) or unreadable or reply.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
        return
    request, _ = JoinGroupRequest.decode(case.body(place), 0, case.version)
    request.member_id = reply.member_id
    if reply.error_code:
        reply = client.ask(request, 9)
        yield plain(reply, place)
        if reply.error_code:
            return
    if request.rebalance_timeout_ms <= 0 and case.version:
        return  # whoever has no time to bring its assignment may be removed before it does
    type, name = request.protocol_type, reply.protocol_name
    assignments = [SyncGroupRequestAssignment(reply.member_id, b"all")]
    instance = request.group_instance_id
    synced = client.ask(SyncGroupRequest(request.group_id, reply.generation_id, reply.member_id, instance, type, name, assignments), 5)
    yield plain(synced, place)
    yield client.ask(HeartbeatRequest(request.group_id, reply.generation_id, reply.member_id, instance), 4).error_code


AFTERWARDS: dict[Request, Callable[[Client, Case, Place, Any], Iterator[Any]]] = {join: joined}


# Writing down.


def plain(value: Any, place: Place) -> Any:
    """As JSON has it; ids that were made are named, long texts and long lists are shortened."""
    if isinstance(value, Part):
        names = [name for name in fields_of(type(value)) if name not in ("throttle_time_ms", "port", "error_message")]
        return {name: plain(getattr(value, name), place) for name in names}
    if isinstance(value, list):
        others = [item for item in value if not is_of_others(item, place)]
        return shortened([plain(item, place) for item in others])
    if isinstance(value, bytes):
        return f"{value[:16].hex()}... ({len(value)} bytes)" if len(value) > 16 else value.hex()
    if isinstance(value, str):
        value = re.sub("\ufffd+", "\ufffd", value.replace(place.group, "<group>"))  # Java and Python count differently what cannot be read
        if place.member:
            value = value.replace(place.member, "<member>")
        value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>", value)
        return f"{value[:40]}... ({len(value)} characters)" if len(value) > 80 else value
    return value


def is_of_others(item: Any, place: Place) -> bool:
    """A group of another case, which ListGroups lists as well."""
    return type(item).__name__ == "ListedGroup" and item.group_id != place.group


def shortened(items: list[Any]) -> list[Any]:
    if len(items) <= 8:
        return items
    alike = [re.sub(r"\d+", "#", json.dumps(item)) for item in items]
    return [f"{len(list(group))} times {text}" for text, group in groupby(alike)]


def wounds(case: Case) -> bool:
    """Whether Kafka's whole partition is slow to answer after that, or never does again."""
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
    """Ask Kafka, and write down its answers: to what it was not asked yet, or with `all` to everything."""
    answers: dict[str, Any] = {} if sys.argv[1:] == ["all"] else json.loads(ANSWERS.read_text())
    cases = [case for case in every_case() if case.name not in answers]
    ask_kafka([case for case in cases if not wounds(case)], answers)
    for case in cases:
        if wounds(case):
            ask_kafka([case], answers)
    lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

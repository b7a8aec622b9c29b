"""The steps of a sequence, and the requests that they send.

A step is a dict: `do` is its kind, `by` the actor (also the client id, unless `client` is given), `v` the version, `group` the group if
it is not "g". A member "@p1" is the newest id that p1 got in this group, "@p1-1" the id before it. A generation "@p1" is the newest in
p1's replies, "@p1+1" and "@p1-1" are its neighbours. All other values are literal.

    {"do": "join", "by": "p1", "v": 9, "member": "@p1", "instance": "i1", "type": "consumer",
     "protocols": [["range", "sub t0"]], "session": 1600, "rebalance": 2800}
    {"do": "sync", "by": "p1", "v": 5, "member": "@p1", "instance": "i1", "generation": "@p1", "type": "@p1", "protocol": "@p1",
     "assign": "all"}                              each member in the leader's reply, or [["@p2", "text"], ...]
    {"do": "beat", ...} {"do": "leave", "by": "p1", "v": 5, "members": [["@p1", null], ["", "i2"]]}
    {"do": "commit", ..., "offsets": [["t0", 0, 5, -1, "m"]]}   topic, partition, offset, leader epoch, metadata
    {"do": "fetch", "by": "p1", "v": 9, "groups": [["g", null], ["h", [["t0", [0]]]]], "stable": true}
    {"do": "forget", "offsets": [["t0", 0]]} {"do": "describe", "groups": [...]} {"do": "list", "states": [], "types": []}
    {"do": "delete", "groups": [...]} {"do": "find", "keys": [...], "kind": 0}
    {"do": "tick", "n": 1}                         wait for the next tick
    {"do": "drop", "by": "p1"}                     close its connections
    {"do": "kill"}                                 kill the server with SIGKILL and start it again: only in killing.py
"""

from __future__ import annotations

from struct import pack
from typing import Any

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

Step = dict[str, Any]

KEYS = {
    "commit": 8, "fetch": 9, "find": 10, "join": 11, "beat": 12, "leave": 13,
    "sync": 14, "describe": 15, "list": 16, "delete": 42, "forget": 47,
}  # fmt: skip
NOBODY = "nobody"


class ActorState:
    """An actor's knowledge about a group, from its replies."""

    __slots__ = ("generation", "ids", "leads", "members", "newest", "parked", "pending", "protocol", "type")

    def __init__(self) -> None:
        self.ids: dict[int, str] = {}  # by the number of the requesting step, since replies may arrive in any order
        self.newest = -1  # the step whose reply had the values below
        self.generation = -1
        self.type: str | None = None
        self.protocol: str | None = None
        self.members: list[str] = []
        self.leads = False
        self.pending = False  # whether its last id came with error 79
        self.parked: set[str] = set()  # "join", "sync": its unanswered requests

    def id(self, generations_back: int = 0) -> str:
        return self.ids[sorted(self.ids)[-1 - generations_back]] if len(self.ids) > generations_back else NOBODY


class Names:
    """The names in steps, resolved for one server in one play."""

    __slots__ = ("known", "prefix", "scale")

    def __init__(self, prefix: str, scale: float) -> None:
        self.prefix = prefix
        self.scale = scale
        self.known: dict[tuple[str, str], ActorState] = {}

    def of(self, actor: str, group: str) -> ActorState:
        return self.known.setdefault((actor, group), ActorState())

    def group(self, name: str) -> str:
        return self.prefix + name if name else ""

    def member(self, name: str, group: str) -> str:
        if not name.startswith("@"):
            return name
        actor, _, generations_back = name[1:].partition("-")
        return self.of(actor, group).id(int(generations_back or 0))

    def generation(self, name: str | int, group: str) -> int:
        if isinstance(name, int):
            return name
        for sign in "+-":
            actor, sign_at, more = name[1:].partition(sign)
            if sign_at:
                return self.of(actor, group).generation + int(sign + more)
        return self.of(name[1:], group).generation

    def type(self, name: str | None, group: str) -> str | None:
        return self.of(name[1:], group).type if name and name.startswith("@") else name

    def protocol(self, name: str | None, group: str) -> str | None:
        return self.of(name[1:], group).protocol if name and name.startswith("@") else name

    def scaled_ms(self, timeout: int) -> int:
        """A timeout in this play; out-of-bounds values stay out of bounds."""
        return timeout if timeout < 100 or timeout > 1_000_000 else round(timeout * self.scale)


def text_of(short: str | None) -> str | None:
    """The text of a short form: `x*5` is xxxxx."""
    if short and "*" in short:
        unit, _, count = short.rpartition("*")
        return unit * int(count)
    return short


def metadata_of(text: str) -> bytes:
    """The bytes of a short form: `sub t0 t1` is a subscription to these topics, `raw 00ff` hex, any other text itself."""
    kind, _, content = text.partition(" ")
    if kind == "raw":
        return bytes.fromhex(content)
    if kind != "sub":
        return text.encode()
    topics = content.split()
    return pack(">hi", 0, len(topics)) + b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics) + pack(">i", -1)


def request_of(step: Step, names: Names) -> Any:
    return BUILD[step["do"]](step, names, step.get("group", "g"))


def join(step: Step, names: Names, group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=names.group(group),
        session_timeout_ms=names.scaled_ms(step["session"]),
        rebalance_timeout_ms=names.scaled_ms(step["rebalance"]),
        member_id=names.member(step["member"], group),
        group_instance_id=step.get("instance"),
        protocol_type=step["type"],
        protocols=[JoinGroupRequestProtocol(name, metadata_of(text)) for name, text in step["protocols"]],
        reason="a sequence" if step["v"] >= 8 else None,
    )


def sync(step: Step, names: Names, group: str) -> SyncGroupRequest:
    assign = step.get("assign") or []
    if assign == "all":
        pairs = [(member, member[:-37] + "'s part") for member in names.of(step["by"], group).members]
    else:
        pairs = [(names.member(member, group), text) for member, text in assign]
    fields = {"protocol_type": names.type(step.get("type"), group), "protocol_name": names.protocol(step.get("protocol"), group)}
    return SyncGroupRequest(
        group_id=names.group(group),
        generation_id=names.generation(step["generation"], group),
        member_id=names.member(step["member"], group),
        group_instance_id=step.get("instance"),
        assignments=[SyncGroupRequestAssignment(member, text.encode()) for member, text in pairs],
        **(fields if step["v"] >= 5 else {}),
    )


def beat(step: Step, names: Names, group: str) -> HeartbeatRequest:
    generation = names.generation(step["generation"], group)
    return HeartbeatRequest(names.group(group), generation, names.member(step["member"], group), step.get("instance"))


def leave(step: Step, names: Names, group: str) -> LeaveGroupRequest:
    if step["v"] < 3:
        return LeaveGroupRequest(names.group(group), member_id=names.member(step["members"][0][0], group))
    reason = "a sequence" if step["v"] >= 5 else None
    identities = [MemberIdentity(names.member(member, group), instance, reason) for member, instance in step["members"]]
    return LeaveGroupRequest(names.group(group), identities)


def commit(step: Step, names: Names, group: str) -> OffsetCommitRequest:
    topics: list[OffsetCommitRequestTopic] = []
    for topic, partition, offset, epoch, metadata in step["offsets"]:
        if not topics or topics[-1].name != topic:
            topics.append(OffsetCommitRequestTopic(topic, []))
        topics[-1].partitions.append(OffsetCommitRequestPartition(partition, offset, epoch if step["v"] >= 6 else -1, text_of(metadata)))
    return OffsetCommitRequest(
        group_id=names.group(group),
        generation_id_or_member_epoch=names.generation(step["generation"], group),
        member_id=names.member(step["member"], group),
        group_instance_id=step.get("instance"),
        retention_time_ms=step.get("retention", -1) if step["v"] <= 4 else -1,
        topics=topics,
    )


def fetch(step: Step, names: Names, group: str) -> OffsetFetchRequest:
    stable = bool(step.get("stable")) and step["v"] >= 7
    if step["v"] < 8:
        name, topics = step["groups"][0]
        listed = None if topics is None else [OffsetFetchRequestTopic(topic, partitions) for topic, partitions in topics]
        return OffsetFetchRequest(group_id=names.group(name), topics=listed, require_stable=stable)
    groups = [
        OffsetFetchRequestGroup(
            group_id=names.group(name),
            topics=None if topics is None else [OffsetFetchRequestTopics(topic, partitions) for topic, partitions in topics],
        )
        for name, topics in step["groups"]
    ]
    return OffsetFetchRequest(groups=groups, require_stable=stable)


def forget(step: Step, names: Names, group: str) -> OffsetDeleteRequest:
    topics: list[OffsetDeleteRequestTopic] = []
    for topic, partition in step["offsets"]:
        if not topics or topics[-1].name != topic:
            topics.append(OffsetDeleteRequestTopic(topic, []))
        topics[-1].partitions.append(OffsetDeleteRequestPartition(partition))
    return OffsetDeleteRequest(names.group(group), topics)


def describe(step: Step, names: Names, group: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest([names.group(name) for name in step["groups"]], bool(step.get("operations")) and step["v"] >= 3)


def list_groups(step: Step, names: Names, group: str) -> ListGroupsRequest:
    states = step.get("states", []) if step["v"] >= 4 else []
    return ListGroupsRequest(states, step.get("types", []) if step["v"] >= 5 else [])


def delete(step: Step, names: Names, group: str) -> DeleteGroupsRequest:
    return DeleteGroupsRequest([names.group(name) for name in step["groups"]])


def find(step: Step, names: Names, group: str) -> FindCoordinatorRequest:
    keys = [names.group(name) for name in step["keys"]]
    kind = step.get("kind", 0) if step["v"] >= 1 else 0
    if step["v"] >= 4:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
    return FindCoordinatorRequest(key=keys[0], key_type=kind)


BUILD = {
    "join": join, "sync": sync, "beat": beat, "leave": leave, "commit": commit, "fetch": fetch, "forget": forget,
    "describe": describe, "list": list_groups, "delete": delete, "find": find,
}  # fmt: skip

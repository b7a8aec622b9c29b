"""Requests about groups, for `questions.py`: each API in every version, through the life of a group of one member, and at its edges.

Member ids are random, so a question names a member by a label; the id in the reply to its JoinGroup is kept under that label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import pack
from typing import Any

from protocol.apis import APIS
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.clients.questions import Ids, Question, ask, head, ranges, raw, topic_id

COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, OFFSET_DELETE = 8, 9, 11, 12, 13, 14, 15, 16, 42, 47
GROUP_APIS = (COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, OFFSET_DELETE)

# A subscription of the consumer protocol to one topic.
TOPIC_SUBSCRIPTION = pack(">hih", 0, 1, 6) + b"made-7" + pack(">i", -1)
TOPIC = "made-7"  # with two partitions
NO_GENERATION = -1


def member(ids: Ids, label: str) -> str:
    """The member id learned under the label; a text in brackets is itself the id."""
    return label[1:-1] if label.startswith("[") else ids[f"member {label}"].decode()


def question(name: str, key: int, version: int, request: Callable[[Ids], Any]) -> Question:
    return Question(f"{name} v{version}", key, version, lambda ids: head(key, version) + request(ids).encode(version))


def join(
    group: str,
    version: int,
    member_name: str = "[]",
    instance: str | None = None,
    title: str = "",
    kind: str = "consumer",
    offers: Any = (("range", TOPIC_SUBSCRIPTION),),
    session: int = 10_000,
) -> Question:
    def request(ids: Ids) -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol(name, metadata) for name, metadata in offers]
        rebalance = 20_000 if version >= 1 else -1
        return JoinGroupRequest(group, session, rebalance, member(ids, member_name), instance, kind, protocols, None)

    return question(f"join {group}, {title or 'as ' + member_name}{f' ({instance})' if instance is not None else ''}", JOIN, version, request)


def sync(
    group: str,
    version: int,
    member_name: str,
    generation: int,
    instance: str | None = None,
    kind: str | None = "consumer",
    protocol: str | None = "range",
    assigned: bytes | None = b"yours",
    title: str = "",
) -> Question:
    def request(ids: Ids) -> SyncGroupRequest:
        id = member(ids, member_name)
        assignments = [] if assigned is None else [SyncGroupRequestAssignment(id, assigned), SyncGroupRequestAssignment("nobody", b"lost")]
        names = (kind, protocol) if version >= 5 else (None, None)
        return SyncGroupRequest(group, generation, id, instance, *names, assignments)

    return question(f"sync {group}, {title or f'{member_name} in {generation}'}", SYNC, version, request)


def heartbeat(group: str, version: int, member_name: str, generation: int, instance: str | None = None) -> Question:
    title = f"heartbeat {group}, {member_name} in {generation}{f' ({instance})' if instance is not None else ''}"
    return question(title, HEARTBEAT, version, lambda ids: HeartbeatRequest(group, generation, member(ids, member_name), instance))


def leave(group: str, version: int, *members: tuple[str, str | None]) -> Question:
    def request(ids: Ids) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group, None, member(ids, members[0][0]))
        return LeaveGroupRequest(group, [MemberIdentity(member(ids, id), instance) for id, instance in members])

    return question(f"leave {group}, {', '.join(f'{id} ({instance})' for id, instance in members)}", LEAVE, version, request)


def commit(
    group: str,
    version: int,
    member_name: str,
    generation: int,
    *topics: tuple[str, Any],
    instance: str | None = None,
    retention: int = -1,
    title: str = "",
) -> Question:
    def request(ids: Ids) -> OffsetCommitRequest:
        commit_topics = [
            OffsetCommitRequestTopic(
                name, [OffsetCommitRequestPartition(index, offset, 3 if version >= 6 else -1, text) for index, offset, text in partitions], topic_id(ids, name)
            )
            for name, partitions in topics
        ]
        return OffsetCommitRequest(group, generation, member(ids, member_name), instance, retention, commit_topics)

    return question(f"commit {group}, {title or f'{member_name} in {generation}'}", COMMIT, version, request)


def fetch(version: int, *groups: tuple[str, Any], stable: bool = False, title: str = "") -> Question:
    name = f"fetch {title or ', '.join(group for group, _ in groups)}"
    if version >= 8:

        def request(ids: Ids) -> OffsetFetchRequest:
            several = [OffsetFetchRequestGroup(group, None, -1, None if topics is None else wanted(ids, topics)) for group, topics in groups]
            return OffsetFetchRequest(several, require_stable=stable)

        return question(name, FETCH, version, request)
    ((group, topics),) = groups
    requested_topics = None if topics is None else [OffsetFetchRequestTopic(topic, list(partitions)) for topic, partitions in topics]
    return ask(name, OffsetFetchRequest(None, group, requested_topics, stable and version >= 7), version)


def wanted(ids: Ids, topics: Any) -> list[OffsetFetchRequestTopics]:
    return [OffsetFetchRequestTopics(topic, list(partitions), topic_id(ids, topic)) for topic, partitions in topics]


def offset_delete(group: str, title: str, *topics: tuple[str, Any]) -> Question:
    delete_topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in partitions]) for name, partitions in topics]
    return ask(f"offset delete {group}, {title}", OffsetDeleteRequest(group, delete_topics), 0)


def describe(version: int, *groups: str, operations: bool = False) -> Question:
    named = ", ".join(group[:20] for group in groups)
    return ask(f"describe {named}{', operations' if operations else ''}", DescribeGroupsRequest(list(groups), operations), version)


def list_groups(version: int, states: Any = (), types: Any = ()) -> Question:
    return ask(f"list {states} {types}", ListGroupsRequest(list(states), list(types)), version)


def delete(version: int, *groups: str) -> Question:
    return ask(f"delete {', '.join(groups)}", DeleteGroupsRequest(list(groups)), version)


def groups() -> Iterator[Question]:
    yield from lives()
    yield from static_lives()
    yield from edges_of_membership()
    yield from commits()
    yield from fetches()
    yield from offset_deletes()
    yield from administration()
    yield from malformed()


def lives() -> Iterator[Question]:
    """The life of one dynamic member, once for each version of JoinGroup; of other APIs the same version, or their newest."""
    for version in ranges(JOIN):
        group = f"life-{version}"
        syncs, beats, leaves = min(version, 5), min(version, 4), min(version, 5)
        commits, shows = max(2, version), min(version, 6)
        yield describe(shows, group, operations=shows >= 3)
        yield join(group, version)
        if version >= 4:
            # Kafka shows a group only once its first record is committed; the reply to a heartbeat waits for that.
            yield heartbeat(group, beats, "[stranger]", 1)
            yield describe(shows, group)
            yield join(group, version, group)
        yield describe(shows, group)  # CompletingRebalance
        yield heartbeat(group, beats, group, 1)
        yield commit(group, commits, group, 1, (TOPIC, [(0, 1, "")]))
        yield sync(group, syncs, group, 1, kind="connect", title="of another type")
        yield sync(group, syncs, group, 1, protocol="sticky", title="of another protocol")
        yield sync(group, syncs, group, 2)
        yield sync(group, syncs, group, 0)
        yield sync(group, syncs, "[stranger]", 1)
        yield sync(group, syncs, group, 1)
        yield sync(group, syncs, group, 1, assigned=b"other", title="again, with others")
        yield sync(group, syncs, group, 1, protocol="sticky", title="stable, of another protocol")
        yield describe(shows, group, operations=shows >= 3)
        for generation in (1, 0, 2, -1):
            yield heartbeat(group, beats, group, generation)
            yield commit(group, commits, group, generation, (TOPIC, [(0, 5, "five"), (1, 6, None)]))
        yield heartbeat(group, beats, "[stranger]", 1)
        yield heartbeat(group, beats, "[]", 1)
        yield commit(group, commits, "[stranger]", 1, (TOPIC, [(0, 1, "")]))
        yield commit(group, commits, "[]", NO_GENERATION, (TOPIC, [(0, 1, "")]))
        yield join(group, version, "[stranger]")
        yield join(group, version, group, kind="connect", title="of another type")
        yield join(group, version, group, title="leader again")
        yield heartbeat(group, beats, group, 1)
        yield heartbeat(group, beats, group, 2)
        yield sync(group, syncs, group, 2, assigned=None, title="the leader, with nothing")
        yield describe(shows, group)
        yield delete(min(version, 2), group)
        yield leave(group, leaves, ("[stranger]", None))
        yield leave(group, leaves, (group, None))
        yield leave(group, leaves, (group, None))
        yield heartbeat(group, beats, group, 2)
        yield sync(group, syncs, group, 2)
        yield join(group, version, group, title="after it left")
        yield describe(shows, group)
        yield fetch(max(1, version), (group, [(TOPIC, (0, 1, 2)), ("nowhere", (0,))]))


def static_lives() -> Iterator[Question]:
    for version in range(5, 10):
        group = f"static-{version}"
        beats, leaves, commits = 3 if version == 5 else 4, min(version - 2, 5), version if version >= 7 else 7
        yield join(group, version, "[]", "i", title="first")
        yield sync(group, 3 if version == 5 else 5, group, 1, "i")
        yield heartbeat(group, beats, group, 1, "i")
        yield heartbeat(group, beats, group, 1, "other")
        yield heartbeat(group, beats, group, 1, "")
        yield heartbeat(group, beats, group, 1)
        yield heartbeat(group, beats, "[]", 1, "i")
        yield heartbeat(group, beats, "[stranger]", 1, "i")
        yield commit(group, commits, group, 1, (TOPIC, [(0, 1, "")]), instance="i", title="with its instance")
        yield commit(group, commits, group, 1, (TOPIC, [(0, 1, "")]), instance="other", title="with another instance")
        yield commit(group, commits, "[stranger]", 1, (TOPIC, [(0, 1, "")]), instance="i", title="by a stranger with its instance")
        yield commit(group, commits, "[]", -1, (TOPIC, [(0, 1, "")]), instance="i", title="by its instance alone")
        yield describe(min(version - 1, 6), group)
        yield join(group, version, "[stranger]", "i")
        yield join(group, version, group, "other")
        yield join(group, version, group, "i", title="leader again")
        yield sync(group, 5, group, 2, "i")
        yield join(group, version, "[]", "i", title="restarted")
        yield sync(group, 5, group, 2, "i", assigned=None, title="restarted")
        yield heartbeat(group, beats, group, 2, "i")
        yield describe(6, group)
        yield leave(group, max(leaves, 3), ("[stranger]", "i"), ("[]", "other"), ("[]", None), ("[stranger]", None))
        yield leave(group, max(leaves, 3), ("[]", "i"), ("[]", "i"), (group, "i"))
        yield describe(5, group)


def edges_of_membership() -> Iterator[Question]:
    for version in ranges(JOIN):
        group = f"edge-{version}"
        yield join("", version, title="no group id")
        yield join("", version, "[me]", title="no group id, as me")
        for session in (0, -1, 5_999, 1_800_001, 2_147_483_647):
            yield join(group, version, "[me]", session=session, title=f"a session of {session} ms")
        yield join("", version, session=0, title="no group id and no session")
        yield join(group, version, offers=(), title="no protocols")
        yield join(group, version, kind="", title="no type")
        yield join(group, version, "[me]", title="a group that is not there")
        yield describe(min(version, 6), group)
    for version in ranges(SYNC):
        yield sync("", version, "[me]", 1)
        yield sync("nowhere", version, "[me]", 1)
        if version >= 5:
            yield sync("", version, "[me]", 1, kind=None, title="no type, no group id")
            yield sync("nowhere", version, "[me]", 1, protocol=None, title="no protocol")
    for version in ranges(HEARTBEAT):
        yield heartbeat("", version, "[me]", 1)
        yield heartbeat("nowhere", version, "[me]", 1)
    for version in ranges(LEAVE):
        yield leave("", version, ("[me]", None))
        yield leave("nowhere", version, ("[me]", None), ("[]", "i"))
        if version >= 3:
            yield ask("leave nowhere, nobody", LeaveGroupRequest("nowhere", []), version)
            yield ask("leave life-9, nobody", LeaveGroupRequest("life-9", []), version)


def commits() -> Iterator[Question]:
    for version in ranges(COMMIT):
        group, simple = f"life-{version}", f"simple-{version}"
        yield commit(simple, version, "[]", 0, (TOPIC, [(0, 1, "")]), title="no group, with a generation")
        yield commit(simple, version, "[]", 0, title="no topics")
        yield commit(simple, version, "[]", 0, ("nowhere", [(0, 1, "")]), (TOPIC, [(99, 1, ""), (-1, 1, "")]), title="nothing that is there")
        yield commit(simple, version, "[]", 0, (TOPIC, []), ("nowhere", []), title="no partitions")
        yield commit(simple, version, "[]", -1, (TOPIC, []), title="no partitions of a topic that is there")
        yield commit(
            simple,
            version,
            "[]",
            -1,
            (TOPIC, [(0, 7, "seven"), (9, 1, ""), (1, -8, "\U0001f600")]),
            ("nowhere", [(0, 1, "")]),
            ("made-6", [(1, 3, None)]),
            title="some that are there",
        )
        yield commit(simple, version, "[x]", -5, (TOPIC, [(0, 9, "")]), title="to a simple group, by somebody")
        yield commit(simple, version, "[]", 3, (TOPIC, [(0, 9, "")]), title="to a simple group, with a generation")
        yield commit(simple, version, "[]", -1, (TOPIC, [(0, 1, "a"), (0, 2, "b")]), (TOPIC, [(0, 3, "c")]), title="one partition three times")
        yield commit(simple, version, "[]", -1, (TOPIC, [(9, 1, ""), (0, 2, "")]), (TOPIC, [(1, 3, "")]), title="a topic twice, half missing")
        for size in (4096, 4097):
            yield commit(simple, version, "[]", -1, (TOPIC, [(0, 4, "m" * size), (1, 5, "")]), title=f"{size} characters of metadata")
            text = "\U0001f600" * (size // 2) + "m" * (size % 2)
            yield commit(simple, version, "[]", -1, (TOPIC, [(0, 4, text), (1, 5, "")]), title=f"metadata of {size} units")
        yield commit(simple, version, "[]", -1, (TOPIC, [(0, 4, "m" * 4097), (0, 5, "")]), title="too long, and again shorter")
        yield commit("", version, "[]", -1, (TOPIC, [(0, 4, "")]), title="no group id")
        yield commit("", version, "[]", 0, (TOPIC, [(0, 4, "")]), title="no group id, with a generation")
        yield commit(simple, version, "[]", -1, ("__consumer_offsets", [(0, 1, "")]), title="an internal topic")
        if version <= 4:
            yield commit(simple, version, "[]", -1, (TOPIC, [(1, 77, "kept")]), retention=100_000, title="with a retention")
        if version >= 7:
            yield commit(simple, version, "[]", -1, (TOPIC, [(0, 9, "")]), instance="i", title="to a simple group, with an instance")
        yield describe(6, simple)
        yield fetch(8, (simple, None), title=f"all of {simple}")
        yield commit(group, version, "[]", -1, (TOPIC, [(0, 11, "")]), title="by a tool, to a group that was left")


def fetches() -> Iterator[Question]:
    topics = [(TOPIC, (0, 1, 5)), ("made-6", (1,)), ("nowhere", (0, -1)), ("never-seen", ())]
    for version in ranges(FETCH):
        for group in ("simple-9", "simple-4", "nowhere", "", "life-9"):
            yield fetch(version, (group, topics), title=f"some of {group}")
            yield fetch(version, (group, []), title=f"none of {group}")
            if version >= 2:
                yield fetch(version, (group, None), title=f"all of {group}")
            if version >= 7:
                yield fetch(version, (group, topics), stable=True, title=f"some of {group}, stable")
        yield fetch(version, ("simple-9", [(TOPIC, (0, 0)), (TOPIC, (0,))]), title="one three times")
    for version in (8, 9, 10):
        several = (("simple-9", topics), ("nowhere", None), ("simple-8", None), ("", topics), ("simple-9", None))
        yield fetch(version, *several, title="all of some groups and some of others")
        yield ask("fetch of no groups", OffsetFetchRequest([]), version)
    for epoch in (-1, 0, 5):
        request = OffsetFetchRequest([OffsetFetchRequestGroup("simple-9", "somebody", epoch, [OffsetFetchRequestTopics(TOPIC, [0])])])
        yield ask(f"fetch as a member in epoch {epoch}", request, 9)


def offset_deletes() -> Iterator[Question]:
    every = [(TOPIC, (0, 1, 9)), ("nowhere", (0,)), ("made-6", (0, 1)), ("made-5", ())]
    yield offset_delete("nowhere", "no such group", *every)
    yield offset_delete("", "no group id", *every)
    yield offset_delete("nowhere", "no topics")
    yield offset_delete("simple-2", "no topics")
    yield offset_delete("simple-2", "some", *every)
    yield offset_delete("simple-2", "the same again", *every)
    yield offset_delete("simple-3", "none that is there", ("nowhere", (0,)))
    yield offset_delete("simple-3", "a topic twice", (TOPIC, (0,)), (TOPIC, (1,)), ("made-6", (9,)), ("made-6", (1,)))
    yield fetch(8, ("simple-2", None), ("simple-3", None), title="all that is left")
    for group, kind in (("deleting", "consumer"), ("connecting", "connect")):
        yield join(group, 3, kind=kind, offers=(("range", TOPIC_SUBSCRIPTION),))
        yield offset_delete(group, "completing", (TOPIC, (0,)), ("made-6", (0,)))
        yield sync(group, 3, group, 1)
        yield commit(group, 3, group, 1, (TOPIC, [(0, 1, "")]), ("made-6", [(0, 1, "")]))
        yield offset_delete(group, "stable", (TOPIC, (0, 9)), ("made-6", (0, 1)), ("nowhere", (0,)))
        yield leave(group, 2, (group, None))
        yield offset_delete(group, "empty", (TOPIC, (0,)))


def administration() -> Iterator[Question]:
    for version in ranges(DESCRIBE):
        for operations in (False, True) if version >= 3 else (False,):
            yield describe(version, "life-9", "nowhere", "simple-4", "life-9", "", operations=operations)
            yield describe(version, operations=operations)
    for version in ranges(LIST):
        yield list_groups(version)
        if version >= 4:
            for states in (["Stable"], [" empty "], ["EMPTY", "dead"], ["bogus"], [""], ["PreparingRebalance"]):
                yield list_groups(version, states)
        if version >= 5:
            for types in (["classic"], ["Classic"], ["CONSUMER"], ["bogus"], ["consumer", "classic"], [""], [" classic "]):
                yield list_groups(version, (), types)
                yield list_groups(version, ["empty"], types)
    yield join("busy", 3)
    for version in ranges(DELETE):
        yield delete(version)
        yield delete(version, "nowhere", f"life-{version}", "", "busy", "nowhere", f"life-{version}", f"simple-{version + 4}")
        yield delete(version, "")
        yield describe(5, f"life-{version}", f"simple-{version + 4}")
        yield fetch(8, (f"simple-{version + 4}", None), title="all of a deleted group")
    yield leave("busy", 2, ("busy", None))
    yield list_groups(5)


def malformed() -> Iterator[Question]:
    """Nulls where none may be, and bodies cut short."""
    requests: list[tuple[Any, int]] = [
        (HeartbeatRequest("g", 1, "m"), 4),
        (HeartbeatRequest("g", 1, "m"), 3),
        (JoinGroupRequest("g", 1, 1, "m", None, "c", [JoinGroupRequestProtocol("p", b"x")]), 9),
        (OffsetCommitRequest("g", 1, "m", None, -1, [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 1, 1, "x")])]), 8),
        (DescribeGroupsRequest(["g"]), 5),
        (DeleteGroupsRequest(["g"]), 2),
    ]
    for request, version in requests:
        name, body = APIS[request.API_KEY].name, request.encode(version)
        front = head(request.API_KEY, version)
        null = b"\0" if version >= APIS[request.API_KEY].flexible_from else b"\xff\xff"
        start = 1 if null == b"\0" else 2
        yield raw(f"{name} with null in front v{version}", request.API_KEY, version, front + null + body[start:])
        for cut in (1, 2, 5):
            yield raw(f"{name} without its last {cut} v{version}", request.API_KEY, version, front + body[:-cut])
    for key in GROUP_APIS:
        oldest, newest = APIS[key].served
        for version in (oldest - 1, 99):
            yield raw(f"{APIS[key].name} in version {version}", key, version, head(key, version) + bytes(8))
        assert newest < 99

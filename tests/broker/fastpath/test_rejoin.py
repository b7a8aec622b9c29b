"""A repeated JoinGroup, and a SyncGroup that differs only in its generation, are not decoded, and have the same replies and effects."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.fastpath import rejoin as rejoining
from broker.fastpath.learning import LEARN_ATTEMPTS_MAX, LEARN_PAUSE_MS
from broker.fastpath.rejoin import JoinFastPath, SyncFastPath, generation_position
from broker.groups.member_replies import join_end, join_front, join_response, sync_end, sync_front, sync_response
from broker.net.connection import REST_AT, FastPath
from broker.runtime.contain import DEFECTS
from broker.runtime.turn import NEVER
from coordinator import JoinReply, SyncReply
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.sync_group import SyncGroupRequest
from tests.broker.fastpath.conftest import decoded_requests
from tests.support.group_harness import Defective, GroupClient, GroupHarness
from tests.support.group_requests import committing, joining, syncing
from tests.support.headers import encode_request, response_header_version

JOIN_VERSIONS = range(10)
SYNC_VERSIONS = range(6)
NAMED_FROM = 5  # the first version of SyncGroup that has the protocol type and name


class Member:
    """A consumer that joins and syncs in one version of each, with the same fields each time."""

    def __init__(self, harness: GroupHarness, join_version: int = 9, sync_version: int = 5, instance: str | None = None, **peer_options: Any) -> None:
        self.harness = harness
        self.peer = GroupClient(harness, **peer_options)
        self.join_version = join_version
        self.sync_version = sync_version
        self.instance = instance
        self.id = ""
        self.metadata = b"topics"
        self.assignment = b"first"  # what it assigns to itself when it leads
        self.generation = -1
        self.leads = False

    def request(self) -> JoinGroupRequest:
        rebalance = 20_000 if self.join_version >= 1 else -1
        return joining(id=self.id, instance=self.instance, protocols=(("range", self.metadata),), rebalance=rebalance)

    def join(self) -> None:
        self.peer.send(self.request(), self.join_version)

    def joined(self) -> Any:
        """The reply to its JoinGroup, None while it is parked."""
        reply = self.peer.reply()
        if reply is not None and reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = reply.member_id
            self.join()
            return self.peer.reply()
        if reply is not None and not reply.error_code:
            self.id = reply.member_id
            self.generation = reply.generation_id
            self.leads = reply.leader == self.id
        return reply

    def sync(self, assignments: dict[str, bytes] | None = None, generation: int | None = None) -> None:
        request = syncing(self.id, self.generation if generation is None else generation, assignments, self.instance)
        if self.sync_version < NAMED_FROM:
            request.protocol_type = request.protocol_name = None
        self.peer.send(request, self.sync_version)


class LeaderAndFollower:
    """A leader and a follower that rebalance again and again."""

    def __init__(self, harness: GroupHarness, **member_options: Any) -> None:
        self.harness = harness
        self.a = Member(harness, **member_options)
        self.b = Member(harness, **member_options)
        for member in (self.a, self.b):  # a new member begins a rebalance, so the first member rejoins below
            member.join()
            member.joined()
            harness.pass_ms(0)
            member.joined()
        self.a.join()
        self._settle()
        self.rebalance()  # now both members have repeated their requests, which are learned

    def rebalance(self) -> tuple[Any, Any]:
        """The replies of both members in the new generation."""
        self.a.join()
        self.b.join()
        return self._settle()

    def _settle(self) -> tuple[Any, Any]:
        a, b = self.a, self.b
        self.harness.pass_ms(0)
        replies = a.joined(), b.joined()
        assert [reply.error_code for reply in replies] == [0, 0]
        b.sync()
        a.sync({a.id: a.assignment, b.id: b"second"})
        assert [member.peer.reply().assignment for member in (a, b)] == [a.assignment, b"second"]
        return replies


@pytest.fixture
def pair(harness: GroupHarness) -> LeaderAndFollower:
    return LeaderAndFollower(harness)


@pytest.fixture
def decoded(harness: GroupHarness, pair: LeaderAndFollower, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The API keys of the requests that are decoded once the pair's requests are learned."""
    return decoded_requests(harness, monkeypatch, JoinGroupRequest.API_KEY, SyncGroupRequest.API_KEY)


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_repeated_joins_and_syncs_are_not_decoded_in_any_version(harness: GroupHarness, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = LeaderAndFollower(harness, join_version=version, sync_version=min(version, SYNC_VERSIONS[-1]))
    decoded = decoded_requests(harness, monkeypatch, JoinGroupRequest.API_KEY, SyncGroupRequest.API_KEY)
    generation = pair.a.generation
    for number in range(1, 4):
        first, second = pair.rebalance()
        assert first.generation_id == second.generation_id == generation + number
        assert first.leader == second.leader == pair.a.id
        assert [member.member_id for member in first.members] == [pair.a.id, pair.b.id]
        assert [member.metadata for member in first.members] == [b"topics"] * 2
        assert (second.member_id, second.members) == (pair.b.id, [])
    assert decoded == []


def test_requests_of_static_members_are_learned_too(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(harness, instance="seat")
    decoded = decoded_requests(harness, monkeypatch, JoinGroupRequest.API_KEY, SyncGroupRequest.API_KEY)
    for number in range(1, 6):
        member.join()
        harness.pass_ms(0)
        reply = member.joined()
        assert (reply.generation_id, [member.group_instance_id for member in reply.members]) == (number, ["seat"])
        member.sync({member.id: b"x"})
        assert member.peer.reply().assignment == b"x"
    assert len(decoded) == 4  # the first JoinGroup had no member id, so the request with one had to be learned anew


def test_a_join_with_changed_metadata_is_decoded_and_changes_the_leaders_list(pair: LeaderAndFollower, decoded: list[int]) -> None:
    pair.b.metadata = b"others"
    first, _ = pair.rebalance()
    assert [member.metadata for member in first.members] == [b"topics", b"others"]
    assert decoded == [JoinGroupRequest.API_KEY]
    first, _ = pair.rebalance()
    assert [member.metadata for member in first.members] == [b"topics", b"others"]
    assert decoded == [JoinGroupRequest.API_KEY]


@pytest.mark.parametrize("kind", [JoinFastPath, SyncFastPath])
def test_a_member_with_changing_requests_is_not_learned_for_a_minute(pair: LeaderAndFollower, kind: type[FastPath]) -> None:
    """Assignors that put owned partitions or the generation into the request change it in each rebalance."""
    a = pair.a
    built: list[FastPath] = []
    for number in range(2 * LEARN_ATTEMPTS_MAX):
        a.metadata, a.assignment = b"%06d" % number, b"%05d" % number  # new content in the sizes that were learned
        pair.rebalance()
        built += [fast_path for fast_path in a.peer.connection.fast_paths.values() if type(fast_path) is kind and fast_path not in built]
    assert LEARN_ATTEMPTS_MAX / 2 < len(built) <= LEARN_ATTEMPTS_MAX
    for _ in range(LEARN_PAUSE_MS // 5_000):
        pair.harness.pass_ms(5_000)
        pair.rebalance()
    (learned,) = [fast_path for fast_path in a.peer.connection.fast_paths.values() if type(fast_path) is kind]
    assert learned not in built


def test_equal_bytes_of_another_version_are_decoded(pair: LeaderAndFollower, decoded: list[int]) -> None:
    pair.b.join_version = 8  # only the version differs on the wire
    _, second = pair.rebalance()
    assert (second.error_code, decoded) == (0, [JoinGroupRequest.API_KEY])


def test_an_equal_join_of_another_client_is_decoded(harness: GroupHarness, pair: LeaderAndFollower, decoded: list[int]) -> None:
    pair.b.peer._client_id = "tneilc"  # of the same length
    pair.rebalance()
    assert decoded == [JoinGroupRequest.API_KEY, SyncGroupRequest.API_KEY]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "seat"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": [JoinGroupRequestProtocol("other", b"topics")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_refused_join_is_refused_again(pair: LeaderAndFollower, decoded: list[int], wrong: dict[str, Any], error: int) -> None:
    request = pair.b.request()
    for name, value in wrong.items():
        setattr(request, name, value)
    for _ in range(3):
        assert pair.b.peer.ask(request, 9).error_code == error
    assert decoded == [JoinGroupRequest.API_KEY] * 3


def test_a_full_group_refuses_a_former_member(harness: GroupHarness, pair: LeaderAndFollower, decoded: list[int]) -> None:
    shard = harness.shards.journal_of("g").shard
    shard._size_max = 1
    shard._out.config = shard._out.config._replace(group_max_size=1)
    pair.a.join()
    pair.b.join()
    assert pair.b.joined().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert decoded == []


def test_an_earlier_join_is_learned_again_after_a_different_one(harness: GroupHarness, pair: LeaderAndFollower, decoded: list[int]) -> None:
    a, b = pair.a, pair.b
    changed = b.request()
    changed.protocols[0].metadata = b"others"
    second = GroupClient(harness)
    a.join()
    second.send(changed, 9)
    harness.pass_ms(0)
    assert [member.metadata for member in a.joined().members] == [b"topics", b"others"]
    a.sync({a.id: b"first", b.id: b"second"})
    a.peer.reply()
    first, _ = pair.rebalance()
    assert [member.metadata for member in first.members] == [b"topics", b"topics"]
    assert decoded == [JoinGroupRequest.API_KEY]


def test_another_protocol_is_sent_with_the_next_assignment(harness: GroupHarness) -> None:
    member = Member(harness)
    member.join()
    member.joined()
    harness.pass_ms(0)
    member.joined()
    for name in ("range", "range", "other", "other", "other", "range"):
        less = "other" if name == "range" else "range"
        member.peer.send(joining(id=member.id, protocols=((name, b"topics"), (less, b"topics"))), 9)
        assert member.joined().protocol_name == name
        sync = syncing(member.id, member.generation, {member.id: b"x"})
        sync.protocol_name = name
        assert member.peer.ask(sync, 5).protocol_name == name


def test_changed_timeouts_of_a_join_take_effect(harness: GroupHarness, pair: LeaderAndFollower, decoded: list[int]) -> None:
    member = harness.shards.journal_of("g").shard.groups["g"].members[pair.b.id]
    request = pair.b.request()
    request.session_timeout_ms, request.rebalance_timeout_ms = 30_000, 40_000
    pair.a.join()
    pair.b.peer.send(request, 9)
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (30_000, 40_000)
    assert decoded == [JoinGroupRequest.API_KEY]


def test_other_assignments_are_decoded_and_sent(pair: LeaderAndFollower, decoded: list[int]) -> None:
    a, b = pair.a, pair.b
    for assignment in (b"third", b"fourt", b"fourt", b"fifth"):
        a.join()
        b.join()
        pair.harness.pass_ms(0)
        a.joined(), b.joined()
        a.sync({a.id: assignment, b.id: assignment[::-1]})
        b.sync()
        assert [member.peer.reply().assignment for member in (a, b)] == [assignment, assignment[::-1]]
    assert decoded == [SyncGroupRequest.API_KEY] * 3


def test_a_second_request_of_the_same_member_answers_the_first(harness: GroupHarness, pair: LeaderAndFollower, decoded: list[int]) -> None:
    a, second = pair.a, GroupClient(harness)
    a.join()
    second.send(a.request(), 9)
    reply = a.joined()
    assert (reply.error_code, reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    pair.b.join()
    harness.pass_ms(0)
    assert second.reply().error_code == 0
    a.join()  # the generation is unchanged
    assert [member.member_id for member in a.joined().members] == [a.id, pair.b.id]
    assert decoded == [JoinGroupRequest.API_KEY]


def test_when_the_log_refuses_all_waiting_requests_are_answered(harness: GroupHarness, pair: LeaderAndFollower, decoded: list[int]) -> None:
    a, b = pair.a, pair.b
    log = harness.hold_appends()
    a.join()
    GroupClient(harness).send(committing(group="g", generation=-1, id=""), 9)  # refused: the group has members
    b.join()
    harness.pass_ms(0)
    a.joined(), b.joined()
    a.sync({a.id: b"first", b.id: b"second"})
    b.sync()
    log.refuse()
    harness.loop.run()
    assert [member.peer.reply().error_code for member in (a, b)] == [ErrorCode.NOT_COORDINATOR] * 2
    assert decoded == []


def test_a_parked_member_is_answered_with_its_id(harness: GroupHarness, pair: LeaderAndFollower) -> None:
    pair.a.join()
    harness.shards.journal_of("g").shard.abandon()
    harness.loop.run()
    reply = pair.a.joined()
    assert (reply.error_code, reply.member_id, reply.generation_id) == (ErrorCode.NOT_COORDINATOR, pair.a.id, -1)


@pytest.mark.plain
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("call", ["join", "sync"])
def test_a_defect_after_an_answered_or_parked_request_is_counted_once(
    harness: GroupHarness, pair: LeaderAndFollower, monkeypatch: pytest.MonkeyPatch, call: str, parked: bool
) -> None:
    a, b = pair.a, pair.b
    if call == "sync" and parked:
        a.join()
        b.join()
        harness.pass_ms(0)
        a.joined(), b.joined()
    defects = DEFECTS.count
    journal = harness.shards.journal_of("g")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "shard", Defective(journal.shard, call, True))
        if call == "sync":
            b.sync()
        else:
            (a if parked else b).join()
        member = a if call == "join" and parked else b
        reply = member.peer.reply()
        if parked:
            assert reply.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert not (reply.member_id if call == "join" else reply.assignment)
        else:
            assert reply.error_code == 0
    assert DEFECTS.count == defects + 1
    assert ", a request failed inside the broker: RuntimeError: a defect" in DEFECTS.last
    harness.loop.run()
    assert (member.peer.reply(), member.peer._received, member.peer.connection.fast_paths) == (None, b"", {})
    code = member.peer.ask(HeartbeatRequest("g", member.generation, member.id), 4).error_code
    assert code == (ErrorCode.ILLEGAL_GENERATION if call == "sync" and parked else ErrorCode.NONE)  # a generation without assignments is not replayed


@pytest.mark.parametrize("kind", [JoinFastPath, SyncFastPath])
def test_each_request_is_answered_once(harness: GroupHarness, pair: LeaderAndFollower, kind: type[JoinFastPath | SyncFastPath]) -> None:
    a, b = pair.a, pair.b
    (repeat,) = [fast_path for fast_path in b.peer.connection.fast_paths.values() if type(fast_path) is kind]
    assert isinstance(repeat, JoinFastPath | SyncFastPath)
    b.sync() if kind is SyncFastPath else b.join()
    assert b.peer.reply().error_code == 0
    for answer_again in (repeat.release, lambda: repeat.fail(16)):
        answer_again()
        assert b.peer._received == b""
    a.join()
    b.join()
    harness.pass_ms(0)
    a.joined(), b.joined()
    a.join() if kind is JoinFastPath else b.sync()
    member = a if kind is JoinFastPath else b
    (repeat,) = [fast_path for fast_path in member.peer.connection.fast_paths.values() if type(fast_path) is kind]
    assert isinstance(repeat, JoinFastPath | SyncFastPath)
    if member.peer.reply() is None:
        repeat.fail(16)
        assert member.peer.reply().error_code == 16
    for answer_again in (lambda: repeat.fail(16), repeat.release):
        answer_again()
        assert member.peer._received == b""


def test_a_deadline_set_by_a_fast_join_is_scheduled(harness: GroupHarness, pair: LeaderAndFollower) -> None:
    """The deadline may be the shard's only one: the turn must set its timer for it."""
    a, b = pair.a, pair.b
    shard = harness.shards.journal_of("g").shard
    harness.turn.armed_at = NEVER
    a.join()  # the join phase begins
    assert harness.turn.armed_at <= shard.wake_at < NEVER
    b.join()
    harness.pass_ms(0)
    a.joined(), b.joined()
    harness.turn.armed_at = NEVER
    b.sync()  # parked
    assert harness.turn.armed_at <= shard.wake_at < NEVER


@pytest.mark.plain
def test_a_defect_is_answered_once(harness: GroupHarness, pair: LeaderAndFollower, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair.a, pair.b
    journal = harness.shards.journal_of("g")
    shard = journal.shard
    with monkeypatch.context() as patched:
        patched.setattr(journal, "shard", Defective(shard, "join"))
        a.join()
        assert a.joined().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert a.peer.reply() is None
    assert a.peer.connection.fast_paths == {}
    assert harness.context.fast_path_bytes == sum(repeat.cost for repeat in b.peer.connection.fast_paths.values())
    with monkeypatch.context() as patched:
        patched.setattr(journal, "shard", Defective(shard, "sync"))
        b.sync()
        assert b.peer.reply().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert b.peer.reply() is None


def test_a_fast_reply_to_a_closed_connection_is_dropped(harness: GroupHarness, pair: LeaderAndFollower) -> None:
    pair.b.join()
    assert pair.b.joined() is not None
    pair.a.join()
    pair.a.peer.connection.connection_lost(None)
    pair.b.join()
    harness.pass_ms(0)
    assert pair.b.joined().error_code == 0
    assert pair.a.peer.reply() is None


def kinds(peer: GroupClient) -> list[type]:
    return [type(fast_path) for fast_path in peer.connection.fast_paths.values() if isinstance(fast_path, JoinFastPath | SyncFastPath)]


def test_a_first_join_builds_no_fast_path(harness: GroupHarness) -> None:
    member = Member(harness)
    member.join()
    member.joined()
    harness.pass_ms(0)
    assert member.joined().error_code == 0
    member.sync({member.id: b"x"})
    assert kinds(member.peer) == []


@pytest.mark.plain
def test_only_short_requests_are_learned(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = LeaderAndFollower(harness)
    assert kinds(pair.a.peer) == [JoinFastPath, SyncFastPath]
    for limit, expected in (("join_group.JOIN_BYTES_MAX", []), ("sync_group.SYNC_BYTES_MAX", [JoinFastPath])):
        with monkeypatch.context() as patched:
            patched.setattr(f"broker.api.{limit}", 60)
            assert kinds(LeaderAndFollower(GroupHarness()).a.peer) == expected
    with monkeypatch.context() as patched:
        patched.setattr("broker.api.join_group.ELEMENTS_MAX", 1)
        patched.setattr("broker.api.sync_group.ELEMENTS_MAX", 1)
        pair = LeaderAndFollower(GroupHarness())
        assert (kinds(pair.a.peer), kinds(pair.b.peer)) == ([JoinFastPath], [JoinFastPath, SyncFastPath])


@pytest.mark.plain
def test_long_join_replies_are_encoded_each_time(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejoining, "END_BYTES_MAX", 5)
    pair = LeaderAndFollower(harness)
    pair.rebalance()
    (rejoin, resync) = pair.a.peer.connection.fast_paths.values()
    assert isinstance(rejoin, JoinFastPath)
    assert isinstance(resync, SyncFastPath)
    assert (rejoin._last_members, resync._last_reply) == ([], None)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """The sizes of the results of `name`, which encodes the end of a reply, from now on."""
    sizes: list[int] = []
    write = getattr(rejoining, name)

    def counting(*arguments: Any) -> bytes:
        end: bytes = write(*arguments)
        sizes.append(len(end))
        return end

    monkeypatch.setattr(rejoining, name, counting)
    return sizes


@pytest.mark.plain  # calls of compiled code cannot be counted
def test_equal_replies_are_not_encoded_again(pair: LeaderAndFollower, monkeypatch: pytest.MonkeyPatch) -> None:
    joins, syncs = counted(monkeypatch, "join_end"), counted(monkeypatch, "sync_end")
    pair.rebalance()
    joins.clear()
    syncs.clear()
    for _ in range(3):
        pair.rebalance()
    assert (joins, syncs) == ([], [])
    pair.b.metadata = b"others"
    pair.rebalance()
    assert joins  # the leader gets the members
    joins.clear()
    pair.rebalance()
    assert (joins, syncs) == ([], [])


@pytest.mark.plain
@pytest.mark.parametrize("name", ["join_end", "sync_end"])
@pytest.mark.parametrize("spare", [0, -1])
def test_cached_reply_bytes_are_limited(pair: LeaderAndFollower, monkeypatch: pytest.MonkeyPatch, name: str, spare: int) -> None:
    pair.rebalance()
    (join, _), (_, sync) = [member.peer.connection.fast_paths.values() for member in (pair.a, pair.b)]
    assert isinstance(join, JoinFastPath)
    assert isinstance(sync, SyncFastPath)
    longest = len(join._leader_end) if name == "join_end" else len(sync._size_bytes) + 4 + len(sync._end)
    monkeypatch.setattr(rejoining, "END_BYTES_MAX", longest + spare)
    other_pair = LeaderAndFollower(GroupHarness())
    other_pair.rebalance()
    sizes = counted(monkeypatch, name)
    other_pair.rebalance()
    assert bool(sizes) == (spare < 0)


@pytest.mark.parametrize("version", JOIN_VERSIONS)
@pytest.mark.parametrize(
    "reply",
    [
        JoinReply(0, 7, "consumer", "range", "leader"),
        JoinReply(0, 7, "consumer", "", "leader", [("id", "in", b"x" * 200), ("id2" * 50, None, b"")]),
        JoinReply(0, 7, "consumer", "range", "leader" * 30, [("id", None, b"x")], True),
        JoinReply(ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_reply_built_in_parts_equals_the_codecs_output(reply: JoinReply, version: int) -> None:
    header = b"\0" * response_header_version(JoinGroupRequest.API_KEY, version)
    for id in ("", "a", "m" * 300):
        expected = b"corr" + header + join_response(reply, id, version).encode(version)
        for _ in range(2):
            assert b"corr" + join_front(reply, version) + join_end(id, reply.members, version) == expected


MEMBERS = [("id", None, b"x"), ("id2", "seat", b"yy")]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("version", [0, 5, 9])
def test_consecutive_fast_replies_equal_the_codecs_output(harness: GroupHarness, version: int, seed: int) -> None:
    """A member follows, leads, is refused, and gets another id, in any order."""
    random = Random(seed)
    pair = LeaderAndFollower(harness, join_version=version, sync_version=min(version, SYNC_VERSIONS[-1]))
    peer = pair.a.peer
    rejoin, resync = peer.connection.fast_paths.values()
    assert isinstance(rejoin, JoinFastPath)
    assert isinstance(resync, SyncFastPath)
    generations = [SyncReply(0, "consumer", "range") for _ in range(2)]
    for number in range(60):
        corr = number.to_bytes(4, "big")
        error = random.choice([0, 0, 0, ErrorCode.UNKNOWN_MEMBER_ID])
        replies = random.choice([[], MEMBERS[:1], MEMBERS, MEMBERS[1:]]) if not error else []
        join = JoinReply(error, number, "consumer", "range", "leader", list(replies))
        rejoin.member_id = random.choice([pair.a.id, pair.a.id, "other", ""])
        if not error and not replies:
            rejoin.member_id = pair.a.id  # a member with a new id gets the list of members
        rejoin.reply = join
        resync.reply = random.choice(generations)
        resync.assignment = random.choice([b"first", b"other", b""])
        for repeat, key, body in (
            (rejoin, JoinGroupRequest.API_KEY, join_response(join, rejoin.member_id, version)),
            (resync, SyncGroupRequest.API_KEY, sync_response(resync.reply, resync.assignment)),
        ):
            repeat.connection, repeat.correlation_id = peer.connection, corr
            repeat.release()
            expected = corr + b"\0" * response_header_version(key, repeat.version) + body.encode(repeat.version)
            assert peer._received == len(expected).to_bytes(4, "big") + expected
            peer._received = b""


@pytest.mark.parametrize("version", SYNC_VERSIONS)
@pytest.mark.parametrize("client_id", [None, "", "client"])
@pytest.mark.parametrize("group", ["", "g", "group" * 30])
def test_the_generation_is_found_where_the_codec_writes_it(version: int, client_id: str | None, group: str) -> None:
    request = SyncGroupRequest(group, 0x01020304, "member", None, None, None, [])
    frame = encode_request(SyncGroupRequest.API_KEY, version, 7, client_id, request.encode(version))
    data = frame[REST_AT:]
    at = generation_position(data, group, version)
    assert data[at : at + 4] == b"\1\2\3\4"
    before = 2 + len(client_id or "")
    if version >= SyncGroupRequest.FLEXIBLE_FROM:
        tagged = data[:before] + b"\1\x63\0" + data[before + 1 :]  # an unknown field of the header
        assert generation_position(tagged, group, version) == 0
    assert generation_position(data, group + "x", version) == 0


def test_learned_joins_are_limited_by_bytes_and_elements(pair: LeaderAndFollower) -> None:
    a, b = pair.a, pair.b
    for member, assignments in ((a, {a.id: b"first", b.id: b"second"}), (b, {})):
        requests = member.request().encode(9), syncing(member.id, member.generation, assignments).encode(5)
        header = 2 + 2 + 4 + 2 + len("client") + 1
        costs = [1_200 + 2 * (header + len(body)) + 200 * elements for body, elements in zip(requests, (1, len(assignments)), strict=True)]
        assert [fast_path.cost for fast_path in member.peer.connection.fast_paths.values()] == costs


@pytest.mark.parametrize("version", SYNC_VERSIONS)
@pytest.mark.parametrize("reply", [SyncReply(0, "consumer", "range"), SyncReply(0, "", ""), SyncReply(27)])
def test_a_sync_reply_built_in_parts_equals_the_codecs_output(reply: SyncReply, version: int) -> None:
    header = b"\0" * response_header_version(SyncGroupRequest.API_KEY, version)
    for assignment in (b"", b"a" * 126, b"a" * 127, b"a" * 20_000):
        expected = b"corr" + header + sync_response(reply, assignment).encode(version)
        for _ in range(2):
            assert b"corr" + sync_front(reply, version) + sync_end(assignment, version) == expected

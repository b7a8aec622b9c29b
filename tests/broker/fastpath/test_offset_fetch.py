"""An OffsetFetch that is the same as before gets the bytes of before while nothing has changed, and no client can tell."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from broker.fastpath.offset_fetch import FETCH_BYTES_MAX, OffsetFetchFastPath
from broker.groups.offset_replies import read_topics
from broker.runtime.contain import DEFECTS
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from tests.broker.fastpath.test_commit import commit
from tests.broker.fastpath.test_heartbeat import Changeable
from tests.support.group_desk import Defective, Desk, Peer
from tests.support.group_requests import FETCHES, stable

PARTITIONS = [0, 2, 7]


def fetching(version: int, partitions: list[int] | None = PARTITIONS, group: str = "g") -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(None, group, None if partitions is None else [OffsetFetchRequestTopic("t", partitions)])
    topics = None if partitions is None else [OffsetFetchRequestTopics("t", partitions)]
    return OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=topics)])


def committing(offset: int, text: str = "") -> OffsetCommitRequest:
    """Of no member: the group stays empty."""
    return commit("", offset, (0,), text, generation=-1)


@pytest.fixture
def desk() -> Desk:
    return Desk(Changeable((8, 3, "g")))


@pytest.fixture
def peer(desk: Desk) -> Peer:
    return Peer(desk)


@pytest.fixture
def other(desk: Desk) -> Peer:
    return Peer(desk)


@pytest.fixture
def handled(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The fetches that a handler was called with."""
    called: list[Any] = []
    route = desk.dispatch.routes[OffsetFetchRequest.API_KEY]
    handle = route.handle

    def noting(call: Any, request: Any) -> Any:
        called.append(request)
        return handle(call, request)

    monkeypatch.setattr(route, "handle", noting)
    return called


def known(peer: Peer, version: int = 9, **which: Any) -> Any:
    """Ask until the answer is remembered, and once more."""
    for _ in range(2):
        peer.ask(fetching(version, **which), version)
    assert any(isinstance(repeat, OffsetFetchFastPath) for repeat in peer.connection.fast_paths.values())
    return peer.ask(fetching(version, **which), version)


def fresh(desk: Desk, version: int = 9, **which: Any) -> Any:
    """The answer to somebody who never asked before."""
    return Peer(desk).ask(fetching(version, **which), version)


@pytest.mark.parametrize(
    ("version", "partitions"),
    [(version, some) for version in FETCHES for some in (PARTITIONS, None) if some or version >= 2],  # all can be asked for from then on
)
def test_the_third_of_its_kind_is_not_handled(
    desk: Desk, peer: Peer, other: Peer, handled: list[Any], version: int, partitions: list[int] | None
) -> None:
    id = stable(desk, other)
    other.ask(commit(id, 5), 9)
    told = known(peer, version, partitions=partitions)
    assert len(handled) == 2
    assert told == fresh(desk, version, partitions=partitions)
    other.ask(commit(id, 6, text="other"), 9)
    assert peer.ask(fetching(version, partitions), version) == fresh(desk, version, partitions=partitions) != told
    assert len(handled) == 4  # those of the others


def test_whatever_changes_offsets_is_seen(desk: Desk, peer: Peer, other: Peer, handled: list[Any]) -> None:
    for offset in range(3):
        other.ask(committing(offset=offset), 9)

    def changed() -> None:
        before = len(handled)
        told = peer.ask(fetching(9), 9)
        assert len(handled) == before
        assert told == fresh(desk) != seen[-1]
        seen.append(told)

    seen = [known(peer)]
    other.ask(committing(offset=7), 9)
    changed()  # by a commit that is like one before
    other.ask(committing(offset=8, text="m"), 9)
    changed()  # by one that is not
    deleted = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])])
    assert other.ask(deleted, 0).error_code == 0
    changed()


def test_offsets_that_expire_are_gone(desk: Desk, peer: Peer, other: Peer) -> None:
    other.ask(committing(offset=3), 9)
    told = known(peer)
    desk.pass_ms(8 * 24 * 3_600_000)
    assert peer.ask(fetching(9), 9) == fresh(desk) != told


def test_a_group_that_was_deleted_and_came_back_has_its_new_offsets(desk: Desk, peer: Peer, other: Peer) -> None:
    other.ask(committing(offset=3), 9)
    told = known(peer)
    assert other.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 0
    gone = peer.ask(fetching(9), 9)
    assert gone == fresh(desk) != told
    other.ask(committing(offset=4), 9)
    assert peer.ask(fetching(9), 9) == fresh(desk) != gone


def test_a_group_that_is_not_there_is_looked_for_each_time(desk: Desk, peer: Peer, handled: list[Any]) -> None:
    for _ in range(4):
        peer.ask(fetching(9), 9)
    assert len(handled) == 4


@pytest.mark.parametrize(("refusal", "code"), [(14, 14), (15, 16), (16, 16)])
def test_a_partition_that_does_not_serve_says_so(desk: Desk, peer: Peer, other: Peer, refusal: int, code: int) -> None:
    other.ask(committing(offset=3), 9)
    known(peer)
    desk.shards.of("g").refusal = refusal
    assert peer.ask(fetching(9), 9).groups[0].error_code == code


def test_it_waits_for_what_is_on_its_way_to_the_log_and_fails_with_it(desk: Desk, peer: Peer, other: Peer) -> None:
    other.ask(committing(offset=3), 9)
    known(peer)
    log = desk.log_of("g")
    for end, code in ((log.succeed, 0), (log.refuse, 16)):
        log.waiting = True
        other.send(committing(offset=4), 9)
        peer.send(fetching(9), 9)
        assert peer.reply() is None
        end()
        desk.loop.run()
        assert peer.reply().groups[0].error_code == code


def test_rights_that_were_taken_away_are_gone(desk: Desk, peer: Peer, other: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    other.ask(committing(offset=3), 9)
    known(peer)
    monkeypatch.setattr(desk.authorizer, "open", False)
    assert peer.ask(fetching(9), 9).groups[0].error_code == 30


def test_a_long_reply_is_not_remembered(desk: Desk, peer: Peer, other: Peer, handled: list[Any]) -> None:
    other.ask(committing(offset=3, text="m" * 4_000), 9)
    other.ask(commit("", 3, (1, 2), "m" * 4_000, generation=-1), 9)
    told = [peer.ask(fetching(9, [0, 1, 2]), 9) for _ in range(4)]
    assert len(told[0].encode(9)) > FETCH_BYTES_MAX
    assert told == [told[0]] * 4
    assert len(handled) == 4


@pytest.mark.parametrize("spare", [0, 1])
def test_the_longest_reply_that_is_remembered(desk: Desk, peer: Peer, other: Peer, handled: list[Any], spare: int) -> None:
    bare = 1_000
    other.ask(commit("", 3, (0,), "m" * bare, generation=-1), 9)
    size = len(peer.ask(fetching(9, [0]), 9).encode(9))
    other.ask(commit("", 3, (0,), "m" * (FETCH_BYTES_MAX + spare - size + bare), generation=-1), 9)
    handled.clear()
    told = [peer.ask(fetching(9, [0]), 9) for _ in range(3)]
    assert len(told[0].encode(9)) == FETCH_BYTES_MAX + spare
    assert len(handled) == (1 if not spare else 3)


def test_what_was_not_committed_since_is_not_read_again(
    desk: Desk, peer: Peer, other: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.ask(committing(offset=3), 9)
    known(peer)
    read: list[Any] = []

    def counted(*call: Any) -> Any:
        read.append(call)
        return read_topics(*call)

    monkeypatch.setattr("broker.fastpath.offset_fetch.read_topics", counted)
    for _ in range(3):
        peer.ask(fetching(9), 9)
    assert not read
    other.ask(committing(offset=4), 9)
    for _ in range(3):
        peer.ask(fetching(9), 9)
    assert len(read) == 1


def test_offsets_that_no_reply_can_hold_end_the_connection_as_the_first_time(desk: Desk, peer: Peer, other: Peer) -> None:
    """What an old coordinator stored as metadata is no text: as text it takes more room than there may be."""
    other.ask(committing(offset=3), 9)
    known(peer, 5)
    group = desk.shards.of("g").shard.groups["g"]
    group.offsets["t"].values[0] = b"\0\1" + pack(">qh", 4, 20_000) + b"\xff" * 20_000 + pack(">qq", 0, 0)
    group.invalidate_offsets()
    defects = DEFECTS.count
    peer.send(fetching(5), 5)
    assert (peer.open, peer.reply(), DEFECTS.count) == (False, None, defects)


@pytest.mark.parametrize("partitions", [None, [0], PARTITIONS])
def test_what_is_kept_of_one_is_counted_by_its_bytes_and_partitions(
    desk: Desk, peer: Peer, other: Peer, partitions: list[int] | None
) -> None:
    other.ask(committing(offset=3), 9)
    known(peer, partitions=partitions)
    (repeat,) = peer.connection.fast_paths.values()
    size = 2 + len("client") + 1 + len(fetching(9, partitions).encode(9))
    assert repeat.cost == 1_000 + 2 * size + 80 * len(partitions or []) + FETCH_BYTES_MAX


def test_nothing_is_remembered_where_every_frame_is_shown(desk: Desk, peer: Peer, other: Peer) -> None:
    other.ask(committing(offset=3), 9)
    shown: list[Any] = []
    desk.host.trace = lambda direction, call, message: shown.append(message)
    for _ in range(3):
        peer.ask(fetching(9), 9)
    assert len(shown) == 6


def test_a_defect_elsewhere_does_not_leave_what_was(desk: Desk, peer: Peer, other: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    other.ask(committing(offset=3), 9)
    told = known(peer)
    journal = desk.shards.of("g")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "shard", Defective(journal.shard, "commit"))
        other.ask(committing(offset=4, text="m"), 9)
    assert peer.ask(fetching(9), 9) == fresh(desk) != told  # the log here keeps nothing

"""A repeated OffsetFetch gets cached bytes while no offset has changed, and a new reply as soon as one has."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from broker.fastpath.offset_fetch import FETCH_BYTES_MAX, OffsetFetchFastPath
from broker.runtime.contain import DEFECTS
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from tests.broker.fastpath.conftest import decoded_requests
from tests.broker.fastpath.test_commit import commit
from tests.support.group_harness import Defective, GroupClient, GroupHarness
from tests.support.group_requests import FETCH_VERSIONS, join_stable_group

PARTITIONS = [0, 2, 7]


def fetching(version: int, partitions: list[int] | None = PARTITIONS, group: str = "g") -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(None, group, None if partitions is None else [OffsetFetchRequestTopic("t", partitions)])
    topics = None if partitions is None else [OffsetFetchRequestTopics("t", partitions)]
    return OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=topics)])


def committing(offset: int, text: str = "") -> OffsetCommitRequest:
    """A commit without a member: the group stays empty."""
    return commit("", offset, (0,), text, generation=-1)


@pytest.fixture
def second_peer(harness: GroupHarness) -> GroupClient:
    return GroupClient(harness)


@pytest.fixture
def decoded(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return decoded_requests(harness, monkeypatch, OffsetFetchRequest.API_KEY)


def cached_reply(peer: GroupClient, version: int = 9, **options: Any) -> Any:
    """Repeat the request until the reply is cached, and once more."""
    for _ in range(2):
        peer.ask(fetching(version, **options), version)
    assert any(isinstance(repeat, OffsetFetchFastPath) for repeat in peer.connection.fast_paths.values())
    return peer.ask(fetching(version, **options), version)


def uncached_reply(harness: GroupHarness, version: int = 9, **options: Any) -> Any:
    """The reply on a new connection."""
    return GroupClient(harness).ask(fetching(version, **options), version)


@pytest.mark.parametrize(
    ("version", "partitions"),
    [(version, partitions) for version in FETCH_VERSIONS for partitions in (PARTITIONS, None) if partitions or version >= 2],  # None: all, from version 2 on
)
def test_the_third_equal_offset_fetch_takes_the_fast_path(
    harness: GroupHarness, peer: GroupClient, second_peer: GroupClient, decoded: list[int], version: int, partitions: list[int] | None
) -> None:
    id = join_stable_group(harness, second_peer)
    second_peer.ask(commit(id, 5), 9)
    answer = cached_reply(peer, version, partitions=partitions)
    assert len(decoded) == 2
    assert answer == uncached_reply(harness, version, partitions=partitions)
    second_peer.ask(commit(id, 6, text="other"), 9)
    assert peer.ask(fetching(version, partitions), version) == uncached_reply(harness, version, partitions=partitions) != answer
    assert len(decoded) == 4  # two more, both from other peers


def test_a_fast_offset_fetch_returns_every_change(harness: GroupHarness, peer: GroupClient, second_peer: GroupClient, decoded: list[int]) -> None:
    for offset in range(3):
        second_peer.ask(committing(offset=offset), 9)

    def changed() -> None:
        before = len(decoded)
        answer = peer.ask(fetching(9), 9)
        assert len(decoded) == before
        assert answer == uncached_reply(harness) != replies[-1]
        replies.append(answer)

    replies = [cached_reply(peer)]
    second_peer.ask(committing(offset=7), 9)
    changed()  # by a repeated commit
    second_peer.ask(committing(offset=8, text="m"), 9)
    changed()  # by a new commit
    deleted = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])])
    assert second_peer.ask(deleted, 0).error_code == 0
    changed()


def test_a_fast_offset_fetch_by_id_returns_every_change_of_topics(harness: GroupHarness, peer: GroupClient, second_peer: GroupClient, decoded: list[int]) -> None:
    second_peer.ask(committing(offset=3), 9)
    former = harness.topics.by_name["t"].id
    next_id = bytes([max(id[0] for id in harness.topics.by_id if id == id[:1] * 16) + 1]) * 16  # the harness counts its ids
    requests = [
        OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("", [0], id) for id in (former, next_id)])]),
        OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)]),
    ]

    def answers(connected: GroupClient) -> list[Any]:
        return [connected.ask(request, 10) for request in requests]

    for _ in range(2):
        before = answers(peer)
    assert sum(isinstance(repeat, OffsetFetchFastPath) for repeat in peer.connection.fast_paths.values()) == 2
    for change in (lambda: harness.topics._drop("t"), lambda: harness.topics.create("t", 3, {}, 0)):
        count = len(decoded)
        assert answers(peer) == before
        change()
        after = answers(peer)
        assert len(decoded) == count
        assert after == answers(GroupClient(harness))
        assert after[0] != before[0]
        assert after[1] != before[1]
        before = after
    assert [(topic.topic_id, topic.partitions[0].error_code) for topic in before[0].groups[0].topics] == [(next_id, 0), (former, 100)]


def test_a_fast_offset_fetch_omits_expired_offsets(harness: GroupHarness, peer: GroupClient, second_peer: GroupClient) -> None:
    second_peer.ask(committing(offset=3), 9)
    answer = cached_reply(peer)
    harness.pass_ms(8 * 24 * 3_600_000)
    assert peer.ask(fetching(9), 9) == uncached_reply(harness) != answer


def test_a_fast_offset_fetch_of_a_recreated_group_returns_its_new_offsets(harness: GroupHarness, peer: GroupClient, second_peer: GroupClient) -> None:
    second_peer.ask(committing(offset=3), 9)
    answer = cached_reply(peer)
    assert second_peer.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 0
    without_group = peer.ask(fetching(9), 9)
    assert without_group == uncached_reply(harness) != answer
    second_peer.ask(committing(offset=4), 9)
    assert peer.ask(fetching(9), 9) == uncached_reply(harness) != without_group


def test_a_fast_offset_fetch_looks_up_a_missing_group_each_time(harness: GroupHarness, peer: GroupClient, decoded: list[int]) -> None:
    for _ in range(4):
        peer.ask(fetching(9), 9)
    assert len(decoded) == 4


def test_a_long_offset_fetch_reply_is_not_cached(harness: GroupHarness, peer: GroupClient, second_peer: GroupClient, decoded: list[int]) -> None:
    second_peer.ask(committing(offset=3, text="m" * 4_000), 9)
    second_peer.ask(commit("", 3, (1, 2), "m" * 4_000, generation=-1), 9)
    answer = [peer.ask(fetching(9, [0, 1, 2]), 9) for _ in range(4)]
    assert len(answer[0].encode(9)) > FETCH_BYTES_MAX
    assert answer == [answer[0]] * 4
    assert len(decoded) == 4


@pytest.mark.parametrize("spare", [0, 1])
def test_the_longest_offset_fetch_reply_is_cached(harness: GroupHarness, peer: GroupClient, second_peer: GroupClient, decoded: list[int], spare: int) -> None:
    bare = 1_000
    second_peer.ask(commit("", 3, (0,), "m" * bare, generation=-1), 9)
    size = len(peer.ask(fetching(9, [0]), 9).encode(9))
    second_peer.ask(commit("", 3, (0,), "m" * (FETCH_BYTES_MAX + spare - size + bare), generation=-1), 9)
    decoded.clear()
    answer = [peer.ask(fetching(9, [0]), 9) for _ in range(3)]
    assert len(answer[0].encode(9)) == FETCH_BYTES_MAX + spare
    assert len(decoded) == (1 if not spare else 3)


@pytest.mark.plain
def test_unchanged_offsets_are_not_encoded_again(harness: GroupHarness, peer: GroupClient, second_peer: GroupClient, monkeypatch: pytest.MonkeyPatch) -> None:
    second_peer.ask(committing(offset=3), 9)
    cached_reply(peer)
    read: list[Any] = []

    read_offsets = OffsetFetchFastPath._read

    def counted(*call: Any) -> Any:
        read.append(call)
        return read_offsets(*call)

    monkeypatch.setattr(OffsetFetchFastPath, "_read", counted)
    for _ in range(3):
        peer.ask(fetching(9), 9)
    assert not read
    second_peer.ask(committing(offset=4), 9)
    for _ in range(3):
        peer.ask(fetching(9), 9)
    assert len(read) == 1


def test_offsets_too_long_for_a_reply_close_the_connection_on_the_fast_path_too(harness: GroupHarness, peer: GroupClient, second_peer: GroupClient) -> None:
    """An old coordinator may have stored offset metadata that is not UTF-8. It grows when decoded as text, here beyond a string's limit."""
    second_peer.ask(committing(offset=3), 9)
    cached_reply(peer, 5)
    group = harness.shards.journal_of("g").shard.groups["g"]
    group.offsets["t"].values[0] = b"\0\1" + pack(">qh", 4, 20_000) + b"\xff" * 20_000 + pack(">qq", 0, 0)
    group.invalidate_offsets()
    defects = DEFECTS.count
    peer.send(fetching(5), 5)
    assert (peer.open, peer.reply(), DEFECTS.count) == (False, None, defects)


@pytest.mark.parametrize("partitions", [None, [0], PARTITIONS])
def test_learned_offset_fetches_are_limited_by_bytes_and_partitions(
    harness: GroupHarness, peer: GroupClient, second_peer: GroupClient, partitions: list[int] | None
) -> None:
    second_peer.ask(committing(offset=3), 9)
    cached_reply(peer, partitions=partitions)
    (repeat,) = peer.connection.fast_paths.values()
    size = 2 + len("client") + 1 + len(fetching(9, partitions).encode(9))
    assert repeat.cost == 1_000 + 2 * size + 80 * len(partitions or []) + FETCH_BYTES_MAX


@pytest.mark.plain
def test_a_defect_elsewhere_leaves_no_stale_reply(harness: GroupHarness, peer: GroupClient, second_peer: GroupClient, monkeypatch: pytest.MonkeyPatch) -> None:
    second_peer.ask(committing(offset=3), 9)
    answer = cached_reply(peer)
    harness.log_of("g").stored.clear()
    journal = harness.shards.journal_of("g")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "shard", Defective(journal.shard, "commit"))
        second_peer.ask(committing(offset=4, text="m"), 9)
    assert peer.ask(fetching(9), 9) == uncached_reply(harness) != answer

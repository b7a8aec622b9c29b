"""group.member.metadata.max.bytes and groups.metadata.max.bytes: what members may keep in memory, one of them and all together.

Every step of every playbook counts anew (`check_group` in simulator/truths.py, `_end_step` in stage.py).
"""

from __future__ import annotations

from random import Random

import pytest

from coordinator.classic.kept import MEMBER_BYTES, PROTOCOL_BYTES
from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import Play
from tests.coordinator.sent_requests import Bytes

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
MEMBER_MAX = 4_000
ALL_MAX = 20_000
LARGE = bytes(2_500)


@pytest.fixture
def small(play: Play) -> Play:
    """Room for 4 KB of one member, and for 20 KB of all members."""
    play.configure(group_member_metadata_max_bytes=MEMBER_MAX, groups_metadata_max_bytes=ALL_MAX)
    return play


def kept(play: Play) -> int:
    return play._serving.kept.bytes


def fill(play: Play) -> list[str]:
    """Static members with as much metadata as fits, each with its own; they send heartbeats."""
    names: list[str] = []
    for number in range(20):
        name = f"full-{number}-at-{play.now}"
        sent = play.join(name, instance=f"i{number}", metadata=LARGE + bytes([number]), session=10_000, group="full")
        if not sent.parked:
            sent.expect(FULL, id="")
            break
        names.append(name)
    assert kept(play) <= ALL_MAX < kept(play) + len(LARGE) + MEMBER_BYTES + PROTOCOL_BYTES + 200
    return names


# One member.


@pytest.mark.parametrize("version", [3, 9])
def test_too_much_metadata_is_refused_before_a_group_is_created(small: Play, version: int) -> None:
    small.join("a", metadata=bytes(MEMBER_MAX), version=version).expect(FULL, id="")
    small.group_is_absent()
    small.expect_records()
    assert small.limits == [("group.member.metadata.max.bytes", "g", "", "/127.0.0.1")]
    assert kept(small) == 0


def test_many_small_protocols_and_long_texts_count(small: Play) -> None:
    small.join("a", protocols=[f"p{number}" for number in range(MEMBER_MAX // PROTOCOL_BYTES)]).expect(FULL)
    small.join("a", client="c" * MEMBER_MAX).expect(FULL)
    small.join("a", instance="ä" * (MEMBER_MAX // 4)).expect(FULL)
    small.join("a", instance=None, protocols=["range"]).expect(ErrorCode.MEMBER_ID_REQUIRED)


def test_a_new_member_with_too_much_metadata_is_not_awaited_in_the_join_phase(small: Play) -> None:
    small.join("a").expect(ErrorCode.MEMBER_ID_REQUIRED)
    small.join("b").expect(ErrorCode.MEMBER_ID_REQUIRED)
    small.join("a").expect_parked()
    small.join("b", metadata=bytes(MEMBER_MAX)).expect(FULL, id="b")
    small.group_is(State.PREPARING, members=["a"], pending=[])


def test_a_member_that_rejoins_with_too_much_metadata_keeps_its_seat_until_its_session_ends(small: Play) -> None:
    small.two_static()
    small.join("b", metadata=bytes(MEMBER_MAX)).expect(FULL, id="b")
    small.group_is(State.STABLE, generation=1, members=["a", "b"])
    small.join("b", metadata=b"").expect_parked()
    small.group_is(State.PREPARING, members=["a", "b"])


@pytest.mark.parametrize("extra", [0, 1])
def test_the_longest_allowed_assignment_of_one_member(small: Play, extra: int) -> None:
    small.two_awaiting_assignment()
    waiting = small.sync("b")
    sent = small.sync("a", {"a": b"A", "b": bytes(MEMBER_MAX + extra), "nobody": bytes(2 * MEMBER_MAX)})
    if extra:
        sent.expect(ErrorCode.INVALID_REQUEST)
        waiting.expect(ErrorCode.INVALID_REQUEST)
        small.group_is(State.PREPARING, members=["a", "b"])
        assert small.limits == [("group.member.metadata.max.bytes", "g", small.id_of("b"), "/127.0.0.1")]
    else:
        sent.expect()
        waiting.expect(assignment=bytes(MEMBER_MAX))


# All members together.


def test_no_member_is_added_when_all_groups_keep_the_maximum(small: Play) -> None:
    fill(small)
    small.join("a", metadata=LARGE, session=10_000).expect(FULL, id="")
    small.group_is_absent()
    assert small.limits[-1] == ("groups.metadata.max.bytes", "g", "", "/127.0.0.1")


def test_memory_returns_when_sessions_end(small: Play) -> None:
    names = fill(small)
    small.after(300_000)  # new members have five minutes
    small.group_is(State.EMPTY, members=[], group="full")
    assert kept(small) < 100  # the record of the empty group
    assert len(fill(small)) == len(names)


def test_known_members_rejoin_and_return_at_the_maximum_without_keeping_more(small: Play) -> None:
    names = fill(small)
    small.after(3_000).after(10_000)
    first = names[0]
    before = kept(small)
    other = bytes([200]) * (len(LARGE) + 1)
    small.join(first, metadata=other + bytes(1_000), group="full").expect(FULL, id=first)
    small.join(first, metadata=other, group="full").expect_parked()
    small.join("again", id="", instance="i1", metadata=other, group="full").expect_parked()
    assert kept(small) <= before


def test_assignments_and_the_record_that_repeats_them_count(small: Play) -> None:
    small.two_awaiting_assignment()
    fill(small)
    waiting = small.sync("b")
    small.sync("a", {"a": bytes(1_500), "b": bytes(1_500)}).expect(ErrorCode.INVALID_REQUEST)
    waiting.expect(ErrorCode.INVALID_REQUEST)
    assert small.limits[-1] == ("groups.metadata.max.bytes", "g", small.id_of("a"), "/127.0.0.1")
    assert kept(small) <= ALL_MAX


def test_members_that_share_their_protocols_count_them_once(small: Play) -> None:
    for name in "abcdefgh":
        small.join(name, instance=f"i{name}", metadata=LARGE).expect_parked()
    assert len(LARGE) < kept(small) < len(LARGE) + 8 * (MEMBER_BYTES + 100) + PROTOCOL_BYTES
    small.join("a", metadata=LARGE + b"1")
    small.leave("b")
    assert 2 * len(LARGE) < kept(small)


def test_what_is_in_the_log_is_loaded_whatever_the_maximum_is(play: Play) -> None:
    play.two_static(metadata=LARGE)
    play.config = play.config._replace(group_member_metadata_max_bytes=1_024, groups_metadata_max_bytes=1)
    play.failover()
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    assert kept(play) > 3 * len(LARGE)  # of two members, and the record
    play.heartbeat("a").expect()
    play.join("b", metadata=LARGE).expect(generation=1)
    play.join("c", instance="ic", metadata=b"", protocols=["range"]).expect(FULL, id="")
    play.at(60_000)
    play.group_is(State.EMPTY, members=[])
    assert kept(play) < 100


@pytest.mark.parametrize("seed", range(6))
def test_the_count_stays_exact_over_random_use(play: Play, seed: int) -> None:
    """`Play` counts anew after each call; here calls have metadata and assignments of all sizes, and the log fails now and then."""
    random = Random(seed)
    play.configure(group_member_metadata_max_bytes=MEMBER_MAX, groups_metadata_max_bytes=ALL_MAX)
    errors: set[int] = set()
    processes: dict[str, int] = {}  # by group and place: how many have had this place
    for _ in range(600):
        group = random.choice(["g", "h"])
        place = group + random.choice("abcdef")
        instance = f"i{place}" if place[1] in "abc" else None
        name = f"{place}-{processes.get(place, 0)}"
        choice = random.random()
        if choice < 0.5:
            state = play._of(group)
            lost = name in play.ids and (state is None or play.ids[name] not in {*state.members, *state.pending_members})
            if lost or random.random() < 0.1:
                processes[place] = processes.get(place, 0) + 1
                name = f"{place}-{processes[place]}"
            metadata = bytes([random.randrange(3)]) * random.choice([0, 10, 1_000, 3_000, 5_000])
            protocols = random.choice([["range"], ["range", "sticky"]])
            sent = play.join(name, instance=instance, protocols=protocols, metadata=metadata, version=random.choice([3, 9]), group=group)
            if sent.answered:
                errors.add(sent.reply.error)
        elif choice < 0.75:
            state = play._of(group)
            if state is not None and state.members:
                assigned: dict[str, Bytes] = {id: bytes(random.choice([0, 5, 100, 1_000, 4_500 if random.random() < 0.05 else 7])) for id in state.members}
                sync = play.sync(random.choice([state.leader or "", *state.members]), assigned, instance=None, group=group)
                if sync.answered:
                    errors.add(sync.reply.error)
        elif choice < 0.9:
            play.after(random.choice([10, 1_000, 5_000, 20_000]))
        elif choice < 0.97:
            play.leave((name, instance) if random.random() < 0.7 or instance is None else ("", instance), group=group)
        elif choice < 0.985:
            play.fail_log()
        else:
            play.failover()
        assert kept(play) <= ALL_MAX + 1_000  # a group's record may grow by the ids of returning members
    assert {ErrorCode.NONE, FULL} <= errors
    play.after(400_000)
    assert kept(play) < 300

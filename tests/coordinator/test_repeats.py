"""Repeated commits and heartbeats on the fast path, and the cases that it must refuse. Other tests use the fast path too, where it accepts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from random import Random
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import Commit, Fact, Hold, facts_bytes
from coordinator.deadlines import NEVER
from coordinator.facts import offset_key, offset_key_prefix, offset_value, read_offset
from coordinator.hold import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from coordinator.repeats import FALLBACK, STORED, STORED_FIRST, RepeatedCommit, RepeatedHeartbeat
from coordinator.states import State
from protocol.batch import facts_of, validate
from protocol.batch_writing import RecordForm, encode_time_end, make_record_form, write_facts
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import Heartbeats
from tests.coordinator.playbook import Play, subscription
from tests.coordinator.requests import DroppedReply

Setting = Callable[[Play], object]


def committed(play: Play, actor: str | None, fast: bool, offsets: dict[tuple[str, int], int], **options: object) -> list[Fact]:
    """Commit, on the fast path or not (`fast`); return the facts."""
    repeats, before = play.repeats, len(play.log)
    if not fast:
        play.repeats = None
    play.commit(actor, offsets, **options).expect()  # type: ignore[arg-type]
    play.repeats = repeats
    return play.log[before:]


SEVERAL = {("t0", 0): 5, ("t0", 300): 6, ("t1", 2): 1 << 40}


@pytest.mark.parametrize("offsets", [{("t0", 0): 5}, {("t0", 1): 7, ("t0", 0): -1}, SEVERAL])
@pytest.mark.parametrize("actor", ["a", None])
@pytest.mark.parametrize("metadata", ["", None, "some", {("t0", 0): "one", ("t1", 2): None}])
@pytest.mark.parametrize("epoch", [-1, 7])
def test_fast_path_and_usual_path_leave_the_same_state(
    play: Play, offsets: dict[tuple[str, int], int], actor: str | None, metadata: str | dict[tuple[str, int], str | None] | None, epoch: int
) -> None:
    if actor:
        play.one_static()
    options = {"metadata": metadata, "epoch": epoch}
    committed(play, actor, True, offsets, **options)
    assert play.repeats
    next_offsets = {place: offset + 10 for place, offset in offsets.items()}
    play.at(1_000)
    fast = committed(play, actor, True, next_offsets, **options)
    assert fast == committed(play, actor, False, next_offsets, **options) != []
    assert play.fetch_all() == next_offsets


def refused_by_fast_path(play: Play, change: Setting, actor: str | None = "a", **options: object) -> None:
    """After `change` the fast path refuses a commit that it accepted before."""
    for _ in range(2):  # the second commit takes the fast path
        committed(play, actor, True, SEVERAL, **options)
    assert play.repeated
    repeat = repeat_of(play)
    shard = play._serving
    change(play)
    emitted, offsets = shard.hold.emitted, play.fetch_all()
    deadlines = {member.id: member.deadline for group in shard.groups.values() for member in group.members.values()}
    assert repeat.try_accept(shard, bytes(24), DroppedReply(), play.now, play.wall) == FALLBACK
    assert (shard.hold.emitted, play.fetch_all()) == (emitted, offsets)
    assert deadlines == {member.id: member.deadline for group in shard.groups.values() for member in group.members.values()}


def complete_join_phase(play: Play) -> None:
    play.join("a", metadata=b"other")
    play.join("b")
    group = play.group()
    assert group.state.name == "COMPLETING"
    group.generation = 1  # only the state forbids the commit


def rebalance(play: Play) -> None:
    play.join("a", metadata=b"other")
    play.sync("a", {"a": b"A"}).expect()
    play.group_is(State.STABLE, generation=2)


def change_instance_id(play: Play) -> None:
    (member,) = play.group().members.values()
    member.instance_id = "another" if member.instance_id == "ia" else "ia"
    play.group().invalidate_members()


def reload_and_leave(play: Play) -> None:
    play.fail_log()
    play.leave("a")


@pytest.mark.parametrize(
    ("begin", "change"),
    [
        (Play.two_static, complete_join_phase),
        (Play.one_static, rebalance),
        (Play.one_dynamic, lambda play: play.leave("a")),
        (Play.two_dynamic, lambda play: play.leave("a")),
        (Play.one_static, lambda play: play.join("a'", instance="ia")),
        (Play.one_static, change_instance_id),
        (Play.one_static, reload_and_leave),
    ],
    ids=["COMPLETING", "older generation", "empty group", "departed", "replaced", "other instance id", "reloaded"],
)
def test_a_repeated_commit_of_a_member_is_refused_after_a_change(play: Play, begin: Setting, change: Setting) -> None:
    begin(play)
    refused_by_fast_path(play, change)
    if change is change_instance_id:
        change(play)


@pytest.mark.parametrize("change", [Play.one_static, Play.delete], ids=["a member joined", "the group was deleted"])
def test_a_repeated_commit_without_a_generation_is_refused_after_a_change(play: Play, change: Setting) -> None:
    refused_by_fast_path(play, change, None)


DELETED_PARTITIONS = [[("t1", 2)], [("t0", 0), ("t0", 300)], [("t0", 0), ("t0", 300), ("t1", 2)]]


@pytest.mark.parametrize("deleted", DELETED_PARTITIONS)
def test_a_repeated_commit_restores_offsets_deleted_in_between(play: Play, deleted: list[tuple[str, int]]) -> None:
    committed(play, None, True, SEVERAL)
    committed(play, None, True, {place: offset + 1 for place, offset in SEVERAL.items()})
    play.offset_delete(*deleted)
    assert play.fetch_all() == {place: offset + 1 for place, offset in SEVERAL.items() if place not in deleted}
    committed(play, None, True, SEVERAL)
    assert play.fetch_all() == SEVERAL
    play.failover()
    assert play.fetch_all() == SEVERAL


def test_each_repeated_commit_is_stamped_with_its_own_time(play: Play) -> None:
    play.one_static()
    moments = (0, 1_000, 1_000, 3_000, 3_001)
    for number, moment in enumerate(moments):
        play.at(moment).commit("a", {("t0", 0): number}).expect()
    assert play.repeated == len(moments) - 1
    assert [read_offset(value or b"").commit_ms - play.began for _, value in play.log[-len(moments) :]] == list(moments)
    play.fetch().expect(4, commit_ms=play.began + 3_001)


def test_repeated_commits_of_one_batch_are_stamped_with_their_own_times(play: Play) -> None:
    play.one_static()
    play.commit("a", {("t0", 0): 1}).expect()
    before = len(play.log)
    play.gather()
    for moment in (10, 20, 20, 30):
        play.at(moment).commit("a", {("t0", 0): moment})
    play.confirm()
    assert [read_offset(value or b"").commit_ms - play.began for _, value in play.log[before:]] == [10, 20, 20, 30]


def test_a_later_repeat_of_a_commit_wins_over_commits_in_between(play: Play) -> None:
    """No request reads the offsets meanwhile, so the group keeps all three commits undecoded, and must order them later."""
    play.two_static()
    for actor in "ab":
        play.commit(actor, {("t0", 0): 1, ("t1", 0): 1}).expect()
    play.commit("a", {("t0", 0): 2, ("t1", 0): 2}).expect()
    play.commit("b", {("t0", 0): 3, ("t1", 0): 3}).expect()
    play.commit("a", {("t0", 0): 4, ("t1", 0): 4}).expect()
    assert play.repeated == 3
    assert play.fetch_all() == {("t0", 0): 4, ("t1", 0): 4}
    play.commit("b", {("t0", 0): 5, ("t1", 0): 5}).expect()  # the same `RepeatedCommit` objects, whose earlier commits were decoded by the fetch
    play.commit("a", {("t0", 0): 6, ("t1", 0): 6}).expect()
    play.commit("b", {("t0", 0): 7, ("t1", 0): 7}).expect()
    assert play.repeated == 6
    assert play.fetch_all() == {("t0", 0): 7, ("t1", 0): 7}
    play.commit("a", {("t0", 0): 8, ("t1", 0): 8}).expect()
    play.commit("b", {("t0", 0): 9, ("t1", 0): 9}).expect()
    assert play.fetch_all() == {("t0", 0): 9, ("t1", 0): 9}


def test_a_repeated_commit_does_not_overwrite_a_later_usual_commit(play: Play) -> None:
    play.two_static()
    for actor, place in (("a", ("t0", 0)), ("b", ("t1", 0))):
        play.commit(actor, {place: 1}).expect()
        play.commit(actor, {place: 2}).expect()
    play.commit("b", {("t0", 0): 3}).expect()  # the usual path, which first decodes the commits that the group keeps undecoded
    play.commit("b", {("t1", 0): 4}).expect()
    assert play.repeated == 3
    assert play.fetch_all() == {("t0", 0): 3, ("t1", 0): 4}


PARTITIONS = [("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)]
Expected = dict[tuple[str, int], tuple[int, int]]  # offset and time of the newest commit


class Committing:
    """Two members that commit between all other events of a group, and a model of the expected offsets."""

    def __init__(self, batch_bytes_max: int) -> None:
        self.play = Play()
        self.play.configure(batch_bytes_max=batch_bytes_max)
        self.play.settled("a", "b", static=True).keep_alive("a", "b")
        self.expected: Expected = {}
        self.durable: Expected | None = None  # while appends are in flight: the offsets before them
        self.number = self.repeated = 0

    def commit(self, actor: str, places: set[tuple[str, int]], fast: bool) -> None:
        play = self.play
        self.number += 1
        offsets = dict.fromkeys(sorted(places), self.number)
        repeats, before = play.repeats, play.repeated
        if not fast:
            play.repeats = None
        assert play.commit(actor, offsets, metadata=actor).reply == ErrorCode.NONE
        play.repeats = repeats
        self.repeated += play.repeated - before
        self.expected |= dict.fromkeys(places, (self.number, play.wall))

    def check_offsets(self) -> None:
        state = self.play._of("g")
        assert state is not None
        stored = {(topic, partition): read_offset(value) for topic, partition, value in state.all_offsets()}
        assert {place: (stored_offset.offset, stored_offset.commit_ms) for place, stored_offset in stored.items()} == self.expected

    def wait(self, ms: int) -> None:
        self.play.after(ms)

    def rebalance(self) -> None:
        play = self.play
        play.join("a", metadata=subscription("t0", f"other{self.number}"))
        play.join("b")
        play.sync("a", {"a": b"A", "b": b"B"})
        play.sync("b")

    def delete(self) -> None:
        self.play.offset_delete(("t1", 0))
        self.expected.pop(("t1", 0), None)

    def forget(self) -> None:
        self.play.forget_topics("t1")
        self.expected = {place: value for place, value in self.expected.items() if place[0] != "t1"}

    def hold(self, gathers: bool) -> None:
        if self.durable is None:
            self.durable = dict(self.expected)
        self.play.hold_appends()
        if gathers:
            self.play.gather()

    def confirm(self) -> None:
        self.play.confirm()
        self.durable = None

    def fail(self) -> None:
        self.play.fail_log()
        if self.durable is not None:
            self.expected, self.durable = self.durable, None

    def end(self) -> None:
        self.confirm()
        self.check_offsets()
        self.play.failover()
        self.check_offsets()


PARTITION_SETS = [{PARTITIONS[0]}, set(PARTITIONS[:2]), set(PARTITIONS[1:]), set(PARTITIONS)]  # the partitions of a commit: few kinds, so that each commit is often repeated
OTHER_STEPS: list[tuple[Any, ...]] = [
    ("check_offsets",), ("rebalance",), ("delete",), ("forget",), ("hold", True), ("hold", False), ("confirm",), ("confirm",), ("fail",), ("wait", 1), ("wait", 3_000),
]  # fmt: skip


@pytest.mark.parametrize("batch_bytes_max", [400, 1 << 20])
@pytest.mark.parametrize("seed", range(10))
def test_the_newest_commit_counts_between_repeats(seed: int, batch_bytes_max: int) -> None:
    """Each kind of commit keeps one `RepeatedCommit` object from the first to the last step."""
    random = Random(seed)
    group = Committing(batch_bytes_max)
    for _ in range(200):
        if random.random() < 0.7:
            group.commit(random.choice("ab"), random.choice(PARTITION_SETS), random.random() < 0.8)
        else:
            kind, *arguments = random.choice(OTHER_STEPS)
            getattr(group, kind)(*arguments)
    group.end()
    assert group.repeated > 40


def test_offsets_of_repeated_commits_are_decoded_once(play: Play) -> None:
    for offset in range(5):
        committed(play, None, True, {("t0", 0): offset})
    group = play._serving.groups["g"]
    marks = [group.offsets_version]
    for _ in range(2):
        assert play.fetch_all() == {("t0", 0): 4}
        marks.append(group.offsets_version)
    assert marks[0] is not marks[1] is marks[2]


def test_repeated_commits_alone_keep_a_member_alive(play: Play) -> None:
    play.one_static(session=10_000)
    play.commit("a", {("t0", 0): 0}).expect()
    for second in range(3, 60, 3):
        play.at(second * 1_000)
        play.commit("a", {("t0", 0): second}).expect()
    assert play.repeated == 19
    assert play.session_left("a") == 10_000
    play.heartbeat("a").expect()


def repeat_of(play: Play) -> RepeatedCommit:
    assert play.repeats is not None
    (repeat,) = play.repeats.values()
    return repeat


def commit_frame(offset: int) -> bytes:
    return pack(">q", offset)


@pytest.mark.parametrize(("gap_ms", "noted"), [(3_000, False), (3_001, True)])
@pytest.mark.parametrize("api", ["commit", "heartbeat"])
def test_a_member_silent_for_a_third_of_its_session_takes_the_usual_path(play: Play, api: str, gap_ms: int, noted: bool) -> None:
    """Only the usual path counts the gap, for the note about late heartbeats."""
    play.one_static(session=9_000)
    beat = RepeatedHeartbeat("g", 1, play.id_of("a"), "ia")
    shard = play._serving
    assert beat.try_accept(play.now) is False  # the fast path needs an accepted heartbeat before
    assert beat.accept_slow(shard, play.now) == ErrorCode.NONE
    play.commit("a", {("t0", 0): 0}).expect()
    repeat = repeat_of(play)
    assert repeat.try_accept(shard, commit_frame(1), DroppedReply(), play.now, play.wall) != FALLBACK
    play._end_step("commit")
    play.at(gap_ms)
    (member,) = play.group().members.values()
    before = member.deadline
    if api == "commit":
        is_accepted = repeat.try_accept(shard, commit_frame(2), DroppedReply(), play.now, play.wall) != FALLBACK
    else:
        is_accepted = beat.try_accept(play.now)
    assert is_accepted is not noted
    assert (member.seen_ms, member.deadline) == ((play.now, play.now + 9_000) if is_accepted else (play.began, before))
    if api == "commit":
        assert shard.commit(Commit("g", 1, member.id, "ia", []), play.now, play.wall) == ErrorCode.NONE
    else:
        assert beat.accept_slow(shard, play.now) == ErrorCode.NONE
    play._end_step(api)
    play.keep_alive("a").at(70_000)
    gaps = [(member.max_gap_ms, member.count) for note in play.notes if isinstance(note.body, Heartbeats) for member in note.body.members]
    assert gaps == ([(gap_ms, 1)] if noted else [])


def test_the_batch_size_of_a_repeated_commit_is_exact(play: Play) -> None:
    facts = committed(play, None, True, SEVERAL, metadata={("t0", 0): "one", ("t1", 2): None}, epoch=7)
    assert repeat_of(play).size == facts_bytes(facts)


@pytest.mark.parametrize(("spare", "batches"), [(0, [2, 2, 1]), (-1, [1, 1, 1, 1, 1])])
def test_repeated_commits_share_a_batch_while_they_fit(play: Play, spare: int, batches: list[int]) -> None:
    """`STORED_FIRST`, for the first commit of each batch, makes the caller schedule the append at the end of the turn."""
    size = RECORD_OVERHEAD_BYTES + len(offset_key(offset_key_prefix("g", "t0"), 0)) + len(offset_value(0, -1, b"", 0))
    play.configure(batch_bytes_max=BATCH_OVERHEAD_BYTES + 2 * size + spare)
    committed(play, None, True, {("t0", 0): 0})
    shard = play._serving
    repeat = repeat_of(play)
    outcomes = [repeat.try_accept(shard, commit_frame(offset), DroppedReply(), play.now, play.wall) for offset in range(5)]
    assert outcomes == [STORED_FIRST if number in (0, *accumulate(batches)) else STORED for number in range(5)]
    batch_facts = []
    while shard.hold.has_untaken:
        batch_facts.append(list(facts_of(bytes(shard.hold.take_batch(0)))))
    assert [len(facts) for facts in batch_facts] == batches
    shard.hold.confirm(shard.hold.taken)
    play.log += [fact for facts in batch_facts for fact in facts]


def test_a_static_members_commit_without_instance_id_uses_the_fast_path(play: Play) -> None:
    play.one_static()
    for offset in range(3):
        play.commit("a", {("t0", 0): offset}, instance=None).expect()
    assert play.repeated == 2


def test_a_shortened_session_applies_from_the_next_repeated_commit(play: Play) -> None:
    play.two_static(session=30_000)
    for offset in range(2):
        play.commit("b", {("t0", 0): offset}).expect()
    assert play.repeated == 1
    play.join("b", metadata=b"other", session=6_000).expect_parked()
    play.commit("b", {("t0", 0): 2}).expect()
    member = play.group().members[play.id_of("b")]
    assert member.scheduled_at <= member.deadline == play.now + 6_000


def test_closing_a_connection_decodes_only_its_own_commits(play: Play) -> None:
    play.two_static()
    for actor, place in (("a", ("t0", 0)), ("b", ("t1", 0))):
        play.commit(actor, {place: 1}).expect()
        play.commit(actor, {place: 2}).expect()
    assert play.repeats is not None
    a, b = play.repeats.values()
    a.close()  # decodes the commits of b too, since all are decoded in order
    assert play.fetch_all() == {("t0", 0): 2, ("t1", 0): 2}
    play.commit("b", {("t1", 0): 3}).expect()
    group = play.group()
    mark = group.offsets_version
    a.close()
    assert (group.newest_undecoded, group.offsets_version) == (b, mark)
    b.close()
    assert group.newest_undecoded is None
    assert play.fetch_all() == {("t0", 0): 2, ("t1", 0): 3}


def two_heartbeats(play: Play, actor: str) -> None:
    """The actor's next heartbeat will take the fast path."""
    for _ in range(2):
        play.heartbeat(actor).expect()


def test_a_heartbeat_is_refused_during_a_rebalance_without_changes(play: Play) -> None:
    play.two_static()
    two_heartbeats(play, "b")
    generation = play.group().generation
    play.join("a", version=8)  # the leader, with an unchanged JoinGroup
    play.heartbeat("b", generation).expect(ErrorCode.REBALANCE_IN_PROGRESS)


def test_a_heartbeat_is_refused_once_its_member_was_replaced_without_a_rebalance(play: Play) -> None:
    play.two_static()
    two_heartbeats(play, "b")
    play.join("b'", instance="ib").expect()
    play.group_is(play.group().state, generation=1)
    play.heartbeat("b").expect(ErrorCode.FENCED_INSTANCE_ID)


def test_a_heartbeat_before_the_assignment_takes_the_usual_path(play: Play) -> None:
    """A member whose SyncGroup is parked has no session: its old deadline removes nothing, and its next heartbeat begins a session."""
    play.two_awaiting_assignment(session=10_000, rebalance=120_000)
    two_heartbeats(play, "a")
    two_heartbeats(play, "b")
    play.sync("b").expect_parked()
    member = play.group().members[play.id_of("b")]
    for second in range(4, 40, 4):
        play.at(second * 1_000)
        play.heartbeat("a").expect()
    assert member.scheduled_at == NEVER
    play.heartbeat("b").expect()
    assert member.scheduled_at <= member.deadline == play.now + member.session_timeout_ms


HEAD = b"\0\3"
RowBytes = tuple[bytes, bytes, bytes]  # key, the bytes cut out, the bytes after them


def form_and_frame(rows: list[RowBytes]) -> tuple[RecordForm, bytes]:
    """A record form for these rows, and the frame of a request that has their bytes. In the frame, other bytes lie between the parts to cut out."""
    frame, places = b"request", []
    for _, cut, after in rows:
        places.append(len(frame))
        frame += cut + after
    return make_record_form([key for key, _, _ in rows], HEAD, [after for _, _, after in rows], places, len(frame)), frame


def plain_facts(rows: list[RowBytes], moment: int) -> list[Fact]:
    return [(key, HEAD + cut + after + pack(">q", moment)) for key, cut, after in rows]


@pytest.mark.parametrize("before", [0, 1, 63, 64, 1_000, 1_023, 8_100, 8_191, 8_192, 1_100_000])
@pytest.mark.parametrize("count", [1, 2, 70, 200])
@pytest.mark.parametrize("alike", [True, False])
def test_repeated_commits_write_the_same_record_bytes_at_any_place_in_a_batch(before: int, count: int, alike: bool) -> None:
    rows = [(b"key%d" % number, pack(">q", number << 20), b"m" * (0 if alike else number % 3)) for number in range(count)]
    plain: list[bytes] = []
    write_facts(plain, plain_facts(rows, 1_700_000_000_000), before)
    form, frame = form_and_frame(rows)
    for _ in range(2):
        prepared: list[bytes] = []
        assert form.write(prepared, frame, encode_time_end(1_700_000_000_000), before) == before + count
    assert b"".join(prepared) == b"".join(plain)


ROWS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=200), st.binary(min_size=8, max_size=8), st.binary(max_size=6)), min_size=1, max_size=30
)


@given(st.lists(st.tuples(st.booleans(), ROWS), min_size=1, max_size=10))
def test_a_batch_keeps_the_order_of_repeated_and_usual_facts(steps: list[tuple[bool, list[RowBytes]]]) -> None:
    """Also with so many records that their offset deltas take two bytes."""
    hold = Hold(1 << 30)
    for moment, (fast, rows) in enumerate(steps):
        if fast:
            form, frame = form_and_frame(rows)
            hold.records = form.write(hold.parts, frame, encode_time_end(moment), hold.records)
            hold.emitted += len(rows)
        else:
            hold.emit(plain_facts(rows, moment))
    batch = bytes(hold.take_batch(5_000))
    assert list(facts_of(batch)) == [fact for moment, (_, rows) in enumerate(steps) for fact in plain_facts(rows, moment)]
    assert validate(batch, 0, len(batch)).record_count == hold.taken == hold.emitted

"""The hold rule (a reply leaves once the facts before it are durable), tested on a minimal shard with one value to write and read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import Commit, Fact, GroupConfig, Hold, ReplyParts, Shard, facts_bytes
from coordinator.facts import offset_key, offset_key_prefix, offset_value
from coordinator.hold import BATCH_OVERHEAD_BYTES
from coordinator.shard import HeldNotes
from protocol.batch import facts_of
from protocol.messages.offset_commit import OffsetCommitRequestPartition

pytestmark = pytest.mark.once  # no dependence on the Python version

LARGE_BATCH_BYTES = 1 << 20


def taken(hold: Hold) -> list[Fact]:
    """The facts of the next batch, if there is one."""
    return list(facts_of(bytes(hold.take_batch(0)))) if hold.has_untaken else []


def taken_sizes(hold: Hold) -> list[int]:
    """The number of facts in each remaining batch."""
    sizes = []
    while hold.has_untaken:
        sizes.append(len(taken(hold)))
    return sizes


class Reply:
    """A held reply that records its error and its place in the order of replies."""

    def __init__(self, replies: list[Reply], value: bytes = b"") -> None:
        self.sent_replies = replies
        self.value = value
        self.error: int | None = None

    def release(self) -> None:
        self.error = 0
        self.sent_replies.append(self)

    def fail(self, error: int) -> None:
        self.error = error
        self.sent_replies.append(self)


class Register:
    """A minimal shard with one value. A write is a fact; a read returns the newest value at once."""

    def __init__(self, batch_bytes_max: int = LARGE_BATCH_BYTES) -> None:
        self.hold = Hold(batch_bytes_max)
        self.value = b""
        self.sent: list[Reply] = []

    def write(self, value: bytes, facts: int = 1) -> Reply:
        self.value = value
        self.hold.emit([(b"register", value)] * facts)
        return self.read()

    def read(self) -> Reply:
        reply = Reply(self.sent, self.value)
        self.hold.hold_reply(reply)
        return reply


@pytest.fixture
def register() -> Register:
    return Register()


def test_a_reply_is_sent_at_once_when_all_facts_are_durable(register: Register) -> None:
    assert register.read().error == 0


def test_a_write_and_a_read_of_its_value_are_answered_only_when_the_fact_is_durable(register: Register) -> None:
    replies = [register.write(b"1"), register.read()]
    assert replies[1].value == b"1"
    assert [reply.error for reply in replies] == [None, None]
    taken(register.hold)
    assert [reply.error for reply in replies] == [None, None]
    register.hold.confirm(1)
    assert [reply.error for reply in replies] == [0, 0]


def test_replies_are_sent_in_their_order(register: Register) -> None:
    replies = [register.write(b"1"), register.read(), register.write(b"2"), register.read()]
    taken(register.hold)
    register.hold.confirm(1)
    assert register.sent == replies[:2]
    register.hold.confirm(2)
    assert register.sent == replies


def test_facts_emitted_during_an_append_wait_for_the_next_batch(register: Register) -> None:
    register.write(b"1")
    assert taken(register.hold) == [(b"register", b"1")]
    late = register.write(b"2")
    register.hold.confirm(1)
    assert late.error is None
    assert register.hold.has_untaken
    assert taken(register.hold) == [(b"register", b"2")]
    assert not register.hold.has_untaken
    register.hold.confirm(2)
    assert late.error == 0


def test_the_facts_of_one_operation_share_a_batch() -> None:
    register = Register(facts_bytes([(b"register", b"x" * 100)] * 3) + 100)
    register.write(b"x" * 100, facts=3)
    register.write(b"y" * 100, facts=2)
    assert [value for _, value in taken(register.hold)] == [b"x" * 100] * 3
    assert [value for _, value in taken(register.hold)] == [b"y" * 100] * 2


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=5), min_size=1, max_size=20), st.integers(100, 600), st.data())
def test_a_batch_takes_as_many_whole_operations_as_fit_in_order(steps: list[list[int]], most: int, data: st.DataObject) -> None:
    hold = Hold(most)
    emitted: list[Fact] = []
    operations: list[tuple[int, int]] = []  # (facts, bytes) of each operation that no batch has taken yet
    batches: list[list[Fact]] = []

    def take() -> None:
        batch = hold.take_batch(0)
        batches.append(list(facts_of(bytes(batch))))
        facts, size = operations.pop(0)
        while facts < len(batches[-1]):
            more, bytes_more = operations.pop(0)
            facts, size = facts + more, size + bytes_more
            assert size + BATCH_OVERHEAD_BYTES <= most >= len(batch)
        assert facts == len(batches[-1])

    for number, sizes in enumerate(steps):
        facts: list[Fact] = [(b"%d" % number, b"v" * size) for size in sizes]
        hold.emit(facts)
        emitted += facts
        operations.append((len(facts), facts_bytes(facts)))
        while hold.has_untaken and data.draw(st.booleans()):
            take()
    while hold.has_untaken:
        take()
    assert [fact for batch in batches for fact in batch] == emitted
    assert hold.taken == hold.emitted == len(emitted)


def test_an_operation_larger_than_a_batch_is_taken_alone() -> None:
    register = Register(10)
    register.write(b"x" * 1000)
    register.write(b"y")
    assert len(taken(register.hold)) == 1
    assert len(taken(register.hold)) == 1
    assert taken(register.hold) == []


def test_an_exception_in_a_reply_propagates_unless_a_handler_is_given(register: Register) -> None:
    class Broken(Reply):
        def release(self) -> None:
            raise ZeroDivisionError

        def fail(self, error: int) -> None:
            raise ZeroDivisionError

    hold = register.hold
    for end in (partial(hold.confirm, 1), partial(hold.fail_until, 2, 7), partial(hold.fail, 56)):
        register.hold.emit([(b"register", b"1")])
        register.hold.hold_reply(Broken([]))
        with pytest.raises(ZeroDivisionError):
            end()


def test_a_refused_append_fails_every_held_reply_and_drops_unwritten_facts(register: Register) -> None:
    flushed = register.write(b"1")
    taken(register.hold)
    register.hold.confirm(1)
    in_flight, held_read = register.write(b"2"), register.read()
    taken(register.hold)
    open_still = register.write(b"3")
    register.hold.fail(56)
    assert [flushed.error, in_flight.error, held_read.error, open_still.error] == [0, 56, 56, 56]
    assert taken(register.hold) == []
    assert register.read().error == 0


def test_an_append_with_an_undecided_outcome_is_answered_with_its_code_and_continues(register: Register) -> None:
    late = register.write(b"1")
    taken(register.hold)
    held_write = register.write(b"2")
    register.hold.fail_until(1, 7)
    assert [late.error, held_write.error] == [7, None]
    register.hold.confirm(1)
    assert [late.error, held_write.error] == [7, None]
    taken(register.hold)
    register.hold.confirm(2)
    assert held_write.error == 0
    assert register.sent == [late, held_write]


@pytest.mark.parametrize("succeeds", [True, False])
def test_notes_of_a_late_append_wait_until_it_has_ended(register: Register, succeeds: bool) -> None:
    hold = register.hold
    written: list[int] = []

    def hold_notes(step: int) -> None:
        hold.hold_reply(HeldNotes(lambda notes, fact_number: written.append(fact_number), [], step))

    late = register.write(b"1")
    hold_notes(1)
    hold_notes(2)
    taken(hold)
    register.write(b"2")
    hold_notes(3)
    hold.fail_until(1, 7)
    assert (late.error, register.sent, written) == (7, [late], [])
    if succeeds:
        hold.confirm(1)
        assert written == [1, 2]
        taken(hold)
        hold.confirm(2)
        assert written == [1, 2, 3]
    else:
        hold.fail(56)
        assert not written


def test_a_reply_given_while_replies_are_released_comes_after_them(register: Register) -> None:
    class ReadsWhenReleased(Reply):
        """A reply whose release makes the client's next request arrive at once."""

        def release(self) -> None:
            super().release()
            later_reads.append(register.read())

    later_reads: list[Reply] = []
    register.hold.emit([(b"register", b"1")])
    first, second = ReadsWhenReleased(register.sent), Reply(register.sent)
    register.hold.hold_reply(first)
    register.hold.hold_reply(second)
    taken(register.hold)
    register.hold.confirm(1)
    assert register.sent == [first, second, *later_reads]


def test_untaken_facts_are_dropped_when_the_log_refuses() -> None:
    register = Register(BATCH_OVERHEAD_BYTES + facts_bytes([(b"register", b"1")]))
    for value in (b"1", b"2", b"3"):  # each in its own batch
        register.write(value)
    register.hold.fail(56)
    assert not register.hold.has_untaken
    assert register.hold.waiting == 0
    retried = register.write(b"4")
    assert register.hold.waiting == 1
    assert taken(register.hold) == [(b"register", b"4")]
    assert taken(register.hold) == []
    register.hold.confirm(1)
    assert retried.error == 0


@pytest.mark.parametrize(("spare", "batches"), [(0, [2, 1]), (-1, [1, 1, 1]), (29, [2, 1]), (30, [3])])
def test_a_batch_is_filled_to_the_byte(spare: int, batches: list[int]) -> None:
    """Sizes besides keys and values: 61 bytes for the batch, and at most 28 for each record."""
    hold = Hold(61 + 2 * (28 + 2) + spare)
    for _ in range(3):
        hold.emit([(b"k", b"v")])
    assert facts_bytes([(b"k", b"v"), (b"k", None)]) == 30 + 29
    assert taken_sizes(hold) == batches


@pytest.mark.parametrize(("spare", "batches"), [(0, [2]), (-1, [1, 1])])
def test_commits_share_a_batch_to_the_byte(spare: int, batches: list[int]) -> None:
    """A commit counts with the exact size of its record."""
    size = facts_bytes([(offset_key(offset_key_prefix("g", "t"), 0), offset_value(1, -1, b"some", 0))])
    shard = Shard(GroupConfig(batch_bytes_max=61 + 2 * size + spare), lambda: "id")
    for offset in (1, 2):
        shard.commit(Commit("g", -1, "", None, [("t", [OffsetCommitRequestPartition(0, offset, -1, "some")])]), 0, 0)
    assert taken_sizes(shard.hold) == batches


class WholeReply:
    """A reply that collects parts from several shards."""

    def __init__(self, parts: int) -> None:
        self.parts = [0] * parts
        self.completed = 0

    def refuse_part(self, part: int, error: int) -> None:
        self.parts[part] = error

    def complete(self) -> None:
        self.completed += 1


def test_a_reply_over_several_shards_is_sent_with_its_last_part_and_only_failed_parts_are_errors() -> None:
    shards = [Register(), Register(), Register()]
    shards[0].write(b"1")
    shards[2].write(b"1")
    reply = WholeReply(3)
    parts = ReplyParts(reply, 3)
    for number, shard in enumerate(shards):
        shard.hold.hold_reply(parts.part(number))
    assert reply.completed == 0
    taken(shards[2].hold)
    shards[2].hold.confirm(1)
    assert reply.completed == 0
    shards[0].hold.fail(16)
    assert reply.completed == 1
    assert reply.parts == [16, 0, 0]


def test_a_reply_of_no_parts_is_complete_at_once() -> None:
    reply = WholeReply(0)
    ReplyParts(reply, 0)
    assert reply.completed == 1


STEPS: dict[str, Callable[[Register], object]] = {
    "write": lambda r: r.write(b"%d" % (r.hold.emitted + 1)),
    "read": lambda r: r.read(),
    "take": lambda r: taken(r.hold),
    "confirm": lambda r: r.hold.confirm(r.hold.taken),
    "fail": lambda r: r.hold.fail(56),
}


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=40))
def test_no_successful_reply_precedes_its_facts(steps: list[str]) -> None:
    register = Register()
    log: list[Fact] = []
    pending: list[Fact] = []
    for step in steps:
        if step == "take":
            pending += taken(register.hold)
        elif step == "confirm":
            log += pending
            pending.clear()
            STEPS[step](register)
        elif step == "fail":
            pending.clear()
            STEPS[step](register)
            register.value = (log[-1][1] or b"") if log else b""
        else:
            STEPS[step](register)
        written = {value for _, value in log} | {b""}
        assert all(reply.value in written for reply in register.sent if reply.error == 0)

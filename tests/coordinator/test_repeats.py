"""A commit that comes again by the short way, and whom it is not for. (Every playbook takes it where it may.)"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import Fact, Hold
from protocol.batch import facts_of, validate
from protocol.batch_writing import form_of, write_facts
from tests.coordinator.asking import Nobody
from tests.coordinator.playbook import Play

Setting = Callable[[Play], object]


def committed(play: Play, actor: str | None, short: bool, offsets: dict[tuple[str, int], int], **how: object) -> list[Fact]:
    """The facts of one commit, by the short way or not."""
    repeats, before = play.repeats, len(play.log)
    if not short:
        play.repeats = None
    play.commit(actor, offsets, **how).expect()  # type: ignore[arg-type]
    play.repeats = repeats
    return play.log[before:]


SEVERAL = {("t0", 0): 5, ("t0", 300): 6, ("t1", 2): 1 << 40}


@pytest.mark.parametrize("wanted", [{("t0", 0): 5}, {("t0", 1): 7, ("t0", 0): -1}, SEVERAL])
@pytest.mark.parametrize("actor", ["a", None])
@pytest.mark.parametrize("metadata", ["", None, "some", {("t0", 0): "one", ("t1", 2): None}])
@pytest.mark.parametrize("epoch", [-1, 7])
def test_both_ways_leave_the_same(
    play: Play, wanted: dict[tuple[str, int], int], actor: str | None, metadata: str | dict[tuple[str, int], str | None] | None, epoch: int
) -> None:
    if actor:
        play.s1()
    how = {"metadata": metadata, "epoch": epoch}
    committed(play, actor, True, wanted, **how)
    assert play.repeats
    later = {place: offset + 10 for place, offset in wanted.items()}
    play.at(1_000)
    short = committed(play, actor, True, later, **how)
    assert short == committed(play, actor, False, later, **how) != []
    assert play.fetch_all() == later


def refused_short(play: Play, change: Setting, actor: str | None = "a", **how: object) -> None:
    """What went the short way does so no longer once `change` has happened."""
    committed(play, actor, True, SEVERAL, **how)
    (repeat,) = play.repeats.values() if play.repeats else ()
    shard = play._serving
    change(play)
    emitted, offsets = shard.hold.emitted, play.fetch_all()
    deadlines = {member.id: member.deadline for group in shard.groups.values() for member in group.members.values()}
    assert not repeat.again(shard, [bytes(8)] * 3, Nobody(), play.now)
    assert (shard.hold.emitted, play.fetch_all()) == (emitted, offsets)
    assert deadlines == {member.id: member.deadline for group in shard.groups.values() for member in group.members.values()}


def test_not_while_the_group_completes_a_rebalance(play: Play) -> None:
    play.s2()

    def completing(play: Play) -> None:
        play.join("a", metadata=b"other")
        play.join("b")
        assert play._serving.groups["g"].state.name == "COMPLETING"
        play._serving.groups["g"].generation = 1  # nothing but the state says no

    refused_short(play, completing)


def test_not_with_an_older_generation(play: Play) -> None:
    play.s1()

    def moved(play: Play) -> None:
        play._serving.groups["g"].generation = 2

    refused_short(play, moved)
    play._serving.groups["g"].generation = 1


@pytest.mark.parametrize("others", [(), ("b",)])
def test_not_for_a_member_that_left(play: Play, others: tuple[str, ...]) -> None:
    play.settled("a", *others)
    refused_short(play, lambda play: play.leave("a"))


def test_not_for_a_member_that_was_replaced(play: Play) -> None:
    play.s1()

    def renamed(play: Play) -> None:
        (member,) = play._serving.groups["g"].members.values()
        member.instance_id = "another"

    refused_short(play, renamed)
    (member,) = play._serving.groups["g"].members.values()
    member.instance_id = "ia"


def test_not_without_a_generation_once_somebody_joined(play: Play) -> None:
    refused_short(play, lambda play: play.s1(), None)


def test_not_for_a_group_that_is_gone(play: Play) -> None:
    refused_short(play, lambda play: play.delete(), None)


@pytest.mark.parametrize("gone", [[("t1", 2)], [("t0", 0), ("t0", 300)]])
def test_not_where_nothing_is_kept_of_a_topic_any_more(play: Play, gone: list[tuple[str, int]]) -> None:
    refused_short(play, lambda play: play.offset_delete(*gone), None)


def test_not_where_nothing_is_kept_of_the_only_topic(play: Play) -> None:
    committed(play, None, True, {("t0", 0): 1})
    committed(play, None, True, {("t1", 0): 1})
    (repeat, _) = play.repeats.values() if play.repeats else (None, None)
    play.offset_delete(("t0", 0))
    assert repeat is not None
    assert not repeat.again(play._serving, [bytes(8)], Nobody(), play.now)


def test_it_keeps_a_member_alive(play: Play) -> None:
    play.s1()
    play.commit("a", {("t0", 0): 1})
    for second in range(9, 60, 9):
        play.at(second * 1_000)
        committed(play, "a", True, {("t0", 0): second})
    play.heartbeat("a").expect()


@pytest.mark.parametrize("before", [0, 1, 63, 64, 1_000, 1_023, 8_100, 8_191, 8_192, 1_100_000])
@pytest.mark.parametrize("count", [1, 2, 70, 200])
def test_records_are_those_of_plain_facts_wherever_they_stand_in_a_batch(before: int, count: int) -> None:
    facts: list[Fact] = [(b"key%d" % number, b"v" * (number % 3 + 24)) for number in range(count)]
    plain: list[bytes] = []
    write_facts(plain, facts, before)
    prepared: list[bytes] = []
    values = [value for _, value in facts if value is not None]
    form = form_of([key for key, _ in facts], [len(value) for value in values])
    for _ in range(2):
        prepared.clear()
        form.write(prepared, values, before)
    assert b"".join(prepared) == b"".join(plain)
    assert form.facts(values) == facts


FACTS = st.lists(st.tuples(st.binary(min_size=1, max_size=200), st.binary(min_size=24, max_size=30)), min_size=1, max_size=30)


@given(st.lists(st.tuples(st.booleans(), FACTS), min_size=1, max_size=10))
def test_a_batch_has_the_facts_in_their_order_however_they_came(steps: list[tuple[bool, list[Fact]]]) -> None:
    """Up to where offset deltas take two bytes, and beyond."""
    plain, prepared = Hold(), Hold()
    for short, facts in steps:
        plain.emit(facts)
        if short:
            values = [value for _, value in facts if value is not None]
            form = form_of([key for key, _ in facts], [len(value) for value in values])
            prepared.emit_values(form, values, 1, Nobody())
        else:
            prepared.emit(facts)
    assert prepared.emitted == plain.emitted
    batch = bytes(prepared.take_batch(1 << 30, 5_000))
    assert batch == bytes(plain.take_batch(1 << 30, 5_000))
    assert list(facts_of(batch)) == [fact for _, facts in steps for fact in facts]
    assert validate(batch, 0, len(batch)).record_count == prepared.taken

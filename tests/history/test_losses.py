"""Stories of which notes were lost: what is told is true, what is not known is said to be, and nothing is missing without a word.

The truth is the story that all notes and records tell. Groups live at random, in the real coordinator; then notes are taken away.
"""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from coordinator.notes import Coordinator
from coordinator.states import State
from history import Deleted, End, Entry, Image, Lost, Missing, Moved, Rebalance, Told, moves_of, story_of
from history.words import title
from protocol.messages.coordinator_notes import CoordinatorChange, RoundEnd
from tests.coordinator.playbook import COMPLETING, EMPTY, PREPARING, STABLE
from tests.history.conftest import NotedPlay

FOREVER = 1 << 62


# Lives of a group.


class Life:
    """A group of some members that come, go, expire, restart and are called together, through crashes."""

    def __init__(self, play: NotedPlay, seed: int) -> None:
        self.play = play
        self.chance = random.Random(seed)
        self.names: list[str] = []  # who is in, as far as it knows
        self.count = 0

    def lead(self, steps: int) -> None:
        acts = [self.join] * 4 + [self.leave, self.expire, self.rejoin, self.restart_member, self.offer] * 2
        acts += [self.settle] * 8 + [self.crash, self.restart, self.empty, self.delete]
        for _ in range(steps):
            self.chance.choice(acts)()
            self.play.after(self.chance.choice((0, 1, 50, 700, 1_500)))
            self.sift()
        self.settle()

    @property
    def state(self) -> State | None:
        group = self.play._of("g")
        return group.state if group is not None else None

    def sift(self) -> None:
        group = self.play._of("g")
        self.names = [name for name in self.names if group is not None and self.play.id_of(name) in group.members]

    def join(self) -> None:
        if len(self.names) < 4:
            name = f"n{self.count}"
            self.count += 1
            static = self.chance.random() < 0.4
            self.play.join(name, instance=f"i{name}" if static else None, version=9 if static else 3, rebalance=4_000, session=10_000)
            self.names.append(name)

    def settle(self) -> None:
        """Whoever is in rejoins and syncs."""
        play = self.play
        self.sift()
        for _ in range(3):
            if self.state is PREPARING:
                for name in self.names:
                    if play.group().members[play.id_of(name)].join is None:
                        play.join(name)
                        play.now += self.chance.choice((0, 0, 5, 1_200))
                        self.sift()
                if self.state is PREPARING:
                    play.after(4_000)
                self.sift()
            if self.state is COMPLETING:
                group = play.group()
                leader = next((name for name in self.names if play.id_of(name) == group.leader), None)
                if leader is not None:
                    play.sync(leader, self.shares(group.generation), generation=group.generation)
                    for name in self.names:
                        if name != leader:
                            play.sync(name, generation=group.generation)
            if self.state in (STABLE, EMPTY, None):
                return

    def shares(self, generation: int) -> dict[str, object]:
        from protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition
        from protocol.records import with_version

        parts: dict[str, list[int]] = {name: [] for name in self.names}
        for number in range(5):
            parts[self.chance.choice(self.names)].append(number)
        return {
            name: with_version(ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition("t", some)]), 0)
            for name, some in parts.items()
        }

    def leave(self) -> None:
        if self.names:
            self.play.leave(*self.chance.sample(self.names, self.chance.randint(1, min(2, len(self.names)))))

    def empty(self) -> None:
        if self.names:
            self.play.leave(*self.names)

    def expire(self) -> None:
        if self.names:
            alive = self.chance.sample(self.names, len(self.names) - 1)
            self.play.alive(*alive)
            self.play.after(10_100)
            self.play.silent(*alive)

    def rejoin(self) -> None:
        if self.names:
            self.play.join(self.chance.choice(self.names))

    def offer(self) -> None:
        if self.names:
            self.play.join(self.chance.choice(self.names), metadata=b"\0\0" + bytes([0, 0, 0, 1, 0, 2, 116, self.chance.randint(97, 122)]) + b"\0\0\0\0")

    def restart_member(self) -> None:
        statics = [name for name in self.names if self.play.group().members[self.play.id_of(name)].instance_id is not None]
        if statics:
            name = self.chance.choice(statics)
            self.names[self.names.index(name)] = name + "'"
            self.play.join(name + "'")

    def crash(self) -> None:
        self.play.crash()

    def restart(self) -> None:
        self.play.restart()

    def delete(self) -> None:
        if self.state is EMPTY and not self.play.group().pending:
            self.play.delete()


# What may be told.


def rebalances(entries: Iterable[Entry]) -> list[Rebalance]:
    return [entry for entry in entries if isinstance(entry, Rebalance)]


def seats(one: Rebalance | Missing) -> list[tuple[object, ...]]:
    """A restarted static member has another id in the same seat."""
    return [(move.partition, move.before and move.before.seat, move.after and move.after.seat) for move in moves_of(one) or []]


def until(one: Rebalance) -> int:
    return one.ended_ms if one.ended_ms >= 0 else FOREVER


def spans(entries: list[Entry]) -> list[int]:
    """When each was over at the latest."""
    over = []
    for at, one in enumerate(entries):
        if isinstance(one, Rebalance):
            over.append(one.ended_ms if one.ended_ms >= 0 else next((at_end(other) for other in entries[at + 1 :]), FOREVER))
    return over


def false_in(told: Rebalance, truth: Rebalance, over: int, recorded: bool) -> str:
    """What is told of a rebalance and is not so."""
    wrong = []

    def must(what: str, holds: object) -> None:
        if not holds:
            wrong.append(what)

    must("began", told.began_ms == truth.began_ms if told.whole else truth.began_ms <= told.began_ms <= over)
    must("ended", told.ended_ms in (-1, truth.ended_ms) or told.end is End.UNKNOWN)
    must("from_generation", told.from_generation in (-1, truth.from_generation))
    must("to_generation", told.to_generation in (-1, truth.to_generation))
    must("from_state", told.from_state in (None, truth.from_state))
    must("cause", told.cause in (None, truth.cause))
    must("end", told.end in (End.UNKNOWN, truth.end) or (told.end, truth.end) == (End.OPEN, End.INTERRUPTED) or (told.end is End.OPEN and not recorded))
    must("mover", told.mover in (None, truth.mover))
    must("members_before", told.members_before in (-1, truth.members_before))
    must("members_after", told.members_after in (-1, truth.members_after))
    must("joined", {one.instance_id or one.member_id for one in told.joined} <= {one.instance_id or one.member_id for one in truth.joined})
    rejoined = {one.member_id for one in truth.came if one.again} | {one.member_id for one in truth.joined}
    must("rejoined", {one.member_id for one in told.came if one.again} <= rejoined)
    must("went", set(told.went) <= set(truth.went))
    must("returned", set(told.returned) <= set(truth.returned))
    must("laggards", set(told.laggards) <= set(truth.laggards))
    must("also", not Counter(told.also) - Counter(truth.also))
    must("rounds", told.rounds <= truth.rounds)
    must("join_ms", told.join_ms in (-1, truth.join_ms))
    must("sync_ms", told.sync_ms in (-1, truth.sync_ms))
    last = told.last_to_come
    must("last_to_come", last is None or (truth.last_to_come is not None and last.member_id == truth.last_to_come.member_id))
    must("moved", moves_of(told) is None or seats(told) == seats(truth))
    if told.complete:
        must("complete", truth.end is told.end or told.end is End.OPEN)
        must("complete", (told.rounds, told.also, set(told.went)) == (truth.rounds, truth.also, set(truth.went)) or told.end is End.OPEN)
        must("title", title(told) == title(truth) or told.end is End.OPEN)
    return ", ".join(wrong)


def check(told: list[Entry], truth: list[Entry], *, recorded: bool = True) -> None:
    real = rebalances(truth)
    over = spans(truth)
    seen: dict[int, list[Rebalance]] = {}
    for one in rebalances(told):
        places = [at for at, real_one in enumerate(real) if real_one.began_ms <= one.began_ms <= over[at]]
        wrong = [false_in(one, real[at], over[at], recorded) for at in places]
        assert "" in wrong, f"told {short(one)}, but it was {[(w, short(real[at])) for w, at in zip(wrong, places, strict=True)]}, in\n" + "\n".join(short(entry)[:400] for entry in told)
        # In one millisecond a rebalance can end and another one begin.
        fitting = [at for at, why in zip(places, wrong, strict=True) if not why]
        seen.setdefault(min(fitting, key=lambda at: (at in seen, at)), []).append(one)
    for at, twice in seen.items():
        assert len(twice) == 1 or all(one.end is End.UNKNOWN or not one.whole for one in twice), f"{real[at]} is told twice: {twice}"
    gaps = [entry for entry in told if isinstance(entry, Missing)]
    for gap in gaps:
        inside = [one for one in real if gap.after_ms <= until(one) and one.began_ms <= gap.before_ms and one.end in (End.STABLE, End.EMPTY)]
        assert gap.least <= len(inside), f"{short(gap)} has only {inside}"
        if gap.after is not None:
            found = [one for one in real if one.after is not None and one.after.offset <= gap.after.offset][-1]
            assert gap.to_generation == found.to_generation
            assert gap.from_generation in (-1, found.from_generation) or gap.least != gap.most or gap.most > 1
            if gap.least == gap.most == 1 and gap.from_generation >= 0:
                assert moves_of(gap) is None or seats(gap) == seats(found)
    # Nothing is missing without a word.
    vague = [*gaps, *[entry for entry in told if isinstance(entry, (Lost, Deleted)) or (isinstance(entry, Moved) and (entry.orderly is False or entry.dropped))]]
    # Without records nobody can say what came after the last note of the group.
    last = max((at_end(entry) for entry in told if recorded or not isinstance(entry, Moved)), default=-1)
    first = next((entry for entry in told if not isinstance(entry, Moved)), None)
    born = first.began_ms if isinstance(first, Rebalance) and first.from_generation == 0 else -1
    for at, one in enumerate(real):
        if over[at] < born:  # another group of that name, of which neither log has anything left
            continue
        if at in seen or over[at] > last - (not recorded):
            continue
        if one.end in (End.STABLE, End.EMPTY):
            covering = [gap for gap in gaps if gap.after_ms <= over[at] and one.began_ms <= gap.before_ms and gap.most]
            covering += [entry for entry in told if isinstance(entry, Deleted) and not entry.recorded and entry.at_ms >= over[at]]  # type: ignore[misc]
            if not recorded:  # all that is known is that the end is not
                covering += [entry for entry in rebalances(told) if entry.end is End.UNKNOWN and entry.began_ms <= one.began_ms]  # type: ignore[misc]
                covering += [entry for entry in told if isinstance(entry, Moved) and entry.orderly is False and entry.at_ms >= one.began_ms]  # type: ignore[misc]
        else:
            covering = [gap for gap in vague if at_end(gap) >= one.began_ms]
            covering += [other for other in rebalances(told) if not other.complete and other.began_ms >= one.began_ms]  # type: ignore[misc]
        assert covering, f"nothing is said of {short(one)} in\n" + "\n".join(short(entry)[:400] for entry in told)


def short(entry: Entry) -> str:
    """Without the bytes of assignments."""
    return re.sub(r"stored=GroupMetadataValue.*?\]\)", "stored", str(entry))


def at_end(entry: Entry) -> int:
    if isinstance(entry, Rebalance):
        return max(entry.began_ms, entry.ended_ms)
    if isinstance(entry, Missing):
        return entry.before_ms
    return entry.at_ms


# What may be lost.


def losses(notes: list[Told], chance: random.Random) -> Iterator[list[Told]]:
    of_group = [at for at, one in enumerate(notes) if one.group]
    for at in of_group:
        yield notes[:at] + notes[at + 1 :]
    for _ in range(30):
        first = chance.randrange(len(notes))
        length = chance.randint(1, 25)
        yield notes[:first] + notes[first + length :]
        yield [one for at, one in enumerate(notes) if not (first <= at < first + length and one.group)]
    for share in (0.05, 0.2, 0.5, 0.9):
        for _ in range(8):
            yield [one for one in notes if chance.random() > share]
            yield [one for one in notes if not one.group or chance.random() > share]
    yield []


def unloaded(left: list[Told], notes: list[Told]) -> list[Told]:
    """A coordinator that is unloaded says how many notes it could not write since the last one of the group."""
    kept = {id(one) for one in left}
    found: list[Told] = []
    lost = 0
    for one in notes:
        if id(one) in kept:
            if isinstance(one.body, CoordinatorChange) and one.body.what == Coordinator.UNLOADED:
                header = copy.copy(one.header)
                header.dropped = lost
                one = one._replace(header=header)
            found.append(one)
            lost = 0
        else:
            lost += bool(one.group)
    return found


def compacted(images: list[Image], chance: random.Random) -> list[Image]:
    """The newest of those that were cleaned, and all that were not."""
    return images[chance.randrange(len(images) + 1) :] if images else []


@pytest.mark.parametrize("seed", range(12))
def test_what_is_told_is_true_whatever_notes_are_lost(play: NotedPlay, seed: int) -> None:
    life = Life(play, seed)
    life.lead(40)
    notes, images = play.told, play.images
    truth = story_of("g", notes, images, whole=True, recorded=True)
    assert not [entry for entry in truth if isinstance(entry, (Missing, Lost))]
    check(truth, truth)
    chance = random.Random(seed)
    for left in losses(notes, chance):
        for records in (images, compacted(images, chance), []):
            told = story_of("g", unloaded(left, notes), records, whole=True, recorded=records is images and chance.random() < 0.5)
            check(told, truth, recorded=bool(records))


def test_what_moved_is_told_only_where_the_record_before_is_of_the_generation_before(play: NotedPlay) -> None:
    """A reader that has lost its way to the records between must not compare with an older one."""
    life = Life(play, 3)
    for _ in range(3):
        life.join()
        life.settle()
    notes, images = play.told, play.images
    settled = [entry.after for entry in rebalances(story_of("g", notes, images, whole=True, recorded=True))]
    first, _, last = [image for image in settled if image is not None]
    for records, known in (([first, last], False), (images, True)):
        told = rebalances(story_of("g", [note for note in notes if note.header.generation != 2 or note.body.__class__ is not RoundEnd], records))
        assert (moves_of(told[-1]) is not None) is known

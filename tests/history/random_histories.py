"""Random histories of a group, and their notes with random losses."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from coordinator.notes import ShardChange
from coordinator.policies.door import rules_of
from coordinator.policies.target_size import TargetSize
from coordinator.states import State
from history import Entry, GroupRecord, NoteRecord, story_of
from protocol.messages.coordinator_notes import CoordinatorChange
from tests.history.conftest import NotedPlay

# Histories.


class RandomHistory:
    """A group whose members join, leave, expire, restart and rejoin at random, with crashes of the coordinator."""

    static_share = 0.4

    def __init__(self, play: NotedPlay, seed: int, *, suspended: bool = False) -> None:
        self.play = play
        self.suspended = suspended
        self.chance = random.Random(seed)
        self.names: list[str] = []  # names of the current members
        self.count = 0

    def play_steps(self, steps: int) -> None:
        actions = self.actions()
        for _ in range(steps):
            self.chance.choice(actions)()
            self.play.after(self.chance.choice((0, 1, 50, 700, 1_500)))
            self.drop_removed()
        self.settle()

    def actions(self) -> list[Callable[[], None]]:
        actions = [self.join] * 4 + [self.leave, self.expire, self.rejoin, self.restart_member, self.offer] * 2
        actions += [self.settle] * 8 + [self.crash, self.restart, self.empty, self.delete]
        return actions + [self.suspend] * 3 if self.suspended else actions

    @property
    def state(self) -> State | None:
        group = self.play._of("g")
        return group.state if group is not None else None

    def drop_removed(self) -> None:
        group = self.play._of("g")
        self.names = [name for name in self.names if group is not None and self.play.id_of(name) in group.members]

    def join(self) -> None:
        if len(self.names) < 4:
            name = f"n{self.count}"
            self.count += 1
            static = self.chance.random() < self.static_share
            self.play.join(name, instance=f"i{name}" if static else None, version=9 if static else 3, rebalance=4_000, session=10_000)
            self.names.append(name)

    def settle(self) -> None:
        """All members rejoin and sync."""
        play = self.play
        self.drop_removed()
        for _ in range(3):
            if self.state is State.PREPARING:
                for name in self.names:
                    if (member := play.group().members.get(play.id_of(name))) is not None and member.join_waiter is None:
                        play.join(name)
                        play.now += self.chance.choice((0, 0, 5, 1_200))
                        self.drop_removed()
                if self.state is State.PREPARING:
                    play.after(4_000)
                self.drop_removed()
            if self.state is State.COMPLETING:
                group = play.group()
                leader = next((name for name in self.names if play.id_of(name) == group.leader), None)
                if leader is not None:
                    play.sync(leader, self.shares(group.generation), generation=group.generation)
                    for name in self.names:
                        if name != leader:
                            play.sync(name, generation=group.generation)
            if self.state in (State.STABLE, State.EMPTY, None):
                return

    def shares(self, generation: int) -> dict[str, bytes | int]:
        from protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition
        from protocol.records import with_version

        parts: dict[str, list[int]] = {name: [] for name in self.names}
        for number in range(5):
            parts[self.chance.choice(self.names)].append(number)
        return {
            name: with_version(ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition("t", partitions)]), 0)
            for name, partitions in parts.items()
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
            self.play.keep_alive(*alive)
            self.play.after(10_100)
            self.play.stop_heartbeats(*alive)

    def rejoin(self) -> None:
        if self.names:
            self.play.join(self.chance.choice(self.names))

    def offer(self) -> None:
        if self.names:
            self.play.join(self.chance.choice(self.names), metadata=b"\0\0" + bytes([0, 0, 0, 1, 0, 2, 116, self.chance.randint(97, 122)]) + b"\0\0\0\0")

    def restart_member(self) -> None:
        members = self.play.group().members if self.names else {}
        statics = [name for name in self.names if (member := members.get(self.play.id_of(name))) is not None and member.instance_id is not None]
        if statics:
            name = self.chance.choice(statics)
            self.names[self.names.index(name)] = name + "'"
            self.play.join(name + "'")

    def crash(self) -> None:
        self.play.crash()

    def restart(self) -> None:
        self.play.restart()

    def suspend(self) -> None:
        """Suspend the shard, mostly with an append in flight."""
        if self.chance.random() < 0.7:
            self.play.hold_appends()
            self.chance.choice((self.join, self.leave, self.rejoin, self.settle))()
        self.play.suspend()

    def delete(self) -> None:
        if self.state is State.EMPTY and not self.play.group().pending_members:
            self.play.delete()


POLICIES = {
    "registration.timeout.ms": ("1000", "12000"),
    "expansion.timeout.ms": ("1000", "3000"),
    "target.group.size": ("1", "2"),
    "instance.ids": ("in0, in1, in2, in3", "in[4-9]"),
    "roster.timeout.ms": ("2000",),
    "roster.strict": ("true", "false"),
    "pending.release": ("true",),
}


class PolicyHistory(RandomHistory):
    """A group whose policies change at random too."""

    static_share = 0.7

    def actions(self) -> list[Callable[[], None]]:
        return [*super().actions(), *[self.set_policies] * 4, *[self.fall_silent] * 3, *[self.take_over] * 4]

    def drop_removed(self) -> None:
        group = self.play._of("g")
        newcomers = self.play.newcomers() if group is not None else []
        members = {*newcomers, *(group.members if group is not None else ()), *(group.static_members if group is not None else ())}
        self.names = [name for name in self.names if members & {self.play.id_of(name), f"i{name.rstrip(chr(39))}"}]

    def set_policies(self) -> None:
        chosen = self.chance.sample(sorted(POLICIES), self.chance.randint(0, 3))
        self.play.set_policies({name: self.chance.choice(POLICIES[name]) for name in chosen})

    def fall_silent(self) -> None:
        """Let the sessions of all members end, or of all but one."""
        self.drop_removed()
        alive = self.chance.sample(self.names, min(len(self.names), self.chance.randint(0, 1)))
        self.play.keep_alive(*alive)
        self.play.after(self.chance.choice((10_100, 12_000, 25_000)))
        self.play.stop_heartbeats(*alive)

    def take_over(self) -> None:
        """Let the members that take over a seat join and sync in the present generation."""
        self.drop_removed()
        group = self.play._of("g")
        rules = rules_of(group, TargetSize) if group is not None else None
        if group is None or rules is None:
            return
        for name in self.names:
            if self.play.id_of(name) in rules.take_overs and self.chance.random() < 0.8:
                self.play.join(name)
                self.play.sync(name, generation=group.generation)


# Lost notes.


def losses(notes: list[NoteRecord], chance: random.Random) -> Iterator[list[NoteRecord]]:
    of_group = [at for at, note in enumerate(notes) if note.group]
    for at in of_group:
        yield notes[:at] + notes[at + 1 :]
    for _ in range(30):
        first = chance.randrange(len(notes))
        length = chance.randint(1, 25)
        yield notes[:first] + notes[first + length :]
        yield [note for at, note in enumerate(notes) if not (first <= at < first + length and note.group)]
    for share in (0.05, 0.2, 0.5, 0.9):
        for _ in range(8):
            yield [note for note in notes if chance.random() > share]
            yield [note for note in notes if not note.group or chance.random() > share]
    yield []


def unloaded(kept_notes: list[NoteRecord], notes: list[NoteRecord]) -> list[NoteRecord]:
    """The kept notes. Those about unloads and suspensions give the number of the group's notes that were lost since the kept note before."""
    kept_ids = {id(note) for note in kept_notes}
    selected: list[NoteRecord] = []
    lost = 0
    for note in notes:
        if id(note) in kept_ids:
            if isinstance(note.body, CoordinatorChange) and note.body.what in (ShardChange.UNLOADED, ShardChange.SUSPENDED):
                header = copy.copy(note.header)
                header.dropped = lost
                note = note._replace(header=header)
            selected.append(note)
            lost = 0
        else:
            lost += bool(note.group)
    return selected


def compacted(group_records: list[GroupRecord], chance: random.Random) -> list[GroupRecord]:
    """The records that remain after a compaction: a random number of the newest records."""
    return group_records[chance.randrange(len(group_records) + 1) :] if group_records else []


class DamagedHistory(NamedTuple):
    """A history from which some notes were removed, and perhaps some records."""

    notes: list[NoteRecord]
    records: list[GroupRecord]
    recorded: bool

    def story(self) -> list[Entry]:
        return story_of("g", self.notes, self.records, from_start=True, records_complete=self.recorded)


def damaged_histories(history: RandomHistory, seed: int) -> Iterator[DamagedHistory]:
    """For each loss of notes, three histories: with all records, with those that a compaction leaves, and without records."""
    notes, group_records = history.play.note_records, history.play.group_records
    chance = random.Random(seed)
    for remaining_notes in losses(notes, chance):
        for records in (group_records, compacted(group_records, chance), []):
            yield DamagedHistory(unloaded(remaining_notes, notes), records, records is group_records and chance.random() < 0.5)

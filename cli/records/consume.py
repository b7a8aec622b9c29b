"""`tenure consume`: alone, from where --from says; or as a member of a group, from where the group is."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Final

from cli.client import EXIT, Cluster, Failure
from cli.failure import UNKNOWN_PARTITION
from cli.records.batches import Chunk
from cli.records.commits import Commits, committed_offsets
from cli.records.fetching import Fetcher
from cli.records.heartbeats import Seat
from cli.records.interrupts import Interrupted, Interrupts
from cli.records.membership import Member, Timeouts
from cli.records.output import Output
from cli.records.positions import Begin, begin_of, begin_offsets, offsets_at
from cli.shown import Screen, counted
from cli.topics.finding import required
from cli.topics.log_offsets import LATEST, Place

POLL_SECONDS: Final = 0.25
COMMIT_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 5.0  # between two looks for new partitions
PLACES_NAMED: Final = 8


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    begin = checked(options)
    output = Output(options, screen)
    try:
        with Interrupts() as interrupts, Cluster.of(options) as cluster:
            reading = Reading(options, screen, cluster, output, interrupts, begin)
            try:
                with interrupts.waiting():
                    topics = required(cluster, options.topics, makes=True)
                    reading.known = {(name, number) for name, topic in topics.items() for number in topic.partitions}
                if options.group is None:
                    reading.alone()
                else:
                    reading.in_group()
            finally:
                reading.fetcher.close()
    except Interrupted as interrupted:
        return 128 + interrupted.number
    return 0


def checked(options: argparse.Namespace) -> Begin:
    if options.group is None:
        given = [name for name, value in (("--instance", options.instance), ("--leave", options.leave), ("--no-commit", options.no_commit)) if value]
        if given:
            raise Failure(EXIT.USAGE, f"{given[0]} is for members of a group: name it with --group")
    else:
        if options.partition:
            raise Failure(EXIT.USAGE, "--partition and --group exclude each other: in a group the members share all partitions")
        if not options.group:
            raise Failure(EXIT.USAGE, "--group needs a name")
        if options.instance == "":
            raise Failure(EXIT.USAGE, "--instance needs an id")
        if options.heartbeat is None:
            options.heartbeat = min(3.0, options.session_timeout / 3)
        if options.heartbeat >= options.session_timeout:
            raise Failure(EXIT.USAGE, "--heartbeat must be shorter than --session-timeout, best a third of it")
    if options.json and (options.format is not None or options.long or options.raw):
        raise Failure(EXIT.USAGE, "--json has a look of its own: without --format, --long and --raw")
    try:
        return begin_of(options.begin or "latest")
    except ValueError as error:
        raise Failure(EXIT.USAGE, f"--from {error}") from error


class Reading:
    """The common part of reading with and without a group."""

    def __init__(
        self, options: argparse.Namespace, screen: Screen, cluster: Cluster, output: Output, interrupts: Interrupts, begin: Begin
    ) -> None:
        self.options = options
        self.screen = screen
        self.cluster = cluster
        self.output = output
        self.interrupts = interrupts
        self.begin = begin
        self.fetcher = Fetcher(cluster, screen.warn, committed=options.committed)
        self.talks = not options.quiet and (options.verbose or (sys.stderr is not None and sys.stderr.isatty()))
        self.positions: dict[Place, int] = {}  # printed up to here
        self.known: set[Place] = set()  # partitions that were there when reading, of the group too, began: --from is about these
        self._ends: dict[Place, int] | None = None
        self._last_came = time.monotonic()
        self._looked = time.monotonic()

    def tell(self, text: str) -> None:
        if self.talks:
            self.screen.warn(text)

    # Alone

    def alone(self) -> None:
        with self.interrupts.waiting():
            places = self.chosen_places()
            self.start(self.begins(places, self.begin))
        self.tell(f"reading {named(places)}, {self.begin.words}{'; Ctrl-C ends' if self.options.follow else ''}")
        while not self.is_over():
            with self.interrupts.waiting():
                chunks = self.fetcher.poll(POLL_SECONDS)
            for chunk in chunks:
                self.print(chunk)
            with self.interrupts.waiting():
                self.add_new_partitions()

    def chosen_places(self) -> list[Place]:
        topics = required(self.cluster, self.options.topics)
        places = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        if not self.options.partition:
            return places
        wanted = sorted(set(self.options.partition))
        for name, topic in topics.items():
            for number in wanted:
                if number not in topic.partitions:
                    raise Failure(EXIT.MISSING, f"--partition: topic {name} has {counted(len(topic.partitions), 'partition')}, and no {number}", word=UNKNOWN_PARTITION)
        return [place for place in places if place[1] in wanted]

    def add_new_partitions(self) -> None:
        """All that is in them was written since: they are read from their beginning."""
        if self.options.partition or not self.options.follow or time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        topics = self.cluster.topics(sorted({topic for topic, _ in self.positions}), refresh=True)
        new = [(name, number) for name, topic in topics.items() for number in topic.partitions if (name, number) not in self.positions]
        if new:
            self.tell(f"new: {named(new)}")
            self.positions |= self.begins(new, Begin("earliest"))
            self.fetcher.assign(self.positions)

    # In a group

    def in_group(self) -> None:
        options = self.options
        member = Member(
            self.cluster,
            options.group,
            options.topics,
            Timeouts(options.session_timeout, options.rebalance_timeout, options.heartbeat),
            instance_id=options.instance,
            assignors=tuple(dict.fromkeys(options.assignor or ("range", "roundrobin"))),
        )
        commits = Commits(self.cluster, member, wanted=not options.no_commit)
        orderly = False
        try:
            with self.interrupts.waiting():
                self.known = known_to_group(self.known, committed_offsets(self.cluster, options.group, self.known))
            self.share(member, commits)
            orderly = True
        except (KeyboardInterrupt, BrokenPipeError):
            orderly = True
            raise
        finally:
            member.rest()
            # A fenced member has nothing to give up, and a failed dynamic member must not keep its partitions for a session.
            try:
                if member.seat is not None and orderly:
                    commits.commit(member.seat)
            finally:
                if options.instance is None or (options.leave and orderly):
                    member.leave()

    def share(self, member: Member, commits: Commits) -> None:
        seat = self.take_seat(member, commits, None)
        while not self.is_over():
            with self.interrupts.waiting():
                chunks = self.fetcher.poll(POLL_SECONDS) if seat.places else self.nothing_to_read(member)
            for chunk in chunks:
                self.print(chunk, commits)
            stands = not member.lost
            if stands and commits.due and (not chunks or commits.age >= COMMIT_SECONDS):
                stands = commits.commit(seat)
            if stands and time.monotonic() - self._looked >= LOOK_SECONDS:
                self._looked = time.monotonic()
                stands = not member.outgrown
                if not stands:
                    self.begin_new_partitions(commits)
            if not stands and not self.output.done:
                commits.commit(seat)
                seat = self.take_seat(member, commits, seat)

    def begin_new_partitions(self, commits: Commits) -> None:
        """Commit their beginning: a member that gets one later, and started later, does not know that they are new."""
        topics = self.cluster.topics(sorted({topic for topic, _ in self.known}))
        new = [(name, number) for name, topic in topics.items() for number in topic.partitions if (name, number) not in self.known]
        committed = committed_offsets(self.cluster, self.options.group, new)
        begins = self.begins([place for place in new if place not in committed], Begin("earliest"))
        for place, offset in begins.items():
            commits.note(place, offset)

    def nothing_to_read(self, member: Member) -> list[Chunk]:
        member.wait(POLL_SECONDS)
        return []

    def take_seat(self, member: Member, commits: Commits, before: Seat | None) -> Seat:
        group = self.options.group
        self.tell(f"joining group {group}" if before is None else f"group {group} rebalances: joining again")
        uncommitted = commits.drop()
        with self.interrupts.waiting():
            seat = member.join()
            committed = committed_offsets(self.cluster, group, seat.places)
            # Printed, not committed in time, and not assigned to another member since: it need not be printed again.
            if before is not None and seat.generation == before.generation + 1:
                committed |= {place: self.positions[place] for place in uncommitted if place in seat.places}
            new = [place for place in seat.places if place not in committed]
            # All records of a partition added in the meantime are new: it is read from its beginning.
            started = self.begins([place for place in new if place in self.known], self.begin)
            started |= self.begins([place for place in new if place not in self.known], Begin("earliest"))
            self.start({place: (committed | started)[place] for place in seat.places})
        for place in {*new, *uncommitted} & set(seat.places):
            commits.note(place, self.positions[place])
        commits.commit(seat)  # at once: a partition without a committed offset counts as unread by the group
        lost = [place for place in uncommitted if place not in seat.places or seat.generation != (before.generation + 1 if before else 0)]
        if lost:
            self.screen.warn(f"the group rebalanced before {named(lost)} could be committed: some of it may be read again")
        as_whom = f"instance {self.options.instance}" if self.options.instance else f"member {seat.member_id}"
        what = named(seat.places) if seat.places else "no partitions, others have them"
        self.tell(f"{as_whom} of group {group}, generation {seat.generation}: {what}{f' ({member.leads})' if member.leads else ''}")
        return seat

    # Both

    def begins(self, places: Iterable[Place], begin: Begin) -> dict[Place, int]:
        return begin_offsets(self.cluster, places, begin, self.screen.warn, committed=self.options.committed)

    def start(self, positions: dict[Place, int]) -> None:
        self.positions = dict(positions)
        self.fetcher.assign(positions)
        self._last_came = time.monotonic()
        self._ends = None
        if not self.options.follow:
            self._ends = offsets_at(self.cluster, positions, LATEST, committed=self.options.committed) if positions else {}

    def print(self, chunk: Chunk, commits: Commits | None = None) -> None:
        place = (chunk.topic, chunk.partition)

        def printed(offset: int) -> None:
            self.positions[place] = offset
            if commits is not None:
                commits.note(place, offset)

        if not self.output.done:
            self.output.put(chunk, printed)
            if chunk.found:
                self._last_came = time.monotonic()

    def is_over(self) -> bool:
        if self.output.done:
            return True
        if self._ends is not None and all(self.fetcher.positions[place] >= end for place, end in self._ends.items()):
            return True
        return self.options.idle is not None and time.monotonic() - self._last_came >= self.options.idle


def known_to_group(places: Iterable[Place], committed: Mapping[Place, int]) -> set[Place]:
    """Partitions that were there when the group began to read their topics. Members commit where they begin in each partition, records
    or not: in a topic of which the group has offsets, a partition without one was added since, and is read from its beginning."""
    topics = {topic for topic, _ in committed}
    return {place for place in places if place in committed or place[0] not in topics}


def named(places: Iterable[Place]) -> str:
    """Partitions, by topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    if not topics:
        return "no partitions"
    parts = []
    for topic, numbers in list(topics.items())[:PLACES_NAMED]:
        listed = ",".join(map(str, numbers[:PLACES_NAMED])) + (f" and {len(numbers) - PLACES_NAMED} more" if len(numbers) > PLACES_NAMED else "")
        parts.append(f"{topic}-{listed}")
    return ", ".join(parts) + (" and more topics" if len(topics) > PLACES_NAMED else "")

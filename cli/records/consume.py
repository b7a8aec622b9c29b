"""`tenure consume`: reads all partitions from the position in --from, or as a member of a group from the committed offsets."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Final

from cli.client import Cluster, Exit, Failure, Limits, TopicPartition, by_topic
from cli.failure import UNKNOWN_PARTITION, UNKNOWN_TOPIC
from cli.groups.partition_problems import by_error, failures_of, reason, report
from cli.records.batches import Chunk
from cli.records.beginning import Beginnings
from cli.records.commits import Commits, committed_offsets
from cli.records.fetching import Fetcher, MissingTopics
from cli.records.heartbeats import Seat
from cli.records.interrupts import Interrupts
from cli.records.membership import Member, Timeouts
from cli.records.output import Output
from cli.records.positions import StartPosition, begin_offsets, parse_position
from cli.records.until import EndPosition, Ends, parse_until
from cli.shown import Screen, counted
from cli.topics.finding import required_topics
from history.moves import list_partitions

POLL_SECONDS: Final = 0.25
PAUSE_SECONDS: Final = 0.1
COMMIT_SECONDS: Final = 1.0
METADATA_SECONDS: Final = 5.0  # between two checks for new partitions and deleted topics
PARTITIONS_NAMED: Final = 8


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    begin = checked_start(options)
    until = checked_end(options)
    options.endless = until is None and options.limit is None and options.idle is None
    output = Output(options, screen)
    with Interrupts() as interrupts, Cluster.of(options) as cluster:
        consumption = Consumption(options, screen, cluster, output, interrupts, begin, until)
        try:
            with interrupts.waiting():
                topics = required_topics(cluster, options.topics, creatable=True)
                consumption.known_partitions = {(name, number) for name, topic in topics.items() for number in topic.partitions}
            if options.group is None:
                consumption.read_all()
            else:
                consumption.read_as_member()
            return consumption.report_unread()
        finally:
            consumption.fetcher.close()


def checked_start(options: argparse.Namespace) -> StartPosition:
    if options.group is None:
        used = [name for name, value in (("--instance", options.instance), ("--leave", options.leave), ("--no-commit", options.no_commit)) if value]
        if used:
            raise Failure(Exit.USAGE, f"{used[0]} is for members of a group: name it with --group")
    else:
        if options.partition:
            raise Failure(Exit.USAGE, "--partition and --group exclude each other: in a group the members share all partitions")
        if not options.group:
            raise Failure(Exit.USAGE, "--group needs a name")
        if options.instance == "":
            raise Failure(Exit.USAGE, "--instance needs an id")
        if options.heartbeat is None:
            options.heartbeat = min(3.0, options.session_timeout / 3)
        if options.heartbeat >= options.session_timeout:
            raise Failure(Exit.USAGE, "--heartbeat must be shorter than --session-timeout, best a third of it")
    if options.json and (options.format is not None or options.long or options.raw):
        raise Failure(Exit.USAGE, "--json excludes --format, --long and --raw")
    try:
        return parse_position(options.begin or "latest")
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--from {error}") from error


def checked_end(options: argparse.Namespace) -> EndPosition | None:
    if options.until is not None and not options.follow:
        raise Failure(Exit.USAGE, "--until and --no-follow exclude each other: --no-follow is --until end")
    try:
        return parse_until("end" if not options.follow else options.until)
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--until {error}") from error


def member_limits(options: argparse.Namespace, limits: Limits) -> Limits:
    """The time limits of a member's calls: at least the session timeout, in which another broker takes over from a failed one. --timeout overrides."""
    return limits if options.timeout is not None else limits._replace(call=max(limits.call, options.session_timeout))


class Consumption:
    """Reads and prints records, with or without a group."""

    def __init__(
        self,
        options: argparse.Namespace,
        screen: Screen,
        cluster: Cluster,
        output: Output,
        interrupts: Interrupts,
        begin: StartPosition,
        until: EndPosition | None,
    ) -> None:
        self.options = options
        self.screen = screen
        self.cluster = cluster
        self.output = output
        self.interrupts = interrupts
        self.begin = begin
        self.ends = Ends(cluster, until, committed=options.committed)
        self.beginnings = Beginnings(cluster, self.ends, screen.warn, committed=options.committed)
        alone = options.group is None
        self.fetcher = Fetcher(cluster, screen.warn, committed=options.committed, endless=alone and until is None, gives_up=alone and until is not None)
        self.verbose = not options.quiet and (options.verbose or (sys.stderr is not None and sys.stderr.isatty()))
        self.positions: dict[TopicPartition, int] = {}  # the next offset to print
        self.known_partitions: set[TopicPartition] = set()  # partitions to which --from applies: they existed when this command or its group started
        self._last_record = time.monotonic()
        self._metadata_checked = time.monotonic()
        self._missing_topics = MissingTopics()
        self._told: set[TopicPartition] = set()  # partitions of which a line says that they are not read yet

    def report_progress(self, text: str) -> None:
        if self.verbose:
            self.screen.warn(text)

    # Without a group

    def read_all(self) -> None:
        with self.interrupts.waiting():
            partitions = self.chosen_partitions()
            self.beginnings.add(partitions, self.begin)
            self.begin_more(self.beginnings.next() or self.beginnings.next(patient=True))
            self._last_record = time.monotonic()
            self.tell_not_begun()
        self.report_progress(f"reading {partitions_text(partitions)}, {self.begin.text}{self.ends.text}{'; Ctrl-C ends' if self.options.endless else ''}")
        while not self.is_done():
            self.cluster.patience.renew()
            with self.interrupts.waiting():
                chunks = self.fetcher.poll(POLL_SECONDS)
            for chunk in chunks:
                self.print(chunk)
            with self.interrupts.waiting():
                self.add_new_partitions()
                self.begin_more(self.beginnings.next())
                self.tell_not_begun()

    def chosen_partitions(self) -> list[TopicPartition]:
        topics = required_topics(self.cluster, self.options.topics)
        partitions = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        if not self.options.partition:
            return partitions
        numbers = sorted(set(self.options.partition))
        for name, topic in topics.items():
            for number in numbers:
                if number not in topic.partitions:
                    raise Failure(Exit.MISSING, f"--partition: topic {name} has {counted(len(topic.partitions), 'partition')}, and no {number}", kind=UNKNOWN_PARTITION)
        return [tp for tp in partitions if tp[1] in numbers]

    def add_new_partitions(self) -> None:
        """Add partitions created since the last check. Read them from their start, since all of their records are new."""
        if self.options.partition or self.ends.at_present_end or time.monotonic() - self._metadata_checked < METADATA_SECONDS:
            return
        self._metadata_checked = time.monotonic()
        known = self.positions.keys() | self.beginnings.errors.keys()
        topics = self.cluster.topics(sorted({topic for topic, _ in known}), refresh=True)
        new = [(name, number) for name, topic in topics.items() for number in topic.partitions if (name, number) not in known]
        if new:
            self.report_progress(f"new: {partitions_text(new)}")
            self.beginnings.add(new, StartPosition("earliest"))

    def begin_more(self, positions: dict[TopicPartition, int]) -> None:
        if positions:
            self.positions |= positions
            self.fetcher.assign(self.positions)

    # Partitions whose leaders do not answer

    def lost(self) -> dict[TopicPartition, Failure]:
        """The partitions that could not be read for --timeout, or where reading could not begin, and why."""
        not_begun = failures_of(self.beginnings.errors) if self.beginnings.given_up(self.cluster.limits.call) else {}
        return self.fetcher.outages(self.cluster.limits.call) | not_begun

    def tell_not_begun(self) -> None:
        """Say, without an end in sight, which partitions are not read yet, and when they are. With an end, `report_unread` says it there."""
        errors = self.beginnings.errors
        if self.ends.at_present_end:
            return
        for error, partitions in by_error({tp: error for tp, error in errors.items() if tp not in self._told}).items():
            self.screen.warn(f"{list_partitions(partitions)} cannot be read at the moment, and will be when it can: {reason(error).removesuffix('; try again')}")
        if begun := self._told - errors.keys():
            self.screen.warn(f"{list_partitions(begun)} is read now")
        self._told = set(errors)

    def report_unread(self) -> int:
        """At the end: name the partitions that were not read, or not to their ends. Returns the exit code."""
        if self.output.done:
            return Exit.DONE  # as many records as --limit asked for
        outages = self.fetcher.outages(0)
        behind = {tp: outages[tp] for tp in self.ends.behind(self.positions, outages)}
        return max(report(self.screen, failures_of(self.beginnings.errors), "{} not read"), report(self.screen, behind, "{} not read to the end"))

    # In a group

    def read_as_member(self) -> None:
        options = self.options
        member = Member(
            self.cluster,
            options.group,
            options.topics,
            Timeouts(options.session_timeout, options.rebalance_timeout, options.heartbeat, options.timeout),
            instance_id=options.instance,
            assignors=tuple(dict.fromkeys(options.assignor or ("range", "roundrobin"))),
            report=(lambda text: None) if options.quiet else self.screen.warn,
        )
        commits = Commits(self.cluster, member, enabled=not options.no_commit)
        limits = self.cluster.limits
        self.cluster.limits = member_limits(options, limits)
        orderly = False
        try:
            with self.interrupts.waiting():
                committed = committed_offsets(self.cluster, options.group, self.known_partitions)
                self.known_partitions = known_partitions_of_group(self.known_partitions, committed)
            self.read_assigned_partitions(member, commits)
            orderly = True
        except Failure as failure:
            if failure.kind == UNKNOWN_TOPIC:
                with self.interrupts.waiting():
                    self.await_topics()
            raise
        except (KeyboardInterrupt, BrokenPipeError):
            orderly = True
            raise
        finally:
            self.cluster.limits = limits
            member.stop_heartbeats()
            # A fenced member has no seat to leave. A failed dynamic member leaves too, or its partitions would wait for its session timeout.
            try:
                if member.seat is not None and orderly:
                    commits.commit(member.seat)
            finally:
                if options.instance is None or (options.leave and orderly):
                    member.leave()

    def read_assigned_partitions(self, member: Member, commits: Commits) -> None:
        seat = self.rejoin(member, commits, None)
        while not self.is_done():
            self.cluster.patience.renew()
            with self.interrupts.waiting():
                chunks = self.fetcher.poll(POLL_SECONDS) if seat.partitions else self.wait_without_partitions(member)
            for chunk in chunks:
                self.print(chunk, commits)
            seat_valid = not member.must_rejoin
            with self.interrupts.waiting():
                if seat_valid and commits.due and (not chunks or commits.seconds_since_commit >= COMMIT_SECONDS):
                    seat_valid = commits.commit(seat)
                if seat_valid and time.monotonic() - self._metadata_checked >= METADATA_SECONDS and self.all_topics_exist():
                    self._metadata_checked = time.monotonic()
                    seat_valid = not member.partitions_changed
                    if not seat_valid:
                        self.commit_new_partitions(commits)
            if not seat_valid and not self.output.done:
                seat = self.rejoin(member, commits, seat)

    def all_topics_exist(self) -> bool:
        """Whether the cluster knows all topics of the subscription now. Raises Failure for a deleted one.

        The fetcher checks only the topics of which this member has partitions.
        """
        return self._missing_topics.all_exist(self.cluster.topics(self.options.topics, refresh=True))

    def await_topics(self) -> None:
        """Wait until the cluster knows all topics of the subscription. Raises Failure for a deleted one."""
        while not self.all_topics_exist():
            time.sleep(PAUSE_SECONDS)

    def commit_new_partitions(self, commits: Commits) -> None:
        """Commit the start offsets of new partitions: without these, a member that starts later could not tell that a partition is new."""
        topics = self.cluster.topics(sorted({topic for topic, _ in self.known_partitions}))
        new = [(name, number) for name, topic in topics.items() for number in topic.partitions if (name, number) not in self.known_partitions]
        committed = committed_offsets(self.cluster, self.options.group, new)
        start_offsets = self.start_offsets([tp for tp in new if tp not in committed], StartPosition("earliest"))
        for tp, offset in start_offsets.items():
            commits.add(tp, offset)

    def wait_without_partitions(self, member: Member) -> list[Chunk]:
        member.wait(POLL_SECONDS)
        return []

    def rejoin(self, member: Member, commits: Commits, before: Seat | None) -> Seat:
        group = self.options.group
        self.report_progress(f"joining group {group}" if before is None else f"group {group} rebalances: joining again")
        if before is not None:
            with self.interrupts.waiting():
                self.await_topics()  # a member that joins while its topic is being deleted would get no partitions
                commits.commit(before)
        uncommitted = commits.take_uncommitted()
        with self.interrupts.waiting():
            seat = member.join()
            committed = committed_offsets(self.cluster, group, seat.partitions)
            # Printed records of these partitions were not committed in time. No other member has owned the partitions since: do not print them again.
            if before is not None and seat.generation == before.generation + 1:
                committed |= {tp: self.positions[tp] for tp in uncommitted if tp in seat.partitions}
            new = [tp for tp in seat.partitions if tp not in committed]
            # A partition added meanwhile is read from its start.
            started = self.start_offsets([tp for tp in new if tp in self.known_partitions], self.begin)
            started |= self.start_offsets([tp for tp in new if tp not in self.known_partitions], StartPosition("earliest"))
            self.start({tp: (committed | started)[tp] for tp in seat.partitions})
        for tp in {*new, *uncommitted} & set(seat.partitions):
            commits.add(tp, self.positions[tp])
        with self.interrupts.waiting():
            commits.commit(seat)  # at once: a partition without a committed offset counts as new
        not_committed = [tp for tp in uncommitted if tp not in seat.partitions or seat.generation != (before.generation + 1 if before else 0)]
        if not_committed:
            self.screen.warn(f"the group rebalanced before {partitions_text(not_committed)} could be committed: some of their records may be read again")
        identity = f"instance {self.options.instance}" if self.options.instance else f"member {seat.member_id}"
        assignment = partitions_text(seat.partitions) if seat.partitions else "no partitions; other members have them"
        remark = f" ({member.leader_remark})" if member.leader_remark else ""
        self.report_progress(f"{identity} of group {group}, generation {seat.generation}: {assignment}{remark}")
        return seat

    # With and without a group

    def start_offsets(self, partitions: Iterable[TopicPartition], begin: StartPosition) -> dict[TopicPartition, int]:
        return begin_offsets(self.cluster, partitions, begin, self.screen.warn, committed=self.options.committed)

    def start(self, positions: dict[TopicPartition, int]) -> None:
        self.positions = dict(positions)
        self.fetcher.assign(positions)
        self._last_record = time.monotonic()
        self.ends.assign(positions)

    def print(self, chunk: Chunk, commits: Commits | None = None) -> None:
        tp = (chunk.topic, chunk.partition)

        def printed(offset: int) -> None:
            self.positions[tp] = offset
            if commits is not None:
                commits.add(tp, offset)

        chunk = self.ends.cut(chunk)
        if not self.output.done and chunk.next_offset > self.positions[tp]:
            self.output.print_records(chunk, printed)
            if chunk.records:
                self._last_record = time.monotonic()

    def is_done(self) -> bool:
        if self.output.done:
            return True
        lost = self.lost()
        waits = self.beginnings.errors.keys() - lost.keys()
        if not waits and self.ends.reached(self.fetcher.positions, lost):
            return True
        return self.options.idle is not None and time.monotonic() - self._last_record >= self.options.idle


def known_partitions_of_group(partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """The partitions that existed when the group began to read their topics.

    Members commit a start offset for every partition. So in a topic with committed offsets, a partition without one was added later, and is
    read from its start.
    """
    topics = {topic for topic, _ in committed}
    return {tp for tp in partitions if tp in committed or tp[0] not in topics}


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """The partitions by topic, as text."""
    topics = by_topic(partitions)
    if not topics:
        return "no partitions"
    parts = []
    for topic, numbers in list(topics.items())[:PARTITIONS_NAMED]:
        listed = ",".join(map(str, numbers[:PARTITIONS_NAMED])) + (f" and {len(numbers) - PARTITIONS_NAMED} more" if len(numbers) > PARTITIONS_NAMED else "")
        parts.append(f"{topic}-{listed}")
    return ", ".join(parts) + (" and more topics" if len(topics) > PARTITIONS_NAMED else "")

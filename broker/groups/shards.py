"""The partitions of __consumer_offsets on this node: finding the partition of a group, and loading.

Partitions are replayed one after another, in slices between which the event loop runs. A partition that is not loaded yet, or cannot be
read, refuses its requests; all others serve.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from broker.groups.group_journal import LOADING, NOT_OURS, SUSPENDED, GroupJournal, NoteWriter
from broker.groups.journal import UNREADABLE
from broker.groups.limit_lines import LimitLines
from broker.internal_topics import CONSUMER_OFFSETS
from broker.logging.logs import log
from broker.runtime.contain import Contained, report_defect, run_contained
from broker.runtime.turn import Turn
from coordinator import GroupConfig, partition_of
from coordinator.classic.kept import KeptBytes
from coordinator.consumer.topics import Topic, TopicsView
from protocol.errors import ProtocolError
from storage import DamagedLog, HeldBy, LogId, LogStore, OwnedLog, Unreadable

# The length of one slice of loading; its last step may take some milliseconds longer.
SLICE_SECONDS = 0.008
REMOTE_READ_RETRY_SECONDS = 0.002  # before the next records of a remote log are requested again
PROGRESS_SECONDS = 5.0
# The pause before another attempt to read a log.
UNREADABLE_RETRY_SECONDS = 15.0
# After a defect a partition is reloaded at once, or after a pause if the last reload was less than CALM_SECONDS ago.
CALM_SECONDS = 10.0
RELOAD_SECONDS_MIN = 0.25
RELOAD_SECONDS_MAX = 15.0

# The partition of each group is cached: computing it costs more than the rest of a heartbeat. Clients choose group names,
# so the cache is bounded.
GROUPS_CACHED_MAX = 1 << 16
GROUP_ID_CACHED_MAX = 256

GROUPS_COMPARED = 100  # in each loaded partition: groups whose names are checked to belong to it
GROUPS_NAMED = 5  # misplaced or unfounded groups in a log line

IDS_PER_CALL = 256
_VARIANT = "89ab"


class FreshIds:
    """Generates random UUIDs (version 4) as text: one system call for many, without UUID objects."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._digits = ""
        self._at = 0

    def __call__(self) -> str:
        at = self._at
        if at == len(self._digits):
            self._digits = self._random(16 * IDS_PER_CALL).hex()
            at = 0
        self._at = at + 32
        h = self._digits
        variant = _VARIANT[int(h[at + 16], 16) & 3]
        return f"{h[at : at + 8]}-{h[at + 8 : at + 12]}-4{h[at + 13 : at + 16]}-{variant}{h[at + 17 : at + 20]}-{h[at + 20 : at + 32]}"


class Shards:
    """All partitions by number; `journal_of` returns the journal of a group's partition."""

    def __init__(
        self,
        partitions: int,
        config: GroupConfig,
        store: LogStore,
        turn: Turn,
        loop: asyncio.AbstractEventLoop,
        append_timeout_ms: int,
        note_writer: NoteWriter,
        loaded: Callable[[], None],
        fresh_id: Callable[[], str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        loading: Callable[[], None] = lambda: None,
        load_ended: Callable[[GroupJournal, HeldBy | str], None] | None = None,
        acquire_concurrency: int = 1,
        topic_of: Callable[[str], Topic | None] = lambda name: None,
    ) -> None:
        """`load_ended`: given if other nodes may own partitions; called after each load: with "" (loaded), the reason why it
        failed, or the node that owns the log.

        `acquire_concurrency`: the number of logs that are acquired at the same time; they are replayed one after another.

        `topic_of`: the topic of this name as groups see it; None: it does not exist. `topic_changed` tells of each change.
        """
        self._acquire_concurrency = acquire_concurrency
        self._load_ended = load_ended
        self._store = store
        self._loop = loop
        self._loading = loading  # called when loading begins
        self._loaded = loaded  # called when all requested partitions are loaded or refused
        self._monotonic = monotonic
        self._journal_of_group: dict[str, GroupJournal] = {}
        self._reload_pauses: dict[GroupJournal, tuple[float, float]] = {}  # until when another defect delays the reload; the last pause
        self._queue: deque[GroupJournal] = deque()
        self._acquiring: dict[GroupJournal, float] = {}  # with their start times
        self._opened: deque[tuple[GroupJournal, OwnedLog | HeldBy | Unreadable | None]] = deque()  # acquired or failed; None: the journal has its log
        self._current: GroupJournal | None = None
        self._steps: Iterator[bool] | None = None
        self._scheduled = False
        self._busy = False
        self._load_began: float  # start of the current partition's load
        self._loading_began: float  # start of loading, when the queue was empty
        self._reported_at: float
        self._finished: list[GroupJournal] = []
        self._stopped = False
        self._changed_topics: set[str] = set()
        self._topic_of = topic_of
        self.topics = TopicsView()  # as all groups see them
        fresh_id = fresh_id or FreshIds()
        self.kept = KeptBytes()
        limit_lines = LimitLines()
        self.journals = [
            GroupJournal(
                number,
                f"{CONSUMER_OFFSETS}-{number}",
                config,
                fresh_id,
                turn,
                append_timeout_ms,
                note_writer,
                self._reload,
                self.kept,
                limit_lines,
                self.topics,
            )
            for number in range(partitions)
        ]
        for journal in self.journals:
            turn.add_deadline_handler(journal)

    def journal_of(self, group_id: str) -> GroupJournal:
        """The journal of the partition that the group belongs to."""
        journal = self._journal_of_group.get(group_id)
        return journal if journal is not None else self._find(group_id)

    def _find(self, group_id: str) -> GroupJournal:
        journal = self.journals[partition_of(group_id, len(self.journals))]
        if len(group_id) <= GROUP_ID_CACHED_MAX:
            if len(self._journal_of_group) >= GROUPS_CACHED_MAX:
                self._journal_of_group.clear()
            self._journal_of_group[group_id] = journal
        return journal

    @property
    def progress(self) -> str:
        """The progress of loading, and why partitions do not serve, in a line for people; "" when all partitions of this node serve."""
        refusing = [journal for journal in self.journals if journal.refusal]
        if not refusing:
            return ""
        with_reason = [journal for journal in refusing if journal.refusal_reason]
        parts = []
        loading = sum(journal.refusal == LOADING for journal in refusing)
        if loading:
            parts.append(f"{len(self.journals) - len(refusing)} of {len(self.journals)} partitions loaded")
        if with_reason:
            first = with_reason[0]
            more = f" and {len(with_reason) - 1} more" if len(with_reason) > 1 else ""
            parts.append(f"partition {first.partition} ({first.refusal_reason}){more}")
        if self._load_ended is not None:  # other nodes serve the other partitions
            return "; ".join(parts)
        return "; ".join(parts) or f"{len(refusing)} of {len(self.journals)} partitions are not served here"

    # Loading.

    def load_all(self) -> None:
        """Load all partitions; new partitions need no reading and serve at once."""
        self._scheduled = True  # so that `load` schedules nothing: `_load_slice` is called below
        for number in range(len(self.journals)):
            self.load(number)
        self._load_slice()

    def load(self, partition: int) -> None:
        """Queue a partition that this node now owns for loading."""
        journal = self.journals[partition]
        if journal.refusal == NOT_OURS:
            journal.await_load()
            self._enqueue(journal)

    def _reload(self, journal: GroupJournal) -> None:
        """Queue a partition for another replay; after repeated defects, with growing pauses."""
        now = self._monotonic()
        until, pause = self._reload_pauses.get(journal, (0.0, 0.0))
        if not journal.defective:
            self._enqueue(journal)
        elif now >= until:
            self._reload_pauses[journal] = now + CALM_SECONDS, 0.0
            self._enqueue(journal)
        else:
            pause = min(2 * pause, RELOAD_SECONDS_MAX) or RELOAD_SECONDS_MIN
            self._reload_pauses[journal] = now + pause + CALM_SECONDS, pause
            self._loop.call_later(pause, Contained(self._reload_later), journal)

    def _reload_later(self, journal: GroupJournal) -> None:
        if journal.refusal == SUSPENDED:
            self._enqueue(journal)

    def _enqueue(self, journal: GroupJournal) -> None:
        if self._stopped or journal is self._current or journal in self._acquiring or journal in self._queue:
            return
        if not self._busy:
            self._busy = True
            self._loading_began = self._reported_at = self._monotonic()
            self._loading()
        self._queue.append(journal)
        self._schedule_work()

    def _schedule_work(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(Contained(self._load_slice, self._work_failed))

    def _load_slice(self) -> None:
        self._scheduled = False
        until = self._monotonic() + SLICE_SECONDS
        while not self._stopped:
            if self._queue and len(self._acquiring) < self._acquire_concurrency and (self._acquire_concurrency > 1 or self._current is None):
                self._acquire(self._queue.popleft())
            elif self._steps is not None:
                if not self._run_step(self._steps):
                    self._scheduled = True
                    self._loop.call_later(REMOTE_READ_RETRY_SECONDS, Contained(self._load_slice, self._work_failed))
                    return
            elif self._opened:
                self._replay(*self._opened.popleft())
            elif self._acquiring:
                return
            else:
                if self._busy:
                    self._end_loading()
                return
            if self._monotonic() >= until:
                self._log_progress()
                self._schedule_work()
                return

    def _work_failed(self) -> None:
        """Refuse the partition whose load raised, and load the next partitions."""
        if self._current is not None:
            self._refuse(self._current, "there is a defect in this version", False)
        self._schedule_work()

    def _acquire(self, journal: GroupJournal) -> None:
        self._acquiring[journal] = self._monotonic()
        if journal.owns_log:
            self._opened.append((journal, None))
        else:
            failed = partial(self._acquired, journal, Unreadable("there is a defect in this version", False))
            acquired = Contained(partial(self._acquired, journal), failed)
            if not run_contained(self._store.acquire, LogId(CONSUMER_OFFSETS, journal.partition), acquired):
                failed()

    def _acquired(self, journal: GroupJournal, result: OwnedLog | HeldBy | Unreadable) -> None:
        self._opened.append((journal, result))
        self._schedule_work()

    def _replay(self, journal: GroupJournal, result: OwnedLog | HeldBy | Unreadable | None) -> None:
        """Replay the log that was acquired, or refuse its partition."""
        self._current = journal
        self._load_began = self._acquiring.pop(journal)
        if isinstance(result, HeldBy) and self._load_ended is not None:
            self._current = None
            journal.refuse("")
            self._load_ended(journal, result)
        elif isinstance(result, HeldBy):
            self._refuse(journal, f"it is held by {result.holder}", True)
        elif isinstance(result, Unreadable):
            self._refuse(journal, result.reason, result.damaged)
        else:
            if result is not None:
                journal.use_log(result)
            self._steps = journal.replay()

    def _warn_of_misplaced(self, journal: GroupJournal) -> None:
        """Warn of groups that no request reaches, since the hash of their names selects another partition."""
        groups = [group.id for group in islice(journal.shard.all_groups(), GROUPS_COMPARED)]
        misplaced = [id for id in groups if partition_of(id, len(self.journals)) != journal.partition]
        if misplaced:
            log.warning(
                "groups are in a wrong partition, and cannot be used",
                log=journal.name,
                groups=len(misplaced),
                compared=len(groups),
                examples=misplaced[:GROUPS_NAMED],
                partitions=len(self.journals),
            )

    def _warn_of_unfounded(self, journal: GroupJournal) -> None:
        """Warn of assignments and targets that belong to no group: its other records are lost."""
        groups = journal.shard.unfounded
        if groups:
            log.warning(
                "assignments of members that are not in the log are ignored",
                log=journal.name,
                groups=len(groups),
                examples=groups[:GROUPS_NAMED],
            )

    def _run_step(self, steps: Iterator[bool]) -> bool:
        """Returns False when the next step has to wait."""
        journal = self._current
        assert journal is not None
        try:
            return next(steps)
        except StopIteration:
            self._current = self._steps = None
            self._finished.append(journal)
            try:
                self._warn_of_misplaced(journal)
                self._warn_of_unfounded(journal)
                journal.serve(round((self._monotonic() - self._load_began) * 1000))
            except Exception as failure:
                report_defect("an offsets partition failed to load", failure, log=journal.name)
                self._refuse(journal, "there is a defect in this version", False)
            else:
                if self._load_ended is not None:
                    self._load_ended(journal, "")
        except ProtocolError as error:
            reason = (
                f"a record in it cannot be decoded ({error}): start the version that wrote it, or move its folder away to continue without it"
            )
            self._refuse(journal, reason, True)
        except UNREADABLE as unreadable:
            self._refuse(journal, str(unreadable), isinstance(unreadable, DamagedLog))
        except Exception as failure:
            report_defect("an offsets partition failed to load", failure, log=journal.name)
            self._refuse(journal, "there is a defect in this version", True)
        return True

    def _refuse(self, journal: GroupJournal, reason: str, permanently: bool) -> None:
        self._current = self._steps = None
        journal.refuse(reason)
        log.error(
            "partition of groups cannot be read",
            log=journal.name,
            reason=reason,
            again="after a restart" if permanently else f"in {UNREADABLE_RETRY_SECONDS:.0f} s",
        )
        if self._load_ended is not None:
            self._load_ended(journal, reason)
        elif not permanently:
            self._loop.call_later(UNREADABLE_RETRY_SECONDS, Contained(self._retry_load), journal)

    def _retry_load(self, journal: GroupJournal) -> None:
        if journal.refusal_reason:
            self.load(journal.partition)

    def _log_progress(self) -> None:
        now = self._monotonic()
        if now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = now
            log.info("loading offsets", progress=self.progress)

    def _end_loading(self) -> None:
        self._busy = False
        journals, self._finished = self._finished, []
        if any(journal.replayed for journal in journals):
            log.info(
                "offsets loaded",
                partitions=len(journals),
                groups=sum(len(list(journal.shard.all_groups())) for journal in journals),
                offsets=sum(journal.offsets for journal in journals),
                ms=round((self._monotonic() - self._loading_began) * 1000),
            )
        self._loaded()

    def topic_changed(self, name: str) -> None:
        """Change the topics that groups see, after this turn, and notify them: a topic was created or deleted, or got partitions."""
        if not self._changed_topics:
            self._loop.call_soon(Contained(self._notify_groups))
        self._changed_topics.add(name)

    def _notify_groups(self) -> None:
        changed, self._changed_topics = self._changed_topics, set()
        self.see_topics(changed)
        for journal in self.journals:
            journal.topics_changed(changed)

    def see_topics(self, names: Iterable[str]) -> None:
        """Look these topics up, which may be new, other or gone, before any group is asked about them."""
        found = {name: self._topic_of(name) for name in names}
        self.topics.change([topic for topic in found.values() if topic is not None], [name for name, topic in found.items() if topic is None])

    @property
    def member_count(self) -> int:
        return sum(len(group.members) for journal in self.journals for group in journal.shard.all_groups())

    def stop(self) -> None:
        """Load nothing more."""
        self._stopped = True

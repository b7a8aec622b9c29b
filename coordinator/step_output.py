"""The output of one step: facts, replies and notes. The shard hands them to the hold together, at the end of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordinator.calls import JoinReply, JoinWaiter, Protocols, SyncReply, SyncWaiter
from coordinator.classic.group import Group
from coordinator.classic.kept import KeptBytes
from coordinator.classic.member import Member
from coordinator.config import GroupConfig
from coordinator.deadlines import Deadlines
from coordinator.hold import BATCH_OVERHEAD_BYTES, Fact, Held, facts_bytes
from coordinator.notes import Note, make_note
from protocol.message import Message

# Called when a bound on memory refuses a request: the setting, group id, member id and host of the client, and the bytes that were too many.
LimitSink = Callable[[str, str, str, str, int], None]

INTERNED_MAX: Final = 4_096  # of texts, and of numbers


class StepOutput:
    """Collects facts, replies and notes of a step, and gives every rule the time, limits, deadlines and a source of ids.

    Deadlines and durations use `now`, monotonic milliseconds. Stored times use `wall`, which may step ahead or back.
    """

    __slots__ = (
        "_limit_sink",
        "_numbers",
        "_texts",
        "config",
        "deadlines",
        "facts",
        "facts_bytes",
        "fresh_id",
        "kept",
        "notes",
        "now",
        "replies",
        "wall",
    )

    def __init__(
        self, config: GroupConfig, fresh_id: Callable[[], str], kept: KeptBytes | None = None, limit_sink: LimitSink | None = None
    ) -> None:
        self.config = config
        self.kept = KeptBytes() if kept is None else kept
        self._limit_sink = limit_sink
        self.fresh_id = fresh_id  # a random UUID as text
        self.deadlines = Deadlines()
        self.now = 0
        self.wall = 0
        self.facts: list[Fact] = []
        self.facts_bytes = 0  # their size in a batch, 0 if not counted yet
        self.replies: list[Held] = []
        self.notes: list[Note] = []
        self._texts: dict[str, str] = {}
        self._numbers: dict[int, int] = {}

    def intern_text(self, text: str) -> str:
        """Return one object for equal texts: members often share client ids, hosts and protocols."""
        if len(self._texts) >= INTERNED_MAX:
            self._texts.clear()
        return self._texts.setdefault(text, text)

    def intern_number(self, number: int) -> int:
        if len(self._numbers) >= INTERNED_MAX:
            self._numbers.clear()
        return self._numbers.setdefault(number, number)

    def intern_protocols(self, group: Group, protocols: Protocols) -> Protocols:
        """Return the first member's protocols if they are equal, as they mostly are: then both members share one object."""
        for member in group.members.values():
            if member.protocols == protocols:
                return member.protocols
            break
        return tuple([(self.intern_text(name), metadata) for name, metadata in protocols])

    def fits(self, facts: list[Fact]) -> bool:
        """Whether the facts of one operation fit into one batch. If not, the caller refuses the operation before it changes anything."""
        return BATCH_OVERHEAD_BYTES + facts_bytes(facts) <= self.config.batch_bytes_max

    def has_memory(self, growth: int) -> bool:
        """Whether the members of all groups may keep so many bytes more."""
        return growth <= 0 or self.kept.bytes + growth <= self.config.groups_metadata_max_bytes

    def limit_reached(self, setting: str, group_id: str, member_id: str, client_host: str, size: int) -> None:
        if self._limit_sink is not None:
            self._limit_sink(setting, group_id, member_id, client_host, size)

    def reply_join(self, waiter: JoinWaiter, id: str, reply: JoinReply) -> None:
        waiter.member_id = id
        waiter.reply = reply
        self.replies.append(waiter)

    def refuse_join(self, waiter: JoinWaiter, id: str, error: int) -> None:
        self.reply_join(waiter, id, JoinReply(error))

    def answer_sync(self, waiter: SyncWaiter, assignment: bytes, reply: SyncReply) -> None:
        waiter.assignment = assignment
        waiter.reply = reply
        self.replies.append(waiter)

    def refuse_sync(self, waiter: SyncWaiter, error: int) -> None:
        self.answer_sync(waiter, b"", SyncReply(error))

    def restart_session(self, member: Member) -> None:
        self.deadlines.set(member, self.now + member.session_timeout_ms)

    def add_note(self, group: Group, body: Message) -> None:
        self.notes.append(make_note(group, self.wall, body))

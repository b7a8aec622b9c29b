"""One consumer group: its state, members and committed offsets. Only its shard calls it, one call at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from coordinator.calls import Protocols, SyncReply
from coordinator.classic.kept import KeptBytes, member_bytes, pending_bytes, protocols_bytes
from coordinator.classic.member import Absence, Member, Newcomer, NewcomerKey, NewcomerTimer, PendingMember
from coordinator.classic.subscription import topics_of
from coordinator.classic.voting import vote
from coordinator.committed import OffsetsOwner
from coordinator.config import NOTE_BUDGET_MAX
from coordinator.states import EMPTY

if TYPE_CHECKING:
    from coordinator.policies.hooks import PolicyRules

CONSUMER = "consumer"


class Group(OffsetsOwner):
    """One consumer group. Its deadline in PREPARING is the end of the join phase; afterwards the end of the sync phase, until all have sent SyncGroup."""

    __slots__ = (
        "_holders",
        "_kept",
        "_last_record",
        "_rebalance_timeout_ms",
        "_subscribed",
        "away",
        "delay_ms",
        "delay_remaining_ms",
        "extended_since_ms",
        "generation",
        "kept_bytes",
        "laggards",
        "leader",
        "members",
        "new_member_added",
        "newcomer_timer",
        "newcomers",
        "next_note_number",
        "note_budget",
        "note_earned_ms",
        "note_numbers_since_ms",
        "notes_dropped",
        "parked_joins",
        "pending_members",
        "pending_sync",
        "phase_start_ms",
        "policies",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "rebalance_is_initial",
        "rebalance_start_ms",
        "record_changed",
        "state",
        "state_ms",
        "static_ids_changed",
        "static_members",
        "subscriptions",
        "sync_reply",
    )

    rank: ClassVar[int] = 1  # sessions (rank 0) end before a join or sync phase that ends in the same millisecond

    def __init__(self, id: str, now: int, wall: int, kept: KeptBytes | None = None) -> None:
        """`kept`: counts what the groups of all shards keep."""
        super().__init__(id)
        self._kept = KeptBytes() if kept is None else kept
        self.kept_bytes = 0  # of members, pending members, newcomers and `last_record`, as `kept.py` counts them
        self._holders: dict[int, int] = {}  # by the identity of protocols: how many members have this object
        self.state = EMPTY
        self.state_ms = wall  # wall time of the last state change, as stored; -1: unknown
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.pending_members: dict[str, PendingMember] = {}
        self.pending_sync: dict[str, None] = {}  # members without a SyncGroup since the last join phase
        self.parked_joins = 0  # members with a parked JoinGroup
        self.protocol_counts: dict[str, int] = {}
        # The first join phase of an empty group, extended while members keep joining.
        self.rebalance_is_initial = False
        self.new_member_added = False
        self.delay_ms = 0
        self.delay_remaining_ms = 0
        # Metadata of all members, since the last join phase or change of standbys; None: unknown, or not a group of consumers.
        self.subscriptions: tuple[bytes, ...] | None = None
        self._subscribed: frozenset[str] | None = None
        self.sync_reply: SyncReply | None = None  # shared by all members of the generation
        self._last_record: bytes | None = None
        self.record_changed = True  # the next group record differs in more than generation, time and assignments
        self._rebalance_timeout_ms = -1  # cached; -1: unknown
        self.static_ids_changed = False  # a static member's id may differ from the one in last_record
        self.rebalance_start_ms = now
        self.phase_start_ms = now  # the start of its current phase, join or sync: the same moment as state_ms, monotonic
        self.laggards: list[str] = []  # members that did not rejoin in time for the last join phase
        self.note_budget = NOTE_BUDGET_MAX
        self.note_earned_ms = now  # when the budget last grew
        self.notes_dropped = 0
        self.next_note_number = 0  # written and dropped notes count
        self.note_numbers_since_ms = -1  # wall time of the first note; -1: none yet
        self.away: dict[str, Absence] = {}  # members whose sessions have ended and that keep their places: no phase waits for them
        self.newcomers: dict[NewcomerKey, Newcomer] = {}  # not members yet
        self.newcomer_timer: NewcomerTimer | None = None  # made for the first newcomer that waits
        self.policies: PolicyRules | None = None  # None: no policies
        self.extended_since_ms = -1  # `phase_start_ms` of the last phase whose deadline was extended (`Deadlines.extends`)

    def due(self, out: Any, groups: Any) -> None:
        from coordinator.classic.due import phase_due

        phase_due(out, self)

    # Members.

    def add(self, member: Member) -> None:
        if not self.members:
            self.leader = member.id
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        self.keep(member_bytes(member))
        self.count_protocols(member.protocols, 1)
        if member.join_waiter is not None:
            self.parked_joins += 1
        self.invalidate_members()

    def invalidate_members(self) -> None:
        """Invalidate all values derived from the members."""
        self.record_changed = True
        self._rebalance_timeout_ms = -1
        self.version += 1

    def remove(self, member: Member) -> None:
        """Remove a member whose parked requests the caller has answered."""
        del self.members[member.id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.id:
            del self.static_members[member.instance_id]
        self.keep(-member_bytes(member))
        self.count_protocols(member.protocols, -1)
        self.pending_sync.pop(member.id, None)
        if member.join_waiter is not None:
            self.parked_joins -= 1
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)
        self.invalidate_members()

    def drop(self) -> None:
        """Called for a group that is no longer in memory: invalidate cached verdicts, and count nothing of it."""
        self.version += 1
        self.keep(-self.kept_bytes)

    def add_pending(self, pending: PendingMember) -> None:
        self.pending_members[pending.id] = pending
        self.keep(pending_bytes(pending.id))

    def pop_pending(self, id: str) -> PendingMember | None:
        pending = self.pending_members.pop(id, None)
        if pending is not None:
            self.keep(-pending_bytes(id))
        return pending

    # Memory: `kept_bytes`.

    def keep(self, change: int) -> None:
        """Count so many bytes more, or less."""
        self.kept_bytes += change
        self._kept.bytes += change

    @property
    def last_record(self) -> bytes | None:
        """The newest group record, as stored."""
        return self._last_record

    @last_record.setter
    def last_record(self, record: bytes | None) -> None:
        before = self._last_record
        self._last_record = record
        self.keep((0 if record is None else len(record)) - (0 if before is None else len(before)))

    def set_assignment(self, member: Member, assignment: bytes) -> None:
        self.keep(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def count_protocols(self, protocols: Protocols, change: int) -> None:
        """Count the protocols of a member that came (1) or went (-1)."""
        key = id(protocols)
        holders = self._holders.get(key, 0)
        if holders + change:
            self._holders[key] = holders + change
        else:
            del self._holders[key]
        if not holders or not holders + change:
            self.keep(change * protocols_bytes(protocols))
        counts = self.protocol_counts
        for name, _ in protocols:
            count = counts.get(name, 0) + change
            if count:
                counts[name] = count
            else:
                del counts[name]

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self.count_protocols(member.protocols, -1)
        member.protocols = protocols
        self.count_protocols(protocols, 1)
        self.invalidate_members()

    @property
    def all_parked(self) -> bool:
        """Whether all members have rejoined, except those that are away, and no handed-out member id is unused."""
        return self.parked_joins + len(self.away) == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' rebalance timeouts."""
        longest = self._rebalance_timeout_ms
        if longest < 0:
            longest = 0
            for member in self.members.values():
                if member.rebalance_timeout_ms > longest:
                    longest = member.rebalance_timeout_ms
            self._rebalance_timeout_ms = longest
        return longest

    # Protocols.

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether the type is the group's and all members support one of these protocols. An empty group accepts any type.

        A rejoining member's previous protocols count too.
        """
        if not protocols:
            return False
        if self.state is EMPTY:
            return bool(protocol_type)
        if protocol_type != self.protocol_type:
            return False
        size = len(self.members)
        counts = self.protocol_counts
        return not size or any(counts.get(name) == size for name, _ in protocols)

    def select_protocol(self, instead: Member | None = None, protocols: Protocols = (), extra: Protocols = ()) -> str:
        """The protocol that most members prefer among those that all members support.

        `protocols` counts instead of the protocols of the member `instead`; `extra` has the protocols of a newcomer.
        """
        offers = [protocols if member is instead else member.protocols for member in self.members.values()]
        return vote([*offers, extra] if extra else offers)

    def all_metadata(self) -> list[bytes]:
        """Each member's metadata for the selected protocol."""
        name = self.protocol_name
        all_metadata: list[bytes] = []
        offer: Protocols = ()
        metadata = b""
        for member in self.members.values():
            if member.protocols is not offer:  # members mostly share one object
                offer = member.protocols
                metadata = member.metadata(name)
            all_metadata.append(metadata)
        return all_metadata

    # Subscriptions: decoded on demand, which is rare.

    def remember_subscriptions(self, metadata: list[bytes]) -> None:
        """Keep the members' metadata, which are their subscriptions if the group is a group of consumers."""
        self._subscribed = None
        self.subscriptions = tuple(metadata) if self.protocol_type == CONSUMER else None

    @property
    def subscribed(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None: unknown."""
        if self.subscriptions is None:
            return None
        if self._subscribed is None:
            self._subscribed = topics_of(self.subscriptions)
            if self._subscribed is None:
                self.subscriptions = None
        return self._subscribed

    def subscribes_to(self, topic: str) -> bool:
        subscribed = self.subscribed
        if subscribed is None:
            return self.protocol_type == CONSUMER
        return topic in subscribed

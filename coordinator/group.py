"""One group: who is in it, in which state, and what is stored for it. Only its shard calls it, one call at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

from coordinator.calls import Protocols, SyncReply
from coordinator.config import NOTES_AT_ONCE
from coordinator.deadlines import Timed
from coordinator.member import Member, Pending
from coordinator.states import EMPTY
from coordinator.subscription import topics_of
from coordinator.voting import vote

CONSUMER = "consumer"


class Unread(Protocol):
    """Offsets that were committed and that nobody has looked at yet."""

    def fold(self, offsets: dict[str, TopicOffsets], /) -> None:
        """Put them where they belong."""
        ...


class TopicOffsets:
    """The offsets stored for one topic: encoded values by partition, and how their record keys begin."""

    __slots__ = ("key_prefix", "values")

    def __init__(self, key_prefix: bytes) -> None:
        self.key_prefix = key_prefix
        self.values: dict[int, bytes] = {}


class Group(Timed):
    """Its deadline is the end of the join phase while PREPARING, and after that the moment until which members must sync."""

    __slots__ = (
        "_longest_ms",
        "_offsets",
        "_subscribed",
        "_unread",
        "delay_ms",
        "delay_remaining_ms",
        "extended_at_ms",
        "generation",
        "id",
        "image_changed",
        "initial",
        "laggards",
        "last_image",
        "leader",
        "members",
        "new_member_added",
        "newest",
        "note_budget",
        "note_earned_ms",
        "notes_counted_from",
        "notes_dropped",
        "notes_numbered",
        "offsets_mark",
        "parked_joins",
        "pending",
        "pending_sync",
        "phase_start_ms",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "round_start_ms",
        "state",
        "state_ms",
        "static_ids_changed",
        "statics",
        "subscriptions",
        "sync_reply",
        "version",
    )

    rank: ClassVar[int] = 1  # sessions end before phases, as they begin before them

    def __init__(self, id: str, now: int, wall: int) -> None:
        super().__init__()
        self.id = id
        self.state = EMPTY
        self.state_ms = wall  # when it came into this state, as stored; -1 when a log did not tell
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}  # instance id -> member id
        self.pending: dict[str, Pending] = {}
        self.pending_sync: dict[str, None] = {}  # who has not asked for its assignment since the last join phase
        self.parked_joins = 0  # members with a parked JoinGroup
        self.protocol_counts: dict[str, int] = {}
        # The phase that begins with the first member of an empty group; it may be extended while more keep coming.
        self.initial = False
        self.new_member_added = False
        self.delay_ms = 0
        self.delay_remaining_ms = 0
        # Metadata of all members when the last join phase ended; None: not known.
        self.subscriptions: tuple[bytes, ...] | None = None
        self._subscribed: frozenset[str] | None = None
        self.sync_reply: SyncReply | None = None  # what all are told with their assignments, until the next generation
        self._offsets: dict[str, TopicOffsets] = {}
        self._unread: dict[Unread, None] = {}  # commits that are not in there yet, the newest last
        self.newest: Unread | None = None  # that one
        self.offsets_mark = object()  # another one whenever an offset has changed, but for those that are not read yet
        self.version = object()  # another one whenever a heartbeat or a commit may be answered otherwise than the same one before
        self.last_image: bytes | None = None  # the newest group record, as stored
        self.image_changed = True  # in something that is in an image, besides generation, time and assignments
        self._longest_ms = -1  # of the rebalance timeouts, -1 when it has to be looked for
        self.static_ids_changed = False  # an instance that may be in it has another member id now
        self.round_start_ms = now
        self.phase_start_ms = now  # the same moment as state_ms, for durations
        self.laggards: list[str] = []  # who did not rejoin in time for the last join phase
        self.note_budget = NOTES_AT_ONCE
        self.note_earned_ms = now  # what it earned until then is in the budget
        self.notes_dropped = 0
        self.notes_numbered = 0  # made and dropped, since the first one that was made; its time tells one count from another
        self.notes_counted_from = -1
        self.extended_at_ms = -1  # the `phase_start_ms` of the phase that was prolonged, as the log was slow

    # Members.

    def add(self, member: Member) -> None:
        if not self.members:
            self.leader = member.id
        self.members[member.id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.id
        self.count_protocols(member.protocols, 1)
        if member.join is not None:
            self.parked_joins += 1
        self.members_changed()

    def members_changed(self) -> None:
        """Members came, went or changed: what was known of all of them together is to be found anew."""
        self.image_changed = True
        self._longest_ms = -1
        self.version = object()

    def remove(self, member: Member) -> None:
        """Take it out; what is parked on it is the caller's to answer before."""
        del self.members[member.id]
        if member.instance_id is not None and self.statics.get(member.instance_id) == member.id:
            del self.statics[member.instance_id]
        self.count_protocols(member.protocols, -1)
        self.pending_sync.pop(member.id, None)
        if member.join is not None:
            self.parked_joins -= 1
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)
        self.members_changed()

    def end(self) -> None:
        """It is no more; who still has it is not to believe it."""
        self.version = object()

    def count_protocols(self, protocols: Protocols, by: int) -> None:
        counts = self.protocol_counts
        for name, _ in protocols:
            count = counts.get(name, 0) + by
            if count:
                counts[name] = count
            else:
                del counts[name]

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self.count_protocols(member.protocols, -1)
        member.protocols = protocols
        self.count_protocols(protocols, 1)
        self.members_changed()

    @property
    def all_parked(self) -> bool:
        """All members have rejoined, and nobody who was given an id is still expected."""
        return self.parked_joins == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members'."""
        longest = self._longest_ms
        if longest < 0:
            longest = 0
            for member in self.members.values():
                if member.rebalance_timeout_ms > longest:
                    longest = member.rebalance_timeout_ms
            self._longest_ms = longest
        return longest

    # Protocols.

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member that offers these could be in the group; the sender's own old offer counts as well."""
        if not protocols:
            return False
        if self.state is EMPTY:
            return bool(protocol_type)
        if protocol_type != self.protocol_type:
            return False
        size = len(self.members)
        counts = self.protocol_counts
        return not size or any(counts.get(name) == size for name, _ in protocols)

    def select_protocol(self, instead: Member | None = None, protocols: Protocols = ()) -> str:
        """The protocol that most members prefer among those that all support; `protocols` as if `instead` offered them."""
        return vote([protocols if member is instead else member.protocols for member in self.members.values()])

    def all_metadata(self) -> list[bytes]:
        """What each member says about the selected protocol."""
        name = self.protocol_name
        found: list[bytes] = []
        offer: Protocols = ()
        metadata = b""
        for member in self.members.values():
            if member.protocols is not offer:  # mostly all have the same
                offer = member.protocols
                metadata = member.metadata(name)
            found.append(metadata)
        return found

    # Subscriptions: read when somebody asks, which is rare.

    def remember_subscriptions(self, metadata: list[bytes]) -> None:
        """What the members are subscribed to counts as of the end of a join phase (or of a replay)."""
        self._subscribed = None
        self.subscriptions = tuple(metadata) if self.protocol_type == CONSUMER else None

    @property
    def subscribed(self) -> frozenset[str] | None:
        """The topics that members subscribe to, None when that cannot be told."""
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

    # Offsets: a commit that comes again is only kept, and read when somebody asks. Mostly the next one of the kind comes before.

    @property
    def offsets(self) -> dict[str, TopicOffsets]:
        if self.newest is not None:
            self._read_all()
        return self._offsets

    @offsets.setter
    def offsets(self, offsets: dict[str, TopicOffsets]) -> None:
        self._offsets = offsets

    def keep(self, commit: Unread) -> None:
        """It is newer than all before; called again for one that is kept already, it is that once more."""
        self._unread.pop(commit, None)
        self._unread[commit] = None
        self.newest = commit

    def let_go(self, commit: Unread) -> None:
        """Keep it no longer, only its offsets."""
        if commit in self._unread:
            self._read_all()

    def _read_all(self) -> None:
        self.newest = None
        for commit in self._unread:
            commit.fold(self._offsets)
        self._unread.clear()
        self.changed_offsets()

    def changed_offsets(self) -> None:
        """What was read of its offsets before is not to be told again."""
        self.offsets_mark = object()

    def all_offsets(self) -> Iterable[tuple[str, int, bytes]]:
        for topic, stored in self.offsets.items():
            for partition, value in stored.values.items():
                yield topic, partition, value

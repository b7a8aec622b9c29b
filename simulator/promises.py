"""The promises of Tenure about groups, each as a check of the replies to clients. tests/simulator/bugs has a planted bug for each.

The broker acts at some unknown moment between a request and its reply. So clients know the order of two requests only if the first was
answered before the second was sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from simulator.world import MS, SECOND, Broken, Promise, World, format_time

GroupPartition = tuple[str, str, int]  # group, topic, partition
NONE: Final = -1  # no committed offset
KEPT_NS: Final = 120 * SECOND  # how long replaced values are remembered
FOREVER: Final = 1 << 62
CLAIMS_KEPT: Final = 50  # for each instance id


class Clock(Protocol):
    """The clock: of the simulated world, or of a soak test, which runs real brokers for long."""

    @property
    def now(self) -> int: ...


class SentValue:
    """A committed offset or a removal. It took effect between `sent` and `settled_at`, if at all; after `replaced` no reader may see it."""

    __slots__ = ("acknowledged", "refused", "replaced", "sent", "settled_at", "value")

    def __init__(self, value: int, sent: int) -> None:
        self.value = value
        self.sent = sent
        self.settled_at = FOREVER
        self.acknowledged = False
        self.refused = False
        self.replaced = FOREVER


class Offsets:
    """No acknowledged commit is lost, and no read returns an offset older than an acknowledged one or one read before.

    All committed values differ, so each partition is a register whose readers and writers must agree on one order.
    """

    promise = Promise(
        "offsets",
        "an acknowledged commit is not lost, and an OffsetFetch never returns an offset older than an acknowledged one or one read before; a commit is refused while its generation is not assigned, and only then",
        has_offsets=True,
    )

    def __init__(self, world: Clock) -> None:
        self._world = world
        self._registers: dict[GroupPartition, _Register] = {}
        self._last = 0

    def _of(self, partition: GroupPartition) -> _Register:
        register = self._registers.get(partition)
        if register is None:
            register = self._registers[partition] = _Register()
        return register

    def send(self, partitions: Iterable[GroupPartition]) -> list[int]:
        """Draw the offsets of a commit that is sent now: each differs from all earlier ones."""
        now = self._world.now
        values = []
        for partition in partitions:
            self._last = value = self._last + 1
            register = self._of(partition)
            written = register.by_value[value] = SentValue(value, now)
            register.visible.append(written)
            values.append(value)
        return values

    def send_removal(self, partition: GroupPartition) -> SentValue:
        removal = SentValue(NONE, self._world.now)
        self._of(partition).visible.append(removal)
        return removal

    def acknowledged(self, partition: GroupPartition, value: int | SentValue) -> None:
        now = self._world.now
        register = self._of(partition)
        written = value if isinstance(value, SentValue) else register.find(value)
        assert written is not None
        written.acknowledged = True
        if written.settled_at > now:
            written.settled_at = now
        sent = written.sent
        superseded = [other for other in register.visible if other.settled_at < sent]
        if superseded:
            register.replace(superseded, now)

    def unknown(self, partition: GroupPartition, value: int | SentValue) -> None:
        """The commit has no clear result: it may have taken effect before now, but cannot from now on."""
        written = value if isinstance(value, SentValue) else self._of(partition).find(value)
        if written is not None:
            written.settled_at = min(written.settled_at, self._world.now)

    def refused(self, partition: GroupPartition, value: int | SentValue) -> None:
        """The commit was answered with an error after which it certainly has no effect."""
        written = value if isinstance(value, SentValue) else self._of(partition).find(value)
        if written is not None:
            written.refused = True
            written.settled_at = self._world.now

    def read(self, partition: GroupPartition, value: int, sent: int) -> None:
        """An OffsetFetch sent at the moment `sent` was answered with this offset."""
        now = self._world.now
        register = self._of(partition)
        if value == NONE:
            matching = [known for known in (*register.visible, *register.replaced) if known.value == NONE]
        else:
            matching = [known for known in (register.find(value),) if known is not None]
        if not matching:
            raise Broken(self.promise, f"offset {value} is read for {partition_text(partition)}, although it was replaced long ago or never committed", partition[0])
        readable = [known for known in matching if known.replaced >= sent and not known.refused]
        if not readable:
            newest = max((known for known in register.visible if known.acknowledged), key=lambda known: known.settled_at, default=None)
            offset = "no offset" if value == NONE else f"offset {value}"
            reason = "although its commit was refused" if matching[0].refused else f"although it was replaced at {format_time(matching[0].replaced)}"
            instead = f"; the newest acknowledged offset is {newest.value}, of {format_time(newest.settled_at)}" if newest is not None else ""
            raise Broken(self.promise, f"{offset} is read for {partition_text(partition)}, {reason}{instead}", partition[0])
        if len(readable) == 1:  # with several, all removals, the read does not show which took effect
            readable[0].settled_at = min(readable[0].settled_at, now)
        superseded = [other for other in register.visible if other.value != value and other.settled_at < sent]
        if superseded:
            register.replace(superseded, now)

    # Topics that are deleted and created again.

    def supersede(self, partition: GroupPartition, values: Iterable[int]) -> None:
        """No reader may see these offsets from now on: they were committed for a deleted topic."""
        register = self._of(partition)
        visible = set(register.visible)
        superseded = [known for known in map(register.find, values) if known in visible]
        if superseded:
            register.replace([known for known in superseded if known is not None], self._world.now)

    def partitions_of(self, group: str, topic: str) -> list[GroupPartition]:
        return [partition for partition in self._registers if partition[:2] == (group, topic)]

    def may_be_missing(self, partition: GroupPartition) -> bool:
        """Whether a reader may see no offset now."""
        return any(known.value == NONE and not known.refused for known in self._of(partition).visible)

    def was_replaced(self, partition: GroupPartition, value: int, moment: int) -> bool:
        """Whether this offset was replaced before `moment`, or is not known any more."""
        known = self._of(partition).find(value)
        return known is None or known.replaced < moment

    def lost_since(self, moment: int) -> None:
        """The power failed, and `offsets.flush` allows the loss of what was acknowledged since `moment`."""
        for register in self._registers.values():
            register.restore(moment)

    def may_expire(self, partition: GroupPartition, retention_ns: int) -> None:
        """The offset may have expired if nothing was committed for the retention time."""
        now = self._world.now
        register = self._of(partition)
        if not any(known.acknowledged and known.value != NONE and known.settled_at > now - retention_ns for known in register.visible):
            removal = SentValue(NONE, now - retention_ns)
            removal.settled_at = now
            register.visible.append(removal)

    def surely_has(self, group: str, retention_ns: int) -> bool:
        """Whether the group certainly has an acknowledged offset."""
        since = self._world.now - retention_ns
        return any(
            any(known.acknowledged and known.settled_at > since for known in register.visible) and all(known.value != NONE for known in register.visible)
            for partition, register in self._registers.items()
            if partition[0] == group
        )


class _Register:
    """The committed values of one partition: those that a reader may see now (`visible`), and those replaced lately."""

    __slots__ = ("by_value", "replaced", "visible")

    def __init__(self) -> None:
        first = SentValue(NONE, 0)
        first.settled_at = 0
        self.visible = [first]
        self.by_value: dict[int, SentValue] = {}  # the values in `visible` and `replaced`, without removals
        self.replaced: deque[SentValue] = deque()  # the oldest first

    def find(self, value: int) -> SentValue | None:
        return self.by_value.get(value)

    def replace(self, superseded: list[SentValue], now: int) -> None:
        for known in superseded:
            known.replaced = now
        self.visible = [known for known in self.visible if known.replaced == FOREVER]
        replaced = self.replaced
        replaced.extend(superseded)
        while replaced and replaced[0].replaced < now - KEPT_NS:
            self.by_value.pop(replaced.popleft().value, None)

    def restore(self, moment: int) -> None:
        while self.replaced and self.replaced[-1].replaced >= moment:
            known = self.replaced.pop()
            known.replaced = FOREVER
            self.visible.append(known)


class _Claim:
    """A JoinGroup with an instance id and without a member id: it claims the instance id. `settled_at`: when it was answered, or lost for good."""

    __slots__ = ("member_id", "sent", "settled_at")

    def __init__(self, sent: int) -> None:
        self.sent = sent
        self.settled_at = FOREVER
        self.member_id = ""  # of the reply


class Instances:
    """At most one member with an instance id has successful requests. Only another claim of the id fences a member, which stays fenced for ever."""

    promise = Promise(
        "instances",
        "requests of one member succeed for an instance id; a member that was replaced is fenced, and never succeeds again; no other member is fenced",
    )

    def __init__(self, world: Clock) -> None:
        self._world = world
        self._joined: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}  # (sent, answered) of each id's first successful join
        self._ended: dict[tuple[str, str], int] = {}  # (group, member id) -> the moment since which it is known to be fenced
        self._claims: dict[tuple[str, str], deque[_Claim]] = {}  # (group, instance id) -> the newest claims, and all since the oldest unsettled one

    def joined(self, group: str, instance: str, member_id: str, sent: int) -> None:
        now = self._world.now
        known = self._joined.setdefault((group, instance), {})
        for other, (_, answered) in known.items():
            if other != member_id and answered < sent:
                self._ended.setdefault((group, other), now)
        known.setdefault(member_id, (sent, now))
        if len(known) > 20:
            for old in list(known)[:-10]:
                del known[old]

    def claims(self, group: str, instance: str) -> Callable[[Any], None]:
        """A process claims the instance id. Call the result with the reply, or with None when the request is lost for good."""
        claim = _Claim(self._world.now)
        known = self._claims.setdefault((group, instance), deque())
        known.append(claim)
        while len(known) > CLAIMS_KEPT and known[0].settled_at != FOREVER:
            known.popleft()

        def settle(reply: Any) -> None:
            claim.settled_at = self._world.now
            if reply is not None and not reply.error_code:
                claim.member_id = reply.member_id

        return settle

    def fenced(self, group: str, instance: str | None, member_id: str) -> None:
        self._ended.setdefault((group, member_id), self._world.now)
        claims = self._claims.get((group, instance or ""), ())
        own = next((claim for claim in claims if claim.member_id == member_id), None) if member_id else None
        if own is not None and not any(claim.settled_at > own.sent for claim in claims if claim is not own):
            raise Broken(self.promise, f"{member_id} is fenced, although {instance} was claimed last by it, at {format_time(own.sent)}", group)

    def unknown(self, group: str, instance: str, member_id: str, holder: str | None, sent: int) -> None:
        """A request with this instance id was answered with UNKNOWN_MEMBER_ID. `holder`: the instance's current member."""
        if holder is None or holder == member_id:
            return
        _, answered = self._joined.get((group, instance), {}).get(holder, (0, FOREVER))
        if answered < sent:
            raise Broken(self.promise, f"{member_id} was replaced by {holder} at {format_time(answered)}, and gets UNKNOWN_MEMBER_ID instead of FENCED_INSTANCE_ID", group)

    def succeeded(self, group: str, member_id: str, sent: int, what: str) -> None:
        ended = self._ended.get((group, member_id))
        if ended is not None and ended < sent:
            raise Broken(self.promise, f"{what} of {member_id} succeeds, although it was fenced or replaced at {format_time(ended)}", group)

    def lost_since(self, moment: int) -> None:
        self._ended = {key: ended for key, ended in self._ended.items() if ended < moment}
        self._claims.clear()
        for known in self._joined.values():
            for member_id in [id for id, (_, answered) in known.items() if answered >= moment]:
                del known[member_id]


class Generations:
    """A generation has one set of members and one assignment, in which each partition has one owner.

    In a group with standbys a seat may move to another member within a generation, with its whole assignment.
    """

    promise = Promise(
        "generations",
        "a generation stands for one assignment in which a partition has one owner; generations do not go back, and requests of an older one are refused",
    )

    def __init__(self, world: Clock, surely_has_offsets: Callable[[str], bool]) -> None:
        """`surely_has_offsets`: whether a group certainly has offsets.

        The broker may remove an empty group without offsets, which then restarts at generation 1.
        """
        self._world = world
        self._surely_has_offsets = surely_has_offsets
        self._marks: dict[tuple[str, int], str] = {}
        self._owners: dict[tuple[str, int], dict[tuple[str, int], bytes]] = {}  # group, generation -> partition -> the assignment that has it
        self._seats: dict[tuple[str, int], dict[bytes, str]] = {}  # group, generation -> assignment with partitions -> its member
        self._assignments: dict[tuple[str, int], dict[str, bytes]] = {}
        self._at: dict[tuple[str, int], int] = {}
        self._newest: dict[str, tuple[int, int]] = {}  # generation, and the moment of its first SyncGroup reply

    def assigned(
        self,
        group: str,
        generation: int,
        member_key: str,
        mark: str,
        assignment: bytes,
        owned: Iterable[tuple[str, int]],
        sent: int,
        seats_move: bool = False,
    ) -> None:
        """A SyncGroup was answered. `member_key`: the instance id, or the member id of a dynamic member. `mark`: bytes that the leader puts into the
        assignments of all members. `seats_move`: the group may have standbys.

        JoinGroup replies do not count: a generation that was never stored, because SyncGroups were missing, may begin again with other members.
        """
        key = group, generation
        self._answered(key, sent)
        first = self._marks.setdefault(key, mark)
        if first != mark:
            raise Broken(self.promise, f"generation {generation} of {group} is used for two assignments, {first} and {mark}", group)
        before = self._assignments.setdefault(key, {}).setdefault(member_key, assignment)
        if before != assignment and not seats_move:
            raise Broken(self.promise, f"{member_key} got {before!r} in generation {generation} of {group}, and now {assignment!r}", group)
        owners = self._owners.setdefault(key, {})
        for partition in owned:
            owner = owners.setdefault(partition, assignment)
            if owner != assignment:
                raise Broken(self.promise, f"{owner!r} and {assignment!r} both have {partition} in generation {generation} of {group}", group)
            holder = self._seats.setdefault(key, {}).setdefault(assignment, member_key)
            if holder != member_key and not seats_move:
                raise Broken(self.promise, f"{holder} and {member_key} both own {partition} in generation {generation} of {group}", group)

    def nothing_assigned(self, group: str, generation: int, member_key: str, sent: int) -> None:
        """A SyncGroup was answered without an assignment, as when the leader left a member out."""
        before = self._assignments.get((group, generation), {}).get(member_key)
        if before is not None and self._at[group, generation] < sent and self._surely_has_offsets(group):
            raise Broken(self.promise, f"{member_key} got {before!r} in generation {generation} of {group}, and now no assignment", group)

    def succeeded(self, group: str, generation: int, sent: int, what: str) -> None:
        """A request of a member of that generation was answered without an error."""
        newest, moment = self._newest.get(group, (0, 0))
        if generation < newest and moment < sent and self._surely_has_offsets(group):
            raise Broken(self.promise, f"{what} of generation {generation} of {group} succeeds, although generation {newest} began at {format_time(moment)}", group)

    def _answered(self, key: tuple[str, int], sent: int) -> None:
        group, generation = key
        newest, moment = self._newest.get(group, (0, 0))
        if generation <= newest and not self._surely_has_offsets(group):
            self.may_begin_again(group)
            newest = 0
        if generation < newest and moment < sent:
            raise Broken(self.promise, f"generation {generation} of {group} is answered, although generation {newest} began at {format_time(moment)}", group)
        if generation > newest:
            self._newest[group] = generation, self._world.now
        if key not in self._at:
            self._at[key] = self._world.now
            if len(self._at) > 5_000:
                self._forget([old for old, at in self._at.items() if at < self._world.now - KEPT_NS])

    def _forget(self, keys: Iterable[tuple[str, int]]) -> None:
        for key in list(keys):
            self._at.pop(key, None)
            for by_generation in (self._marks, self._owners, self._assignments, self._seats):
                by_generation.pop(key, None)

    def may_begin_again(self, group: str) -> None:
        """The group may be deleted now, and if recreated begins again with generation 1."""
        self._newest.pop(group, None)
        self._forget([key for key in self._at if key[0] == group])

    def lost_since(self, moment: int) -> None:
        self._forget([key for key, at in self._at.items() if at >= moment])
        self._newest = {}
        for (group, generation), at in self._at.items():
            if generation > self._newest.get(group, (0, 0))[0]:
                self._newest[group] = generation, at


class Sessions:
    """No member is removed before its session has ended, nor for a missing SyncGroup although its SyncGroup was answered."""

    promise = Promise(
        "sessions",
        "no member is removed before its session has ended or much later, while its JoinGroup waits, or for lack of a SyncGroup that the broker answered",
    )

    def __init__(self, world: World) -> None:
        self._world = world
        self._renewals: dict[tuple[str, str], tuple[int, int, str]] = {}  # the newest answered request of a member: when sent, session timeout, API
        self._synced: dict[tuple[str, str], tuple[object, int]] = {}  # a member's newest answered SyncGroup: node, generation
        self._parked: dict[tuple[str, str], tuple[object, int, int, int]] = {}  # a SyncGroup seen in memory: node, generation, moment, session timeout

    def renewed(self, group: str, member_id: str, sent: int, session_ns: int, what: str) -> None:
        before = self._renewals.get((group, member_id))
        if before is None or sent > before[0]:
            self._renewals[group, member_id] = sent, session_ns, what

    def knows(self, group: str, member_id: str) -> bool:
        """Whether a request of the member has begun a session. Before its first rebalance ends, a new member has five minutes instead."""
        return (group, member_id) in self._renewals

    def expired(self, group: str, member_id: str, moment: int) -> None:
        self.ended(group, member_id, moment)
        self.removed(group, member_id)

    def ended(self, group: str, member_id: str, moment: int) -> None:
        """The session of the member ended: it was removed, or (by a policy) is away."""
        known = self._renewals.get((group, member_id))
        if known is not None and moment < known[0] + known[1] - 2 * MS:
            raise Broken(
                self.promise,
                f"{member_id} was removed or away at {format_time(moment)}, although its {known[2]} of {format_time(known[0])} began a session of "
                f"{known[1] // MS} ms",
                group,
            )

    def removed(self, group: str, member_id: str) -> None:
        self._renewals.pop((group, member_id), None)
        self._synced.pop((group, member_id), None)
        self._parked.pop((group, member_id), None)

    def sync_is_parked(self, group: str, member_id: str, generation: int, node: object, session_ns: int) -> None:
        """The SyncGroup of a member is parked until the leader's assignment, with which a new session begins."""
        self._parked[group, member_id] = node, generation, self._world.now, session_ns

    def synced(self, group: str, member_id: str, generation: int, node: object) -> None:
        """The node answered the SyncGroup of a member without an error. It begins a session if it was parked; in a stable group it does not."""
        self._synced[group, member_id] = node, generation
        parked = self._parked.get((group, member_id))
        if parked is not None and parked[:2] == (node, generation):
            self.renewed(group, member_id, parked[2], parked[3], "parked SyncGroup")

    def removed_without_sync(self, group: str, member_id: str, generation: int, node: object) -> None:
        """The node removed the member, with the reason that it sent no SyncGroup in time."""
        if self._synced.get((group, member_id)) == (node, generation):
            raise Broken(self.promise, f"{member_id} is removed for a missing SyncGroup, although its SyncGroup of generation {generation} was answered", group)

    def lost_since(self, moment: int) -> None:
        self._synced.clear()
        self._parked.clear()


def partition_text(partition: GroupPartition) -> str:
    return f"{partition[0]}: {partition[1]}-{partition[2]}"

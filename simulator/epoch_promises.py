"""The promises about groups of the consumer protocol, as checks of the replies to their members.

As with the classic groups, the coordinator acts at some unknown moment between a request and its reply. A request whose connection broke may
still be handled later: a member with such a request is not *sure* of what it was told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from coordinator.consumer.calls import AWAY
from coordinator.consumer.member import ConsumerMember
from protocol.errors import ErrorCode
from simulator.promises import Clock
from simulator.world import Broken, Promise, format_time

TopicPartition = tuple[bytes, int]  # topic id, partition
Members = Callable[[str], Mapping[str, ConsumerMember] | None]  # of a group in its coordinator's memory; None: not known now

ERRORS_OF_EPOCHS: Final = Promise("errors of epochs", "members of the consumer protocol get only the error codes that Kafka has for the API")


class _Claim(NamedTuple):
    epoch: int
    moment: int
    sure: bool


class Holders:
    """A partition is granted to a member only when no other holds it: each other has sent a list without it since it was told, or is no member any more."""

    promise = Promise(
        "holders",
        "a partition of a group of the consumer protocol is granted only when no other member holds it: it was given up, or its holder was removed",
    )

    def __init__(self, world: Clock, members: Members) -> None:
        self._world = world
        self._members = members
        self._claims: dict[tuple[str, TopicPartition], dict[str, _Claim]] = {}  # by member

    def told(self, group: str, member_id: str, partitions: Iterable[TopicPartition], epoch: int, sure: bool) -> None:
        """A member was answered with this assignment."""
        claim = _Claim(epoch, self._world.now, sure)
        for partition in partitions:
            claims = self._claims.setdefault((group, partition), {})
            if claims and (len(claims) > 1 or member_id not in claims):
                self._compare(group, member_id, partition, claim, claims)
            claims[member_id] = claim

    def _compare(self, group: str, member_id: str, partition: TopicPartition, claim: _Claim, claims: dict[str, _Claim]) -> None:
        members = self._members(group)
        if members is None:
            return
        for other, theirs in list(claims.items()):
            if other == member_id:
                continue
            if other not in members or gave_up_by_absence(members[other], partition):
                del claims[other]
            elif claim.sure and theirs.sure and member_id in members:
                raise Broken(
                    self.promise,
                    f"{member_id} gets partition {partition[1]} of {partition[0].hex()[:8]} at epoch {claim.epoch} of {group}, although {other} has had it since "
                    f"{format_time(theirs.moment)}, at epoch {theirs.epoch}, and has not given it up",
                    group,
                )

    def owns_only(self, group: str, member_id: str, partitions: Collection[TopicPartition]) -> None:
        """The member sends this list: it has given up everything else."""
        for key, claims in self._claims.items():
            if member_id in claims and key[0] == group and key[1] not in partitions:
                del claims[member_id]

    def forget(self) -> None:
        self._claims.clear()


def gave_up_by_absence(member: ConsumerMember, partition: TopicPartition) -> bool:
    """A member whose session ended, and which a policy keeps, owes nothing of what it was told to give up: what it says later is refused."""
    topic_id, number = partition
    return member.holding.epoch == AWAY and number not in member.holding.assigned.get(topic_id, ())


class Epochs:
    """Epochs of a group never go back, as its members see them, and in memory once they are in the log. Each new one has a note with its cause."""

    promise = Promise(
        "epochs",
        "the epochs of a group of the consumer protocol and of its members never go back, also after a failover, and each epoch of the group has a note with its cause",
    )

    def __init__(self, world: Clock, surely_has_offsets: Callable[[str], bool]) -> None:
        """`surely_has_offsets`: as of `Generations`: an empty group without offsets may be removed, and begins again."""
        self._world = world
        self._surely_has_offsets = surely_has_offsets
        self._newest: dict[str, tuple[int, int]] = {}  # the newest epoch that a member was told, and when
        self._stored: dict[str, tuple[int, int, dict[str, int]]] = {}  # epoch, target epoch and member epochs that are in the log
        self._noted: dict[str, int] = {}  # the epoch of the last note
        self._began_at: dict[str, int] = {}  # when a group may have begun again last

    def joined(self, group: str, member_id: str, epoch: int, sent: int) -> None:
        """A heartbeat with epoch 0 was answered: it brings the member to the newest target."""
        newest, moment = self._newest.get(group, (0, 0))
        if epoch < max(newest, self._stored.get(group, (0,))[0]) and not self._surely_has_offsets(group):
            self.may_begin_again(group, sent)
        elif epoch < newest and moment < sent:
            raise Broken(self.promise, f"{member_id} joins {group} at epoch {epoch}, although a member had epoch {newest} at {format_time(moment)}", group)

    def told(self, group: str, member_id: str, before: int, epoch: int, sent: int) -> None:
        """A member was told its epoch, in the reply to a request that it sent then. `before`: the epoch that it had; 0: it joins."""
        if epoch < before:
            raise Broken(self.promise, f"{member_id} of {group} is told epoch {epoch}, and had {before}", group)
        if epoch > self._newest.get(group, (0, 0))[0] and sent >= self._began_at.get(group, 0):
            self._newest[group] = epoch, self._world.now

    def may_begin_again(self, group: str, since: int | None = None) -> None:
        """The group may be deleted now, or since then, and begins again if it is created again."""
        self._began_at[group] = self._world.now if since is None else since  # a reply that was stalled may be of the group before
        for known in (self._newest, self._stored, self._noted):
            known.pop(group, None)

    def stored(self, group: str, epoch: int, target_epoch: int, members: dict[str, int], dropped: bool) -> None:
        """What the coordinator has in memory, and in the log. `dropped`: notes of the group are missing."""
        before = self._stored.get(group)
        if before is not None:
            old_epoch, old_target, old_members = before
            for what, old, new in (("epoch", old_epoch, epoch), ("target epoch", old_target, target_epoch)):
                if new < old and self._surely_has_offsets(group):
                    raise Broken(self.promise, f"the {what} of {group} is {new}, and was {old}", group)
            for id, new in members.items():
                old = old_members.get(id, 0)
                if 0 < new < old and self._surely_has_offsets(group):
                    raise Broken(self.promise, f"the epoch of {id} of {group} is {new}, and was {old}", group)
        self._stored[group] = epoch, target_epoch, members
        noted = self._noted.get(group, epoch)
        if dropped or (before is not None and epoch < before[0]):
            self._noted.pop(group, None)
        else:
            self._noted[group] = epoch
            if noted != epoch:
                raise Broken(self.promise, f"{group} has epoch {epoch}, and the last note of an epoch is that of {noted}", group)

    def noted(self, group: str, epoch: int, has_cause: bool) -> None:
        """A note says that an epoch began."""
        if not has_cause:
            raise Broken(self.promise, f"the note of epoch {epoch} of {group} has no cause", group)
        before = self._noted.get(group)
        if before is not None and epoch != before + 1 and self._surely_has_offsets(group):
            raise Broken(self.promise, f"the note of epoch {epoch} of {group} follows that of epoch {before}", group)
        self._noted[group] = epoch

    def forget_notes(self, group: str | None = None) -> None:
        """Notes may be missing: of one group, or of all."""
        if group is None:
            self._noted.clear()
        else:
            self._noted.pop(group, None)

    def forget(self) -> None:
        self._newest.clear()
        self._stored.clear()
        self._noted.clear()


class Seat(NamedTuple):
    """The place of a static member that went away, and will be back."""

    member_id: str
    epoch: int
    assignment: frozenset[TopicPartition]
    subscription: tuple[object, ...]
    ends_at: int  # the earliest end of its session
    sent: int


class Seats:
    """A static member that returns within its session, with the same subscription, has its partitions again, and begins no epoch."""

    promise = Promise(
        "static seats",
        "a static member of the consumer protocol that returns within its session has its partitions again, and begins no epoch",
    )

    def __init__(self, world: Clock) -> None:
        self._world = world
        self._seats: dict[tuple[str, str], Seat] = {}
        self._away: set[tuple[str, str]] = set()  # the goodbye was answered
        self._claimed: set[tuple[str, str]] = set()  # a join was sent since then
        self._begun: dict[str, tuple[int, str, Collection[str]]] = {}  # by group, the last note of an epoch: moment, cause, members

    def goes(self, group: str, instance: str, seat: Seat) -> None:
        self._seats[group, instance] = seat
        self._away.discard((group, instance))
        self._claimed.discard((group, instance))

    def is_away(self, group: str, instance: str, sent: int) -> None:
        """The goodbye that was sent at this moment was answered."""
        seat = self._seats.get((group, instance))
        if seat is not None and seat.sent == sent:
            self._away.add((group, instance))

    def lost(self, group: str, instance: str) -> None:
        """The seat is not certain any more: an administrator removed the member, or another process has its instance id."""
        self._seats.pop((group, instance), None)

    def claimed(self, group: str, instance: str) -> None:
        """A join is sent. Only the first one must find the seat: a lost one may have taken it."""
        if (group, instance) in self._claimed:
            self.lost(group, instance)
        self._claimed.add((group, instance))

    def certain(self, group: str, instance: str, subscription: tuple[object, ...], code: int) -> Seat | None:
        """The seat that a join, which is answered now with this code, must find."""
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._claimed.discard((group, instance))  # nothing was decided
            return None
        seat = self._seats.pop((group, instance), None)
        if seat is None or (group, instance) not in self._away or self._world.now >= seat.ends_at:
            return None
        return seat if seat.subscription == subscription else None

    def returned(self, group: str, member_id: str, seat: Seat, epoch: int, assignment: Collection[TopicPartition], gone: Collection[bytes], sent: int) -> None:
        """`gone`: the ids of topics that do not exist any more."""
        missing = sorted((topic_id, number) for topic_id, number in seat.assignment if (topic_id, number) not in assignment and topic_id not in gone)
        if epoch == seat.epoch and missing:
            raise Broken(self.promise, f"{member_id} returns to {group} in the place of {seat.member_id}, at the same epoch, and lacks {len(missing)} partitions", group)
        moment, cause, named = self._begun.get(group, (-1, "", ()))
        if moment >= sent and not {member_id, seat.member_id}.isdisjoint(named):
            raise Broken(self.promise, f"{member_id} returns to {group} in the place of {seat.member_id}, and epoch {epoch} begins ({cause})", group)

    def refused(self, group: str, member_id: str, seat: Seat, code: int) -> None:
        if code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            raise Broken(self.promise, f"{member_id} returns to {group} in the place of {seat.member_id}, which is away, and is refused with {code}", group)

    def begun(self, group: str, cause: str, named: Collection[str]) -> None:
        self._begun[group] = self._world.now, cause, named

    def forget(self) -> None:
        self._seats.clear()
        self._away.clear()
        self._claimed.clear()


class Owners:
    """After a join with an instance id no other member succeeds with it."""

    promise = Promise("owners of instances", "of the members of the consumer protocol that join with one instance id, only the last succeeds")

    def __init__(self, world: Clock) -> None:
        self._world = world
        self._joined: dict[tuple[str, str], tuple[str, int]] = {}  # the last member, and when its join was answered

    def joined(self, group: str, instance: str, member_id: str, sent: int) -> None:
        owner, answered = self._joined.get((group, instance), (member_id, -1))
        if owner == member_id or sent > answered:
            self._joined[group, instance] = member_id, self._world.now
        else:
            del self._joined[group, instance]  # which of the two was last is not known

    def succeeded(self, group: str, instance: str, member_id: str, sent: int) -> None:
        """A heartbeat of a member was answered without an error."""
        owner, answered = self._joined.get((group, instance), (member_id, 0))
        if owner != member_id and sent > answered:
            raise Broken(self.promise, f"a heartbeat of {member_id} succeeds, although {owner} joined {group} with its instance id at {format_time(answered)}", group)

    def forget(self) -> None:
        self._joined.clear()


class Fences:
    """A member is told to drop everything only if its session has ended, it was removed or replaced, or it did not give partitions up in time."""

    promise = Promise(
        "fences",
        "a member of the consumer protocol is fenced only if its session may have ended, an administrator removed it, or it did not give partitions up in time; "
        "its commits with its epoch are accepted, and those with an older one refused for partitions that it did not have then",
    )


class Standing(NamedTuple):
    """What a member knows of its place, when a request is refused."""

    group: str
    member_id: str
    confirmed: int  # when the newest heartbeat was sent that was answered without an error
    told_to_revoke: int  # when the heartbeat was sent that told it to give partitions up; -1: it has none to give up
    sure: bool  # no request of it may still be handled late
    removed_at: int  # when an administrator may last have removed it; -1: never
    lost_until: int  # before this moment a power failure may have lost what was answered


def may_be_removed(standing: Standing, session_ns: int, rebalance_ns: int, now: int) -> bool:
    """Whether the coordinator may have removed the member."""
    since = standing.confirmed
    if now - since >= min(session_ns, rebalance_ns):
        return True
    if standing.told_to_revoke >= 0 and now - standing.told_to_revoke >= rebalance_ns:
        return True
    return standing.removed_at >= since or since <= standing.lost_until


def check_fence(standing: Standing, session_ns: int, rebalance_ns: int, now: int, code: int, what: str) -> None:
    """A request of a member was refused with an error that makes it drop its partitions, or that says its epoch is old."""
    if may_be_removed(standing, session_ns, rebalance_ns, now):
        return
    if standing.sure or code == ErrorCode.UNKNOWN_MEMBER_ID:
        raise Broken(
            Fences.promise,
            f"{what} of {standing.member_id} of {standing.group} is refused with {code}, although its heartbeat of {format_time(standing.confirmed)} was answered",
            standing.group,
        )

"""One row for each cause of a rebalance and each removal of a member: all that other programs know about it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Literal, NamedTuple

from coordinator.notes import Cause, Removal
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, State

Family = Literal["restart", "came", "left", "expired", "slow", "changed", "broker", "policy", "unknown"]
SpellEnd = Literal["left", "expired", "evicted", "fenced", "removed", "replaced", "unknown"]


class InferredCause(Enum):
    """Causes that only Kafka's records show: each stands for several causes of notes, which the records do not tell apart."""

    FORMATION = auto()
    RESTART = auto()
    MIXED = auto()
    LEADER_OR_MEMBER_REJOIN = auto()
    MEMBER_GONE = auto()


AnyCause = Cause | InferredCause


class Detail(Enum):
    """What the note of a cause says beside it."""

    NOTHING = auto()
    MEMBER = auto()  # the member that caused it, perhaps with its client's reason
    TEXT = auto()  # topics, or an operator's words


class Admits(Enum):
    """Which members of the group are new in the rebalance."""

    NOBODY = auto()
    MEMBER = auto()  # the one of the note
    WAITING = auto()  # all that joined just before: they had waited for each other


class Replay(Enum):
    """How a replay of a group's history causes the rebalance again."""

    NOT = auto()  # members that come and go cause it, or it is a matter of the coordinator
    LEADER_REJOINS = auto()
    NEW_TOPICS = auto()


class CauseRow(NamedTuple):
    """`title` names no member. `named` is used if the names are known; `timed` if also the time without a heartbeat is (both: `words.title`)."""

    title: str = ""  # inferred causes have their evidence instead
    moves: tuple[tuple[State, State], ...] = ()  # none: only other versions note it
    advice: str = ""
    family: Family = "unknown"  # its colour in reports
    named: str = ""
    timed: str = ""
    detail: Detail = Detail.NOTHING
    of_members: bool = False  # members come and go, and nothing else changes: restarts alone can cause it
    rejoin: bool = False  # a known member joins again, as in the second step of a cooperative rebalance
    admits: Admits = Admits.NOBODY
    gone: bool = False  # members that are removed when it begins share its title
    removal: Removal | None = None  # the members that are removed so share its title
    replay: Replay = Replay.NOT
    policies: tuple[str, ...] = ()  # the group must have had one of these
    consumer: bool = False  # groups of the consumer protocol have it
    may_be: frozenset[Cause] = frozenset()  # inferred: the causes that a note could have; none: only itself

    @property
    def slow(self) -> bool:
        """Whether members did not answer in time."""
        return self.family == "slow"


class RemovalRow(NamedTuple):
    """`text` follows the member's name; `timed` replaces it and has the time without a heartbeat."""

    text: str
    end: SpellEnd = "unknown"  # of the member's time in the group
    timed: str = ""
    final: bool = False  # not the effect of a restart
    alone: bool = False  # no other member is affected
    begins_rebalance: bool = True
    policies: tuple[str, ...] = ()  # the group must have had one of these


SETTLED: Final = ((STABLE, PREPARING),)
ASSIGNING: Final = ((COMPLETING, PREPARING),)
EITHER: Final = SETTLED + ASSIGNING
JOINED: Final = ((PREPARING, COMPLETING),)

_GONE: Final = frozenset({Cause.MEMBER_LEFT, Cause.SESSION_EXPIRED, Cause.REBALANCE_TIMEOUT, Cause.ADMIN_REMOVED, Cause.SYNC_TIMEOUT})

CAUSES: Final[dict[AnyCause, CauseRow]] = {
    Cause.NEW_MEMBER: CauseRow(
        "a new member joined",
        ((EMPTY, PREPARING), *EITHER),
        "Expected when you add consumers. After a mere restart: give them a `group.instance.id`; a member that has it and still counts as new was away "
        "for longer than its session timeout",
        "came",
        named="{names} joined{where}",
        detail=Detail.MEMBER,
        of_members=True,
        admits=Admits.MEMBER,
        consumer=True,
    ),
    Cause.MEMBER_LEFT: CauseRow(
        "a member left",
        EITHER,
        "A consumer without `group.instance.id` was closed. With one, it would have kept its seat",
        "left",
        named="{names} left",
        detail=Detail.MEMBER,
        of_members=True,
        gone=True,
        consumer=True,
    ),
    Cause.SESSION_EXPIRED: CauseRow(
        "a member sent no heartbeat within its session timeout",
        EITHER + JOINED,
        "The member crashed, hung or lost its network. If its restart was only slow: a longer `session.timeout.ms`",
        "expired",
        named="{name} sent no heartbeat within its session timeout",
        timed="{name} sent no heartbeat for {silent} (session timeout {session})",
        detail=Detail.MEMBER,
        of_members=True,
        gone=True,
        consumer=True,
    ),
    Cause.ADMIN_REMOVED: CauseRow(
        "a static member was removed by its instance id (an administrator, or a client that leaves so)",
        EITHER,
        "Deliberate: ask who administers the group",
        "left",
        named="{names} {was} removed by instance id",
        detail=Detail.MEMBER,
        gone=True,
        consumer=True,
    ),
    Cause.LEADER_REJOINED: CauseRow(
        "the leader rejoined and requested new assignments",
        SETTLED,
        "Expected when topics or partitions were added. Often: a subscription by pattern that keeps matching new topics",
        "came",
        named="{name}, the leader, rejoined and requested new assignments",
        detail=Detail.MEMBER,
        rejoin=True,
        replay=Replay.LEADER_REJOINS,
    ),
    Cause.MEMBER_METADATA_CHANGED: CauseRow(
        "a member rejoined with another subscription (its topics, its assignors or its owned partitions)",
        EITHER,
        "Expected with cooperative assignors, which rebalance twice to move partitions. Otherwise: members with changed subscriptions",
        "changed",
        named="{name} rejoined with another subscription (its topics, its assignors or its owned partitions)",
        detail=Detail.MEMBER,
        rejoin=True,
        replay=Replay.NEW_TOPICS,
        consumer=True,
    ),
    Cause.STATIC_PROTOCOL_CHANGED: CauseRow(
        "a static member returned with other assignors or topics",
        SETTLED,
        "Expected when a release changes assignors or topics. Change them on all members in one rollout",
        "changed",
        named="{name} returned with other assignors or topics, so it could not keep its seat without a rebalance",
        detail=Detail.MEMBER,
        replay=Replay.NEW_TOPICS,
    ),
    Cause.STATIC_DURING_COMPLETING: CauseRow(
        "a static member was restarted while the group waited for assignments",
        ASSIGNING,
        "A member restarted during a rebalance. Restart one member after the other",
        "changed",
        named="{name} was restarted while the group waited for assignments",
        detail=Detail.MEMBER,
        of_members=True,
    ),
    Cause.SYNC_TIMEOUT: CauseRow(
        "a member did not fetch its assignment in time",
        EITHER,
        "The member joined and then sent nothing for a rebalance timeout: look at its log of that time",
        "slow",
        named="{names} did not fetch the assignment in time",
        detail=Detail.MEMBER,
        of_members=True,
        gone=True,
    ),
    Cause.SYNC_FAILED: CauseRow(
        "the assignments could not be stored",
        ASSIGNING,
        "The leader's assignments do not fit into `message.max.bytes`: fewer partitions, fewer members, or a larger limit",
        "broker",
    ),
    Cause.PENDING_LEFT: CauseRow(
        "a client that was about to join left",
        EITHER,
        "A consumer was closed while it was starting",
        "left",
        detail=Detail.MEMBER,
        of_members=True,
    ),
    Cause.OVER_MAX_SIZE: CauseRow(
        "the group was over its maximum size",
        SETTLED,
        "The broker was started with a smaller `group.max.size` than the group has members",
        "changed",
    ),
    Cause.ABSENCES_ENDED: CauseRow(
        "members stayed away longer than registration.timeout.ms",
        EITHER + JOINED,
        "Expected when you scale down, or have lowered `registration.timeout.ms`. Otherwise: start the instances again sooner, or raise it",
        "policy",
        named="{names} stayed away longer than registration.timeout.ms",
        detail=Detail.MEMBER,
        of_members=True,
        removal=Removal.STAYED_AWAY,
        policies=("registration.timeout.ms",),
        consumer=True,
    ),
    Cause.REGISTRATION_UNSET: CauseRow(
        "registration.timeout.ms was unset while members were away",
        EITHER + JOINED,
        "Deliberate: without `registration.timeout.ms` the group keeps no seats, so members that were away lost theirs. Before you unset it, "
        "`tenure group policy show` lists the members that are away",
        "policy",
        named="registration.timeout.ms was unset while {names} {was} away",
        detail=Detail.MEMBER,
        of_members=True,
        removal=Removal.REGISTRATION_UNSET,
        policies=("registration.timeout.ms",),
        consumer=True,
    ),
    Cause.EXPANSION: CauseRow(
        "members that had waited for each other joined at once",
        EITHER,
        "Expected when you scale up: one rebalance for all members that joined within `expansion.timeout.ms`",
        "policy",
        named="{names} joined{where} at once",
        of_members=True,
        admits=Admits.WAITING,
        policies=("expansion.timeout.ms", "roster.timeout.ms"),
    ),
    Cause.ROSTER_COMPLETE: CauseRow(
        "all listed instances had joined",
        EITHER,
        "Expected when you scale up: the last instance of `instance.ids` has joined",
        "policy",
        named="{names} joined{where} at once",
        of_members=True,
        admits=Admits.WAITING,
        policies=("roster.timeout.ms",),
    ),
    Cause.ROSTER_CHANGED: CauseRow(
        "members were removed from the strict list of instances",
        EITHER + JOINED,
        "Expected when you scale down: names were taken from `instance.ids`, or `roster.strict` was set",
        "policy",
        named="{title}: {names}",
        detail=Detail.MEMBER,
        removal=Removal.NOT_LISTED,
        policies=("roster.strict",),
    ),
    Cause.TOPICS_CHANGED: CauseRow(
        "topics that members subscribe to were created or deleted, or got partitions",
        EITHER,
        "Expected with `topics.watch` when topics or partitions are added or deleted",
        "policy",
        named="{title} ({text})",
        detail=Detail.TEXT,
        replay=Replay.NEW_TOPICS,
        policies=("topics.watch",),
        consumer=True,
    ),
    Cause.TARGET_CHANGED: CauseRow(
        "target.group.size requires another number of active members",
        EITHER,
        "Expected when `target.group.size` was changed: standbys become active, or active members standbys",
        "policy",
        replay=Replay.NEW_TOPICS,
        policies=("target.group.size",),
    ),
    Cause.STANDBY_LATE: CauseRow(
        "a standby did not take over its seat in time, and no other standby was free",
        SETTLED,
        "A standby did not fetch the assignment it took over within its session timeout, and no other standby was free: look at its poll loop",
        "policy",
        detail=Detail.MEMBER,
        replay=Replay.NEW_TOPICS,
        policies=("target.group.size",),
    ),
    Cause.REQUESTED: CauseRow(
        "an operator requested a rebalance",
        EITHER,
        "Deliberate: the policy `rebalance.request` was set, with the reason that the note quotes",
        "policy",
        named='{title}: "{text}"',
        detail=Detail.TEXT,
        replay=Replay.NEW_TOPICS,
        consumer=True,
    ),
    Cause.EVERYONE_JOINED: CauseRow("all members had joined", JOINED, replay=Replay.NEW_TOPICS),
    Cause.JOIN_TIMEOUT: CauseRow(
        "members did not rejoin in time",
        JOINED,
        "For a new group that is its initial delay. Otherwise members did not rejoin in time: their `max.poll.interval.ms` is their rebalance timeout",
        "slow",
        of_members=True,
    ),
    Cause.ASSIGNED: CauseRow("the leader assigned partitions", ((COMPLETING, STABLE),), replay=Replay.NEW_TOPICS),
    Cause.GROUP_EMPTIED: CauseRow("no member remained", ((PREPARING, EMPTY),), family="left", of_members=True, may_be=_GONE | {Cause.GROUP_EMPTIED}),
    Cause.REBALANCE_TIMEOUT: CauseRow(
        "a member did not give up partitions within its rebalance timeout",
        advice="The member was told to give partitions up and still worked on them: its `max.poll.interval.ms` is its rebalance timeout. Look at its poll loop",
        family="slow",
        named="{names} did not give up partitions within the rebalance timeout",
        detail=Detail.MEMBER,
        of_members=True,
        gone=True,
        consumer=True,
    ),
    Cause.ASSIGNOR_CHANGED: CauseRow(
        "another assignor has most votes of members",
        advice="Expected when a release changes `group.remote.assignor`. Change it on all members in one rollout",
        family="changed",
        named="{name} changed its vote, so another assignor has most votes",
        detail=Detail.MEMBER,
        replay=Replay.NEW_TOPICS,
        consumer=True,
    ),
    Cause.REGEX_RESOLVED: CauseRow(
        "regular expressions of members match other topics",
        advice="Expected for the first member with an expression, and when topics are created or deleted that it matches",
        family="changed",
        named="{title} ({text})",
        detail=Detail.TEXT,
        replay=Replay.NEW_TOPICS,
        consumer=True,
    ),
    Cause.UPGRADED: CauseRow(
        "the group was upgraded to the consumer protocol",
        advice="Expected when the first member with `group.protocol=consumer` joins a group of classic members",
        family="changed",
        named="{name} upgraded the group to the consumer protocol",
        detail=Detail.MEMBER,
        consumer=True,
    ),
    Cause.DOWNGRADED: CauseRow(
        "the group was downgraded to the classic protocol",
        SETTLED,
        advice="Expected when the last member with `group.protocol=consumer` leaves a group that has classic members",
        family="changed",
        named="{name} was the last member of the consumer protocol, so the group was downgraded",
        detail=Detail.MEMBER,
        consumer=True,
    ),
    Cause.COORDINATOR_MOVED: CauseRow(
        "the coordinator moved",
        family="broker",
        of_members=True,  # in its outage, the sessions of all members ended
        may_be=_GONE | {Cause.GROUP_EMPTIED, Cause.NEW_MEMBER, Cause.COORDINATOR_MOVED},
    ),
    InferredCause.FORMATION: CauseRow(family="came", of_members=True, may_be=frozenset({Cause.NEW_MEMBER})),
    InferredCause.RESTART: CauseRow(
        family="restart",
        of_members=True,
        may_be=_GONE | {Cause.NEW_MEMBER, Cause.STATIC_PROTOCOL_CHANGED, Cause.STATIC_DURING_COMPLETING},
    ),
    InferredCause.MIXED: CauseRow(family="came", of_members=True, may_be=frozenset(Cause)),
    InferredCause.LEADER_OR_MEMBER_REJOIN: CauseRow(
        family="came",
        rejoin=True,
        replay=Replay.NEW_TOPICS,
        may_be=frozenset({Cause.LEADER_REJOINED, Cause.MEMBER_METADATA_CHANGED}),
    ),
    InferredCause.MEMBER_GONE: CauseRow("members went away", family="left", of_members=True, may_be=_GONE),
}
assert CAUSES.keys() == {*Cause, *InferredCause}, "a cause has no row"

REMOVALS: Final[dict[Removal, RemovalRow]] = {
    Removal.LEFT: RemovalRow("left", "left"),
    Removal.EXPIRED: RemovalRow("expired", "expired", timed="expired after {silent} without a heartbeat"),
    Removal.REBALANCE_TIMEOUT: RemovalRow("did not rejoin in time", "evicted"),
    Removal.FENCED: RemovalRow("was fenced", "fenced"),
    Removal.ADMIN_REMOVED: RemovalRow("was removed", "removed", final=True),
    Removal.PENDING_EXPIRED: RemovalRow("never joined with its assigned member id", alone=True),
    Removal.SYNC_TIMEOUT: RemovalRow("did not fetch its assignment in time", "evicted"),
    Removal.OVER_MAX_SIZE: RemovalRow("was over the group's maximum size", "evicted", final=True, begins_rebalance=False),
    Removal.REPLACED: RemovalRow("was replaced", "replaced", final=True),
    Removal.STAYED_AWAY: RemovalRow("stayed away longer than registration.timeout.ms", "expired", policies=("registration.timeout.ms",)),
    Removal.NOT_LISTED: RemovalRow("was not in the strict list of instances", "removed", final=True, policies=("roster.strict",)),
    Removal.SEAT_TAKEN: RemovalRow("was away, and a standby took its seat", "expired", policies=("target.group.size",)),
    Removal.NOT_GIVEN_UP: RemovalRow("did not give up its partitions in time", "evicted"),
    Removal.REGISTRATION_UNSET: RemovalRow("was away when registration.timeout.ms was unset", "expired", policies=("registration.timeout.ms",)),
}
assert REMOVALS.keys() == {*Removal}, "a removal has no row"


def name_of(cause: AnyCause) -> str:
    """The cause in tables, reports and logs."""
    return cause.name.lower()


_BY_NAME: Final = {name_of(cause): row for cause, row in CAUSES.items()}
_UNKNOWN: Final = CauseRow()


def cause_row(name: str) -> CauseRow:
    """The row of a name in a table; an empty row for `unknown`, or what a newer version wrote."""
    return _BY_NAME.get(name, _UNKNOWN)


def removal_end(removal: Removal | None) -> SpellEnd:
    return REMOVALS[removal].end if removal is not None else "unknown"

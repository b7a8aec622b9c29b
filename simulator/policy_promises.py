"""The promises about policies of groups, a class for each. tests/simulator/bugs has planted bugs for them.

The inputs are replies to clients, notes of the coordinator (its records of state changes), and the policies that a group may have had at
a moment (policy_settings.py). A class raises Broken only if its promise is broken under each possible set of policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from coordinator.classic.group import Group
from coordinator.classic.subscription import EMPTY_ASSIGNMENT
from coordinator.deadlines import NEVER
from coordinator.notes import Cause, Removal
from coordinator.policies.declaration import GroupPolicies
from coordinator.policies.door import rules_of
from coordinator.policies.expansion import EXPANSION_TIMEOUT
from coordinator.policies.registration import REGISTRATION_TIMEOUT, Registration
from coordinator.policies.roster import INSTANCE_IDS, ROSTER_STRICT, ROSTER_TIMEOUT
from coordinator.policies.subscription_change import SUBSCRIPTION_CHANGE
from coordinator.policies.target_size import TARGET_GROUP_SIZE, TargetSize
from coordinator.states import State
from history.causes import CAUSES, REMOVALS
from simulator.policy_settings import Change, PolicySettings, requests_in
from simulator.world import MS, SECOND, Broken, Promise, World, format_time

CLOSE_NS: Final = 2 * MS  # notes are exact to the millisecond
LATE_NS: Final = SECOND
REBALANCE_NS: Final = 60 * SECOND  # the longest rebalance
LOADS_NS: Final = 200 * MS  # from the load of a group, where sessions begin, to the note after the partition's last group
FOREVER: Final = 1 << 62

Key = tuple[str, str]  # group, member id


class Absences:
    """With registration.timeout.ms a static member whose session ended is away, but keeps its seat in the group.

    Its group waits for that timeout from the earliest absence, and for at least one session after a load of the partition. At most a
    second later, one rebalance removes all members that are away.
    """

    promise = Promise(
        "absences",
        "a member that is away keeps its seat until registration.timeout.ms has passed since the earliest absence, and for one session after a load",
    )

    def __init__(self, world: World, settings: PolicySettings) -> None:
        self._world = world
        self._settings = settings
        self._away: dict[str, dict[str, int]] = {}  # group -> member id -> begin of the absence
        self._stored: dict[Key, int] = {}  # begin of the absences that are in the log, since the coordinator has noted them
        self._leaving: dict[str, list[str]] = {}  # group -> members removed in the current step
        self._requests_arrive: dict[tuple[str, str | None], int] = {}  # group, instance -> arrival of its last request at the broker
        self._rebalance_ended: dict[str, int] = {}  # group -> when its last rebalance ended

    def request_sent(self, group: str, instance: str | None, arrives_at: int) -> None:
        self._requests_arrive[group, instance] = max(self._requests_arrive.get((group, instance), -1), arrives_at)

    def went_away(self, group: str, member_id: str, instance: str, moment: int, since: int) -> None:
        """`since`: the begin of the absence in the coordinator's note."""
        self.other_note(group, moment)
        stored = self._stored.get((group, member_id))
        if stored is not None and self._requests_arrive.get((group, instance), -1) < stored and abs(stored - since) > CLOSE_NS:
            raise Broken(self.promise, f"{member_id} has been away since {format_time(stored)}, and its absence begins again at {format_time(since)}", group)
        self._away.setdefault(group, {})[member_id] = since
        self._stored[group, member_id] = since

    def came_back(self, group: str, member_id: str, moment: int) -> None:
        self.other_note(group, moment)
        self._forget(group, member_id)

    def removed(self, group: str, member_id: str, moment: int, stayed_away: bool, loaded: int, session_ns: int) -> None:
        """A member was removed.

        `stayed_away`: because it was away; `loaded`: the moment of the last load of the group's partition,
        -1 if it is not known.
        """
        away = self._away.get(group, {})
        if not stayed_away:
            self.other_note(group, moment)
        else:
            timeout = least(REGISTRATION_TIMEOUT.of(policies) for policies in self._settings.during(group, moment - CLOSE_NS, moment + CLOSE_NS))
            # Check only the first removal of a step: the step removes all other away members with it.
            if timeout is not None and not self._leaving.get(group):
                self._check_time(group, member_id, moment, timeout, loaded, session_ns)
            self._leaving.setdefault(group, []).append(member_id)
        self._forget(group, member_id)
        if not away:
            self._away.pop(group, None)

    def _check_time(self, group: str, member_id: str, moment: int, timeout: int, loaded: int, session_ns: int) -> None:
        away = self._away.get(group, {})
        if member_id in away:
            earliest = min(away.values())
            if moment < earliest + timeout * MS - CLOSE_NS:
                raise Broken(
                    self.promise, f"{member_id} was removed at {format_time(moment)}; the earliest absence began at {format_time(earliest)}", group
                )
        if loaded >= 0 and moment < loaded + session_ns - LOADS_NS:
            raise Broken(self.promise, f"{member_id} was removed at {format_time(moment)}, before one session after {format_time(loaded)}", group)

    def rebalance_ended(self, group: str, moment: int) -> None:
        self._rebalance_ended[group] = moment

    def expired(self, group: str, member_id: str, moment: int) -> None:
        """A static member of a generation was removed at the end of its session.

        With registration.timeout.ms that may happen only to a standby. Standbys exist until the end of the first rebalance without
        target.group.size.
        """
        since = min(moment - REBALANCE_NS, self._rebalance_ended.get(group, 0))
        standbys = any(TARGET_GROUP_SIZE.of(policies) is not None for policies in self._settings.during(group, since, moment + CLOSE_NS))
        possible = self._settings.during(group, moment - CLOSE_NS, moment + CLOSE_NS)
        if not standbys and all(REGISTRATION_TIMEOUT.of(policies) is not None for policies in possible):
            raise Broken(self.promise, f"{member_id} was removed at the end of its session, instead of being away", group)

    def other_note(self, group: str, moment: int) -> None:
        """A note of another kind follows: the step that removed absent members is complete, and must have removed all that were away."""
        removed_members = self._leaving.pop(group, None)
        if removed_members:
            still_away = [member_id for member_id, since in self._away.get(group, {}).items() if since < moment - CLOSE_NS]
            if still_away:
                raise Broken(self.promise, f"{', '.join(removed_members)} were removed at the end of the absences, and {', '.join(still_away)} were not", group)

    def check(self, group: str, undisturbed_since: int) -> None:
        """Raise Broken if away members should have been removed by now. Called while broker and disk are undisturbed."""
        away = self._away.get(group)
        if not away:
            return
        now = self._world.now
        timeouts = [REGISTRATION_TIMEOUT.of(policies) for policies in self._settings.during(group, now - 3 * LATE_NS, now)]
        due = max(min(away.values()) + max(timeout or 0 for timeout in timeouts) * MS, undisturbed_since)
        if now > due + LATE_NS:
            raise Broken(self.promise, f"{', '.join(away)} should have been removed at {format_time(due)}", group)

    def _forget(self, group: str, member_id: str) -> None:
        self._away.get(group, {}).pop(member_id, None)
        self._stored.pop((group, member_id), None)

    def forget(self, groups: Iterable[str] | None = None) -> None:
        """Forget absences and removals, which the coordinator had only in memory: it loads these groups, or notes about them are missing."""
        for group in list(self._away) if groups is None else groups:
            self._away.pop(group, None)
            self._leaving.pop(group, None)

    def forget_notes(self, group: str) -> None:
        """Notes about the group are missing."""
        self.forget([group])
        self._stored = {key: since for key, since in self._stored.items() if key[0] != group}

    def lost_since(self, moment: int) -> None:
        self._stored.clear()


class Arrivals:
    """Newcomers to a stable group wait at most expansion.timeout.ms; one rebalance admits all of them. After a load the wait begins again."""

    promise = Promise("arrivals", "newcomers wait at most expansion.timeout.ms, and one rebalance admits all of them")

    def __init__(self, world: World, settings: PolicySettings) -> None:
        self._world = world
        self._settings = settings
        self._began: dict[str, int] = {}  # group -> moment of its last rebalance or load

    def rebalance(self, group: str, cause: Cause, moment: int, loaded: int, rebalance_ns: int) -> None:
        """`rebalance_ns`: the shortest rebalance timeout of the members."""
        since = max(self._began.get(group, -1), loaded)
        self._began[group] = moment
        if cause != Cause.EXPANSION or since < 0:
            return
        waits = []
        for policies in self._settings.during(group, since, moment + CLOSE_NS):
            timeouts = [timeout for timeout in (EXPANSION_TIMEOUT.of(policies), ROSTER_TIMEOUT.of(policies)) if timeout is not None]
            if not timeouts:
                return
            waits.append(min(timeouts) * MS)
        if moment < since + min(*waits, rebalance_ns) - CLOSE_NS:
            raise Broken(
                self.promise,
                f"a rebalance admits newcomers at {format_time(moment)}; they should have joined the one at {format_time(since)}, or waited longer",
                group,
            )

    def newcomer_waits(self, group: str, name: str, since: int, now: int) -> None:
        """A newcomer has waited since the moment `since` in a group that does not rebalance."""
        if now - since <= LATE_NS:
            return
        timeouts = [EXPANSION_TIMEOUT.of(policies) for policies in self._settings.during(group, since, now)]
        if None not in timeouts and now - since > max(timeout or 0 for timeout in timeouts) * MS + LATE_NS:
            raise Broken(self.promise, f"{name} has waited since {format_time(since)}", group)

    def forget(self, groups: Iterable[str] | None = None) -> None:
        for group in list(self._began) if groups is None else groups:
            self._began.pop(group, None)


class Seats:
    """At most target.group.size members have a seat (an assignment), the others are standbys. A seat has one unfenced holder, and a standby
    takes a seat over without a new generation.
    """

    promise = Promise("seats", "at most target.group.size members have partitions, and a seat has one unfenced holder")

    def __init__(self, world: World, settings: PolicySettings) -> None:
        self._world = world
        self._settings = settings
        self._holders: dict[tuple[str, int, bytes], dict[str, int]] = {}  # group, generation, assignment -> member id -> moment of the reply
        self._ended: dict[Key, int] = {}  # the moment since which the member is known to have lost its seat
        self._succeeded: dict[Key, int] = {}  # moment at which the last successful request of a member was sent
        self._standbys: dict[str, set[str]] = {}  # group -> free standbys
        self._assigned: dict[str, int] = {}  # group -> end of its last rebalance

    # Replies that clients received.

    def listed(self, group: str, members: int, sent: int) -> None:
        """The JoinGroup reply to the leader listed this number of members."""
        targets = [TARGET_GROUP_SIZE.of(policies) for policies in self._settings.during(group, sent, self._world.now)]
        if None not in targets and members > max(target or 0 for target in targets):
            raise Broken(self.promise, f"{members} members get partitions, and the target is {max(target or 0 for target in targets)}", group)

    def held(self, group: str, generation: int, seat: bytes, member_id: str, sent: int, announced: int) -> None:
        """A SyncGroup, sent at `sent`, was answered with this assignment (`seat`), which has partitions.

        `announced`: when an error made the member rejoin to take the seat over, and so fenced its former holder. -1: not known.
        """
        holders = self._holders.setdefault((group, generation, seat), {})
        for other, answered in holders.items():
            if other != member_id and answered < sent:
                moment = announced if answered < announced else self._world.now
                ended = self._ended[group, other] = min(self._ended.get((group, other), FOREVER), moment)
                succeeded = self._succeeded.get((group, other), -1)
                if succeeded > ended:
                    raise Broken(
                        self.promise,
                        f"{member_id} was to take the seat of {other} over at {format_time(ended)}, whose request of {format_time(succeeded)} succeeds",
                        group,
                    )
        holders[member_id] = self._world.now
        if len(self._holders) > 2_000:
            for key in list(self._holders)[:1_000]:
                del self._holders[key]

    def fenced(self, group: str, member_id: str) -> None:
        """Another member was announced as the new holder of the seat."""
        self._ended[group, member_id] = min(self._ended.get((group, member_id), FOREVER), self._world.now)

    def succeeded(self, group: str, member_id: str, sent: int, what: str) -> None:
        ended = self._ended.get((group, member_id))
        if ended is not None and ended < sent:
            raise Broken(self.promise, f"{what} of {member_id} succeeds, although it lost its seat at {format_time(ended)}", group)
        self._succeeded[group, member_id] = max(self._succeeded.get((group, member_id), -1), sent)

    def lost_since(self, moment: int) -> None:
        self._holders = {
            key: {member_id: answered for member_id, answered in holders.items() if answered < moment} for key, holders in self._holders.items()
        }
        self._ended = {key: ended for key, ended in self._ended.items() if ended < moment}
        self._assigned.clear()

    # Notes.

    def set_free_standbys(self, group: str, standbys: Iterable[str]) -> None:
        """These standbys of a stable group have no seat and can take one over: they have the topics of the other members."""
        self._standbys[group] = set(standbys)

    def is_free(self, group: str, member_id: str) -> bool:
        return member_id in self._standbys.get(group, ())

    def member_id_changed(self, group: str, old: str, new: str) -> None:
        """A static member returned with another id."""
        if self.is_free(group, old):
            self._standbys[group].discard(old)
            self._standbys[group].add(new)

    def not_free(self, group: str, member_id: str) -> None:
        self._standbys.get(group, set()).discard(member_id)

    def rebalance(self, group: str, cause: Cause, removed_count: int, was_stable: bool) -> None:
        """A rebalance begins. `removed_count`: how many members with a seat the same step removed."""
        free = len(self._standbys.pop(group, ()))
        if was_stable and CAUSES[cause].gone and 0 < removed_count <= free:
            raise Broken(self.promise, f"all members rejoin ({cause.name}) since {removed_count} members were removed, although {free} standbys were free", group)
        if cause == Cause.TARGET_CHANGED:
            changed = self._settings.changed_at(group, "target.group.size")
            # A seat may be kept for a newcomer that waits. If the newcomer goes, or a failover forgets it, a standby gets the seat.
            if changed < self._assigned.get(group, -1) and not self._newcomers_may_wait(group):
                raise Broken(self.promise, "all members rejoin for a target that has not changed since the last rebalance", group)

    def _newcomers_may_wait(self, group: str) -> bool:
        """Whether the group ever had a policy by which newcomers wait."""
        ever = self._settings.ever(group)
        return any(EXPANSION_TIMEOUT.of(policies) is not None or ROSTER_TIMEOUT.of(policies) is not None for policies in ever)

    def may_move(self, group: str) -> bool:
        """Whether the group may ever have had standbys."""
        return any(TARGET_GROUP_SIZE.of(policies) is not None for policies in self._settings.ever(group))

    def assigned(self, group: str) -> None:
        self._assigned[group] = self._world.now

    def forget(self, groups: Iterable[str] | None = None) -> None:
        for group in list(self._standbys) if groups is None else groups:
            self._standbys.pop(group, None)


class Roster:
    """A strict list of instance ids admits no other instance and no dynamic member, and refuses no listed instance."""

    promise = Promise("roster", "a strict list of instance ids admits no other member, and refuses no listed instance")

    def __init__(self, world: World, settings: PolicySettings) -> None:
        self._world = world
        self._settings = settings

    def succeeded(self, group: str, member: str, instance: str | None, sent: int, what: str) -> None:
        possible = self._settings.during(group, sent, self._world.now)
        if all(excludes(policies, instance) for policies in possible):
            raise Broken(self.promise, f"{what} of {member} ({instance or 'dynamic'}) succeeds, although the strict list has only {INSTANCE_IDS.of(possible[0])}", group)

    def refused(self, group: str, member: str, instance: str | None, sent: int) -> None:
        possible = self._settings.during(group, sent, self._world.now)
        if not any(excludes(policies, instance) for policies in possible):
            raise Broken(self.promise, f"{member} ({instance or 'dynamic'}) is refused, although no strict list excludes it", group)


def excludes(policies: GroupPolicies, instance: str | None) -> bool:
    return ROSTER_STRICT.of(policies) and instance not in (INSTANCE_IDS.of(policies) or ())


class RebalanceRequests:
    """An accepted `rebalance.request` makes all members rejoin exactly once."""

    promise = Promise("rebalance requests", "an accepted rebalance.request makes all members rejoin once, and never again")

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent: dict[Key, int] = {}  # group, text
        self._acted: set[Key] = set()
        self._rebalanced_at: dict[str, int] = {}  # group -> last moment of a rebalance, or of missing notes

    def send(self, group: str, changes: Sequence[Change]) -> None:
        for text in requests_in(changes):
            self._sent[group, text] = self._world.now

    def rejoin_noted(self, group: str, text: str) -> None:
        """A note says that all members were asked to rejoin by this request."""
        self.rebalanced(group)
        if (group, text) not in self._sent:
            raise Broken(self.promise, f"all members rejoin for {text!r}, which was never requested", group)
        if (group, text) in self._acted:
            raise Broken(self.promise, f"all members rejoin again for {text!r}", group)
        self._acted.add((group, text))

    def rebalanced(self, group: str) -> None:
        self._rebalanced_at[group] = self._world.now

    def acknowledged(self, group: str, changes: Sequence[Change], sent: int, has_members: bool) -> None:
        """The request was accepted. `has_members`: the group has members and is not in a join phase."""
        for text in requests_in(changes):
            if has_members and (group, text) not in self._acted and self._rebalanced_at.get(group, -1) < sent:
                raise Broken(self.promise, f"{text!r} was accepted and no member rejoins", group)


class SubscriptionChanges:
    """With subscription.change=rebalance a static member that returns with other topics causes a rebalance."""

    promise = Promise("subscription change", "a static member that returns with other topics causes a rebalance")

    def __init__(self, world: World, settings: PolicySettings) -> None:
        self._world = world
        self._settings = settings

    def returned_without_rebalance(self, group: str, member_id: str, sent: int) -> None:
        """A static member returned with other topics, and no rebalance began. Only a standby may do so."""
        possible = self._settings.during(group, sent, self._world.now)
        if all(SUBSCRIPTION_CHANGE.of(policies) and TARGET_GROUP_SIZE.of(policies) is None for policies in possible):
            raise Broken(self.promise, f"{member_id} returned with other topics and keeps the old assignment", group)


class WithoutPolicy:
    """A group never shows an effect of a policy that it never had."""

    promise = Promise("no policy", "a group never shows an effect of a policy that it never had")

    def __init__(self, settings: PolicySettings) -> None:
        self._settings = settings

    def absence(self, group: str) -> None:
        self.shows(group, "an absence", REGISTRATION_TIMEOUT.name)

    def standbys(self, group: str, what: str = "standbys") -> None:
        self.shows(group, what, TARGET_GROUP_SIZE.name)

    def refusal(self, group: str) -> None:
        self.shows(group, "a refusal by its list", ROSTER_STRICT.name)

    def return_with_other_topics(self, group: str, instance: str) -> None:
        self.shows(group, f"a rebalance for the topics of {instance}", SUBSCRIPTION_CHANGE.name)

    def shows(self, group: str, what: str, *names: str) -> None:
        """The group shows the effect `what`. `names`: policies, one of which must have been set at some time."""
        for policies in self._settings.ever(group):
            if any(name in policies.values for name in names):
                return
        raise Broken(self.promise, f"{group} shows {what}, and never had {' or '.join(names)}", group)

    def state_seen(self, group: str) -> None:
        if all(not policies for policies in self._settings.ever(group)):
            raise Broken(self.promise, f"{group} keeps the state of policies, and never had any", group)


# The coordinator's memory.


def ends_an_absence(removal: Removal) -> bool:
    return REGISTRATION_TIMEOUT.name in REMOVALS[removal].policies


def seats_of(group: Group) -> TargetSize | None:
    """Its standbys and take-overs; None: the group has no policies."""
    return rules_of(group, TargetSize)


def is_strict(group: Group) -> bool:
    return group.policies is not None and ROSTER_STRICT.of(group.policies.values)


def check_seats(group: Group, policy: TargetSize) -> None:
    """Check that standbys have no seat and never lead. A member in a take-over counts as the holder of its seat, not as a standby."""
    standbys = set(policy.standbys)
    assert standbys <= set(group.members), "a standby is no member"
    assert not policy.vacated_seats, "departed members are left after the step"
    assert not policy.departed_while_assigning, "members that departed while assigning are left after the step"
    assert not standbys & set(policy.take_overs), "a standby also takes a seat over"
    assert not policy.take_overs or group.state == State.STABLE, f"a seat is taken over in {group.state.name}"
    assert set(policy.take_overs) <= set(group.members), "a removed member takes a seat over"
    assert all(take_over.deadline != NEVER and take_over.member_id == id for id, take_over in policy.take_overs.items()), "a take-over has no deadline, or another member"
    if group.state in (State.COMPLETING, State.STABLE):
        assert group.leader not in standbys, "a standby leads"
        assert len(group.members) - len(standbys) <= policy.target(group), "more members have seats than the target"
    if group.state == State.STABLE:
        assert all(group.members[id].assignment == EMPTY_ASSIGNMENT for id in standbys), "a standby has partitions"


def check_absences(group: Group) -> None:
    rules = rules_of(group, Registration)
    assert rules is not None
    assert rules.timer is not None
    assert rules.timer.deadline != NEVER, "the absences have no deadline"


def least(values: Iterable[int | None]) -> int | None:
    """The smallest value; None if any value is None."""
    known: list[int] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return min(known, default=None)

"""The door to the policies: their order, the policies of one group, and those of all groups of a shard.

A policy is added here and nowhere else in the coordinator: to `ORDER`, the one list of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from coordinator.calls import JoinRequest, JoinWaiter
from coordinator.classic.group import Group
from coordinator.classic.member import Member, PendingMember
from coordinator.classic.waiting import set_waits
from coordinator.consumer.config import GROUP_SETTINGS, settings_problems
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.room import Room
from coordinator.facts import storable
from coordinator.hold import Fact
from coordinator.policies.declaration import NO_POLICIES, NONE_TEXT, GroupPolicies, Policy, PolicyValue
from coordinator.policies.expansion import Expansion
from coordinator.policies.hooks import PolicyRules, Wait
from coordinator.policies.pending_release import PendingRelease
from coordinator.policies.rebalance_request import RebalanceRequest
from coordinator.policies.registration import Registration
from coordinator.policies.roster import Roster
from coordinator.policies.status import AWAY, IGNORED, STATUS_NAMES, WAITING, StatusEntry, status_text
from coordinator.policies.subscription_change import SubscriptionChange
from coordinator.policies.target_size import TargetSize
from coordinator.policies.topics_watch import TopicsWatch
from coordinator.step_output import StepOutput
from protocol.messages.consumer_offsets import GroupPoliciesKey, GroupPoliciesValue, PolicyText
from protocol.records import in_newest_version, read_record

# The order in which hooks are called. Who may be a member comes first, then who has a seat, then who keeps it. A requested rebalance comes
# last: another policy's may have begun already.
ORDER: Final[tuple[type[PolicyRules], ...]] = (
    Roster,
    TargetSize,
    Registration,
    Expansion,
    SubscriptionChange,
    PendingRelease,
    TopicsWatch,
    RebalanceRequest,
)
_SHOWN_FIRST: Final[tuple[type[PolicyRules], ...]] = (Registration, Expansion)
# By name, in the order in which they are shown.
POLICIES: Final[dict[str, Policy]] = {policy.name: policy for rules in (*_SHOWN_FIRST, *ORDER) for policy in rules.declares}
SETTABLE: Final = tuple(policy.name for policy in POLICIES.values() if not policy.once)  # those that stay in force

Rules = TypeVar("Rules", bound=PolicyRules)

STATUS_PREFIX: Final = "status."


def policy_named(name: str) -> Policy:
    """Raises ValueError with a sentence that names the policies."""
    policy = POLICIES.get(name)
    if policy is None:
        raise ValueError(f"{name}: there is no such policy; the policies of a group are {', '.join(SETTABLE)}")
    return policy


def resolve(texts: Mapping[str, str], defaults: GroupPolicies = NO_POLICIES) -> GroupPolicies:
    """The policies of a group with these values over the broker's defaults. Raises ValueError with a sentence that names the accepted values."""
    values = dict(defaults.values)
    own: list[str] = []
    for name, text in texts.items():
        policy = policy_named(name)
        if text == NONE_TEXT and policy.has_default:
            values.pop(name, None)
            continue
        value: PolicyValue = policy.parse(text)
        if policy.once:
            continue
        own.append(name)
        if value is False:
            values.pop(name, None)
        else:
            values[name] = value
    for name in [name for name in values if name not in own]:
        needs = POLICIES[name].needs
        if needs and needs not in values:
            del values[name]
    return GroupPolicies(values, frozenset(own))


def value_problem(name: str, text: str) -> str | None:
    """Why a policy cannot have this value, in a sentence that begins with its name."""
    try:
        resolve({name: text})
    except ValueError as error:
        return str(error)
    return None


def resolve_known(texts: Mapping[str, str], defaults: GroupPolicies = NO_POLICIES) -> GroupPolicies:
    """`resolve` for stored values: values that this version cannot parse, perhaps written by a newer one, have no effect."""
    return resolve({name: text for name, text in texts.items() if value_problem(name, text) is None}, defaults)


def problems(before: GroupPolicies, after: GroupPolicies, group: Group | None) -> list[str]:
    """Why the policies of the group, which need not exist, may not become `after`, a sentence each."""
    return [problem for rules in ORDER for problem in rules.problems(before, after, group)]


class GroupDoor(PolicyRules):
    """The policies of one group. Each hook calls that of every policy, in order; the first that handles a request ends it."""

    def __init__(self, values: GroupPolicies) -> None:
        self.rules: tuple[PolicyRules, ...] = tuple([rules() for rules in ORDER])
        self.use(values)

    def use(self, values: GroupPolicies) -> None:
        self.values = values
        for rules in self.rules:
            rules.values = values

    def changed(self, out: StepOutput, group: Group, named: Mapping[str, str], stored: dict[bytes, bytes]) -> None:
        for rules in self.rules:
            rules.changed(out, group, named, stored)
        if group.newcomers:
            set_waits(out, group)

    def settled(self, out: StepOutput, group: Group) -> None:
        for rules in self.rules:
            rules.settled(out, group)

    def status(self, group: Group) -> dict[str, list[StatusEntry]]:
        entries: dict[str, list[StatusEntry]] = {}
        for rules in self.rules:
            entries.update(rules.status(group))
        return entries

    def refusal(self, out: StepOutput, group: Group | None, member: Member | None, request: JoinRequest) -> int:
        for rules in self.rules:
            error = rules.refusal(out, group, member, request)
            if error:
                return error
        return 0

    def answers_join(self, out: StepOutput, group: Group, member: Member | None, request: JoinRequest, waiter: JoinWaiter, id: str) -> bool:
        return any(rules.answers_join(out, group, member, request, waiter, id) for rules in self.rules)

    def wait(self, group: Group, request: JoinRequest | None) -> Wait | None:
        """The shortest; complete if one says so."""
        shortest: Wait | None = None
        for rules in self.rules:
            wait = rules.wait(group, request)
            if wait is not None:
                shortest = wait if shortest is None else Wait(min(shortest.ms, wait.ms), shortest.complete or wait.complete)
        return shortest

    def id_handed_out(self, out: StepOutput, group: Group, pending: PendingMember, request: JoinRequest) -> None:
        for rules in self.rules:
            rules.id_handed_out(out, group, pending, request)

    def heard_from(self, out: StepOutput, group: Group, member: Member, synced: bool) -> bool:
        restarted = False
        for rules in self.rules:
            restarted |= rules.heard_from(out, group, member, synced)
        return restarted

    def return_rebalances(self, group: Group, old: Member, request: JoinRequest) -> bool:
        return any(rules.return_rebalances(group, old, request) for rules in self.rules)

    def session_ended(self, out: StepOutput, group: Group, member: Member) -> bool:
        return any(rules.session_ended(out, group, member) for rules in self.rules)

    def member_goes(self, out: StepOutput, group: Group, member: Member, successor: Member | None) -> None:
        for rules in self.rules:
            rules.member_goes(out, group, member, successor)

    def without_seat(self) -> Mapping[str, bytes]:
        for rules in self.rules:
            members = rules.without_seat()
            if members:
                return members
        return {}

    def hand_over(self, out: StepOutput, group: Group) -> bool:
        return any(rules.hand_over(out, group) for rules in self.rules)

    def rebalance_begins(self, out: StepOutput, group: Group) -> None:
        for rules in self.rules:
            rules.rebalance_begins(out, group)

    def generation_begins(self, out: StepOutput, group: Group) -> None:
        for rules in self.rules:
            rules.generation_begins(out, group)

    def stored(self, out: StepOutput, group: Group) -> bool:
        return all(rules.stored(out, group) for rules in self.rules)

    def topics_changed(self, out: StepOutput, group: Group, topics: Collection[str]) -> None:
        for rules in self.rules:
            rules.topics_changed(out, group, topics)


def rules_of(group: Group, kind: type[Rules]) -> Rules | None:
    """The group's rules of one kind, for programs that look into a group; None: it has no policies."""
    door = group.policies
    if isinstance(door, GroupDoor):
        for rules in door.rules:
            if isinstance(rules, kind):
                return rules
    return None


class ShardPolicies:
    """The policies of all groups of a shard, as the operator wrote them, and beside them the settings that Kafka has for groups of the consumer
    protocol. A group need not exist to have policies."""

    def __init__(self, out: StepOutput, groups: Mapping[str, Group], end_step: Callable[[], None], consumers: Callable[[], Room]) -> None:
        """`end_step` hands the output of the step to the hold; `consumers`: the groups of the consumer protocol, which are made after this."""
        self._out = out
        self._groups = groups
        self._end_step = end_step
        self._consumers = consumers
        self._defaults = out.config.default_policies
        self._texts: dict[str, dict[str, str]] = {}  # group id -> values by name
        self._stored: dict[str, dict[bytes, bytes]] = {}  # group id -> its other records of policies; filled by replay, emptied by `open_group`

    def texts(self, group_id: str) -> Mapping[str, str]:
        """The values set for this group, as the operator wrote them."""
        return self._texts.get(group_id, {})

    def group_ids(self) -> list[str]:
        """The groups that have policies of their own."""
        return list(self._texts)

    def of(self, group_id: str) -> GroupPolicies:
        """The effective policies of the group: its own values over the broker's defaults."""
        texts = self._texts.get(group_id)
        return resolve_known(texts, self._defaults) if texts else resolve({}, self._defaults) if self._defaults else self._defaults

    def door_of(self, group_id: str) -> GroupDoor | None:
        """The door of a group that does not exist yet."""
        policies = self.of(group_id)
        return GroupDoor(policies) if policies or group_id in self._stored else None

    def refusals(self, group_id: str, texts: Mapping[str, str]) -> list[str]:
        """Why these values may not replace the group's, one sentence for each problem; empty if they may."""
        policies = {name: text for name, text in texts.items() if name not in GROUP_SETTINGS}
        settings = {name: text for name, text in texts.items() if name in GROUP_SETTINGS}
        wrong = [problem for name, text in policies.items() if (problem := value_problem(name, text)) is not None]
        wrong += settings_problems(self._out.config.consumer, settings)
        if wrong:
            return wrong
        wrong = self._inapplicable(group_id, texts)
        if wrong:
            return wrong
        wrong = problems(self.of(group_id), resolve(policies, self._defaults), self._groups.get(group_id))
        if not storable(group_id, *texts.values()) or not self._out.fits([_fact(group_id, texts)]):
            wrong.append("the policies do not fit into one record; shorten their texts")
        return wrong

    def _inapplicable(self, group_id: str, texts: Mapping[str, str]) -> list[str]:
        """New values that would have no effect. Those from before the group passed to the consumer protocol may stay."""
        if group_id not in self._consumers().groups:
            return []
        before = self.texts(group_id)
        return [
            f"{name}: group {group_id} is of the consumer protocol, to which the policy does not apply: {POLICIES[name].consumers.words}"
            for name, text in texts.items()
            if name in POLICIES and not POLICIES[name].consumers.applies and text not in (before.get(name), NONE_TEXT)
        ]

    def kept_ms(self, group_id: str) -> int:
        """How long a static member of a group of the consumer protocol is kept after its session ended."""
        values = self.of(group_id)
        return max([rules.kept_ms(values) for rules in ORDER])

    def replace(self, group_id: str, texts: Mapping[str, str], named: Mapping[str, str], now: int, wall: int) -> list[str]:
        """Replace all values of a group, which need not exist; return `refusals`, and change nothing if there are any. One step of the shard.

        `named`: the values that the operator has just set, also to what they were.
        """
        wrong = self.refusals(group_id, texts)
        if wrong:
            return wrong
        out = self._out
        out.now = now
        out.wall = wall
        if texts != self.texts(group_id):
            out.facts.append(_fact(group_id, texts))
            if texts:
                self._texts[group_id] = dict(texts)
            else:
                self._texts.pop(group_id, None)
            self._consumers().settings_changed(group_id)
        group = self._groups.get(group_id)
        if group is not None:
            self.open_group(group, named)
        elif reason := next(filter(None, [rules.epoch_reason(named) for rules in ORDER]), ""):
            self._consumers().ask_for_epoch(group_id, reason)
        self._end_step()
        return []

    def topics_changed(self, topics: Collection[str], now: int, wall: int) -> None:
        """These topics were created or deleted, or have another number of partitions. A step for each group."""
        out = self._out
        out.now = now
        out.wall = wall
        for group in list(self._groups.values()):
            if group.policies is not None:
                group.policies.topics_changed(out, group, topics)
                self._end_step()

    def open_group(self, group: Group, named: Mapping[str, str] | None = None) -> None:
        """Apply the group's policies: to a new or loaded group, or after they have changed."""
        door = group.policies
        if isinstance(door, GroupDoor):
            door.use(self.of(group.id))
        else:
            door = group.policies = self.door_of(group.id)
            if door is None:
                if not named:
                    return
                door = GroupDoor(NO_POLICIES)  # something that is done once leaves no state
        stored = self._stored.pop(group.id, {})
        out = self._out
        door.changed(out, group, named or {}, stored)
        out.facts += [(key, None) for key in stored]
        door.settled(out, group)

    def leftovers(self) -> list[list[Fact]]:
        """After a load: the tombstones for the records of groups that do not exist, by group."""
        records, self._stored = self._stored, {}
        return [[(key, None) for key in keys] for keys in records.values()]

    def status(self, group_id: str) -> dict[str, str]:
        """The entries `status.*` of a group: members and instances that its policies affect at this moment."""
        consumers = self._consumers().groups.get(group_id)
        if consumers is not None:
            return shown(self._status_of_consumers(consumers))
        group = self._groups.get(group_id)
        if group is None or group.policies is None:
            return {}
        waiting = [
            StatusEntry(newcomer.request.instance_id or newcomer.id, self._out.wall - (self._out.now - newcomer.arrived_ms))
            for newcomer in group.newcomers.values()
        ]
        return shown({**group.policies.status(group), WAITING: waiting})

    def _status_of_consumers(self, group: ConsumerGroup) -> dict[str, list[StatusEntry]]:
        out = self._out
        away = [
            StatusEntry(member.profile.instance_id or member.id, out.wall - (out.now - member.seen_ms))
            for member in group.members.values()
            if member.is_away and self.kept_ms(group.id)
        ]
        ignored = [StatusEntry(name) for name in self.texts(group.id) if name in POLICIES and not POLICIES[name].consumers.applies]
        return {AWAY: away, IGNORED: ignored}

    # Replay.

    def fold(self, group_id: str, key: bytes, value: bytes | None) -> None:
        """A record of policies was read from the log."""
        if key == policies_key(group_id):
            if value is None:
                self._texts.pop(group_id, None)
            else:
                self._texts[group_id] = read_policies(value)
        elif value is not None:
            self._stored.setdefault(group_id, {})[key] = value
        elif group_id in self._stored:
            self._stored[group_id].pop(key, None)
            if not self._stored[group_id]:
                del self._stored[group_id]


def shown(entries: Mapping[str, list[StatusEntry]]) -> dict[str, str]:
    return {STATUS_PREFIX + name: status_text(entries[name]) for name in sorted(entries, key=STATUS_NAMES.index) if entries[name]}


def policies_key(group_id: str) -> bytes:
    return in_newest_version(GroupPoliciesKey(group_id))


def policies_value(texts: Mapping[str, str]) -> bytes | None:
    """None, a tombstone, if no policy is set."""
    if not texts:
        return None
    return in_newest_version(GroupPoliciesValue([PolicyText(name, text) for name, text in texts.items()]))


def read_policies(value: bytes) -> dict[str, str]:
    return {policy.name: policy.text for policy in read_record(GroupPoliciesValue, value).policies}


def _fact(group_id: str, texts: Mapping[str, str]) -> Fact:
    return policies_key(group_id), policies_value(texts)

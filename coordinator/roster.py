"""Policies instance.ids, roster.timeout.ms and roster.strict: the instances that a group is made of.

With roster.timeout.ms a group that forms waits for all listed instances, and a group that has formed lets new ones wait until the
list is complete: one rebalance in either case, at the latest when the first has waited for the timeout. With roster.strict, members
that are not listed are removed in one rebalance, and refused from then on.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.calls import JoinRequest
from coordinator.group import Group
from coordinator.member import Member
from coordinator.notes import ABOUT_CHARS_MAX, Kind, spend_note_budget
from coordinator.outcome import Outcome
from coordinator.policies import GroupPolicies
from coordinator.policy_state import PolicyState
from protocol.messages.coordinator_notes import JoinRefused


def waits_for_roster(group: Group, instance: str | None) -> bool:
    """Whether this instance is listed, and the group waits for those that are."""
    policy = group.policy
    return policy is not None and policy.policies.roster_timeout_ms is not None and instance in policy.listed


def forming_timeout_ms(group: Group) -> int | None:
    """How long a group that forms waits for its instances; None: it does not."""
    policy = group.policy
    return policy.policies.roster_timeout_ms if policy is not None and policy.listed else None


def is_complete(group: Group) -> bool:
    """Whether all listed instances are members, or wait to be. False without a list to wait for."""
    policy = group.policy
    if policy is None or not policy.listed or policy.policies.roster_timeout_ms is None:
        return False
    return len(group.statics) + len(policy.newcomers) >= len(policy.listed) and not missing(group, policy)


def missing(group: Group, policy: PolicyState) -> list[str]:
    """The listed instances that are no members and do not wait to be, in the order of the list."""
    present = group.statics.keys() | {name for is_instance, name in policy.newcomers if is_instance}
    return [name for name in policy.policies.instance_ids or () if name not in present]


def refuses(policies: GroupPolicies, listed: Collection[str], request: JoinRequest, member: Member | None) -> bool:
    """Whether a strict list excludes the sender. A known member may leave its instance id out."""
    if not policies.roster_strict:
        return False
    instance = request.instance_id if member is None else member.instance_id
    return instance is None or instance not in listed


def unlisted(group: Group) -> list[Member]:
    """Members that a strict list excludes."""
    policy = group.policy
    if policy is None or not policy.policies.roster_strict:
        return []
    return [member for member in group.members.values() if member.instance_id not in policy.listed]


def note_refusal(out: Outcome, group: Group, request: JoinRequest) -> None:
    policy = group.policy
    if policy is not None and spend_note_budget(group, out.now):
        names = ", ".join(policy.policies.instance_ids or ())[:ABOUT_CHARS_MAX]
        out.add_note(group, Kind.JOIN_REFUSED, JoinRefused(request.instance_id, request.client_id, request.client_host, names))

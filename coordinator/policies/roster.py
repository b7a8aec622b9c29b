"""Policies instance.ids, roster.timeout.ms and roster.strict: the list of instances that belong to a group.

With roster.timeout.ms a forming group waits for all listed instances, and in a formed group new listed instances wait until the list
is complete. Either way one rebalance admits them all, at the latest when the first has waited for the timeout. With roster.strict,
unlisted members are removed in one rebalance, and refused from then on.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.calls import JoinRequest
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.notes import TEXT_CHARS_MAX, spend_note_budget
from coordinator.policies.state import PolicyState
from coordinator.policies.values import GroupPolicies
from coordinator.step_output import StepOutput
from protocol.messages.coordinator_notes import JoinRefused


def waits_for_roster(group: Group, instance: str | None) -> bool:
    """Whether this instance is listed, and roster.timeout.ms is set."""
    policy = group.policy_state
    return policy is not None and policy.policies.roster_timeout_ms is not None and instance in policy.listed


def forming_timeout_ms(group: Group) -> int | None:
    """The time that a forming group waits for its listed instances; None: it does not wait."""
    policy = group.policy_state
    return policy.policies.roster_timeout_ms if policy is not None and policy.listed else None


def is_complete(group: Group) -> bool:
    """Whether all listed instances are members or waiting newcomers. False without a list to wait for."""
    policy = group.policy_state
    if policy is None or not policy.listed or policy.policies.roster_timeout_ms is None:
        return False
    return len(group.static_members) + len(policy.newcomers) >= len(policy.listed) and not missing_instances(group, policy)


def missing_instances(group: Group, policy: PolicyState) -> list[str]:
    """The listed instances that are neither members nor waiting newcomers, in the order of the list."""
    present = group.static_members.keys() | {name for is_instance, name in policy.newcomers if is_instance}
    return [name for name in policy.policies.instance_ids or () if name not in present]


def excludes(policies: GroupPolicies, listed: Collection[str], request: JoinRequest, member: Member | None) -> bool:
    """Whether roster.strict excludes the sender: its instance is not listed, or it has none. A request of a known member may lack the id."""
    if not policies.roster_strict:
        return False
    instance = request.instance_id if member is None else member.instance_id
    return instance is None or instance not in listed


def unlisted_members(group: Group) -> list[Member]:
    """The members that roster.strict excludes, since instance.ids does not list them."""
    policy = group.policy_state
    if policy is None or not policy.policies.roster_strict:
        return []
    return [member for member in group.members.values() if member.instance_id not in policy.listed]


def note_refusal(out: StepOutput, group: Group, request: JoinRequest) -> None:
    policy = group.policy_state
    if policy is not None and spend_note_budget(group, out.now):
        names = ", ".join(policy.policies.instance_ids or ())[:TEXT_CHARS_MAX]
        out.add_note(group, JoinRefused(request.instance_id, request.client_id, request.client_host, names))

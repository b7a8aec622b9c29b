"""Groups: look at them, expire and remove members, rebalance, move their coordinator."""

from __future__ import annotations

from typing import Any

from broker.control.asking import check
from broker.control.fields import TEXT, WHOLE, Field, Refused
from broker.control.verb import Call, Verb
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

GROUP = Field("group", TEXT, "the group's id", required=True)
MEMBER = Field("member", TEXT, "a member id")
INSTANCE = Field("instance", TEXT, "the instance id of a static member")


def found(call: Call) -> Group:
    name = call.fields["group"]
    group = call.of.group(name)
    if group is None:
        known = sorted(call.of.groups())
        raise Refused(404, f"there is no group {name!r}", f"groups: {', '.join(known[:10]) or 'none'}")
    return group


def member_of(call: Call, group: Group) -> Member:
    id, instance = call.fields["member"], call.fields["instance"]
    if (id is None) == (instance is None):
        raise Refused(400, "one of member and instance says who it is", "member: a member id; instance: the instance id of a static member")
    if instance is not None:
        id = group.static_members.get(instance)
    member = group.members.get(id) if id is not None else None
    if member is None:
        known = sorted(group.static_members) if instance is not None else sorted(group.members)
        raise Refused(404, f"group {group.id!r} has no such member", f"it has {', '.join(known[:10]) or 'none'}")
    return member


async def list_all(call: Call) -> Any:
    return {"groups": [call.of.group_document(group) for group in call.of.groups().values()]}


async def show(call: Call) -> Any:
    return call.of.group_document(found(call))


async def expire(call: Call) -> Any:
    group = found(call)
    member = member_of(call, group)
    generation = group.generation
    call.of.expire(group, member)
    await call.of.settle()
    return {"expired": member.id, "instance": member.instance_id, "generation_before": generation} | call.of.group_document(group)


async def rebalance(call: Call) -> Any:
    group = found(call)
    if not group.members:
        raise Refused(409, f"group {group.id!r} has no members", "a rebalance is one of members")
    await call.of.rebalance(group)
    await call.of.settle()
    return call.of.group_document(group)


async def remove(call: Call) -> Any:
    group = found(call)
    member = member_of(call, group)
    leaver = MemberIdentity("" if member.instance_id else member.id, member.instance_id, "removed by a test")
    reply = await call.of.request(LeaveGroupRequest(group.id, [leaver]))
    check(reply.error_code or reply.members[0].error_code, f"group {group.id}")
    return {"removed": member.id, "instance": member.instance_id} | call.of.group_document(group)


async def delete(call: Call) -> Any:
    group = found(call)
    reply = await call.of.request(DeleteGroupsRequest([group.id]))
    check(reply.results[0].error_code, f"group {group.id}")
    return {"deleted": group.id}


async def forget(call: Call) -> Any:
    partition = call.of.coordinator_partition(call.fields["group"], call.fields["partition"])
    await call.of.forget_coordinator(partition, call.fields["ms"])
    return {"partition": partition, "ms": call.fields["ms"]}


async def lag(call: Call) -> Any:
    """How far a group is behind, in the partitions that it has committed or that its members have."""
    return {"lag": await call.of.lag(found(call))}


async def move(call: Call) -> Any:
    raise Refused(409, "the cluster has one node", "forget the coordinator instead: its groups are loaded again from the log")


async def lead(call: Call) -> Any:
    raise Refused(409, "the cluster has one node", "restart it, or give its clients NOT_LEADER_OR_FOLLOWER by a fault")


PATH = "/v1/clusters/{cluster}"
VERBS = (
    Verb("GET", PATH + "/groups", "list the groups with their members", list_all),
    Verb("GET", PATH + "/groups/show", "show a group", show, (GROUP,)),
    Verb("GET", PATH + "/groups/lag", "how many records a group has not committed, by topic and partition", lag, (GROUP,)),
    Verb("POST", PATH + "/groups/expire", "end a member's session now, by the rule that would end it", expire, (GROUP, MEMBER, INSTANCE), {"group": "billing", "instance": "billing-2"}),
    Verb("POST", PATH + "/groups/rebalance", "begin a rebalance", rebalance, (GROUP,), {"group": "billing"}),
    Verb("POST", PATH + "/groups/remove", "remove a member, as an administrator does", remove, (GROUP, MEMBER, INSTANCE), {"group": "billing", "instance": "billing-2"}),
    Verb("POST", PATH + "/groups/delete", "delete a group without members", delete, (GROUP,), {"group": "billing"}),
    Verb(
        "POST", PATH + "/coordinator/forget", "give up a partition of groups for a while (NOT_COORDINATOR), and load it again from the log", forget,
        (
            Field("group", TEXT, "the coordinator of this group"),
            Field("partition", WHOLE, "a partition of __consumer_offsets", least=0),
            Field("ms", WHOLE, "for how long", 0, least=0, most=600_000),
        ),
        {"group": "billing", "ms": 3000},
    ),
    Verb("POST", PATH + "/coordinator/move", "give a group's coordinator to another node", move, (Field("group", TEXT, "the group's id"), Field("node", WHOLE, "the node")), {"group": "billing", "node": 1}),
    Verb(
        "POST", PATH + "/coordinator/leader", "give a partition to another node", lead,
        (Field("topic", TEXT, "the topic's name", required=True), Field("partition", WHOLE, "its number", 0, least=0), Field("node", WHOLE, "the node")),
        {"topic": "orders", "partition": 3, "node": 1},
    ),
)  # fmt: skip

"""Compares the replies that clients received with the memory of the coordinators, and passes them to the promises."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from coordinator.states import COMPLETING, PREPARING
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from simulator.audit import Audit
from simulator.client import ClientConnection, Request
from simulator.course import Course
from simulator.member import Member
from simulator.memory import Coordinators
from simulator.promises import Instances, Offsets, Sessions
from simulator.rebalances import check_subscription
from simulator.world import MS, SECOND, Broken, Promise, World

LEAVE_VERSION: Final = 5
REQUEST_NS: Final = 30 * SECOND
MEMBERS_LEAVE: Final = Promise("members leave", "a member or an unused member id that left is gone")


class Replies:
    def __init__(
        self,
        world: World,
        course: Course,
        coordinators: Coordinators,
        audits: Sequence[Audit],
        offsets: Offsets,
        instances: Instances,
        sessions: Sessions,
        retention_ns: int,
    ) -> None:
        self._world = world
        self._course = course
        self._coordinators = coordinators
        self._audits = audits
        self._offsets = offsets
        self._instances = instances
        self._sessions = sessions
        self._retention_ns = retention_ns

    def joined(self, group: str, request: Request) -> None:
        """A JoinGroup was answered without an error."""
        found = self._coordinators.find(group)
        if found is not None and self._coordinators.served_since(group, request.sent):
            check_subscription(found, request.message, request.reply)

    def listed(self, group: str, reply: JoinGroupResponse) -> None:
        """The leader of a generation received this list of its members."""
        for audit in self._audits:
            found = audit.memory.find(group)
            if found is not None:
                audit.rebalances.listed(found, reply)

    def leave(self, wire: ClientConnection, group: str, members: list[MemberIdentity]) -> Generator[Any, Any, None]:
        """Remove members with LeaveGroup: raise Broken if one that was answered without an error is still in the group."""
        before = self._coordinators.find(group)
        owners = dict(before.static_members) if before is not None else {}
        request = wire.send(LeaveGroupRequest(group, members), LEAVE_VERSION, REQUEST_NS)
        yield request
        if request.lost:
            return
        answers = request.reply.members
        if request.reply.error_code == ErrorCode.NONE and len(answers) != len(members):
            raise Broken(MEMBERS_LEAVE, f"LeaveGroup of {len(members)} members is answered for {len(answers)}", group)
        found = self._coordinators.find(group)
        if found is None or self._course.is_void(request) or not self._coordinators.served_since(group, request.sent):
            return
        for member in answers:
            id = member.member_id or owners.get(member.group_instance_id or "", "")
            if member.error_code == ErrorCode.NONE and (id in found.members or id in found.pending_members):
                raise Broken(MEMBERS_LEAVE, f"{id} left and is still in {group}", group)

    def commit_refused(self, group: str, request: Request) -> None:
        """A commit got REBALANCE_IN_PROGRESS: raise Broken in a join phase, since members of the old generation may then still commit."""
        found = self._coordinators.find(group)
        if found is None or found.policies is not None or found.state is not PREPARING:
            return
        if found.phase_start_ms * MS < request.sent and self._coordinators.served_since(group, request.sent):
            raise Broken(Offsets.promise, f"{group} refuses a commit in a join phase", group)

    def heartbeat_accepted(self, group: str, request: Request) -> None:
        """A heartbeat was answered without an error."""
        for audit in self._audits:
            if audit.rebalances.saw_rebalance(group):
                found = audit.memory.find(group)
                if found is not None:
                    audit.rebalances.heartbeat_accepted(found, request.sent, "Heartbeat")

    def committed(self, group: str, request: Request) -> None:
        """A commit was answered without an error."""
        found = self._coordinators.find(group)
        if found is not None and found.state is COMPLETING and found.phase_start_ms * MS - SECOND < request.sent and not self._course.is_void(request):
            raise Broken(Offsets.promise, f"{group} accepts a commit of generation {found.generation}, which is not assigned yet", group)

    def unknown(self, group: str, request: Request) -> None:
        """A request was answered with UNKNOWN_MEMBER_ID."""
        message = request.message
        found = self._coordinators.find(group)
        if found is not None and message.group_instance_id is not None and message.member_id and not self._course.is_void(request):
            holder = found.static_members.get(message.group_instance_id)
            self._instances.unknown(group, message.group_instance_id, message.member_id, holder, request.sent)

    def session_renewed(self, member: Member, member_id: str, request: Request) -> None:
        what = type(request.message).__name__.removesuffix("Request")
        if not self._course.is_void(request):
            self._sessions.renewed(member.group, member_id, request.sent, member.settings.session_ns, what)

    def offsets_read(self, group: str, request: Request) -> None:
        if self._course.is_void(request):
            return
        reply = request.reply
        topics = reply.topics
        code = reply.error_code
        if reply.groups:
            topics = reply.groups[0].topics
            code = reply.groups[0].error_code
        if code:
            self._world.count(f"OffsetFetch {code}")
            return
        for topic in topics or ():
            if topic.name in request.unknown_topics:
                continue
            for each in topic.partitions:
                if not each.error_code:
                    if each.committed_offset < 0:
                        self._offsets.may_expire((group, topic.name, each.partition_index), self._retention_ns)
                    self._offsets.read((group, topic.name, each.partition_index), each.committed_offset, request.sent)
                    self._world.counts["offsets read"] = self._world.counts.get("offsets read", 0) + 1

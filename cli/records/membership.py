"""A member of a consumer group in Kafka's classic protocol, with the assignors range and round robin."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cli.client import Exit, Failure, TopicPartition, failure
from cli.client.patience import seconds_text
from cli.client.remedies import joins_again, loses_member_id
from cli.client.words import json_code_of
from cli.records.assignors import ASSIGNORS, Subscriber
from cli.records.heartbeats import Heartbeats, Seat
from cli.records.parking import send_parked
from protocol.errors import ErrorCode, ProtocolError
from protocol.message import Message
from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.records import read_assignment, read_subscription, with_version

if TYPE_CHECKING:
    from cli.client import Cluster

E = ErrorCode
CONSUMER: Final = "consumer"
PAUSE_SECONDS: Final = 0.1
REJOIN_SECONDS_MAX: Final = 300.0  # how long other members may take to join again: usually their max.poll.interval.ms
LEAVE_SECONDS: Final = 2.0
REPORT_SECONDS: Final = 4.0  # a rebalance that takes longer is reported
WRITTEN_VERSION: Final = 0  # of subscriptions and assignments: enough for an eager member, and readable by every client


class Timeouts(NamedTuple):
    session: float
    rebalance: float
    heartbeat: float
    join: float | None = None  # how long to wait for a seat in all; None: as long as other members may take


class Member:
    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        timeouts: Timeouts,
        *,
        instance_id: str | None = None,
        assignors: Sequence[str] = tuple(ASSIGNORS),
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`report`: told, once for each rebalance, when it takes long."""
        self.group = group
        self.seat: Seat | None = None
        self.leader_remark = ""  # a remark for the user, if this member leads its group
        self.partition_counts: dict[str, int] = {}  # of each topic whose partitions this member, as leader, has assigned
        self._cluster = cluster
        self._topics = sorted(set(topics))
        self._timeouts = timeouts
        self._instance_id = instance_id
        self._assignors = list(assignors)
        self._member_id = ""
        self._report = report
        self._reported = False
        self._join_deadline = math.inf
        self._heartbeats: Heartbeats | None = None

    # Rebalances

    def join(self) -> Seat:
        """Join the group, as often as needed, until the member has an assignment (a seat). Raises Failure if the group refuses this member."""
        self.stop_heartbeats()
        self.seat = None
        self._reported = False
        self._cluster.patience.renew()
        self._join_deadline = math.inf if self._timeouts.join is None else time.monotonic() + self._timeouts.join
        trouble_since: float | None = None
        while True:
            lookup_at: float | None = time.monotonic()
            try:
                # First wait, within the time limit of calls, until the coordinator answers. JoinGroup has a longer limit, as it waits for other members.
                self._cluster.send_to_coordinator(self.group, DescribeGroupsRequest([self.group]))
                lookup_at = None
                join_reply = self._join()
                if join_reply is not None:
                    partitions = self._sync(join_reply)
                    if partitions is not None:
                        return self._start_seat(join_reply.generation_id, partitions)
                trouble_since = None
            except Failure as trouble:
                now = time.monotonic()
                trouble_since = trouble_since or lookup_at or now
                # The last quarter of the time is too short for a retry.
                too_late = now >= self._join_deadline or now - trouble_since >= 0.75 * self._cluster.limits.call
                if trouble.exit_code not in (Exit.UNREACHABLE, Exit.AGAIN) or too_late:
                    raise
                self._cluster.forget_coordinator(self.group)
            time.sleep(PAUSE_SECONDS)

    def _start_seat(self, generation: int, partitions: list[TopicPartition]) -> Seat:
        self.seat = Seat(generation, self._member_id, self._instance_id, partitions)
        self._heartbeats = Heartbeats(self._cluster, self.group, self.seat, self._timeouts.heartbeat)
        return self.seat

    def _join(self) -> JoinGroupResponse | None:
        """Send JoinGroup. Returns its reply; None: join again."""
        subscription = with_version(ConsumerProtocolSubscription(self._topics), WRITTEN_VERSION)
        request = JoinGroupRequest(
            self.group,
            int(self._timeouts.session * 1000),
            int(self._timeouts.rebalance * 1000),
            self._member_id,
            self._instance_id,
            CONSUMER,
            [JoinGroupRequestProtocol(name, subscription) for name in self._assignors],
        )
        oldest = 5 if self._instance_id is not None else 0  # the first version with static members
        reply: JoinGroupResponse = self._send_parked(request, max(REJOIN_SECONDS_MAX, self._timeouts.rebalance), "its other members have not joined again", oldest)
        if reply.error_code == E.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
        elif not self._means_rejoin(reply.error_code):
            check_member(reply.error_code, self.group, self._instance_id, self._assignors)
            self._member_id = reply.member_id
            return reply
        return None

    def _sync(self, joined: JoinGroupResponse) -> list[TopicPartition] | None:
        self.leader_remark = ""
        is_leader = joined.leader == self._member_id
        assignments = self._assign(joined) if is_leader and not joined.skip_assignment else []
        protocol = joined.protocol_name
        request = SyncGroupRequest(
            self.group, joined.generation_id, self._member_id, self._instance_id, joined.protocol_type or CONSUMER, protocol, assignments
        )
        reply: SyncGroupResponse = self._send_parked(request, self._timeouts.rebalance, "the member that leads it has not assigned its partitions")
        if self._means_rejoin(reply.error_code):
            return None
        check_member(reply.error_code, self.group, self._instance_id, self._assignors)
        if not is_leader:
            self.partition_counts = {}
        return decode_assignment(reply.assignment)

    def _send_parked(self, request: Message, seconds: float, missing: str, oldest: int = 0) -> Any:
        """Send a request that waits for other members. `missing`: what they have not done, if the answer does not come in time."""
        began = time.monotonic()
        deadline = min(self._join_deadline, began + seconds + self._cluster.timeout)

        def waits() -> None:
            if not self._reported and time.monotonic() - began >= REPORT_SECONDS:
                self._reported = True
                self._report(f"group {self.group} is rebalancing: {missing} yet")

        reply = send_parked(self._cluster, self.group, request, deadline, oldest=oldest, waits=waits)
        if reply is None:
            limit = self._timeouts.join if deadline == self._join_deadline else deadline - began
            line = f"group {self.group} is rebalancing: {missing} within {seconds_text(limit or 0)} (tenure group describe {quote(self.group)} shows them)"
            raise Failure(Exit.AGAIN, line, kind=json_code_of(E.REBALANCE_IN_PROGRESS))
        return reply

    def _means_rejoin(self, code: int) -> bool:
        """Whether the error means that the member must join again; then it forgets a lost member id."""
        if loses_member_id(code):
            self._member_id = ""
        return joins_again(code)

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        assignor = ASSIGNORS.get(joined.protocol_name or "")
        if assignor is None:
            raise Failure(Exit.REFUSED, f"group {self.group}: its members agreed on the assignor {joined.protocol_name!r}, which this command does not have")
        subscribers = []
        for member in joined.members:
            try:
                topics_wanted = read_subscription(member.metadata).topics
            except ProtocolError:
                topics_wanted = []  # not a subscription
            subscribers.append(Subscriber(member.member_id, member.group_instance_id, topics_wanted))
        topics = sorted({topic for subscriber in subscribers for topic in subscriber.topics})
        self.partition_counts = self._partition_counts(topics)
        shares = assignor(subscribers, self.partition_counts)
        self.leader_remark = f"leads {len(subscribers)} {'member' if len(subscribers) == 1 else 'members'} by {joined.protocol_name}"
        return [SyncGroupRequestAssignment(member_id, encode_assignment(share)) for member_id, share in shares.items()]

    def _partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        if not topics:
            return {}
        return {name: len(topic.partitions) for name, topic in self._cluster.topics(topics, refresh=True).items()}

    # Between rebalances

    @property
    def must_rejoin(self) -> bool:
        """Whether the member must join again, by its last heartbeat. Raises Failure if it cannot."""
        heartbeats = self._heartbeats
        if heartbeats is None:
            return True
        heartbeats.progress = time.monotonic()
        if heartbeats.failure is not None:
            raise heartbeats.failure
        if heartbeats.code and not self._means_rejoin(heartbeats.code):
            check_member(heartbeats.code, self.group, self._instance_id, self._assignors)
        return bool(heartbeats.code)

    @property
    def partitions_changed(self) -> bool:
        """Whether topics now have other numbers of partitions than those that this member, as leader, has assigned. Asks the cluster."""
        return bool(self.partition_counts) and self._partition_counts(sorted(self.partition_counts)) != self.partition_counts

    def wait(self, seconds: float) -> None:
        """Wait, in a member without partitions, for `seconds` or until a heartbeat reports a rebalance or an error."""
        if self._heartbeats is None:
            time.sleep(seconds)
        else:
            self._heartbeats.ended.wait(seconds)

    def stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.stop()
            self._heartbeats = None

    def must_rejoin_after(self, code: int) -> bool:
        """Whether a commit error means that the member must join again. Raises Failure if it cannot."""
        if self._means_rejoin(code):
            return True
        check_member(code, self.group, self._instance_id, self._assignors)
        return False

    def leave(self) -> None:
        """Leave the group, so that other members get the partitions at once. Errors are ignored, since the session will expire anyway."""
        self.stop_heartbeats()
        if not self._member_id:
            return
        reason = "the command ended"
        request = LeaveGroupRequest(self.group, [MemberIdentity(self._member_id, self._instance_id, reason)], self._member_id)
        with contextlib.suppress(Failure):
            oldest = 3 if self._instance_id is not None else 0
            self._cluster.send_to_coordinator(self.group, request, oldest=oldest, timeout=min(LEAVE_SECONDS, self._cluster.timeout))
        self.seat = None


def check_member(code: int, group: str, instance_id: str | None, assignors: Sequence[str]) -> None:
    """Raise Failure for an error code, with the remedies for a member."""
    match code:
        case E.NONE:
            return
        case E.FENCED_INSTANCE_ID:
            raise Failure(Exit.REFUSED, f"group {group}: another process has joined as instance {instance_id} and has its seat now; this one is fenced")
        case E.INCONSISTENT_GROUP_PROTOCOL:
            offered = " and ".join(assignors)
            raise Failure(
                Exit.REFUSED,
                f"group {group}: its members have no assignor in common with this command ({offered}), or are no consumers "
                f"(tenure group describe {quote(group)})",
            )
        case E.INVALID_SESSION_TIMEOUT:
            raise Failure(
                Exit.REFUSED,
                f"group {group}: the cluster does not allow this --session-timeout (group.min.session.timeout.ms to group.max.session.timeout.ms)",
            )
    raise failure(code, f"group {group}")


def encode_assignment(share: Mapping[str, Sequence[int]]) -> bytes:
    partitions = [ConsumerProtocolAssignmentTopicPartition(topic, list(numbers)) for topic, numbers in share.items()]
    return with_version(ConsumerProtocolAssignment(partitions), WRITTEN_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    if not data:
        return []
    try:
        assignment: Any = read_assignment(data)
    except ProtocolError as error:
        raise Failure(Exit.REFUSED, f"the leader of the group sent an assignment that cannot be read: {error}") from error
    return sorted((topic.topic, partition) for topic in assignment.assigned_partitions for partition in topic.partitions)

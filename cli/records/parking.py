"""Requests that a coordinator answers only when other members have done their part: JoinGroup and SyncGroup.

Such an answer may take minutes, so silence does not tell whether the coordinator still works. That is asked from time to time on another connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from cli.client import Failure, failure
from cli.client.connection import NoReply
from cli.client.replies import MOVED_COORDINATOR
from protocol.errors import ErrorCode
from protocol.message import Message
from protocol.messages.describe_groups import DescribeGroupsRequest

if TYPE_CHECKING:
    from cli.client import Cluster

CHECK_SECONDS: Final = 5.0
CHECK_SHARE: Final = 0.3  # of the time limit of calls


def send_parked(cluster: Cluster, group: str, request: Message, deadline: float, *, oldest: int = 0, waits: Callable[[], None]) -> Any:
    """The coordinator's reply; None if it has not come at the deadline. `waits`: called after each check that the coordinator still answers.

    Raises Failure if the coordinator does not answer, or is not the group's coordinator any more.
    """
    (coordinator,) = cluster.coordinators([group])
    between_checks = min(CHECK_SECONDS, cluster.limits.call * CHECK_SHARE)
    mark = cluster.patience.mark()
    try:
        with closing(cluster.own_connection(coordinator)) as connection:
            version = connection.version_for(request, oldest)
            correlation_id = connection.send(request, version, deadline)
            while not connection.readable(max(0.0, min(between_checks, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    return None
                cluster.send_to_coordinator(group, DescribeGroupsRequest([group]), timeout=between_checks)
                if [coordinator] != list(cluster.coordinators([group])):
                    raise failure(ErrorCode.NOT_COORDINATOR, f"group {group}")
                mark = cluster.patience.mark()
                waits()
            reply = connection.receive(request, version, correlation_id, time.monotonic() + cluster.timeout)
    except NoReply as no_reply:
        cluster.patience.spend(mark)
        raise Failure(no_reply.exit_code, no_reply.full_text, hint=no_reply.hint) from no_reply
    except Failure:
        cluster.patience.spend(mark)
        raise
    if reply.error_code in MOVED_COORDINATOR:
        raise failure(reply.error_code, f"group {group}")
    return reply

"""Policy pending.release: a handed-out member id that no JoinGroup has used expires when its connection closes.

Some clients get an id and reconnect without using it (librdkafka 5569): without the policy, a rebalance waits a full session timeout
for that id. The connection is checked once a second; a new request for an id on the same connection releases the earlier ids at once.
"""

from __future__ import annotations

from typing import Final

from coordinator.calls import JoinRequest
from coordinator.classic.group import Group
from coordinator.classic.member import CHECK_MS, PendingMember
from coordinator.classic.rebalance import expire_pending
from coordinator.policies.declaration import Switch, not_in_consumer_groups
from coordinator.policies.hooks import PolicyRules
from coordinator.step_output import StepOutput

PENDING_RELEASE: Final = Switch(
    "pending.release",
    "Whether an assigned member id that was never used is forgotten when its connection closes.",
    consumers=not_in_consumer_groups("nothing waits there for a member id that is not used"),
)


class PendingRelease(PolicyRules):
    declares = (PENDING_RELEASE,)

    def id_handed_out(self, out: StepOutput, group: Group, pending: PendingMember, request: JoinRequest) -> None:
        connection = request.connection
        if connection is None:
            return
        released = [before for before in group.pending_members.values() if before.connection is connection]
        if PENDING_RELEASE.of(self.values):  # check the connection once a second until the deadline
            pending.connection = connection
            pending.expires_ms = pending.deadline
            out.deadlines.set(pending, min(out.now + CHECK_MS, pending.expires_ms))
        for before in released:
            out.deadlines.remove(before)
            expire_pending(out, group, before.id)

"""What has happened to a run as a whole: whether its faults are over, and which replies a power failure voids."""

from __future__ import annotations

from collections.abc import Callable

from simulator.client import Request
from simulator.node import Node


class Course:
    def __init__(self, node: Node) -> None:
        self.node = node  # the target of the next fault; its wall clock is also that of the producers
        self.faults_over = False
        self.power_failed_at = -1
        self.lost_until = -1
        self.on_late_leader: Callable[[str, int], None] | None = None  # called with the group and the moment until which its leader delays its SyncGroup

    def is_void(self, request: Request) -> bool:
        """Whether a power failure voids the reply: unless `offsets.flush` is `always`, a reply shortly before it promises nothing."""
        return request.sent <= self.lost_until

"""The requests and replies of group clients, in order, and the guarantees they must satisfy. No sockets.

The promises about offsets and generations are those of the simulator (simulator/promises.py): an acknowledged commit,
or a later one, is stored; a generation has a single assignment, and generations do not decrease. This file has the
guarantees that only a soak can check: settled members stay settled if only the broker died; a live process is never fenced; no
client waits for ever (the waiting code reports that with `report_violation`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from protocol.errors import ErrorCode
from simulator.promises import Generations, GroupPartition, Offsets, SentValue
from simulator.world import Broken

# Errors after which a member must rejoin.
UNSETTLING = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)
RETRIABLE = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
# Codes after which a careful client continues; any other would have stopped it.
EXPECTED: dict[str, tuple[int, ...]] = {
    "JoinGroup": (*RETRIABLE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS),
    "SyncGroup": (*RETRIABLE[1:], *UNSETTLING),  # without 14, which would end a Java consumer
    "Heartbeat": (*RETRIABLE[1:], *UNSETTLING),
    "LeaveGroup": (*RETRIABLE, ErrorCode.UNKNOWN_MEMBER_ID),
    "OffsetCommit": (*RETRIABLE, *UNSETTLING),
    "OffsetFetch": (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR),  # without 15, which ends Java consumers before 3.9
    "DeleteGroups": RETRIABLE,
    "FindCoordinator": (ErrorCode.COORDINATOR_NOT_AVAILABLE,),
}


class Assignment(NamedTuple):
    """An assignment of a member; `round` is the leader's mark, the same for all members and unique."""

    round: str
    partitions: tuple[int, ...]


class Seat(NamedTuple):
    generation: int
    assignment: Assignment


class Ledger:
    def __init__(self) -> None:
        self.broker_run = 0  # how often the broker was restarted so far
        self.violations: list[str] = []
        self.counts: dict[str, int] = {}
        self._began = time.monotonic_ns()
        self._moment = 0
        self._offsets = Offsets(self)
        self._generations = Generations(self, lambda group: True)
        self._settled: dict[str, dict[str, Seat]] = {}

    @property
    def now(self) -> int:
        """Nanoseconds since the ledger began; every value is unique."""
        self._moment = max(self._moment + 1, time.monotonic_ns() - self._began)
        return self._moment

    def report_violation(self, problem: str) -> None:
        self.violations.append(f"run {self.broker_run}: {problem}")

    def _check(self, promise: Callable[[], None]) -> None:
        try:
            promise()
        except Broken as broken:
            self.report_violation(str(broken))

    def count(self, action: str) -> None:
        self.counts[action] = self.counts.get(action, 0) + 1

    def restarted(self) -> None:
        self.broker_run += 1

    # Offsets.

    def commit_sent(self, partition: GroupPartition) -> int:
        """Note that a commit is sent; returns the offset to commit."""
        return self._offsets.send([partition])[0]

    def deletion_sent(self, partition: GroupPartition) -> SentValue:
        return self._offsets.send_removal(partition)

    def acknowledged(self, partition: GroupPartition, sent: int | SentValue) -> None:
        self._offsets.acknowledged(partition, sent)
        self.count("acknowledged")

    def refused(self, partition: GroupPartition, sent: int | SentValue) -> None:
        """Note that a commit or deletion got a final error, so it has no effect. A retriable error would leave that open."""
        self._offsets.refused(partition, sent)

    def fetched(self, partition: GroupPartition, offset: int, sent: int) -> None:
        """`offset`: -1 where there is none. `sent`: the moment of the request."""
        self.count("fetched")
        self._check(lambda: self._offsets.read(partition, offset, sent))

    # Generations and assignments.

    def synced(self, group: str, seat: str, generation: int, assignment: Assignment, sent: int) -> None:
        """Check a SyncGroup reply with an assignment. `seat`: the instance id, or the member id of a dynamic member."""
        self.count("synced")
        owned = [(group, partition) for partition in assignment.partitions]
        self._check(lambda: self._generations.assigned(group, generation, seat, assignment.round, repr(assignment).encode(), owned, sent))
        settled = self._settled.get(group, {}).get(seat)
        if settled is not None and (settled.generation, settled.assignment) != (generation, assignment):
            self.report_violation(f"lost seat: {seat} of {group} had {settled.assignment.partitions} in generation {settled.generation}, and now {generation}")

    def settled(self, group: str, seats: dict[str, Seat]) -> None:
        """Note that all members are settled: from now on they must stay so, until a call of `disturbed`."""
        self._settled[group] = dict(seats)

    def disturbed(self, group: str) -> None:
        self._settled.pop(group, None)

    def is_settled(self, group: str) -> bool:
        return group in self._settled

    def answered(self, group: str, seat: str, api: str, code: int) -> None:
        """Check an error reply to a live member under its current member id."""
        self.count(f"{api} {code}")
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.report_violation(f"fenced: {seat} of {group} lives, and its {api} was answered FENCED_INSTANCE_ID")
        elif code not in EXPECTED[api]:
            self.report_violation(f"unexpected code: {api} of {seat} of {group} was answered {code}")
        elif code in UNSETTLING and group in self._settled:
            self.report_violation(f"rebalance without cause: {api} of {seat} of {group} was answered {code}, although all members were settled")

"""Sends a member's heartbeats in a thread with its own connections, so that slow output does not delay them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import Exit, Failure, TopicPartition
from protocol.messages.heartbeat import HeartbeatRequest

if TYPE_CHECKING:
    from cli.client import Cluster

# As Kafka's max.poll.interval.ms: a member without progress for this time stops its heartbeats, and so loses its partitions.
PROGRESS_SECONDS_MAX: Final = 300.0
LAST_HEARTBEAT_SECONDS: Final = 1.0


class Seat(NamedTuple):
    """A member's place in one generation: its identity and its partitions."""

    generation: int
    member_id: str
    instance_id: str | None
    partitions: list[TopicPartition]


class Heartbeats:
    """Sends the heartbeats of a member until `stop`, or until the member has lost its seat (its place in the generation)."""

    def __init__(self, cluster: Cluster, group: str, seat: Seat, seconds: float) -> None:
        self.code = 0  # the error code by which the member lost its seat
        self.failure: Failure | None = None
        self.progress = time.monotonic()
        self.ended = threading.Event()
        self._cluster = cluster.separate_client()
        self._group = group
        self._seat = seat
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Waits only briefly, since the reply to its last heartbeat is not needed."""
        self._stop.set()
        self._thread.join(LAST_HEARTBEAT_SECONDS)

    def _run(self) -> None:
        seat = self._seat
        with self._cluster as cluster:
            while not self._stop.wait(self._seconds):
                if time.monotonic() - self.progress > PROGRESS_SECONDS_MAX:
                    continue
                cluster.patience.renew()
                try:
                    reply = cluster.send_to_coordinator(self._group, HeartbeatRequest(self._group, seat.generation, seat.member_id, seat.instance_id))
                except Failure as failure:
                    if failure.exit_code in (Exit.UNREACHABLE, Exit.AGAIN):
                        continue  # the coordinator may answer again before the session expires
                    self.failure = failure
                else:
                    self.code = reply.error_code
                if self.failure or self.code:
                    self.ended.set()
                    return

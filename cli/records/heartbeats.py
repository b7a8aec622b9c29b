"""A member's heartbeats, sent by a thread with its own connections: the group must not notice that printing is slow."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import EXIT, Failure
from protocol.messages.heartbeat import HeartbeatRequest

if TYPE_CHECKING:
    from cli.client import Cluster
    from cli.topics.log_offsets import Place

# As Kafka's max.poll.interval.ms: a member that has printed nothing for so long stops its heartbeats, and loses its partitions.
STANDSTILL_SECONDS: Final = 300.0
LAST_HEARTBEAT_SECONDS: Final = 1.0


class Seat(NamedTuple):
    """A member's identity and partitions between two rebalances."""

    generation: int
    member_id: str
    instance_id: str | None
    places: list[Place]


class Heartbeats:
    """Sends the heartbeats of one seat until it is stopped or the seat is lost."""

    def __init__(self, cluster: Cluster, group: str, seat: Seat, seconds: float) -> None:
        self.code = 0  # the coordinator's error that ends the seat
        self.failure: Failure | None = None
        self.progress = time.monotonic()
        self.changed = threading.Event()
        self._cluster = cluster.another()
        self._group = group
        self._seat = seat
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The reply to a heartbeat under way is about a seat that is given up, so the wait for it is short."""
        self._stop.set()
        self._thread.join(LAST_HEARTBEAT_SECONDS)

    def _run(self) -> None:
        seat = self._seat
        with self._cluster as cluster:
            while not self._stop.wait(self._seconds):
                if time.monotonic() - self.progress > STANDSTILL_SECONDS:
                    continue
                try:
                    reply = cluster.coordinator(self._group, HeartbeatRequest(self._group, seat.generation, seat.member_id, seat.instance_id))
                except Failure as failure:
                    if failure.code in (EXIT.UNREACHABLE, EXIT.AGAIN):
                        continue  # it may come back before the session is over
                    self.failure = failure
                else:
                    self.code = reply.error_code
                if self.failure or self.code:
                    self.changed.set()
                    return

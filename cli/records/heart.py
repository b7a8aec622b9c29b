"""A member's heartbeats, on a thread and connections of their own: printing may be slow, and the group must not notice."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from cli.client import EXIT, Failure
from protocol.messages.heartbeat import HeartbeatRequest

if TYPE_CHECKING:
    from cli.client import Cluster
    from cli.records.membership import Seat

# As Kafka's max.poll.interval.ms: whoever has got nowhere for so long is no reader, and its partitions go to others.
STANDSTILL_SECONDS: Final = 300.0
LAST_BEAT_SECONDS: Final = 1.0


class Heart:
    """Beats for one seat until it is stopped, or hears that the seat is lost."""

    def __init__(self, cluster: Cluster, group: str, seat: Seat, seconds: float) -> None:
        self.code = 0  # what the coordinator said that ends the seat
        self.failure: Failure | None = None
        self.progress = time.monotonic()
        self.changed = threading.Event()
        self._own = cluster.another()
        self._group = group
        self._seat = seat
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """What a beat that is on its way hears is about a seat that is given up: it is not waited for long."""
        self._stop.set()
        self._thread.join(LAST_BEAT_SECONDS)

    def _beat(self) -> None:
        seat = self._seat
        with self._own as own:
            while not self._stop.wait(self._seconds):
                if time.monotonic() - self.progress > STANDSTILL_SECONDS:
                    continue
                try:
                    reply = own.coordinator(self._group, HeartbeatRequest(self._group, seat.generation, seat.member_id, seat.instance_id))
                except Failure as failure:
                    if failure.code in (EXIT.UNREACHABLE, EXIT.AGAIN):
                        continue  # it may come back before the session is over
                    self.failure = failure
                else:
                    self.code = reply.error_code
                if self.failure or self.code:
                    self.changed.set()
                    return

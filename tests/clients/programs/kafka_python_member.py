"""A member of a group by kafka-python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import kafka
import kafka.errors
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.clients.programs.life import CommitRefused, Record, Refused, Settings, live, report_partitions

ASSIGNORS = {assignor.name: assignor for assignor in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor)}
RETRIABLE_ERRORS = kafka.errors.RetriableError  # includes lost connections
COMMIT_MS = 2_000  # of one attempt
# kafka-python 3.0.12 rejoins or hangs if a poll ends during a SyncGroup, so a poll lasts longer than the reply takes on a busy machine.
JOIN_SECONDS = 1.0


class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: Any) -> None:
        report_partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        report_partitions("revoked", revoked)

    def on_partitions_lost(self, lost: Any) -> None:
        report_partitions("lost", lost)


class Consumer:
    def __init__(self, settings: Settings) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            client_id=settings.name,
            group_id=settings.group,
            group_instance_id=settings.instance,
            partition_assignment_strategy=[ASSIGNORS[settings.assignor]],
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=settings.heartbeat_ms,
            max_poll_interval_ms=settings.poll_interval_ms,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            reconnect_backoff_max_ms=500,
        )
        self._consumer.subscribe(settings.topics, listener=Listener())

    def poll(self, seconds: float) -> Sequence[Record]:
        try:
            batches = self._consumer.poll(int(seconds * 1000))
        except RETRIABLE_ERRORS:
            return []
        except kafka.errors.KafkaError as error:
            raise Refused(error) from error
        return [Record(record.topic, record.partition, record.offset, record.value.decode()) for records in batches.values() for record in records]

    def commit(self, positions: dict[tuple[str, int], int]) -> None:
        offsets = {kafka.TopicPartition(*partition): kafka.OffsetAndMetadata(offset, "", -1) for partition, offset in positions.items()}
        try:
            self._consumer.commit(offsets, timeout_ms=COMMIT_MS)
        except kafka.errors.KafkaError as error:
            raise CommitRefused(error, isinstance(error, RETRIABLE_ERRORS)) from error

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


if __name__ == "__main__":
    live(Consumer, JOIN_SECONDS)

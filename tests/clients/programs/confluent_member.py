"""A member of a group by confluent-kafka, which is librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.clients.programs.life import CommitRefused, Record, Refused, Settings, live, report_partitions

RECORDS_AT_ONCE = 500
RETRIABLE_ERRORS = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._DESTROY,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
)


def event_printer(event: str) -> Callable[[confluent_kafka.Consumer, list[TopicPartition]], None]:
    return lambda consumer, partitions: report_partitions(event, partitions)


class Consumer:
    def __init__(self, settings: Settings) -> None:
        self._fatal: KafkaError | None = None
        config: dict[str, object] = {
            "bootstrap.servers": settings.bootstrap,
            "client.id": settings.name,
            "group.id": settings.group,
            "max.poll.interval.ms": max(settings.poll_interval_ms, settings.session_ms),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
            "error_cb": self._note_error,
        }
        if settings.protocol == "classic":
            config |= {
                "partition.assignment.strategy": settings.assignor,
                "session.timeout.ms": settings.session_ms,
                "heartbeat.interval.ms": settings.heartbeat_ms,
            }
        else:
            config |= {"group.protocol": settings.protocol, "group.remote.assignor": settings.assignor}
        if settings.instance is not None:
            config["group.instance.id"] = settings.instance
        self._consumer = confluent_kafka.Consumer(config)
        topics = [f"^{settings.pattern}"] if settings.pattern else settings.topics
        self._consumer.subscribe(topics, on_assign=event_printer("assigned"), on_revoke=event_printer("revoked"), on_lost=event_printer("lost"))

    def _note_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error

    def poll(self, seconds: float) -> Sequence[Record]:
        records: list[Record] = []
        for message in self._consumer.consume(RECORDS_AT_ONCE, seconds):
            error = message.error()
            if error is None:
                records.append(Record(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0), (message.value() or b"").decode()))
            elif error.fatal() or error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
                self._fatal = error
        if self._fatal is not None and not records:
            error, self._fatal = self._fatal, None
            raise Refused(KafkaException(error), error.name())
        return records

    def commit(self, positions: dict[tuple[str, int], int]) -> None:
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        try:
            results = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise CommitRefused(error, error.args[0].code() in RETRIABLE_ERRORS, error.args[0].name()) from error
        for committed in results or ():
            if committed.error is not None:
                raise CommitRefused(KafkaException(committed.error), committed.error.code() in RETRIABLE_ERRORS, committed.error.name())

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def close(self) -> None:
        self._consumer.close()


if __name__ == "__main__":
    live(Consumer)

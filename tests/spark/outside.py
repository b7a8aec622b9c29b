"""Another client's changes to the topics that Spark reads: creating, writing, adding partitions, deleting records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

SECONDS = 20.0


class KafkaClient:
    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "broker.address.family": "v4"}
        self._admin = AdminClient(self._settings)

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        await_all(self._admin.create_topics([NewTopic(topic, partitions, 1, config=config)]))

    def delete(self, topic: str) -> None:
        await_all(self._admin.delete_topics([topic]))

    def grow(self, topic: str, partitions: int) -> None:
        await_all(self._admin.create_partitions([NewPartitions(topic, partitions)]))

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        await_all(self._admin.delete_records([TopicPartition(topic, partition, offset)]))

    def send(self, topic: str, numbers: Iterable[int], partitions: int = 1, timestamp: int | None = None, keys: int = 0) -> None:
        """Send numbers as values, to the partitions in turn. `keys`: how many different keys. `timestamp`: of the first; the n-th is n ms later."""
        failed: list[Any] = []
        producer = Producer(self._settings | {"linger.ms": 1})
        for at, number in enumerate(numbers):
            timestamps: dict[str, Any] = {} if timestamp is None else {"timestamp": timestamp + at}
            key = str(number % keys).encode() if keys else None
            producer.produce(
                topic,
                str(number).encode(),
                key,
                partition=at % partitions,
                on_delivery=lambda error, _: failed.append(error) if error else None,
                **timestamps,
            )
            if at % 1000 == 999:
                producer.poll(0)
        assert producer.flush(SECONDS) == 0, f"{topic}: some records were not delivered"
        assert not failed, failed

    def groups(self) -> set[str]:
        return {group.group_id for group in self._admin.list_consumer_groups().result(SECONDS).valid}

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=SECONDS).topics)


def await_all(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(SECONDS)

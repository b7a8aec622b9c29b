"""A member of a group by aiokafka. Its rebalances run beside the application, so a lock keeps processing and committing
together, and records fetched before a rebalance are dropped and fetched again."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.clients.programs.life import (
    COMMIT_RETRY_SECONDS,
    POLL_SECONDS,
    RETRY_SECONDS,
    CommitRefused,
    Record,
    Refused,
    Settings,
    positions_behind,
    read_commands,
    report,
    report_commit_refused,
    report_committed,
    report_error,
    report_partitions,
    report_records,
    settings_of,
)

ASSIGNORS = {assignor.name: assignor for assignor in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)}
RECORDS_AT_ONCE = 500


class Listener(aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.processing = asyncio.Lock()
        self.revoked = 0  # the number of revocations

    async def on_partitions_assigned(self, assigned: Any) -> None:
        report_partitions("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        async with self.processing:
            self.revoked += 1
            report_partitions("revoked", revoked)


async def commit(consumer: aiokafka.AIOKafkaConsumer, positions: dict[tuple[str, int], int]) -> None:
    offsets = {aiokafka.TopicPartition(*partition): offset for partition, offset in positions.items()}
    until = time.monotonic() + COMMIT_RETRY_SECONDS
    while True:
        try:
            await consumer.commit(offsets)
        except aiokafka.errors.KafkaError as error:
            if error.retriable and time.monotonic() < until:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            report_commit_refused(CommitRefused(error, False))
        else:
            report_committed(positions)
        return


async def poll(consumer: aiokafka.AIOKafkaConsumer, listener: Listener) -> None:
    """Fetch without holding the lock, since getmany waits for a rebalance, which needs the lock; then process and commit."""
    batches = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=RECORDS_AT_ONCE)
    records = [Record(record.topic, record.partition, record.offset, record.value.decode()) for batch in batches.values() for record in batch]
    revoked = listener.revoked  # to notice a revocation while this waits for the lock
    async with listener.processing:
        if records and revoked == listener.revoked:
            report_records(records)
            await commit(consumer, positions_behind(records))


def make(settings: Settings) -> aiokafka.AIOKafkaConsumer:
    return aiokafka.AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap,
        client_id=settings.name,
        group_id=settings.group,
        group_instance_id=settings.instance,
        partition_assignment_strategy=(ASSIGNORS[settings.assignor],),
        session_timeout_ms=settings.session_ms,
        heartbeat_interval_ms=settings.heartbeat_ms,
        max_poll_interval_ms=settings.poll_interval_ms,
        rebalance_timeout_ms=settings.poll_interval_ms,  # as in other clients; aiokafka's default is the session timeout
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def live() -> None:
    commands = read_commands()
    settings = settings_of(commands.get())
    consumer = make(settings)
    listener = Listener()
    consumer.subscribe(settings.topics, listener=listener)
    polling = True
    try:
        await consumer.start()  # returns when the member has joined
        report("started")
    except aiokafka.errors.KafkaError as error:
        report_error(Refused(error))
        polling = False
    while True:
        while not polling or not commands.empty():
            word = (await asyncio.to_thread(commands.get))["do"]
            match word:
                case "pause" | "resume":
                    polling = word == "resume"
                case "unsubscribe":
                    consumer.unsubscribe()
                case "close":
                    await consumer.stop()
                    report("closed")
                    return
            report("did", word=word)
        try:
            await poll(consumer, listener)
        except aiokafka.errors.KafkaError as error:
            report_error(Refused(error))
            polling = False


if __name__ == "__main__":
    asyncio.run(live())

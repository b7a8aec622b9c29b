"""A soak of records: producers and a reader run, the broker is killed at a time chosen by the seed, and no record may be lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.soak.producer import Producer
from tests.soak.reader import Reader
from tests.soak.record_ledger import RecordLedger
from tests.soak.soak_broker import SoakBroker

TOPIC = "soak-records"
LOOK_SECONDS = 0.02
# Kafka's smallest segment, so that some kills happen during a roll; retention must not delete the reader's records.
SETTINGS = ("log.segment.bytes=1048576", "log.retention.ms=-1")


class RecordPlan(NamedTuple):
    kills: int
    seed: int
    producers: int = 4
    partitions: int = 4
    settle_seconds: float = 25.0


class RecordCampaign:
    def __init__(self, broker: SoakBroker, plan: RecordPlan, tell: Callable[[str], None] = lambda line: None) -> None:
        self.ledger = RecordLedger(plan.partitions)
        self.kills = 0
        self.longest_settling = 0.0
        self._broker = broker
        self._plan = plan
        self._tell = tell
        self._random = random.Random(plan.seed)
        self._producers: list[Producer] = []
        self._dead: list[Producer] = []
        self._reader: Reader | None = None
        self._started = 0

    async def run(self) -> RecordLedger:
        try:
            await asyncio.to_thread(self._broker.start, *SETTINGS)
            await asyncio.to_thread(self._broker.create_topic, TOPIC, self._plan.partitions)
            for _ in range(self._plan.producers):
                self._add_producer()
            self._reader = Reader(self._broker.port, self.ledger, TOPIC, self._plan.partitions, self._chance())
            await self._settle()
            while self.kills < self._plan.kills and not self.ledger.violations:
                await self._kill_once()
            await self._settle()
            await self._read_everything()
        finally:
            await self._end()
        return self.ledger

    def _chance(self) -> random.Random:
        return random.Random(self._random.random())

    def _add_producer(self) -> None:
        self._started += 1
        self._producers.append(Producer(self._broker.port, self.ledger, TOPIC, self._plan.partitions, self._started, self._chance()))

    async def _end(self) -> None:
        clients: list[Producer | Reader] = [*self._producers, *self._dead]
        if self._reader is not None:
            clients.append(self._reader)
        for client in clients:
            client.stop()
        for client in clients:
            await client.ended()

    # Kills and other events.

    async def _kill_once(self) -> None:
        chance = self._random
        if chance.random() < 0.2:
            self.ledger.count("producers that died")
            self._producers[0].stop()  # its last batches may or may not be stored
            self._dead.append(self._producers.pop(0))
            self._add_producer()
        await asyncio.sleep(chance.uniform(0, 0.4))
        if chance.random() < 0.1:
            self.ledger.count("orderly ends")
            code = await asyncio.to_thread(self._broker.stop)
            if code != 0:
                self.ledger.report_violation(f"the broker ended with {code} when it was told to stop")
        else:
            await asyncio.to_thread(self._broker.kill)
            self.kills += 1
        if chance.random() < 0.15:
            await asyncio.to_thread(self._broker.start_and_kill, chance.uniform(0.05, 0.5), *SETTINGS)
            self.ledger.count("killed while starting")
        await asyncio.sleep(chance.uniform(0, 0.1))
        self.ledger.restarted()
        await asyncio.to_thread(self._broker.start, *SETTINGS)
        for line in self._broker.complaints:
            self.ledger.report_violation(f"the broker logged: {line}")
        self._broker.complaints.clear()
        if chance.random() < 0.8:
            await self._settle()
        self._tell(f"kill {self.kills}: {self.summary()}")

    # Checks after each kill.

    async def _settle(self) -> None:
        """Wait until each producer has a new acknowledgement, and the reader has read all records from before the kill."""
        await self._until(self._settled)

    async def _read_everything(self) -> None:
        """After the last producer has stopped, read all records again from the first offset to the last."""
        for producer in self._producers:
            producer.stop()
        assert self._reader is not None
        self._reader.stop()
        await self._reader.ended()
        reader = self._reader = Reader(self._broker.port, self.ledger, TOPIC, self._plan.partitions, self._chance())
        await self._until(lambda: self._no_client_failed() and self.ledger.all_read(reader.positions))

    async def _until(self, reached: Callable[[], bool]) -> None:
        begin = time.monotonic()
        while not self.ledger.violations and not reached():
            if time.monotonic() - begin > self._plan.settle_seconds:
                self.ledger.report_violation(f"not settled after {self._plan.settle_seconds} s: {self._reader!r}; {self._producers!r}")
            await asyncio.sleep(LOOK_SECONDS)
        self.longest_settling = max(self.longest_settling, time.monotonic() - begin)

    def _settled(self) -> bool:
        assert self._reader is not None
        broker_run = self.ledger.broker_run
        return self._no_client_failed() and self._reader.checked_run == broker_run and all(producer.steady_run == broker_run for producer in self._producers)

    def _no_client_failed(self) -> bool:
        for client in (self._reader, *self._producers, *self._dead):
            if client is not None and (failure := client.failure()) is not None:
                raise failure
        return True

    def summary(self) -> str:
        text = ", ".join(f"{action} x {count}" for action, count in sorted(self.ledger.counts.items()))
        return f"settled within {self.longest_settling:.1f} s; {text}"

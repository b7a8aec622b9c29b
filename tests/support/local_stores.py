"""A store of group logs on a faulty disk, with threads run by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from broker.groups.journal import Journal, owned_or_fail
from broker.runtime.turn import Turn
from broker.runtime.workers import Workers
from broker.settings.config import Config
from broker.settings.load import load_config
from broker.stores.local import LocalStore
from broker.stores.owned import LocalLog
from simulator.disk import SimDisk
from storage import HeldBy, LogId, OwnedLog, Unreadable
from tests.support.journals import LATE_MS, Reply, Values
from tests.support.stepped_loop import SteppedLoop

VALUES = LogId("values", 0)
LOG = "/data/values-0/00000000000000000000.log"


class Threads:
    """Workers whose jobs the test runs."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append((work, done))

    def run(self) -> None:
        """Run a job to its end."""
        work, done = self.jobs.pop(0)
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)

    def run_all(self) -> None:
        while self.jobs:
            self.run()

    def close(self) -> None: ...


def config(policy: str, data: str = "/data") -> Config:
    return load_config(data=[data], settings=[f"offsets.flush={policy}"], environ={})


class StoreHarness:
    """A store, one log of it, and a shard whose journal writes there."""

    def __init__(self, disk: SimDisk, policy: str) -> None:
        self.disk = disk
        self.policy = policy
        self.start()

    def start(self) -> None:
        self.loop = SteppedLoop()
        self.threads = Threads()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.store = LocalStore(config(self.policy), loop, self.disk)
        workers = cast(Workers, self.threads)
        self.store.workers = self.store.background_flusher = self.store.checkpoint_worker = self.store.bulk_flusher.workers = self.store.turn_flushes.workers = workers
        acquired: list[OwnedLog | HeldBy | Unreadable] = []
        self.store.acquire(VALUES, acquired.append)
        self.threads.run_all()
        self.owned = cast(LocalLog, owned_or_fail("values-0", acquired[0]))
        self.shard = Values()
        turn = Turn(loop, self.loop.clock())
        self.journal = Journal("values-0", self.shard, self.owned, turn, LATE_MS)
        self.journal.start()
        turn.add_deadline_handler(self.journal)

    def more_logs(self, count: int) -> list[LocalLog]:
        logs: list[LocalLog] = []
        for number in range(count):
            self.store.acquire(LogId("values", number + 1), lambda log: logs.append(cast(LocalLog, log)))
            self.threads.run_all()
        return logs

    def put(self, key: bytes, value: bytes = b"1") -> Reply:
        """A changing request, and the end of its turn."""
        reply = Reply()
        self.shard.put(key, value)
        self.journal.hold_reply(reply)
        self.loop.run()
        return reply

    def retry(self) -> None:
        """Advance the time until a suspended log is retried."""
        self.loop.pass_ms(20_000)
        self.threads.run_all()

    def restart_after_crash(self) -> dict[bytes, bytes | None]:
        self.disk.crash()
        self.start()
        return self.shard.values

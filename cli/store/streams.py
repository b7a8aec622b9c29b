"""A cluster in JetStream as the source of a copy."""

from __future__ import annotations

import os
import re

from broker.settings.config import Config
from broker.settings.load import ConfigError, load_config
from broker.settings.servers import parse_servers
from broker.stores.jetstream.connection import TooOld
from broker.stores.jetstream.store_client import StoreClient, StreamReading
from broker.stores.jetstream.wire import NatsError
from cli.failure import Exit, Failure
from cli.store.logs import LogToCopy
from storage.log_copy import LogEnd

NODE_ID = 1  # node id in a copy, which a single broker may serve


def config_of(option: str, store: str, cluster: str | None, settings: list[str], partitions: int = 0) -> Config:
    """The settings of a node of the cluster, with this number of partitions of __consumer_offsets (0: the default).

    `option`: the name of the option with the address, for errors. Raises Failure.
    """
    try:
        parse_servers(store)
    except ValueError as error:
        raise Failure(Exit.USAGE, f"{option}: {error}") from None
    more = [f"store={store}", "node.id=1", *([f"cluster.name={cluster}"] if cluster is not None else [])]
    more += [f"offsets.topic.num.partitions={partitions}"] if partitions else []
    try:
        return load_config(settings=[*settings, *more], environ=os.environ)
    except ConfigError as error:
        raise Failure(Exit.CONFIG, "; ".join(error.problems)) from None


async def reach(store_client: StoreClient) -> bool:
    """Connect to NATS; return whether the cluster exists in it. Raises Failure if the servers cannot be reached or are too old."""
    try:
        return await store_client.open()
    except TooOld as error:
        raise Failure(Exit.UNSUPPORTED, f"store {store_client}: {error}") from None
    except (OSError, NatsError, TimeoutError) as error:
        hint = "start nats-server there, or name the address of a running server"
        raise Failure(Exit.UNREACHABLE, f"store {store_client}: {reason_text(error)}; {hint}", hint=hint) from None


def reason_text(error: Exception) -> str:
    """The text of an error, without the numbers and tuples that Python puts into it."""
    text = str(error)
    number = re.search(r"\[Errno (\d+)\]", text)  # asyncio: "[Errno 111] Connect call failed ('127.0.0.1', 4222)", perhaps of several addresses
    return os.strerror(int(number[1])).lower() if number else re.sub(r"^\[Errno -\d+\] ", "", text) or "no answer"


class StreamSource:
    def __init__(self, store_client: StoreClient) -> None:
        self._store_client = store_client
        self.node_id = NODE_ID

    def __str__(self) -> str:
        return str(self._store_client)

    @property
    def cluster_id(self) -> str:
        return self._store_client.cluster_id

    async def open(self) -> None:
        if not await reach(self._store_client) or not self.cluster_id:
            raise Failure(Exit.MISSING, f"there is no cluster {self._store_client}; name it with --cluster NAME")
        self._store_client.check_finished()

    async def end_of(self, log: LogToCopy) -> LogEnd | None:
        return await self._store_client.end_of(log.id, self._store_client.stream_of(log.id, None if log.internal else log.topic_id))

    async def read(self, log: LogToCopy, end: LogEnd) -> StreamReading:
        return self._store_client.read(self._store_client.stream_of(log.id, None if log.internal else log.topic_id), end)

    async def size_of(self, log: LogToCopy) -> int:
        return await self._store_client.size_of(self._store_client.stream_of(log.id, None if log.internal else log.topic_id))

    def close(self) -> None:
        self._store_client.close()

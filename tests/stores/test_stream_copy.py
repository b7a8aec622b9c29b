"""A stream is written as a copy while connections and replies are lost."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from broker.settings.load import load_config
from broker.stores.jetstream.store_client import StoreClient, StoreProblem
from broker.stores.jetstream.stream_copy import StreamCopy
from broker.stores.jetstream.streams import Stream
from protocol.batch import build_facts, read_header, stamp
from storage import LogId
from storage.log_copy import LogState
from tests.stores.engine_proxy import EngineProxy
from tests.support.nats_engine import NatsEngine

pytestmark = [pytest.mark.jetstream, pytest.mark.once]

NUMBERS = count()
LOG = LogId("__consumer_offsets", 0)
BATCHES = 1_500
END = 3 * BATCHES - 2  # the offset after the last batch


def client_of(url: str, cluster: str) -> StoreClient:
    return StoreClient(load_config(settings=[f"store={url}", f"cluster.name={cluster}", "node.id=1", "store.replicas=1"], environ={}))


def batches() -> list[bytes]:
    """Batches with gaps in their offsets, and with increasing epochs."""
    copied_batches = []
    for number in range(BATCHES):
        batch = bytearray(build_facts([(b"k%d" % number, b"v" * 200)], 1))
        stamp(batch, 0, 3 * number, number // 500)
        copied_batches.append(bytes(batch))
    return copied_batches


async def copy(store_client: StoreClient, stream: Stream, id: str, written: list[bytes], count: int = BATCHES) -> None:
    stream_copy = StreamCopy(store_client, stream, id, {})
    await stream_copy.open(0)
    for batch in written[:count]:
        await stream_copy.append(0, read_header(batch, 0), batch)
    if count == BATCHES:
        await stream_copy.finish(LogState(0, END, 7), False)


async def copied(store_client: StoreClient, stream: Stream) -> list[bytes]:
    end = await store_client.end_of(LOG, stream)
    assert end is not None
    assert (end.next_offset, end.epoch, end.seq) == (END, 7, BATCHES + 1)
    return [batch async for _, _, batch in store_client.read(stream, end).batches()]


async def copied_under_faults(engine: NatsEngine, cluster: str, written: list[bytes]) -> list[bytes]:
    proxy = EngineProxy(engine.servers[0].port)
    await proxy.start()

    async def disturb() -> None:
        for number in count():
            await asyncio.sleep(0.03)
            proxy.drops_replies = number % 3 == 1
            if number % 5 == 4:
                proxy.cut()

    store_client = client_of(f"nats://127.0.0.1:{proxy.port}", cluster)
    direct = client_of(engine.url, cluster)
    try:
        assert not await store_client.open()
        await store_client.begin_import("id", "import")
        disturbing = asyncio.create_task(disturb())
        await copy(store_client, store_client.names.internal(LOG), "import", written)
        disturbing.cancel()
        await direct.open()
        return await copied(direct, direct.names.internal(LOG))
    finally:
        store_client.close()
        direct.close()
        await proxy.close()


def test_lost_entries_are_sent_again(one_server: NatsEngine) -> None:
    written = batches()
    assert asyncio.run(copied_under_faults(one_server, f"copied{next(NUMBERS)}", written)) == written


def test_a_copy_that_continues_after_any_number_of_batches_is_complete(one_server: NatsEngine) -> None:
    async def repeated() -> list[bytes]:
        store_client = client_of(one_server.url, f"copied{next(NUMBERS)}")
        try:
            await store_client.open()
            stream = store_client.names.internal(LOG)
            for count in (0, 1, 700, 200, BATCHES, 900, BATCHES):
                await copy(store_client, stream, "import", written, count)
            return await copied(store_client, stream)
        finally:
            store_client.close()

    written = batches()
    assert asyncio.run(repeated()) == written


def test_an_entry_of_another_writer_ends_a_copy(one_server: NatsEngine) -> None:
    async def interfered() -> None:
        store_client = client_of(one_server.url, f"copied{next(NUMBERS)}")
        try:
            await store_client.open()
            stream = store_client.names.internal(LOG)
            await copy(store_client, stream, "import", written, 10)
            await copy(store_client, stream, "another", written)
        finally:
            store_client.close()

    written = batches()
    with pytest.raises(StoreProblem, match="was not written by this import"):
        asyncio.run(interfered())

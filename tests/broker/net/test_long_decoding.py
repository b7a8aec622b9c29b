"""A request with many elements is decoded by a thread; meanwhile the event loop serves the other connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker.net.dispatch import ELEMENTS_AT_ONCE_MAX
from broker.runtime.collector import NEVER
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.held_workers import HeldWorkers
from tests.support.in_loop import InLoopBroker

pytestmark = [pytest.mark.once, pytest.mark.plain]  # replaces attributes of compiled objects

FEW = ELEMENTS_AT_ONCE_MAX - 10
MANY = 3 * ELEMENTS_AT_ONCE_MAX
ELEMENTS_MAX = 5 * ELEMENTS_AT_ONCE_MAX


def metadata(elements: int) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=f"{number:x}") for number in range(elements)])


@pytest.fixture
def held() -> HeldWorkers:
    return HeldWorkers()


@pytest_asyncio.fixture
async def served(tmp_path: Path, held: HeldWorkers) -> AsyncIterator[InLoopBroker]:
    served = InLoopBroker(tmp_path)
    await served.start(request_elements_max=ELEMENTS_MAX)
    served.server.broker.dispatch._workers = held
    yield served
    await served.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.asyncio
async def test_only_a_request_of_many_elements_is_decoded_by_the_thread(served: InLoopBroker, held: HeldWorkers) -> None:
    client = await served.connect()
    assert len((await client.ask(metadata(FEW), 9)).topics) == FEW
    assert not held.jobs
    client.send((metadata(MANY), 9))
    await until(lambda: held.jobs)
    held.run()
    assert len((await client.reply()).topics) == MANY


@pytest.mark.asyncio
async def test_others_are_served_meanwhile_and_later_requests_of_the_connection_wait(served: InLoopBroker, held: HeldWorkers) -> None:
    client, other = await served.connect(), await served.connect()
    client.send((metadata(MANY), 9), (metadata(2), 9))
    await until(lambda: held.jobs)
    assert len((await other.ask(metadata(3), 9)).topics) == 3
    assert len((await other.ask(metadata(FEW), 9)).topics) == FEW
    held.run()
    assert [len((await client.reply()).topics), len((await client.reply()).topics)] == [MANY, 2]


@pytest.mark.asyncio
async def test_the_loop_does_not_spend_the_elements_of_the_thread(
    served: InLoopBroker, held: HeldWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = await served.connect(), await served.connect()
    route = served.server.broker.dispatch.routes[MetadataRequest.API_KEY]
    decode = route.decode
    begun, go_on = threading.Event(), threading.Event()

    def slow_decode(data: bytes, at: int, version: int) -> Any:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            go_on.wait(10)
        return decode(data, at, version)

    monkeypatch.setattr(route, "decode", slow_decode)
    client.send((metadata(ELEMENTS_MAX - 1), 9))
    await until(lambda: held.jobs)
    running = asyncio.get_running_loop().run_in_executor(None, held.jobs[0][0])
    await until(begun.is_set)
    for _ in range(ELEMENTS_MAX // FEW + 1):
        assert len((await other.ask(metadata(FEW), 9)).topics) == FEW
    go_on.set()
    held.jobs.pop()[1](await running)
    assert len((await client.reply()).topics) == ELEMENTS_MAX - 1


@pytest.mark.asyncio
async def test_a_request_of_too_many_elements_closes_its_connection(served: InLoopBroker, held: HeldWorkers) -> None:
    client, other = await served.connect(), await served.connect()
    client.send((metadata(ELEMENTS_MAX + 1), 9))
    await until(lambda: held.jobs)
    held.run()
    assert await client.await_close()
    assert len((await other.ask(metadata(3), 9)).topics) == 3


@pytest.mark.asyncio
async def test_a_failed_decoding_ends_its_connection_alone(served: InLoopBroker, held: HeldWorkers, planted_defect: None) -> None:
    client, other = await served.connect(), await served.connect()
    client.send((metadata(MANY), 9))
    await until(lambda: held.jobs)
    held.jobs.pop()[1](RuntimeError("out of memory"))
    assert await client.await_close()
    assert len((await other.ask(metadata(3), 9)).topics) == 3


@pytest.mark.asyncio
async def test_nothing_is_handled_for_a_connection_that_has_ended(
    served: InLoopBroker, held: HeldWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = await served.connect(), await served.connect()
    client.send((metadata(MANY), 9))
    await until(lambda: held.jobs)
    await client.close()
    await until(lambda: len(served.server.broker.connections.live) == 1)
    monkeypatch.setattr(served.server.broker.dispatch, "_handle", lambda call, request: pytest.fail("a dead client's request was handled"))
    held.run()
    monkeypatch.undo()
    assert len((await other.ask(metadata(3), 9)).topics) == 3


@pytest.mark.asyncio
async def test_a_broker_that_stops_handles_no_decoded_request(
    served: InLoopBroker, held: HeldWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await served.connect()
    client.send((metadata(MANY), 9))
    await until(lambda: held.jobs)
    monkeypatch.setattr(served.server.broker.dispatch, "_handle", lambda call, request: pytest.fail("handled after the stop"))
    stopping = asyncio.create_task(served.stop())
    (connection,) = served.server.broker.connections.live
    await until(lambda: connection.stopping)
    held.run()
    assert connection.closed
    await stopping


@pytest.mark.asyncio
async def test_full_collections_are_postponed_before_the_thread_decodes(served: InLoopBroker, held: HeldWorkers) -> None:
    client = await served.connect()
    await client.ask(metadata(FEW), 9)
    assert served.garbage.get_threshold()[2] != NEVER
    client.send((metadata(MANY), 9))
    await until(lambda: held.jobs)
    assert served.garbage.get_threshold()[2] == NEVER
    held.run()
    await client.reply()

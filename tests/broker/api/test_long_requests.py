"""No request of any API delays other requests: whatever lists it has, the work of one turn is bounded, and so is its reply."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.api import table
from protocol.apis import APIS
from protocol.errors import EncodeError, ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.support.fixed_loop import loop_seconds
from tests.support.in_loop import AsyncClient, InLoopBroker
from tests.support.worst_requests import EXISTING, worst_requests

ELEMENTS = 5_000
TURN_MAX = 0.7  # of one turn, in units of `loop_seconds`; all at once, most of these requests take 0.8 to 3
ATTEMPTS = 10  # the cheapest counts: other processes on the machine make a turn dearer, never cheaper
REPLY_BYTES_MAX = 100_000
IN_ONE_STEP = {"JoinGroup", "SyncGroup"}  # a member's protocols and assignments are changed at once


class Pauses:
    """The longest callback of the event loop in processor time: the thread that decodes long requests does not count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest = 0.0
        plain = asyncio.events.Handle._run

        def run(handle: asyncio.Handle) -> None:
            begin = time.thread_time()
            plain(handle)
            self.longest = max(self.longest, time.thread_time() - begin)

        monkeypatch.setattr(asyncio.events.Handle, "_run", run)


def api_names() -> list[str]:
    return [APIS[key].name for key in keys()]


def keys() -> Iterator[int]:
    for module in table.SERVED:
        request: Any = next(value for name, value in vars(module).items() if name.endswith("Request") and hasattr(value, "API_KEY"))
        yield request.API_KEY


async def create_topic(client: AsyncClient, partitions: int) -> None:
    reply = await client.ask(CreateTopicsRequest([CreatableTopic(EXISTING, partitions, 1, [], [])], 60_000), 7)
    assert reply.topics[0].error_code == ErrorCode.NONE


@pytest.mark.once
@pytest.mark.asyncio
@pytest.mark.parametrize("key", list(keys()), ids=api_names())
async def test_no_request_occupies_the_broker_for_long(served: InLoopBroker, key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await served.connect()
    await create_topic(client, 50)
    route = served.server.broker.dispatch.routes[key]
    pauses = Pauses(monkeypatch)
    gc.disable()
    slow = []
    least = TURN_MAX * min(loop_seconds() for _ in range(3))
    for worst in worst_requests(key, ELEMENTS):
        for version in {route.oldest, route.newest}:
            try:
                frame = client.frame(worst.request, version)
            except EncodeError:
                continue
            for attempt in range(1, ATTEMPTS + 1):
                await asyncio.sleep(0)  # the request was built in this callback
                pauses.longest = 0.0
                await exchange(served, frame)
                limit = least if pauses.longest <= least else TURN_MAX * loop_seconds()  # now: a busy neighbour slows both down
                if pauses.longest <= limit or route.api.name in IN_ONE_STEP:
                    break
                if attempt == ATTEMPTS:
                    slow.append(f"{worst} v{version}: {1000 * pauses.longest:.0f} ms of {1000 * limit:.0f}")
    assert slow == []


async def exchange(served: InLoopBroker, frame: bytes) -> int:
    """Send the request on a connection of its own; returns the size of the reply, -1 if there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(frame)
    try:
        size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 20), "big")
        left = size
        while left:
            left -= len(await asyncio.wait_for(reader.read(min(left, 1 << 16)), 20))
        return size
    except (asyncio.IncompleteReadError, ConnectionError):
        return -1
    finally:
        writer.close()


# The bound on a reply


@pytest.mark.once
@pytest.mark.asyncio
async def test_a_reply_above_the_limit_is_an_error_in_its_usual_place(tmp_path: Path) -> None:
    served = InLoopBroker(tmp_path)
    await served.start(socket_response_max_bytes=REPLY_BYTES_MAX)
    try:
        client = await served.connect()
        await create_topic(client, 1)
        group = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"m" * 5_000)])
        member = await client.ask(group, 3)
        assert member.error_code == ErrorCode.NONE
        await asyncio.sleep(0)
        commit = OffsetCommitRequest(
            "g", 1, member.member_id, None, -1, [OffsetCommitRequestTopic(EXISTING, [OffsetCommitRequestPartition(0, 5, -1, "m" * 4_000)])]
        )
        other = OffsetCommitRequest("other", -1, "", None, -1, commit.topics)
        assert (await client.ask(other, 7)).topics[0].partitions[0].error_code == ErrorCode.NONE

        few = await client.ask(DescribeConfigsRequest([DescribeConfigsResource(2, EXISTING, None)]), 4)
        assert few.results[0].error_code == ErrorCode.NONE
        many = await client.ask(DescribeConfigsRequest([DescribeConfigsResource(2, EXISTING, None)] * 200, True, True), 4)
        assert {result.error_code for result in many.results} == {ErrorCode.POLICY_VIOLATION}
        assert len(many.results) == 200

        described = await client.ask(DescribeGroupsRequest(["g"] * 5_000), 5)
        assert {group.error_code for group in described.groups} == {ErrorCode.POLICY_VIOLATION}
        fetch = OffsetFetchRequest([OffsetFetchRequestGroup("other", None, -1, [OffsetFetchRequestTopics(EXISTING, [0] * 50)])])
        assert (await client.ask(fetch, 9)).groups[0].error_code == ErrorCode.POLICY_VIOLATION
        fetch.groups[0].topics[0].partition_indexes = [0] * 20  # type: ignore[index]
        assert (await client.ask(fetch, 9)).groups[0].error_code == ErrorCode.NONE
        unread = served.server.broker.connections.live
        context = next(iter(unread)).context
        assert context.unread_replies.bytes == 0, "nothing is counted after the replies"
    finally:
        await served.stop()


@pytest.mark.once
@pytest.mark.asyncio
async def test_replies_that_nobody_reads_share_one_bound(tmp_path: Path) -> None:
    served = InLoopBroker(tmp_path)
    await served.start(socket_response_max_bytes=8_000_000, connections_unread_replies_max_bytes=16_000_000)
    try:
        client = await served.connect()
        await create_topic(client, 1)
        request = DescribeConfigsRequest([DescribeConfigsResource(2, EXISTING, None)] * 1_000, True, True)
        writers = []
        for _ in range(8):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
            writer.write(client.frame(request, 4))
            writers.append(writer)
        context = next(iter(served.server.broker.connections.live)).context
        while len(served.server.broker.connections.live) == 9:
            await asyncio.sleep(0.01)
            assert context.unread_replies.bytes <= 16_000_000
        assert len(served.server.broker.connections.live) < 9, "the longest inactive are closed"
        for writer in writers:
            writer.close()
    finally:
        await served.stop()

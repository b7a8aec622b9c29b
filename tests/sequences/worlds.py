"""The servers that sequences are played to: a real Kafka, and this broker, with the same settings and topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.apis import APIS
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from tests.kafka_process import kafka
from tests.running import Client, broker
from tests.sequences.wire import Versions, common, versions_of

# The settings of all worlds, then those of each. The initial delay is whole ticks plus a third, like every timeout.
EVERYWHERE = {"group.min.session.timeout.ms": "100", "offsets.topic.num.partitions": "5"}
WORLDS = {
    "plain": {"group.initial.rebalance.delay.ms": "0"},
    "delayed": {"group.initial.rebalance.delay.ms": "1600"},
    "full": {"group.initial.rebalance.delay.ms": "0", "group.max.size": "2"},
}
# Rebalance timeouts for the delayed world: others would let the delay end in the part of a tick in which requests are sent.
REBALANCES_IN = {"delayed": (440, 1640, 2840)}
TOPICS = {"t0": 2, "t1": 1}
READY_SECONDS = 20
GROUP_APIS = [api.key for api in APIS.values() if api.name in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup")]


@contextmanager
def kafka_in(world: str) -> Iterator[int]:
    settings = EVERYWHERE | WORLDS[world]
    with kafka(None, **{name.replace(".", "_"): value for name, value in settings.items()}) as port:
        prepare(port)
        yield port


@contextmanager
def ours_in(world: str) -> Iterator[int]:
    settings = EVERYWHERE | WORLDS[world]
    flags = [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]
    flags += ["--set", "offsets.flush=" + ("never" if world == "delayed" else "always")]
    with broker("--profile", "test", *flags, "--set", "log.level=warning") as started:
        prepare(started.port)
        yield started.port


def prepare(port: int, topics: bool = True) -> None:
    """Create the topics, and wait for __consumer_offsets, which Kafka creates at the first request."""
    with Client(port) as client:
        if topics:
            make_topics(client)
        offered = [api_key.api_key for api_key in client.ask(ApiVersionsRequest("sequences", "1"), 3).api_keys]
        if not all(key in offered for key in GROUP_APIS):
            return
        for group in map(str, range(4 * int(EVERYWHERE["offsets.topic.num.partitions"]))):  # enough for every partition to have some
            await_coordinator(client, group)


def make_topics(client: Client) -> None:
    reply = client.ask(CreateTopicsRequest([CreatableTopic(name, count, 1) for name, count in TOPICS.items()], 5000), 5)
    assert not any(topic.error_code for topic in reply.topics), reply


def await_coordinator(client: Client, group: str) -> None:
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        serves = client.ask(FindCoordinatorRequest(key=group), 3).error_code == 0
        if serves and client.ask(HeartbeatRequest(group, 1, "nobody"), 3).error_code == 25:
            return
        time.sleep(0.02)
    raise AssertionError(f"no coordinator after {READY_SECONDS} s")


def served_by(*ports: int) -> Versions:
    """The API versions that all these servers offer."""

    async def ask() -> Versions:
        first, *further = [await versions_of(port) for port in ports]
        for versions in further:
            first = common(first, versions)
        return first

    return asyncio.run(ask())


def serves_groups(versions: Versions) -> bool:
    return all(key in versions for key in GROUP_APIS)

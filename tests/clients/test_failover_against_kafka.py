"""The phases of a rebalance with a kill of the coordinator, run against Apache Kafka: our assertions hold for Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.restartable_kafka import RestartableKafka
from tests.clients.stored import await_coordinator
from tests.support.phases import PHASES, Left

pytestmark = pytest.mark.kafka


def test_apache_kafka_ends_each_phase_in_the_same_way(tmp_path: Path) -> None:
    # The initial delay is needed by phase Initial, whose group must still be waiting for members at the kill.
    with RestartableKafka(tmp_path / "kafka", group_initial_rebalance_delay_ms="300") as kafka:
        kafka.start()
        await_coordinator(kafka.port)
        # Without phase Left: its session is short, and Kafka counts sessions from the load on, so it may end before Kafka serves requests.
        played = [phase for phase in PHASES if phase is not Left]
        phases = [phase(kafka.port, is_tenure=False) for phase in reversed(played)]  # reversed, so that Initial begins last, just before the kill
        try:
            for phase in phases:
                phase.begin()
            kafka.kill()
            for phase in phases:
                phase.reconnect()
            kafka.start()
            for phase in phases:
                await_coordinator(kafka.port, phase.group)
            for phase in phases:
                phase.end()
        finally:
            for phase in phases:
                phase.close()

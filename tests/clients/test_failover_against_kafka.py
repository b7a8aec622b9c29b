"""The phases of a rebalance in which the coordinator dies, played to Apache Kafka: what is asserted of ours is what Kafka does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.lasting_kafka import LastingKafka
from tests.clients.stored import await_coordinator
from tests.support.phases import PHASES, Left

pytestmark = pytest.mark.kafka


def test_apache_kafka_ends_each_phase_in_the_same_way(tmp_path: Path) -> None:
    # The delay holds the one group that is killed while it begins.
    with LastingKafka(tmp_path / "kafka", group_initial_rebalance_delay_ms="300") as kafka:
        kafka.start()
        await_coordinator(kafka.port)
        # Kafka counts sessions while it does not serve yet, so that a short one may be over before anybody can ask.
        played = [phase for phase in PHASES if phase is not Left]
        phases = [phase(kafka.port, safe=False) for phase in reversed(played)]  # the first of them is that one, and now the last
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

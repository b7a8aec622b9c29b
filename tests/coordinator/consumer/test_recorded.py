"""The core answers recorded programs as Apache Kafka 4.4.0 did, field by field (`__main__.py` records them)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.consumer.recorded import first_difference, read

pytestmark = pytest.mark.once  # pure rules

FILE = Path(__file__).parent / "recorded" / "kafka-4.4.0.jsonl"


def test_recorded_programs_are_answered_as_kafka_did() -> None:
    programs = read(FILE)
    assert len(programs) >= 110
    differences = [f"line {number}: {difference}" for number, program in enumerate(programs, 1) if (difference := first_difference(program)) is not None]
    assert not differences, "\n".join(differences[:5])

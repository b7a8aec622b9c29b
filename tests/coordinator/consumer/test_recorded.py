"""The core answers recorded programs as Apache Kafka 4.4.0 did, field by field (`__main__.py` records them)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.coordinator.consumer.recorded import first_difference, read

pytestmark = pytest.mark.once  # pure rules

FOLDER = Path(__file__).parent / "recorded"


@pytest.mark.parametrize(("name", "least"), [("kafka-4.4.0", 110), ("kafka-4.4.0-mixed", 80), ("kafka-4.4.0-settings", 40)])
def test_recorded_programs_are_answered_as_kafka_did(name: str, least: int) -> None:
    programs = read(FOLDER / f"{name}.jsonl")
    assert len(programs) >= least
    differences = [f"line {number}: {difference}" for number, program in enumerate(programs, 1) if (difference := first_difference(program)) is not None]
    assert not differences, "\n".join(differences[:5])


def test_recorded_programs_of_both_protocols_have_changes_of_the_protocol_under_each_policy() -> None:
    seen: set[tuple[str, str, str]] = set()
    for program in read(FOLDER / "kafka-4.4.0-mixed.jsonl"):
        policy = program.settings["group.consumer.migration.policy"]
        types = [answer["listed"][0] if answer["listed"] else "" for answer in program.answers if "listed" in answer]
        seen |= {(policy, before, after) for before, after in pairwise(types) if before and after and before != after}
    assert {("bidirectional", "classic", "consumer"), ("bidirectional", "consumer", "classic")} <= seen
    assert ("upgrade", "classic", "consumer") in seen
    assert ("downgrade", "consumer", "classic") in seen

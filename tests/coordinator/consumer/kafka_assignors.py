"""Kafka's own assignors, and a comparison of their assignments with ours.

`python -m tests.coordinator.consumer.kafka_assignors` records what they answer in assignments.jsonl, for the tests without Java.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.coordinator.consumer.chains import Case, by_hex, random_cases
from tests.oracle import NEWEST_VERSION, run_java

RECORDED = Path(__file__).parent / "assignments.jsonl"
PROGRAM = Path(__file__).parent / "KafkaAssignors.java"
RECORDED_CASES = 200
RECORDED_CHARACTERS_MAX = 1_500  # of a case


def run_kafka(documents: Iterable[dict[str, Any]], *options: str, java: Sequence[str] = ()) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases"
        file.write_text("".join(json.dumps(document) + "\n" for document in documents))
        return run_java(*java, PROGRAM, file, *options, version=NEWEST_VERSION, timeout=100).splitlines()


def assert_equal(case: Case, kafkas: list[dict[str, list[int]]]) -> None:
    """The partitions are equal; where Kafka writes a record of an `uniform` assignment, so is the order in it, on which the next one depends."""
    assigned = case.assign()
    assert assigned.keys() == {member.member_id for member in case.members}
    ordered = case.assignor == "uniform" and case.homogeneous
    for member, kafka in zip(case.members, kafkas, strict=True):
        ours = assigned[member.member_id]
        assert as_sets(by_hex(ours)) == as_sets(kafka), (case.document(), member.member_id)
        if ordered and ours is not member.target:
            assert list(by_hex(ours).items()) == list(kafka.items()), (case.document(), member.member_id)


def as_sets(assigned: dict[str, list[int]]) -> dict[str, set[int]]:
    return {topic: set(partitions) for topic, partitions in assigned.items()}


def main() -> None:
    small = [case.document() for case in random_cases(4, 400)]
    small = [document for document in small if len(json.dumps(document)) <= RECORDED_CHARACTERS_MAX]
    documents = small[:: len(small) // RECORDED_CASES][:RECORDED_CASES]
    answers = run_kafka(documents)
    RECORDED.write_text(
        "".join(
            json.dumps({**document, "assigned": json.loads(answer)}, separators=(",", ":")) + "\n"
            for document, answer in zip(documents, answers, strict=True)
        )
    )


if __name__ == "__main__":
    main()

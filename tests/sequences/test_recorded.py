"""What Kafka answered, this broker answers: sequences recorded from a real Kafka, played without one.

`python -m tests.sequences replay FILE` says the same on the command line; `make oracle` looks for sequences that are not here yet.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.sequences.recording import read, replay
from tests.sequences.worlds import ours_in, served_by, serves_groups

FILES = sorted((Path(__file__).parent / "recorded").glob("*.jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_sequences_are_answered_as_kafka_did(file: Path) -> None:
    world, recorded = read(file)
    with ours_in(world) as port:
        if not serves_groups(served_by(port)):
            pytest.skip("this broker does not serve groups yet")
        found = asyncio.run(replay(port, recorded))
    told = [
        f"{file.name}:{number + 2} step {one.step} {json.dumps(recorded[number].steps[one.step])}\n"
        f"    {one.place}: ours {json.dumps(one.ours)}\n    Kafka's {json.dumps(one.kafkas)}"
        for number, one in found
    ]
    assert not found, f"{len(found)} of {len(recorded)} sequences differ:\n" + "\n".join(told[:10])


def test_there_are_recordings() -> None:
    assert FILES

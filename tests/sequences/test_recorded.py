"""This broker gives Kafka's replies: sequences recorded from a real Kafka, played without one.

`python -m tests.sequences replay FILE` does the same on the command line; `make oracle` tries new sequences.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.sequences.comparing import Difference
from tests.sequences.recording import read, replay
from tests.sequences.traces import Trace
from tests.sequences.worlds import WORLDS, ours_in

pytestmark = pytest.mark.once  # no dependence on the Python version

FILES = sorted((Path(__file__).parent / "recorded").glob("*.jsonl"))


def test_recorded_sequences_are_answered_as_kafka_did() -> None:
    recordings = [(file, *read(file)) for file in FILES]
    with ExitStack() as servers:
        ports = [servers.enter_context(ours_in(world)) for _, world, _ in recordings]
        differences = asyncio.run(replay_all([(port, world, recorded) for port, (_, world, recorded) in zip(ports, recordings, strict=True)]))
    described = [
        f"{file.name}:{number + 2} step {difference.step} {json.dumps(recorded[number].steps[difference.step])}\n"
        f"    {difference.place}: ours {json.dumps(difference.ours)}\n    Kafka's {json.dumps(difference.kafka_value)}"
        for (file, _, recorded), differing in zip(recordings, differences, strict=True)
        for number, difference in differing
    ]
    assert not described, f"{len(described)} sequences differ:\n" + "\n".join(described[:10])


async def replay_all(recordings: list[tuple[int, str, list[Trace]]]) -> list[list[tuple[int, Difference]]]:
    return list(await asyncio.gather(*[replay(*recording) for recording in recordings]))


def test_there_are_recordings_of_every_world() -> None:
    assert {read(file)[0] for file in FILES} == set(WORLDS)

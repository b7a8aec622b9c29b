"""A broker answers recorded programs as Apache Kafka 4.4.0 did, through a socket. Programs that wait, or resolve expressions every 10 seconds, are
played to the core alone (tests/coordinator/consumer/test_recorded.py), where no time passes."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

import pytest

from tests.coordinator.consumer.kafka_player import SETTINGS, KafkaPlayer
from tests.coordinator.consumer.recorded import Program, differing, read
from tests.support.in_loop import InLoopBroker

pytestmark = pytest.mark.once  # the same rules on every Python

FILE = Path(__file__).parents[2] / "coordinator" / "consumer" / "recorded" / "kafka-4.4.0.jsonl"


def takes_no_time(program: Program) -> bool:
    return not any(step["do"] == "wait" or "regex" in step for step in program.steps)


class RecordedIds:
    """The ids of topics in the order in which the recorded cluster gave them."""

    def __init__(self) -> None:
        self._next: deque[bytes] = deque()

    def of(self, program: Program) -> None:
        """`program` comes next."""
        given = {name: list(ids) for name, ids in program.ids.items()}
        known: set[str] = set()
        self._next.clear()
        for step in program.steps:
            if step["do"] == "topic" and step["name"] not in known:
                known.add(step["name"])
                self._next.append(bytes.fromhex(given[step["name"]].pop(0)))
            elif step["do"] == "drop":
                known.discard(step["name"])

    def __call__(self) -> bytes:
        return self._next.popleft()


def first_difference(player: KafkaPlayer, program: Program) -> str | None:
    for number, (step, expected) in enumerate(zip(program.steps, program.answers, strict=True)):
        answer = player.play(step)
        if answer != expected:
            return f"step {number}: {step}\n  Tenure {differing(answer, expected)}\n  Kafka  {differing(expected, answer)}"
    return None


def play(port: int, number: int, program: Program) -> str | None:
    player = KafkaPlayer(port, f"g-{number}", topics_s=0, resolution_s=0)
    try:
        return first_difference(player, program)
    finally:
        player.close()


@pytest.mark.asyncio
async def test_recorded_programs_are_answered_through_a_socket_as_kafka_did(tmp_path: Path) -> None:
    programs = [program for program in read(FILE) if takes_no_time(program)]
    assert len(programs) >= 60
    broker = InLoopBroker(tmp_path)
    await broker.start(offsets_flush="never", **{name.replace(".", "_"): value for name, value in SETTINGS.items()})
    ids = RecordedIds()
    broker.server.broker.topics._new_id = ids
    differences: list[str] = []
    try:
        for number, program in enumerate(programs):
            ids.of(program)
            difference = await asyncio.to_thread(play, broker.port, number, program)
            if difference is not None:
                differences.append(f"program {number}: {difference}")
    finally:
        await broker.stop()
    assert not differences, "\n".join([f"{len(differences)} of {len(programs)} differ", *differences[:4]])

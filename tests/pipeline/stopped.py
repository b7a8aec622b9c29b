"""A made-up group that has stopped with a lag in all partitions, and the end offsets of its topic."""

from __future__ import annotations

from pathlib import Path

from pipeline.virtual import World
from protocol.messages.coordinator_notes import EndOffsets, PartitionEnds
from tests.pipeline.scenarios import GROUP, MINUTE_MS, TOPICS, pods

PARTITIONS = TOPICS["t"]


def note_ends(world: World, end: int, topic: str = "t") -> None:
    ends = [PartitionEnds(number, 0, end) for number in range(PARTITIONS)]
    world.coordinator_of(GROUP).add_note(EndOffsets(topic, ends, -1))


def stopped_group(world: World) -> None:
    """A group that has stopped long ago, with a lag in all partitions."""
    note_ends(world, 1_000_000)
    for client in pods(world, 2):
        client.stop()
    world.run(90 * MINUTE_MS)


def record_count(folder: Path) -> int:
    """The end offset of __consumer_offsets-0 in a directory."""
    checkpoint = (folder / "recovery-point-offset-checkpoint").read_text().splitlines()
    return next(int(line.split()[-1]) for line in checkpoint if line.startswith("__consumer_offsets 0 "))

"""Bits that rot in closed segments, and what a broker owes for a log with such a segment.

It owes an error: no offset that is older than an acknowledged one, no other record. A partition of groups may stay closed for ever.
Rot is drawn in what a batch's checksum covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.batch import CorruptBatch, iterate
from simulator.disk import Content, Folder

if TYPE_CHECKING:
    from simulator.run import Run

CHECKED_FROM: Final = 17  # of a batch: the checksum, and what it covers
OFFSETS: Final = "__consumer_offsets"


class Rot:
    def __init__(self, run: Run) -> None:
        self._run = run
        self.logs: set[tuple[str, int]] = set()  # topic and partition of those with a rotten bit

    def strike(self) -> str:
        """Turn one bit of one closed segment over; the path of the segment, or "" where there is none."""
        random = self._run.world.random
        closed = self._closed_segments()
        if not closed:
            return ""
        topic, partition, name, content = random.choice(closed)
        content.sync()
        data = bytes(content.cached)
        try:
            batches = list(iterate(data, 0, len(data)))
        except CorruptBatch:  # it has rotten before
            return ""
        number = random.randrange(len(batches))
        begin = sum(batch.size for batch in batches[:number])
        at = begin + random.randrange(CHECKED_FROM, batches[number].size)
        bit = 1 << random.randrange(8)
        content.cached[at] ^= bit
        content.durable[at] ^= bit
        self.logs.add((topic, partition))
        return f"{topic}-{partition}/{name}, byte {at}"

    def _closed_segments(self) -> list[tuple[str, int, str, Content]]:
        found = []
        data = self._run.node.disk.folder("/data")
        for folder, entry in sorted(data.cached.items()):
            topic, _, number = folder.rpartition("-")
            if isinstance(entry, Folder) and number.isdigit() and (topic == OFFSETS or topic.startswith("data")):
                names = sorted(name for name in entry.cached if name.endswith(".log"))
                for name in names[:-1]:
                    content = entry.cached[name]
                    if isinstance(content, Content) and content.cached:
                        found.append((topic, int(number), name, content))
        return found

    def excuses(self, group: str) -> bool:
        """Whether the group's partition has a rotten bit, and does not serve."""
        if not self.logs:
            return False
        journal = self._run.node.broker.shards.of(group)
        return (OFFSETS, journal.partition) in self.logs and bool(journal.refusal)

"""Flips bits of closed segments, as a disk on which data rots.

Each flipped bit makes the checksum of its batch wrong. So the broker must answer with an error, never with an older offset or another
record. A partition of __consumer_offsets with such a bit may stay closed for ever.
"""

from __future__ import annotations

from random import Random
from typing import Final

from protocol.batch import CorruptBatch, iterate_headers
from simulator.disk import Content, Folder
from simulator.node import Node

CHECKSUM_AT: Final = 17  # position of the checksum in a batch; the checksum covers all bytes after itself
OFFSETS: Final = "__consumer_offsets"


class Rot:
    def __init__(self, random: Random, node: Node) -> None:
        self._random = random
        self._node = node
        self.logs: set[tuple[str, int]] = set()  # topic and partition of the logs with a rotten bit

    def flip_bit(self) -> str:
        """Flip one bit of a random closed segment.

        Returns the segment and the byte as text, or "" if there is no closed segment or the chosen one has a rotten bit already.
        """
        random = self._random
        closed = self._closed_segments()
        if not closed:
            return ""
        topic, partition, name, content = random.choice(closed)
        content.sync()
        data = bytes(content.cached)
        try:
            batches = list(iterate_headers(data, 0, len(data)))
        except CorruptBatch:  # it has a rotten bit already
            return ""
        number = random.randrange(len(batches))
        begin = sum(batch.size for batch in batches[:number])
        at = begin + random.randrange(CHECKSUM_AT, batches[number].size)
        bit = 1 << random.randrange(8)
        content.cached[at] ^= bit
        content.durable[at] ^= bit
        self.logs.add((topic, partition))
        return f"{topic}-{partition}/{name}, byte {at}"

    def _closed_segments(self) -> list[tuple[str, int, str, Content]]:
        segments = []
        data = self._node.disk.folder("/data")
        for folder, entry in sorted(data.cached.items()):
            topic, _, number = folder.rpartition("-")
            if isinstance(entry, Folder) and number.isdigit() and (topic == OFFSETS or topic.startswith("data")):
                names = sorted(name for name in entry.cached if name.endswith(".log"))
                for name in names[:-1]:
                    content = entry.cached[name]
                    if isinstance(content, Content) and content.cached:
                        segments.append((topic, int(number), name, content))
        return segments

    def allows_closed(self, group: str) -> bool:
        """Whether the group's partition is closed because of a rotten bit."""
        if not self.logs:
            return False
        journal = self._node.broker.shards.journal_of(group)
        return (OFFSETS, journal.partition) in self.logs and bool(journal.refusal)

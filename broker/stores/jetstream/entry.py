"""An entry: one message of a log's stream.

A log's stream has one subject. Each entry carries its kind, the epoch and node that wrote it, and a unique id, by which a writer that got
no reply recognizes its own entry. `data` entries carry record batches, byte for byte as in a segment.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DATA: Final = "data"
CLAIM: Final = "claim"  # the first entry of a newer epoch
RELEASE: Final = "release"  # the owner has released the log: no live node owns it
STATE: Final = "state"  # in a topic's log: a snapshot, so that a new owner need not read the whole log (topic_state.py)
CLEANED: Final = "cleaned"  # in a topic's log: older records that a compaction retained, with their offsets (topic_cleaning.py)
LIVE_BEGIN: Final = "live-begin"  # after it, the newest record of each key is appended again (group_cleaning.py)
LIVE_END: Final = "live-end"  # every key's newest record is appended again: entries before `live-begin` are not needed any more

HEADER: Final = "Tenure-Entry"
EXPECTED: Final = "Nats-Expected-Last-Sequence"


class Entry(NamedTuple):
    kind: str
    epoch: int
    node: int
    incarnation: str  # the node's process
    number: int  # counts the entries of that process
    base_offset: int  # offset of the entry's first record; without records, of the log's next record
    records: int
    state_seq: int  # sequence of the newest `state` entry before this entry; 0: none

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records

    @property
    def id(self) -> tuple[str, int]:
        return self.incarnation, self.number

    def text(self) -> str:
        return f"{self.kind} {self.epoch} {self.node} {self.incarnation} {self.number} {self.base_offset} {self.records} {self.state_seq}"

    def headers(self, expected: int) -> bytes:
        """NATS headers of an append that the engine stores only right after the sequence `expected`."""
        return f"{EXPECTED}: {expected}\r\n{HEADER}: {self.text()}\r\n".encode()


def parse_entry(text: str) -> Entry:
    """Raises ValueError."""
    kind, epoch, node, incarnation, number, base_offset, records, state_seq = text.split(" ")
    return Entry(kind, int(epoch), int(node), incarnation, int(number), int(base_offset), int(records), int(state_seq))

"""What one message of a log's stream is: an entry.

A log's stream has one subject. Each entry names its kind, the epoch and node that wrote it, and an id of its own, so that a writer that
got no answer finds out whether an entry in the stream is its own. `data` entries carry record batches, byte for byte those of a segment.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DATA: Final = "data"
CLAIM: Final = "claim"  # from here on the log is that of a newer epoch
RELEASE: Final = "release"  # its owner has handed it over: no live node owns it
STATE: Final = "state"  # in a topic's log: a snapshot, so that a new owner need not read the whole log (topic_state.py)
CLEANED: Final = "cleaned"  # in a topic's log: older records that a compaction kept, with their offsets (topic_cleaning.py)
LIVE_BEGIN: Final = "live-begin"  # after it, the newest record of each key is appended again (forward.py)
LIVE_END: Final = "live-end"  # all are appended; entries before `live-begin` are no longer needed

HEADER: Final = "Tenure-Entry"
EXPECTED: Final = "Nats-Expected-Last-Sequence"


class Entry(NamedTuple):
    kind: str
    epoch: int
    node: int
    incarnation: str  # of the node's process
    number: int  # of the entry, in that process
    base_offset: int  # of its first record, or of the next one
    records: int
    state_seq: int  # sequence of the newest `state` entry before it; 0: there is none

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records

    @property
    def id(self) -> tuple[str, int]:
        return self.incarnation, self.number

    def text(self) -> str:
        return f"{self.kind} {self.epoch} {self.node} {self.incarnation} {self.number} {self.base_offset} {self.records} {self.state_seq}"

    def headers(self, expected: int) -> bytes:
        """The lines for an append that takes the place behind the sequence `expected`, and no other."""
        return f"{EXPECTED}: {expected}\r\n{HEADER}: {self.text()}\r\n".encode()


def parse_entry(text: str) -> Entry:
    """Raises ValueError."""
    kind, epoch, node, incarnation, number, base_offset, records, state_seq = text.split(" ")
    return Entry(kind, int(epoch), int(node), incarnation, int(number), int(base_offset), int(records), int(state_seq))

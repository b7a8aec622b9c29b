"""The `state` entry: a snapshot of a topic's log, so that a new owner need not read the whole log.

A log is divided into segments, as in a data directory: retention drops whole segments. A segment begins with a `state` entry, and the
owner writes another when the log's start offset moves. In a compacted log, `cleaned` entries replace the first segments.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any

from storage import Producer, Producers
from storage.epochs import Epochs


@dataclass(slots=True)
class SegmentState:
    """One segment, or one `cleaned` entry. `seq`, `base`: first sequence and offset; `first_timestamp`: the first batch's max timestamp."""

    seq: int
    base: int
    max_timestamp: int = -1
    bytes: int = 0
    first_timestamp: int = -1
    cleaned: bool = False  # a `cleaned` entry


@dataclass(slots=True)
class TopicState:
    """The state of a topic's log after the entry with sequence `seq`."""

    seq: int
    start_offset: int
    next_offset: int
    epochs: Epochs = field(default_factory=list)
    segment_states: list[SegmentState] = field(default_factory=list)  # the last is the active segment
    clean_to: int = 0  # before this offset, each key has at most one record

    @property
    def first_segment(self) -> SegmentState:
        """The first segment that is not a `cleaned` entry. All stream entries before this segment can be deleted."""
        return next(part for part in self.segment_states if not part.cleaned)


def encode_state(state: TopicState, producers: Producers) -> bytes:
    known: list[Any] = []
    for id in producers:
        producer = producers.get(id)
        if producer is not None:
            known.append([id, producer.epoch, producer.last_timestamp, producer.coordinator_epoch, producer.transaction_offset, producer.batches])
    body = {
        "seq": state.seq,
        "start": state.start_offset,
        "next": state.next_offset,
        "epochs": state.epochs,
        "parts": [[part.seq, part.base, part.max_timestamp, part.bytes, part.first_timestamp, part.cleaned] for part in state.segment_states],
        "clean_to": state.clean_to,
        "producers": known,
    }
    return zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)


def decode_state(payload: bytes, producers: Producers) -> TopicState:
    """Adds the producers' states to `producers`. Raises ValueError."""
    try:
        body = json.loads(zlib.decompress(payload))
        for id, epoch, last_timestamp, coordinator_epoch, transaction_offset, batches in body["producers"]:
            producer = Producer(epoch, last_timestamp, coordinator_epoch, transaction_offset)
            producer.batches = [(first, last, base, timestamp) for first, last, base, timestamp in batches]
            producers.put(id, producer)
        epochs = [(epoch, offset) for epoch, offset in body["epochs"]]
        return TopicState(body["seq"], body["start"], body["next"], epochs, [SegmentState(*part) for part in body["parts"]], body.get("clean_to", 0))
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"a state entry cannot be parsed: {error}") from error

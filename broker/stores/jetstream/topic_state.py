"""What a node that takes a topic's log over has to know without reading all of it: a `state` entry.

A log is divided into segments, as in a folder: what retention drops together. A segment begins with a `state` entry, and its owner writes
another one when the start of the log moves.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any

from storage import Producer, Producers
from storage.epochs import Epochs


@dataclass(slots=True)
class Part:
    """One segment: where it begins, its newest timestamp, and its bytes."""

    seq: int
    base: int
    max_timestamp: int = -1
    bytes: int = 0


@dataclass(slots=True)
class TopicState:
    """`seq`: everything up to this entry is in it."""

    seq: int
    start_offset: int
    next_offset: int
    epochs: Epochs = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)  # the last one grows


def encode_state(state: TopicState, producers: Producers) -> bytes:
    known: list[Any] = []
    for id in producers:
        one = producers.get(id)
        if one is not None:
            known.append([id, one.epoch, one.last_timestamp, one.coordinator_epoch, one.transaction_offset, one.batches])
    body = {
        "seq": state.seq,
        "start": state.start_offset,
        "next": state.next_offset,
        "epochs": state.epochs,
        "parts": [[part.seq, part.base, part.max_timestamp, part.bytes] for part in state.parts],
        "producers": known,
    }
    return zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)


def decode_state(payload: bytes, producers: Producers) -> TopicState:
    """Fills `producers` too. Raises ValueError."""
    try:
        body = json.loads(zlib.decompress(payload))
        for id, epoch, last_timestamp, coordinator_epoch, transaction_offset, batches in body["producers"]:
            one = Producer(epoch, last_timestamp, coordinator_epoch, transaction_offset)
            one.batches = [(first, last, base, timestamp) for first, last, base, timestamp in batches]
            producers.put(id, one)
        epochs = [(epoch, offset) for epoch, offset in body["epochs"]]
        return TopicState(body["seq"], body["start"], body["next"], epochs, [Part(*part) for part in body["parts"]])
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"a state entry is not understood: {error}") from error

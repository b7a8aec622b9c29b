"""Records as Arrow columns, for all records of a chunk at once. `decode.decoded` is the reference; this must give the same result.

Rare records (group metadata, notes other than end offsets) are decoded one by one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.batches import Bytes, Ints
from pipeline.decode import CONTROL_KIND, GROUP, KINDS, NOTE, OFFSET, OTHER, UNREADABLE, is_commit, is_group, is_note
from pipeline.end_offsets import walk_ends
from pipeline.gathering import blobs, number, texts
from pipeline.inputs import LogId
from pipeline.lockstep import Walked
from pipeline.schema import schema_of
from protocol.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from protocol.messages.coordinator_notes import NoteKey
from protocol.wire import uvarint

Mask = NDArray[np.bool_]
_CODE: Final = {kind: code for code, kind in enumerate(KINDS)}
_NAMES: Final = pa.array(KINDS)
NEVER: Final = -1


class Chunk:
    """Bytes with batches in them, `headers` of each (see `batches.HEADER_TYPE`), and where in their file they begin."""

    def __init__(self, id: LogId, segment: str, data: bytes, headers: NDArray[Any], positions: Ints) -> None:
        self.id = id
        self.segment = segment
        self.raw = data
        self.data: Bytes = np.frombuffer(data, np.uint8)
        self.headers = headers
        self.positions = positions


def record_batch(chunk: Chunk, walked: Walked) -> pa.RecordBatch:
    def of(field: str) -> Ints:
        return np.asarray(chunk.headers[field].astype(np.int64)[walked.batch])

    attributes = of("attributes")
    base = of("base_offset")
    append_ms = np.where(attributes & LOG_APPEND_TIME, of("max_timestamp"), of("base_timestamp") + walked.delta_ms)
    said = _Said(chunk, walked, (attributes & CONTROL) != 0)
    size = len(base)
    raw = said.kind != _CODE[OFFSET]
    columns = [
        _repeated(chunk.id.cluster, size),
        _repeated(chunk.id.log, size),
        pa.array(np.full(size, chunk.id.partition, np.int64)),
        pa.array(base + walked.delta),
        pa.array(append_ms),
        pa.array(base),
        pa.array(of("leader_epoch")),
        pa.array(of("producer_id")),
        pa.array((attributes & TRANSACTIONAL) != 0),
        _NAMES.take(pa.array(said.kind)),
        pa.array(said.key_version),
        pa.array(said.value_version),
        texts(chunk.raw, said.group_at, said.group_size),
        texts(chunk.raw, said.topic_at, said.topic_size),
        _numbers(said.partition, said.has_topic),
        _numbers(said.committed, said.has_value),
        _numbers(said.commit_epoch, said.has_value & (said.commit_epoch != -1)),
        _numbers(said.commit_ms, said.has_value),
        _numbers(said.expire_ms, said.has_value & (said.expire_ms != -1)),
        texts(chunk.raw, said.metadata_at, np.where(said.has_value, said.metadata_size, NEVER)),
        pa.array(walked.value_size < 0),
        blobs(chunk.raw, walked.key_at, np.where(raw, walked.key_size, NEVER)),
        blobs(chunk.raw, walked.value_at, np.where(raw, walked.value_size, NEVER)),
        _repeated(chunk.segment, size),
        pa.array(chunk.positions[walked.batch]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of("records"))


class _Said:
    """The decoded keys and values: a column for each field, and the records that have it."""

    def __init__(self, chunk: Chunk, walked: Walked, control: Mask) -> None:
        self._chunk = chunk
        self._walked = walked
        self._size = len(control)
        self.key_version = self._version(walked.key_at, walked.key_size)
        self.value_version = self._version(walked.value_at, walked.value_size)
        self.kind = np.full(self._size, _CODE[UNREADABLE], np.int8)
        self.group_at, self.group_size = self._none(), self._none(NEVER)
        self.topic_at, self.topic_size = self._none(), self._none(NEVER)
        self.partition, self.has_topic = self._none(), np.zeros(self._size, bool)
        self.committed, self.commit_epoch, self.commit_ms, self.expire_ms = self._none(), self._none(-1), self._none(), self._none(-1)
        self.metadata_at, self.metadata_size = self._none(), self._none(NEVER)
        self.has_value = np.zeros(self._size, bool)
        sized = ~control & (walked.key_size >= 2)
        if chunk.id.log == "notes":
            self._notes(sized)
        else:
            self._offsets(sized)
        self.kind[control] = _CODE[CONTROL_KIND]

    def _none(self, value: int = 0) -> Ints:
        return np.full(self._size, value, np.int64)

    def _version(self, at: Ints, size: Ints) -> Ints:
        found = self._none(-1)
        there = np.flatnonzero(size >= 2)
        found[there] = number(self._chunk.data, at[there], 2)
        return found

    def _notes(self, sized: Mask) -> None:
        self.kind[sized & (self.key_version > NoteKey.VERSIONS[1])] = _CODE[OTHER]
        known = self._group(np.flatnonzero(sized & (self.key_version >= 0) & (self.key_version <= NoteKey.VERSIONS[1])))
        self.kind[known] = _CODE[NOTE]
        there = known[self._walked.value_size[known] >= 0]
        ends = walk_ends(self._chunk.data, self._walked.value_at[there], self._walked.value_size[there])
        self._check(there[ends.odd], is_note)

    def _offsets(self, sized: Mask) -> None:
        group_version = GroupMetadataKey.VERSIONS[1]
        self.kind[sized & (self.key_version > group_version)] = _CODE[OTHER]
        groups = self._group(np.flatnonzero(sized & (self.key_version == group_version)))
        self.kind[groups] = _CODE[GROUP]
        self.kind[groups[self.value_version[groups] > GroupMetadataValue.VERSIONS[1]]] = _CODE[OTHER]
        self._check(groups[self.kind[groups] == _CODE[GROUP]], is_group)
        self._commits(np.flatnonzero(sized & (self.key_version >= 0) & (self.key_version <= OffsetCommitKey.VERSIONS[1])))

    def _group(self, index: Ints) -> Ints:
        """Keys that begin with a group after their version."""
        data, walked = self._chunk.data, self._walked
        index = index[walked.key_size[index] >= 4]
        size = number(data, walked.key_at[index] + 2, 2)
        fits = (size >= 0) & (4 + size <= walked.key_size[index])
        index, size = index[fits], size[fits]
        self.group_at[index] = walked.key_at[index] + 4
        self.group_size[index] = size
        return index

    def _check(self, index: Ints, sound: Any) -> None:
        """Rare records: the fold decodes them one by one."""
        raw, walked = self._chunk.raw, self._walked
        for one in index[walked.value_size[index] >= 0].tolist():
            at = int(walked.value_at[one])
            if not sound(raw[at : at + int(walked.value_size[one])]):
                self.kind[one] = _CODE[UNREADABLE]

    # Offset commits.

    def _commits(self, index: Ints) -> None:
        data, walked = self._chunk.data, self._walked
        found = self._group(index)
        group_size = self.group_size[found]
        at = walked.key_at[found] + 4 + group_size
        left = walked.key_size[found] - 4 - group_size
        fits = left >= 6
        topic_size = np.where(fits, number(data, np.where(fits, at, 0), 2), NEVER)
        fits &= (topic_size >= 0) & (left - 6 >= topic_size)
        short = found[~fits]
        self.group_size[short] = NEVER
        found, at, topic_size = found[fits], at[fits] + 2, topic_size[fits]
        self.topic_at[found], self.topic_size[found] = at, topic_size
        self.partition[found] = number(data, at + topic_size, 4)
        self.has_topic[found] = True
        newest = OffsetCommitValue.VERSIONS[1]
        version, size = self.value_version[found], walked.value_size[found]
        self.kind[found[size < 0]] = _CODE[OFFSET]
        self.kind[found[version > newest]] = _CODE[OTHER]
        for each in range(newest + 1):
            self._values(found[(version == each) & (size >= 2)], each)

    def _values(self, index: Ints, version: int) -> None:
        if not len(index):
            return
        data, walked = self._chunk.data, self._walked
        at = walked.value_at[index] + 2
        end = walked.value_at[index] + walked.value_size[index]
        before = 12 if version >= 3 else 8  # offset and leader epoch
        behind = 16 if version == 1 else 8  # times
        length_bytes = 1 if version >= 4 else 2
        fits = end - at >= before + length_bytes + behind + (version >= 4)
        index, at, end = index[fits], at[fits], end[fits]
        text_at = at + before + length_bytes
        if version >= 4:
            text_size = data[at + before].astype(np.int64) - 1
            unusual = text_size >= 127
        else:
            text_size = number(data, at + before, 2)
            unusual = np.zeros(len(index), bool)
        sound = (text_size >= 0) & (text_at + text_size + behind + (version >= 4) <= end)
        if version >= 4:
            tags_at = np.where(sound & ~unusual, text_at + text_size + 8, 0)
            unusual |= sound & ~self._usual_tags(tags_at, end)
            for one in np.flatnonzero(unusual).tolist():
                place = self._unusual(int(index[one]))
                sound[one] = place is not None
                if place is not None:
                    text_at[one], text_size[one] = place
        index, at, text_at, text_size = index[sound], at[sound], text_at[sound], text_size[sound]
        self.kind[index] = _CODE[OFFSET]
        self.has_value[index] = True
        self.committed[index] = number(data, at, 8)
        if version >= 3:
            self.commit_epoch[index] = number(data, at + 8, 4)
        self.metadata_at[index], self.metadata_size[index] = text_at, text_size
        self.commit_ms[index] = number(data, text_at + text_size, 8)
        if version == 1:
            self.expire_ms[index] = number(data, text_at + text_size + 8, 8)

    def _usual_tags(self, at: Ints, end: Ints) -> Mask:
        """None, or the topic's id alone, as Kafka writes them."""
        data = self._chunk.data
        topic_id = (data[at] == 1) & (data[at + 1] == 0) & (data[at + 2] == 16) & (at + 19 <= end)
        return np.asarray((data[at] == 0) | topic_id)

    def _unusual(self, record: int) -> tuple[int, int] | None:
        """The position of the metadata in a value of version 4 that is decoded by itself; None if unreadable."""
        at = int(self._walked.value_at[record])
        value = self._chunk.raw[at : at + int(self._walked.value_size[record])]
        if not is_commit(value):
            return None
        size, text_at = uvarint(value, 14)
        return at + text_at, size - 1


# Columns


def _repeated(text: str, size: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), size)


def _numbers(values: Ints, known: Mask) -> pa.Array:
    return pa.array(values, mask=~known)

"""Decodes all records of a chunk at once into Arrow columns. `decode.decoded` is the reference; the results must be the same.

Rare records (group metadata, notes other than end offsets) are decoded one by one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from history.newer import KIND_OF_KEY
from pipeline.batches import Bytes, Ints
from pipeline.decode import CONTROL_KIND, GROUP, KINDS, NOTE, OFFSET, OTHER, UNREADABLE, is_commit, is_group, is_note
from pipeline.end_offsets import walk_ends
from pipeline.gathering import blobs, number, texts
from pipeline.inputs import LogId
from pipeline.lockstep import RecordFields
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
    """Bytes with batches, the `headers` of each (see `batches.HEADER_TYPE`), and their positions in the file."""

    def __init__(self, id: LogId, segment: str, data: bytes, headers: NDArray[Any], positions: Ints) -> None:
        self.id = id
        self.segment = segment
        self.raw = data
        self.data: Bytes = np.frombuffer(data, np.uint8)
        self.headers = headers
        self.positions = positions


def record_batch(chunk: Chunk, walked: RecordFields) -> pa.RecordBatch:
    def of(field: str) -> Ints:
        return np.asarray(chunk.headers[field].astype(np.int64)[walked.batch])

    attributes = of("attributes")
    base = of("base_offset")
    append_ms = np.where(attributes & LOG_APPEND_TIME, of("max_timestamp"), of("base_timestamp") + walked.delta_ms)
    decoded = _DecodedColumns(chunk, walked, (attributes & CONTROL) != 0)
    size = len(base)
    raw = decoded.kind != _CODE[OFFSET]
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
        _NAMES.take(pa.array(decoded.kind)),
        pa.array(decoded.key_version),
        pa.array(decoded.value_version),
        texts(chunk.raw, decoded.group_at, decoded.group_size),
        texts(chunk.raw, decoded.topic_at, decoded.topic_size),
        _numbers(decoded.partition, decoded.has_topic),
        _numbers(decoded.committed, decoded.has_value),
        _numbers(decoded.commit_epoch, decoded.has_value & (decoded.commit_epoch != -1)),
        _numbers(decoded.commit_ms, decoded.has_value),
        _numbers(decoded.expire_ms, decoded.has_value & (decoded.expire_ms != -1)),
        texts(chunk.raw, decoded.metadata_at, np.where(decoded.has_value, decoded.metadata_size, NEVER)),
        pa.array(walked.value_size < 0),
        blobs(chunk.raw, walked.key_at, np.where(raw, walked.key_size, NEVER)),
        blobs(chunk.raw, walked.value_at, np.where(raw, walked.value_size, NEVER)),
        _repeated(chunk.segment, size),
        pa.array(chunk.positions[walked.batch]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of("records"))


class _DecodedColumns:
    """The decoded keys and values: a column for each field, and masks of the records that have it."""

    def __init__(self, chunk: Chunk, walked: RecordFields, control: Mask) -> None:
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
        versions = self._none(-1)
        has_version = np.flatnonzero(size >= 2)
        versions[has_version] = number(self._chunk.data, at[has_version], 2)
        return versions

    def _notes(self, sized: Mask) -> None:
        self.kind[sized & (self.key_version > NoteKey.VERSIONS[1])] = _CODE[OTHER]
        readable = self._group(np.flatnonzero(sized & (self.key_version >= 0) & (self.key_version <= NoteKey.VERSIONS[1])))
        self.kind[readable] = _CODE[NOTE]
        with_value = readable[self._walked.value_size[readable] >= 0]
        ends = walk_ends(self._chunk.data, self._walked.value_at[with_value], self._walked.value_size[with_value])
        self._check(with_value[ends.irregular], is_note)

    def _offsets(self, sized: Mask) -> None:
        group_version = GroupMetadataKey.VERSIONS[1]
        self.kind[sized & (self.key_version > group_version)] = _CODE[OTHER]
        for kind in sorted(set(KIND_OF_KEY.values())):
            versions = [version for version, kind_of_version in KIND_OF_KEY.items() if kind_of_version == kind]
            newer = np.flatnonzero(sized & np.isin(self.key_version, versions))
            self.kind[newer] = _CODE[UNREADABLE]
            self.kind[self._group(newer)] = _CODE[kind]
        groups = self._group(np.flatnonzero(sized & (self.key_version == group_version)))
        self.kind[groups] = _CODE[GROUP]
        self.kind[groups[self.value_version[groups] > GroupMetadataValue.VERSIONS[1]]] = _CODE[OTHER]
        self._check(groups[self.kind[groups] == _CODE[GROUP]], is_group)
        self._commits(np.flatnonzero(sized & (self.key_version >= 0) & (self.key_version <= OffsetCommitKey.VERSIONS[1])))

    def _group(self, index: Ints) -> Ints:
        """Decode the group of keys that begin with version and group; return the indexes of valid ones."""
        data, walked = self._chunk.data, self._walked
        index = index[walked.key_size[index] >= 4]
        size = number(data, walked.key_at[index] + 2, 2)
        fits = (size >= 0) & (4 + size <= walked.key_size[index])
        index, size = index[fits], size[fits]
        self.group_at[index] = walked.key_at[index] + 4
        self.group_size[index] = size
        return index

    def _check(self, index: Ints, is_readable: Any) -> None:
        """Decode these rare records one by one, and mark the unreadable ones."""
        raw, walked = self._chunk.raw, self._walked
        for record in index[walked.value_size[index] >= 0].tolist():
            at = int(walked.value_at[record])
            if not is_readable(raw[at : at + int(walked.value_size[record])]):
                self.kind[record] = _CODE[UNREADABLE]

    # Offset commits

    def _commits(self, index: Ints) -> None:
        data, walked = self._chunk.data, self._walked
        valid = self._group(index)
        group_size = self.group_size[valid]
        at = walked.key_at[valid] + 4 + group_size
        remaining_key_bytes = walked.key_size[valid] - 4 - group_size
        fits = remaining_key_bytes >= 6
        topic_size = np.where(fits, number(data, np.where(fits, at, 0), 2), NEVER)
        fits &= (topic_size >= 0) & (remaining_key_bytes - 6 >= topic_size)
        short = valid[~fits]
        self.group_size[short] = NEVER
        valid, at, topic_size = valid[fits], at[fits] + 2, topic_size[fits]
        self.topic_at[valid], self.topic_size[valid] = at, topic_size
        self.partition[valid] = number(data, at + topic_size, 4)
        self.has_topic[valid] = True
        newest = OffsetCommitValue.VERSIONS[1]
        version, size = self.value_version[valid], walked.value_size[valid]
        self.kind[valid[size < 0]] = _CODE[OFFSET]
        self.kind[valid[version > newest]] = _CODE[OTHER]
        for version_number in range(newest + 1):
            self._values(valid[(version == version_number) & (size >= 2)], version_number)

    def _values(self, index: Ints, version: int) -> None:
        if not len(index):
            return
        data, walked = self._chunk.data, self._walked
        at = walked.value_at[index] + 2
        end = walked.value_at[index] + walked.value_size[index]
        prefix_bytes = 12 if version >= 3 else 8  # offset and leader epoch
        suffix_bytes = 16 if version == 1 else 8  # times
        length_bytes = 1 if version >= 4 else 2
        fits = end - at >= prefix_bytes + length_bytes + suffix_bytes + (version >= 4)
        index, at, end = index[fits], at[fits], end[fits]
        text_at = at + prefix_bytes + length_bytes
        if version >= 4:
            text_size = data[at + prefix_bytes].astype(np.int64) - 1
            unusual = text_size >= 127
        else:
            text_size = number(data, at + prefix_bytes, 2)
            unusual = np.zeros(len(index), bool)
        valid = (text_size >= 0) & (text_at + text_size + suffix_bytes + (version >= 4) <= end)
        if version >= 4:
            tags_at = np.where(valid & ~unusual, text_at + text_size + 8, 0)
            unusual |= valid & ~self._usual_tags(tags_at, end)
            for at_index in np.flatnonzero(unusual).tolist():
                metadata_place = self._metadata_place(int(index[at_index]))
                valid[at_index] = metadata_place is not None
                if metadata_place is not None:
                    text_at[at_index], text_size[at_index] = metadata_place
        index, at, text_at, text_size = index[valid], at[valid], text_at[valid], text_size[valid]
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
        """Whether the tagged fields are empty or only the topic id, as Kafka writes them."""
        data = self._chunk.data
        topic_id = (data[at] == 1) & (data[at + 1] == 0) & (data[at + 2] == 16) & (at + 19 <= end)
        return np.asarray((data[at] == 0) | topic_id)

    def _metadata_place(self, record: int) -> tuple[int, int] | None:
        """The position and size of the metadata in a single value of version 4; None if unreadable."""
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

"""What a broker asks of the records in a batch that it is sent, without making records of them.

Records of one size that follow each other differ in few places. Such a run is looked at by columns: one slice with a step
gives the same byte of every record, so that the work is done in C, whoever runs this.
"""

from __future__ import annotations

from typing import Final

from protocol.batch_record import INT64_MAX, INT64_MIN, VARINT_SHIFT_MAX, VARLONG_SHIFT_MAX, CorruptBatch, longer_varint

RUN_MIN: Final = 8  # records: fewer are read one by one in the same time
TIMESTAMP_BYTES_MAX: Final = 9  # longer ones may be more than an int64 holds, and are read one by one
_LAST: Final = bytes(range(128))  # the last byte of a varint is one of these
_MORE: Final = bytes(range(128, 256))  # the others are one of these

# The offset deltas 0, 1, 2, ... as varints of one, two and three bytes, column by column: byte `delta` of a column is that
# byte of the delta. Further than that a batch is read record by record.
_ONE_BYTE: Final = (bytes(range(0, 128, 2)),)
_LOW: Final = bytes(range(128, 256, 2))
_TWO_BYTES: Final = (_LOW * 128, b"".join([bytes([n]) * 64 for n in range(128)]))
_THREE_BYTES: Final = (
    _LOW * 1024,
    b"".join([bytes([n]) * 64 for n in range(128, 256)]) * 8,
    b"".join([bytes([n]) * 8192 for n in range(8)]),
)
_TWO_BYTES_FROM: Final = 64
_THREE_BYTES_FROM: Final = 8192
_THREE_BYTES_TO: Final = 65536


class Survey:
    """The timestamps of some records, as differences from the first, and whether all of them have keys."""

    __slots__ = ("keyed", "newest", "oldest")

    def __init__(self) -> None:
        self.oldest = INT64_MAX
        self.newest = INT64_MIN
        self.keyed = True


def survey(data: bytes, at: int, end: int, count: int) -> Survey:
    """Of so many records, which take all bytes from `at` to `end` and have the offset deltas 0, 1, 2, ...; else CorruptBatch."""
    found = Survey()
    oldest = INT64_MAX
    newest = INT64_MIN
    last_timestamp = -1  # of the record before, in zigzag; no record has this one
    tried_at = 0  # runs are looked for where the record before was as long
    index = 0
    try:
        while index < count:
            begin = at
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            stop = at + (n >> 1)
            if n & 1 or stop > end:
                raise CorruptBatch(f"a record of {n >> 1} bytes with {end - at} left")
            at += 1
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARLONG_SHIFT_MAX)
            if n != last_timestamp:
                if n >> 64:
                    raise CorruptBatch("a varint is larger than an int64")
                last_timestamp = n
                delta = (n >> 1) ^ -(n & 1)
                oldest = min(oldest, delta)
                newest = max(newest, delta)
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            if n != index << 1:
                raise CorruptBatch(f"record {index} of a batch says that it is record {n >> 1}")
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            if not n & 1:
                at += n >> 1
            else:  # whatever is below zero means none
                found.keyed = False
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            if not n & 1:
                at += n >> 1
            n = data[at]
            at += 1
            if n:
                at = _behind_headers(data, at, n, stop)
            if at != stop:
                raise CorruptBatch("a record's fields are not as long as the record")
            index += 1
            if index >= tried_at and count - index >= RUN_MIN and at < end and data[at] == data[begin]:
                skipped = _run(data, begin, at, end, index, count, found)
                at += skipped * (at - begin)
                index += skipped
                tried_at = index + (1 if skipped else RUN_MIN)
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
    if at != end:
        raise CorruptBatch(f"{end - at} bytes behind the last record")
    found.oldest = min(found.oldest, oldest)
    found.newest = max(found.newest, newest)
    return found


def _behind_headers(data: bytes, at: int, n: int, stop: int) -> int:
    if n > 127:
        n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
    if n & 1 or n >> 1 > stop - at:
        raise CorruptBatch(f"{n >> 1} headers in {stop - at} bytes")
    left = n >> 1
    while left:
        left -= 1
        n = data[at]
        at += 1
        if n > 127:
            n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
        if n & 1:
            raise CorruptBatch("a header without a name")
        at += n >> 1
        n = data[at]
        at += 1
        if n > 127:
            n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
        if not n & 1:
            at += n >> 1
    return at


def _alike(data: bytes, at: int, stop: int, step: int) -> int:
    """How many records behind the one whose byte this is have the same byte there."""
    column = data[at + step : stop : step]
    return len(column) - len(column.lstrip(data[at : at + 1]))


def _run(data: bytes, begin: int, behind: int, end: int, index: int, count: int, found: Survey) -> int:
    """How many records behind the sound one from `begin` on are of its shape; record `index` is the first of them.

    Each column bounds the run: as far as the bytes that say what is where are those of the first record, so is what they
    say. `found` gets their timestamps.
    """
    step = behind - begin
    expected: tuple[bytes, ...]
    if index < _TWO_BYTES_FROM:
        expected = _ONE_BYTE
        to = _TWO_BYTES_FROM
    elif _TWO_BYTES_FROM < index < _THREE_BYTES_FROM:  # the record before has two bytes as well
        expected = _TWO_BYTES
        to = _THREE_BYTES_FROM
    elif _THREE_BYTES_FROM < index < _THREE_BYTES_TO:
        expected = _THREE_BYTES
        to = _THREE_BYTES_TO
    else:
        return 0
    run = min(to - index, count - index, (end - behind) // step)
    stop = behind + run * step

    # The record's length.
    at = begin
    while data[at] > 127:
        run = min(run, _alike(data, at, stop, step))
        at += 1
    run = min(run, _alike(data, at, stop, step))
    if run < RUN_MIN:
        return 0
    at += 2  # and its attributes, whatever they are

    # The timestamp: as many bytes as in the first record.
    columns: list[bytes] = []
    while data[at] > 127:
        column = data[at + step : stop : step]
        columns.append(column)
        run = min(run, len(column) - len(column.lstrip(_MORE)))
        at += 1
    column = data[at + step : stop : step]
    columns.append(column)
    run = min(run, len(column) - len(column.lstrip(_LAST)))
    at += 1
    if len(columns) > TIMESTAMP_BYTES_MAX:
        return 0

    # The offset. One that is out of order is found by reading it.
    stop = behind + run * step
    for digits in expected:
        if data[at + step : stop : step] != digits[index : index + run]:
            return 0
        at += 1

    # The lengths of key and value.
    for _ in range(2):
        n = data[at]
        run = min(run, _alike(data, at, stop, step))
        at += 1
        if n > 127:
            first = at
            n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            while first < at:
                run = min(run, _alike(data, first, stop, step))
                first += 1
        if not n & 1:
            at += n >> 1

    # The number of headers: none, or their lengths may differ. Here the record ends, as all of them do.
    if at + 1 != behind or data[at]:
        return 0
    run = min(run, _alike(data, at, stop, step))
    if run < RUN_MIN:
        return 0
    _note_timestamps(columns, run, found)
    return run


def _note_timestamps(columns: list[bytes], run: int, found: Survey) -> None:
    """The least and the largest of the varints that stand in these columns; mostly they are few."""
    oldest = found.oldest
    newest = found.newest
    if len(columns) == 1:
        for byte in set(columns[0][:run]):
            delta = (byte >> 1) ^ -(byte & 1)
            oldest = min(oldest, delta)
            newest = max(newest, delta)
    else:
        for digits in set(zip(*[column[:run] for column in columns], strict=True)):
            n = 0
            shift = 0
            for digit in digits:
                n |= (digit & 127) << shift
                shift += 7
            delta = (n >> 1) ^ -(n & 1)
            oldest = min(oldest, delta)
            newest = max(newest, delta)
    found.oldest = oldest
    found.newest = newest

"""Check the records of a produced batch without making an object for each.

Consecutive records of the same size often differ in few bytes. A run of them is compared column by column: a slice with a step extracts
the same byte of every record, so the comparison runs in C, compiled or not. A run is searched in windows that grow while the records
match, so that a failed comparison costs no more than the records compared.
"""

from __future__ import annotations

from typing import Final

from protocol.batch_record import (
    INT64_MAX,
    INT64_MIN,
    VARINT_SHIFT_MAX,
    VARLONG_SHIFT_MAX,
    CorruptBatch,
    CutShort,
    longer_varint,
)

RUN_MIN: Final = 16  # records; reading a shorter run record by record takes the same time
WINDOW_MIN: Final = 64
WINDOW_GROWTH: Final = 16
# Records read one by one after a run that was too short; doubled each time, so that failed searches stay a small share of the work.
PAUSE_MIN: Final = 16
PAUSE_MAX: Final = 1024
# The cost of comparing a window, in steps: a fixed part, and one step for each WINDOW_RECORDS_PER_STEP records.
WINDOW_COST: Final = 16
WINDOW_RECORDS_PER_STEP: Final = 64
UNLIMITED: Final = 1 << 62
TIMESTAMP_BYTES_MAX: Final = 9  # a longer varint may exceed an int64: such records are read one by one
_LAST_BYTES: Final = bytes(range(128))  # the last byte of a varint is one of these
_CONTINUED: Final = bytes(range(128, 256))  # all other bytes of a varint

# The offset deltas 0, 1, 2, ... as varints, column by column. The lowest byte repeats every 64 deltas, the second every 8,192; within
# a block of 8,192 the others are constant, and no window crosses the end of a block.
_ONE_BYTE_DELTAS: Final = 64
_TWO_BYTE_DELTAS: Final = 8192
_LOWEST_BYTES: Final = bytes(range(128, 256, 2)) * 128
_SECOND_BYTES: Final = b"".join([bytes([n]) * 64 for n in range(128)])
_SECOND_BYTES_CONTINUED: Final = b"".join([bytes([n]) * 64 for n in range(128, 256)])


class TooManyRecords(Exception):
    """Surveying the batch takes more steps than the caller allows."""


class Survey:
    """The oldest and the newest timestamp of some records, as deltas to the batch's base timestamp, and whether all records have keys."""

    __slots__ = ("keyed", "newest", "oldest")

    def __init__(self) -> None:
        self.oldest = INT64_MAX
        self.newest = INT64_MIN
        self.keyed = True


def survey(data: bytes, at: int, end: int, count: int, steps_max: int = UNLIMITED) -> Survey:
    """Survey `count` records, which must fill the bytes from `at` to `end` and have the offset deltas 0, 1, 2, ...

    Raises CorruptBatch, and TooManyRecords after `steps_max` steps: one for each record that is read alone and for each header, and
    the cost of each search for a run (`_run`).
    """
    found = Survey()
    oldest = INT64_MAX
    newest = INT64_MIN
    last_timestamp = -1  # of the previous record, in zigzag; -1: none
    run_at = 0  # the next record at which a run is searched
    pause = PAUSE_MIN
    index = 0
    limit = steps_max  # the record at which the steps are used up; records of a run take no steps and increase it
    stop_index = min(count, limit)
    try:
        while index < stop_index:
            begin = at
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            stop = at + (n >> 1)
            if n & 1 or stop > end:
                raise (CorruptBatch if n & 1 else CutShort)(f"a record of {n >> 1} bytes with {end - at} left")
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
                raise CorruptBatch(f"record {index} of a batch has the offset delta {n >> 1}")
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            if not n & 1:
                at += n >> 1
            else:  # any negative length means null
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
                if n > 127:
                    n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
                headers = n >> 1
                if n & 1 or headers > stop - at:
                    raise CorruptBatch(f"a record says {headers} headers with {stop - at} bytes left")
                limit -= headers
                if limit <= index:
                    raise TooManyRecords
                stop_index = min(count, limit)
                at = _skip_headers(data, at, headers)
            if at != stop:
                raise CorruptBatch("a record's fields are not as long as the record")
            index += 1
            if index >= run_at and count - index >= RUN_MIN and at < end and data[at] == data[begin]:
                skipped, cost = _run(data, begin, at, end, index, count, limit - index, found)
                at += skipped * (at - begin)
                index += skipped
                limit += skipped - cost
                stop_index = min(count, limit)
                pause = PAUSE_MIN if skipped >= RUN_MIN else min(2 * pause, PAUSE_MAX)
                run_at = index + (1 if skipped >= RUN_MIN else pause)
    except IndexError:
        raise CutShort("a record is cut short") from None
    if index < count:
        raise TooManyRecords
    if at != end:
        raise CorruptBatch(f"{end - at} bytes after the last record")
    found.oldest = min(found.oldest, oldest)
    found.newest = max(found.newest, newest)
    return found


def _skip_headers(data: bytes, at: int, count: int) -> int:
    for _ in range(count):
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


def _delta_bytes(index: int) -> int:
    """The size of the offset delta `index` as a varint."""
    if index < _ONE_BYTE_DELTAS:
        return 1
    if index < _TWO_BYTE_DELTAS:
        return 2
    return 3 if index < 1 << 20 else 4 if index < 1 << 27 else 5


def _run(data: bytes, begin: int, next_at: int, end: int, index: int, count: int, steps_left: int, found: Survey) -> tuple[int, int]:
    """The number of records from `next_at` on that have the layout of the valid record at `begin`, and the cost of the search in steps.

    `index` is the index of the record at `next_at`. The search ends once it has cost more than `steps_left`. A record has the layout if all its length bytes equal those of the record at `begin`
    and its timestamp has the same size. The run's offset deltas are checked, and its timestamps are added to `found`.
    """
    delta_bytes = _delta_bytes(index)
    if delta_bytes != _delta_bytes(index - 1):  # the offset delta of the record at `begin` is shorter
        return 0, 0
    # The places of all lengths in a record: of the record, key and value, and the number of headers. Timestamp and offset are checked below.
    at = begin
    while data[at] > 127:
        at += 1
    fixed = list(range(at - begin, -1, -1))
    at += 2  # skip the last byte of the length, and the attributes, which may have any value
    timestamp_at = at - begin
    while data[at] > 127:
        at += 1
    at += 1
    delta_at = at - begin
    if delta_at - timestamp_at > TIMESTAMP_BYTES_MAX:
        return 0, 0
    at += delta_bytes
    for _ in range(2):
        n = data[at]
        first = at
        at += 1
        if n > 127:
            n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
        fixed.extend(range(first - begin, at - begin))
        if not n & 1:
            at += n >> 1
    if at + 1 != next_at or data[at]:  # it has headers, whose lengths may differ, or a varint that is longer than necessary
        return 0, 0
    fixed.append(at - begin)

    step = next_at - begin
    window = WINDOW_MIN
    skipped = 0
    cost = 0
    while True:
        block_end = _ONE_BYTE_DELTAS if delta_bytes == 1 else (index // _TWO_BYTE_DELTAS + 1) * _TWO_BYTE_DELTAS
        size = min(window, block_end - index, count - index, (end - next_at) // step)
        if size < RUN_MIN or _delta_bytes(index) != delta_bytes:
            break
        cost += WINDOW_COST + size // WINDOW_RECORDS_PER_STEP
        run = _count_equal(data, begin, next_at, step, size, fixed, timestamp_at, delta_at)
        if not run or not _offsets_follow(data, next_at + delta_at, step, index, run, delta_bytes):
            break  # the caller reads the record alone, which raises with the reason
        if delta_at - timestamp_at > 1:
            cost += run // 4
        _note_timestamps([data[next_at + place : next_at + run * step : step] for place in range(timestamp_at, delta_at)], found)
        skipped += run
        index += run
        next_at += run * step
        if run < size or cost > steps_left:
            break
        window = min(window * WINDOW_GROWTH, _TWO_BYTE_DELTAS)
    return skipped, cost


def _count_equal(data: bytes, begin: int, next_at: int, step: int, run: int, fixed: list[int], timestamp_at: int, delta_at: int) -> int:
    """Of the `run` records from `next_at` on, count those before the first that differs from the record at `begin` in a fixed place."""
    for place in fixed:
        column = data[next_at + place : next_at + run * step : step]
        run -= len(column.lstrip(data[begin + place : begin + place + 1]))
        if not run:
            return 0
    # The timestamps must be varints of the same size.
    for place in range(timestamp_at, delta_at):
        column = data[next_at + place : next_at + run * step : step]
        run -= len(column.lstrip(_LAST_BYTES if place == delta_at - 1 else _CONTINUED))
        if not run:
            return 0
    return run


def _offsets_follow(data: bytes, at: int, step: int, index: int, run: int, delta_bytes: int) -> bool:
    """Whether the `run` offset deltas at `at` and every `step` bytes after it are `index`, `index` + 1, ..."""
    stop = at + (run - 1) * step + 1
    first = index % _TWO_BYTE_DELTAS
    end = first + run
    if delta_bytes == 1:
        return data[at:stop:step] == bytes(range(2 * first, 2 * end, 2))
    second = _SECOND_BYTES if delta_bytes == 2 else _SECOND_BYTES_CONTINUED
    if data[at:stop:step] != _LOWEST_BYTES[first:end] or data[at + 1 : stop + 1 : step] != second[first:end]:
        return False
    index >>= 13
    for place in range(2, delta_bytes):
        digit = index & 127 if place == delta_bytes - 1 else index & 127 | 128
        if data[at + place : stop + place : step] != bytes([digit]) * run:
            return False
        index >>= 7
    return True


def _note_timestamps(columns: list[bytes], found: Survey) -> None:
    """Add the least and the greatest timestamp to `found`. The timestamps are varints of the same size, as columns of bytes."""
    if len(columns) == 1:
        for byte in set(columns[0]):
            delta = (byte >> 1) ^ -(byte & 1)
            found.oldest = min(found.oldest, delta)
            found.newest = max(found.newest, delta)
        return
    columns.reverse()  # most significant byte first, so that tuples sort by value
    digits = set(zip(*columns, strict=True))
    positive = [varint for varint in digits if not varint[-1] & 1]
    negative = [varint for varint in digits if varint[-1] & 1]  # in zigzag the larger number is the earlier time
    for varints in (positive, negative):
        if varints:
            for varint in (min(varints), max(varints)):
                n = 0
                for digit in varint:
                    n = n << 7 | digit & 127
                delta = (n >> 1) ^ -(n & 1)
                found.oldest = min(found.oldest, delta)
                found.newest = max(found.newest, delta)

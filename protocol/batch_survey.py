"""Check the records of a produced batch without making an object for each.

Consecutive records of one size differ in few bytes. Such a run is compared column by column: a slice with a step takes the same
byte of every record, so that the work is done in C in either build. A run is looked for in windows that grow only as far as the
records are alike: a comparison that fails costs as much as the few records that were compared.
"""

from __future__ import annotations

from typing import Final

from protocol.batch_record import INT64_MAX, INT64_MIN, VARINT_SHIFT_MAX, VARLONG_SHIFT_MAX, CorruptBatch, longer_varint

RUN_MIN: Final = 16  # records: fewer are read one by one in the same time
WINDOW_MIN: Final = 64
WINDOW_GROWTH: Final = 16
# Records read one by one after a run that was too short: doubled each time, so that looking for runs costs a small share at most.
PAUSE_MIN: Final = 16
PAUSE_MAX: Final = 1024
# What comparing one window costs beside reading a record: a part of it for each window, and one record for so many.
WINDOW_COST: Final = 16
WINDOW_RECORDS_PER_STEP: Final = 64
UNLIMITED: Final = 1 << 62
TIMESTAMP_BYTES_MAX: Final = 9  # longer ones may be more than an int64 holds, and are read one by one
_LAST: Final = bytes(range(128))  # the last byte of a varint is one of these
_MORE: Final = bytes(range(128, 256))  # all other bytes of a varint

# The offset deltas 0, 1, 2, ... as varints, column by column. The lowest byte repeats every 64 deltas, the second every 8,192; within
# a block of 8,192 the others are constant, and no window reaches over the end of a block.
_ONE_BYTE_TO: Final = 64
_BLOCK: Final = 8192
_LOW: Final = bytes(range(128, 256, 2)) * 128
_SECOND: Final = b"".join([bytes([n]) * 64 for n in range(128)])
_SECOND_OF_MORE: Final = b"".join([bytes([n]) * 64 for n in range(128, 256)])


class TooManyRecords(Exception):
    """Surveying the batch takes more steps than the caller allows."""


class Survey:
    """The timestamps of some records, as differences from the first, and whether all of them have keys."""

    __slots__ = ("keyed", "newest", "oldest")

    def __init__(self) -> None:
        self.oldest = INT64_MAX
        self.newest = INT64_MIN
        self.keyed = True


def survey(data: bytes, at: int, end: int, count: int, steps_max: int = UNLIMITED) -> Survey:
    """Of so many records, which take all bytes from `at` to `end` and have the offset deltas 0, 1, 2, ...; else CorruptBatch.

    A record that is read by itself is a step, and so is a header. TooManyRecords: it takes more steps than `steps_max`.
    """
    found = Survey()
    oldest = INT64_MAX
    newest = INT64_MIN
    last_timestamp = -1  # of the record before, in zigzag; no record has this one
    run_at = 0  # the first record at which a run is looked for
    pause = PAUSE_MIN
    index = 0
    limit = steps_max  # the record at which the steps are used up; moves on with records that took none
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
                    raise CorruptBatch(f"{headers} headers in {stop - at} bytes")
                limit -= headers
                if limit <= index:
                    raise TooManyRecords
                stop_index = min(count, limit)
                at = _behind_headers(data, at, headers)
            if at != stop:
                raise CorruptBatch("a record's fields are not as long as the record")
            index += 1
            if index >= run_at and count - index >= RUN_MIN and at < end and data[at] == data[begin]:
                skipped, cost = _run(data, begin, at, end, index, count, found)
                at += skipped * (at - begin)
                index += skipped
                limit += skipped - cost
                stop_index = min(count, limit)
                pause = PAUSE_MIN if skipped >= RUN_MIN else min(2 * pause, PAUSE_MAX)
                run_at = index + (1 if skipped >= RUN_MIN else pause)
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
    if index < count:
        raise TooManyRecords
    if at != end:
        raise CorruptBatch(f"{end - at} bytes behind the last record")
    found.oldest = min(found.oldest, oldest)
    found.newest = max(found.newest, newest)
    return found


def _behind_headers(data: bytes, at: int, left: int) -> int:
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


def _delta_bytes(index: int) -> int:
    """How many bytes the offset delta of this record takes."""
    if index < _ONE_BYTE_TO:
        return 1
    if index < _BLOCK:
        return 2
    return 3 if index < 1 << 20 else 4 if index < 1 << 27 else 5


def _run(data: bytes, begin: int, behind: int, end: int, index: int, count: int, found: Survey) -> tuple[int, int]:
    """How many records behind the sound one from `begin` on are of its shape, and what finding it out cost, in steps.

    Record `index` is the first of them. As far as the bytes that say what is where are those of the first record, so is what they
    say: each such column bounds the run. `found` gets their timestamps.
    """
    delta_bytes = _delta_bytes(index)
    if delta_bytes != _delta_bytes(index - 1):  # the first record is shorter than these
        return 0, 0
    # Where in a record its length, the lengths of key and value and the number of headers are; timestamp and offset apart.
    at = begin
    while data[at] > 127:
        at += 1
    fixed = list(range(at - begin, -1, -1))
    at += 2  # attributes may be any
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
    if at + 1 != behind or data[at]:  # with headers, whose lengths may differ, or offset and timestamp are written in other ways
        return 0, 0
    fixed.append(at - begin)

    step = behind - begin
    window = WINDOW_MIN
    skipped = 0
    cost = 0
    while True:
        to = _ONE_BYTE_TO if delta_bytes == 1 else (index // _BLOCK + 1) * _BLOCK
        whole = min(window, to - index, count - index, (end - behind) // step)
        if whole < RUN_MIN or _delta_bytes(index) != delta_bytes:
            break
        cost += WINDOW_COST + whole // WINDOW_RECORDS_PER_STEP
        run = _alike(data, begin, behind, step, whole, fixed, timestamp_at, delta_at)
        if not run or not _offsets_follow(data, behind + delta_at, step, index, run, delta_bytes):
            break  # reading the record will raise with the reason
        if delta_at - timestamp_at > 1:
            cost += run // 4
        _note_timestamps([data[behind + place : behind + run * step : step] for place in range(timestamp_at, delta_at)], found)
        skipped += run
        index += run
        behind += run * step
        if run < whole:
            break
        window = min(window * WINDOW_GROWTH, _BLOCK)
    return skipped, cost


def _alike(data: bytes, begin: int, behind: int, step: int, run: int, fixed: list[int], timestamp_at: int, delta_at: int) -> int:
    """Of so many records from `behind` on, those before the first that says something else than the one at `begin` in a fixed place."""
    for place in fixed:
        column = data[behind + place : behind + run * step : step]
        run -= len(column.lstrip(data[begin + place : begin + place + 1]))
        if not run:
            return 0
    # The timestamps: as many bytes as in the first record.
    for place in range(timestamp_at, delta_at):
        column = data[behind + place : behind + run * step : step]
        run -= len(column.lstrip(_LAST if place == delta_at - 1 else _MORE))
        if not run:
            return 0
    return run


def _offsets_follow(data: bytes, at: int, step: int, index: int, run: int, delta_bytes: int) -> bool:
    """Whether so many records, whose offset deltas are at `at` and every `step` bytes, are the records from `index` on."""
    stop = at + (run - 1) * step + 1
    first = index % _BLOCK
    behind = first + run
    if delta_bytes == 1:
        return data[at:stop:step] == bytes(range(2 * first, 2 * behind, 2))
    second = _SECOND if delta_bytes == 2 else _SECOND_OF_MORE
    if data[at:stop:step] != _LOW[first:behind] or data[at + 1 : stop + 1 : step] != second[first:behind]:
        return False
    index >>= 13
    for place in range(2, delta_bytes):
        digit = index & 127 if place == delta_bytes - 1 else index & 127 | 128
        if data[at + place : stop + place : step] != bytes([digit]) * run:
            return False
        index >>= 7
    return True


def _note_timestamps(columns: list[bytes], found: Survey) -> None:
    """The least and the largest of the varints that stand in these columns, which have one number of bytes."""
    if len(columns) == 1:
        for byte in set(columns[0]):
            delta = (byte >> 1) ^ -(byte & 1)
            found.oldest = min(found.oldest, delta)
            found.newest = max(found.newest, delta)
        return
    columns.reverse()  # so that they are in the order of their values
    digits = set(zip(*columns, strict=True))
    forward = [each for each in digits if not each[-1] & 1]
    back = [each for each in digits if each[-1] & 1]  # the larger, the earlier
    for some in (forward, back):
        if some:
            for each in (min(some), max(some)):
                n = 0
                for digit in each:
                    n = n << 7 | digit & 127
                delta = (n >> 1) ^ -(n & 1)
                found.oldest = min(found.oldest, delta)
                found.newest = max(found.newest, delta)

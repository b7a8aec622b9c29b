"""Decode keys and values of consecutive records, most of which have the same layout as the previous one."""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol.batch_record import VARINT_SHIFT_MAX, CorruptBatch, Fact, longer_varint
from protocol.equal_runs import RUN_MIN, count_equal

LAYOUTS_MAX: Final = 64
RUN_MAX: Final = 256  # the most records or batches compared at once
_CONTINUED: Final = bytes(range(128, 256))  # varint bytes with the continuation bit: another byte follows


class Layout:
    """The byte positions of the fields of a record without headers, with a timestamp delta of one byte and an offset delta of
    one or two.

    The layout is made from one record. Another record has it if its lengths, attributes and timestamp delta are the same, and its offset delta
    has as many bytes; one Struct then unpacks key and value.
    """

    __slots__ = (
        "_delta_at",
        "_delta_bytes",
        "_fixed",
        "_key_length_at",
        "_pairs",
        "_value_length_at",
        "delta_bits",
        "delta_mask",
        "key_length",
        "lead",
        "size",
        "unpack",
        "value_length",
    )

    def __init__(self, data: bytes, begin: int, delta_at: int, delta_end: int, key_at: int, key_end: int, value_at: int, value_end: int) -> None:
        self.lead = data[begin:delta_at]  # length, attributes and timestamp delta
        self.key_length = data[delta_end:key_at]
        self.value_length = data[key_end:value_at]
        self.size = value_end + 1 - begin
        self.delta_mask, self.delta_bits = (0x80, 0) if delta_end - delta_at == 1 else (0x8080, 0x8000)  # continuation bits of the offset delta's varint
        delta = "B" if delta_end - delta_at == 1 else "H"
        sizes = delta_at - begin, key_at - delta_end, key_end - key_at, value_at - key_end, value_end - value_at
        self.unpack: Final = Struct(f">{sizes[0]}s{delta}{sizes[1]}s{sizes[2]}s{sizes[3]}s{sizes[4]}sB").unpack_from
        # Reads the keys and values of many consecutive records.
        self._pairs: Final = Struct(f"{key_at - begin}x{sizes[2]}s{sizes[3]}x{sizes[4]}sx").iter_unpack
        self._delta_at = delta_at - begin
        self._key_length_at = delta_end - begin
        self._value_length_at = key_end - begin
        self._delta_bytes = delta_end - delta_at
        # The last byte is the header count. It is not compared: equal lengths leave one byte for it, so there are no headers.
        self._fixed = [*range(delta_at - begin), *range(delta_end - begin, key_at - begin), *range(key_end - begin, value_at - begin)]

    def read_run(self, data: bytes, at: int, count: int, facts: list[Fact]) -> int:
        """Add the leading records, of `count` from `at` on, that have this layout; return their number, 0 if fewer than RUN_MIN."""
        if not (data.startswith(self.lead, at) and data.startswith(self.key_length, at + self._key_length_at)):
            return 0
        if not data.startswith(self.value_length, at + self._value_length_at):
            return 0
        size = self.size
        count = count_equal(data, at, size, count, self._fixed)
        if count < RUN_MIN:
            return 0
        end = at + count * size
        delta_at = at + self._delta_at
        if self._delta_bytes == 2:
            if data[delta_at:end:size].translate(None, _CONTINUED):
                return 0
            delta_at += 1
        if not data[delta_at:end:size].isascii():
            return 0
        facts.extend(self._pairs(data[at:end]))
        return count


class FactLayouts:
    """Decodes keys and values, and caches record layouts."""

    __slots__ = ("_known", "_last_size", "_layout")

    def __init__(self) -> None:
        self._layout: Layout | None = None  # of the last record
        self._known: dict[tuple[int, int, int], Layout] = {}
        self._last_size = 0  # of the last record with a different layout

    def read(self, data: bytes, at: int, end: int, count: int, facts: list[Fact]) -> None:
        """Add key and value of `count` records. Varints are read inline, since a replay of a compacted log spends its time here."""
        layout = self._layout
        compared = False  # the following records were compared with the layout
        lead: bytes
        delta: int
        key_length: bytes
        key: bytes
        value_length: bytes
        value: bytes
        headers: int
        window: int
        while count > 0:
            if layout is not None and at + layout.size <= end:
                if count >= RUN_MIN and not compared:
                    compared = True
                    size = layout.size
                    window = min(count, (end - at) // size, RUN_MAX)
                    same = layout.read_run(data, at, window, facts)
                    if same:
                        count -= same
                        at += same * size
                        compared = same < window
                        continue
                lead, delta, key_length, key, value_length, value, headers = layout.unpack(data, at)
                if (
                    lead == layout.lead
                    and value_length == layout.value_length
                    and key_length == layout.key_length
                    and delta & layout.delta_mask == layout.delta_bits
                    and not headers
                ):
                    facts.append((key, value))
                    count -= 1
                    at += layout.size
                    continue
                compared = False
            count -= 1
            begin = at
            n = data[at]
            at += 1
            if n > 127:
                more = data[at]
                if more < 128:
                    n += (more << 7) - 128
                    at += 1
                else:
                    n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            stop = at + (n >> 1)
            if n & 1 or stop > end:
                raise CorruptBatch(f"a record of {n >> 1} bytes with {end - at} left")
            timestamp_at = at + 1
            at += 1
            while data[at] > 127:  # the timestamp, unread
                at += 1
            at += 1
            delta_at = at
            while data[at] > 127:  # the offset, unread
                at += 1
            at += 1
            delta_end = at
            fits_layout = delta_at - timestamp_at == 1 and delta_end - delta_at <= 2
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            key_at = at
            if n & 1:
                key = b""
                fits_layout = False
            else:
                at += n >> 1
                key = data[key_at:at]
            key_end = at
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            if n & 1:
                facts.append((key, None))
            else:
                value_at = at
                at += n >> 1
                facts.append((key, data[value_at:at]))
                if fits_layout and at + 1 == stop and not data[at]:
                    sizes = (stop - begin, key_end - key_at, delta_end - delta_at)
                    known = self._known.get(sizes)
                    if known is not None and known.lead == data[begin:delta_at]:
                        layout = self._layout = known
                    elif sizes[0] == self._last_size:
                        if len(self._known) >= LAYOUTS_MAX:
                            self._known.clear()
                        layout = self._layout = Layout(data, begin, delta_at, delta_end, key_at, key_end, value_at, at)
                        self._known[sizes] = layout
                    self._last_size = sizes[0]
            if at >= stop:
                raise CorruptBatch("a record's fields are longer than the record")
            at = stop

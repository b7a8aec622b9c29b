"""Functions for generated code: lengths, strings, counts and tags, read from bytes, and written to a list of parts that is
joined once.

A reader gets the frame and a position, and returns the value and the position after it. `at` never decreases, and an index or
Struct beyond the end raises. So slices need no check of their own: a message checks once, at its end, that `at` is within the
frame. A count is checked against the remaining bytes before a loop uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextvars import ContextVar
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, TypeVar

from protocol.errors import EncodeError, ProtocolError, TooManyElements

COMPILED: Final = not __file__.endswith((".py", ".pyc"))

UNREADABLE: Final = (IndexError, StructError)  # raised by a read beyond the end of a frame
UNWRITABLE: Final = (StructError, ValueError, OverflowError, TypeError, AttributeError)  # raised by a value that does not fit

ZERO_UUID: Final = bytes(16)
TEXT_BYTES_MAX: Final = 32767  # Kafka's, for compact strings too
TEXT_BYTES_PER_ELEMENT: Final = 128  # decoding so much text takes at most as long as decoding one element
PAUSE_ELEMENTS: Final = 512  # decoded between two pauses
TAGS_MAX: Final = 1_000  # tagged fields in one list; Kafka's messages have at most three

Result = TypeVar("Result")
Steps = Generator[int, None, Result]  # yields costs

BYTES: Final = tuple(bytes([n]) for n in range(256))

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")


def cut_short(name: str, version: int) -> ProtocolError:
    return ProtocolError(f"{name} v{version} is cut short")


def unwritable(name: str, version: int, error: BaseException) -> EncodeError:
    return EncodeError(f"{name} v{version} cannot be encoded: {error}")


# reading: lengths and counts


def uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Read up to 31 bits in up to five bytes. As in Kafka, an encoding that is longer than necessary is accepted."""
    value = 0
    shift = 0
    while True:
        n = data[at]
        at += 1
        value |= (n & 127) << shift
        if n < 128:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint is longer than five bytes")
    if value > 0x7FFFFFFF:
        raise ProtocolError("a varint is larger than an int32")
    return value, at


def compact_size(data: bytes, at: int) -> tuple[int, int]:
    """The length of a compact string or bytes, -1 for null; checked against the bytes in the frame."""
    n, at = uvarint(data, at)
    if n - 1 > len(data) - at:
        raise ProtocolError(f"a length of {n - 1} with {len(data) - at} bytes left")
    return n - 1, at


class ElementBudget:
    """The elements that one request may still have. `pause` is called after each PAUSE_ELEMENTS: compiled code lets no other thread run by itself."""

    __slots__ = ("left", "pause", "pause_at")

    def __init__(self, left: int, pause: Callable[[], None] | None) -> None:
        self.left = left
        self.pause = pause
        self.pause_at = left - PAUSE_ELEMENTS


_BUDGET: Final[ContextVar[ElementBudget | None]] = ContextVar("the budget of the request that this thread decodes", default=None)


class ElementBudgets:
    """Limits the elements of a request: an element of a few bytes on the wire becomes an object of hundreds of bytes.

    An array costs its elements, and at least one: a null or an empty array is not free. Each tagged field costs one, known or not, and a
    long string one for each TEXT_BYTES_PER_ELEMENT. Everything else occurs a fixed number of times in an element.
    """

    __slots__ = ("bounded",)

    def __init__(self) -> None:
        self.bounded: set[ElementBudget] = set()  # of all threads: mostly none, and nothing is counted

    def bound(self, elements_max: int, pause: Callable[[], None] | None = None) -> None:
        """Bound what this thread decodes until `unbound`."""
        budget = ElementBudget(elements_max, pause)
        _BUDGET.set(budget)
        self.bounded.add(budget)

    def take(self, elements: int) -> None:
        budget = _BUDGET.get()
        if budget is None:
            return  # another thread decodes a bounded request
        budget.left -= elements if elements > 0 else 1
        if budget.left < 0:
            raise TooManyElements("more elements than one request may have (request.elements.max)")
        if budget.left <= budget.pause_at:
            budget.pause_at = budget.left - PAUSE_ELEMENTS
            if budget.pause is not None:
                budget.pause()

    def unbound(self) -> None:
        budget = _BUDGET.get()
        if budget is not None:
            self.bounded.discard(budget)
        _BUDGET.set(None)


ELEMENTS: Final = ElementBudgets()


def legacy_count(data: bytes, at: int, size: int) -> tuple[int, int]:
    """The number of an array's elements, each of which takes at least `size` bytes."""
    n, at = legacy_count_or_null(data, at, size)
    if n < 0:
        raise ProtocolError("null instead of an array")
    return n, at


def legacy_count_or_null(data: bytes, at: int, size: int) -> tuple[int, int]:
    """As `legacy_count`, with -1 for null."""
    (n,) = INT32.unpack_from(data, at)
    at += 4
    if n * size > len(data) - at:
        raise ProtocolError(f"an array of {n} elements with {len(data) - at} bytes left")
    if ELEMENTS.bounded:
        ELEMENTS.take(n)
    return max(n, -1), at


def compact_count(data: bytes, at: int, size: int) -> tuple[int, int]:
    n = data[at]
    if n < 128:
        at += 1
    else:
        n, at = uvarint(data, at)
    if n == 0:
        raise ProtocolError("null instead of an array")
    if (n - 1) * size > len(data) - at:
        raise ProtocolError(f"an array of {n - 1} elements with {len(data) - at} bytes left")
    if ELEMENTS.bounded:
        ELEMENTS.take(n - 1)
    return n - 1, at


def compact_count_or_null(data: bytes, at: int, size: int) -> tuple[int, int]:
    n = data[at]
    if n < 128:
        at += 1
    else:
        n, at = uvarint(data, at)
    if (n - 1) * size > len(data) - at:
        raise ProtocolError(f"an array of {n - 1} elements with {len(data) - at} bytes left")
    if ELEMENTS.bounded:
        ELEMENTS.take(n - 1)
    return n - 1, at


# reading: strings and bytes


def legacy_text(data: bytes, at: int) -> tuple[str, int]:
    (n,) = INT16.unpack_from(data, at)
    if n < 0:
        raise ProtocolError("null instead of a string")
    at += 2
    if n >= TEXT_BYTES_PER_ELEMENT and ELEMENTS.bounded:
        ELEMENTS.take(n // TEXT_BYTES_PER_ELEMENT)
    return data[at : at + n].decode("utf-8", "replace"), at + n


def legacy_text_or_null(data: bytes, at: int) -> tuple[str | None, int]:
    (n,) = INT16.unpack_from(data, at)
    at += 2
    if n < 0:
        return None, at
    if n >= TEXT_BYTES_PER_ELEMENT and ELEMENTS.bounded:
        ELEMENTS.take(n // TEXT_BYTES_PER_ELEMENT)
    return data[at : at + n].decode("utf-8", "replace"), at + n


def compact_text(data: bytes, at: int) -> tuple[str, int]:
    value, at = compact_text_or_null(data, at)
    if value is None:
        raise ProtocolError("null instead of a string")
    return value, at


def compact_text_or_null(data: bytes, at: int) -> tuple[str | None, int]:
    n, at = compact_size(data, at)
    if n < 0:
        return None, at
    if n > TEXT_BYTES_MAX:
        raise ProtocolError(f"a string of {n} bytes")
    if n >= TEXT_BYTES_PER_ELEMENT and ELEMENTS.bounded:
        ELEMENTS.take(n // TEXT_BYTES_PER_ELEMENT)
    return data[at : at + n].decode("utf-8", "replace"), at + n


def legacy_blob(data: bytes, at: int) -> tuple[bytes, int]:
    value, at = legacy_blob_or_null(data, at)
    if value is None:
        raise ProtocolError("null instead of bytes")
    return value, at


def legacy_blob_or_null(data: bytes, at: int) -> tuple[bytes | None, int]:
    (n,) = INT32.unpack_from(data, at)
    at += 4
    if n < 0:
        return None, at
    if n > len(data) - at:
        raise ProtocolError(f"a length of {n} with {len(data) - at} bytes left")
    return data[at : at + n], at + n


def compact_blob(data: bytes, at: int) -> tuple[bytes, int]:
    value, at = compact_blob_or_null(data, at)
    if value is None:
        raise ProtocolError("null instead of bytes")
    return value, at


def compact_blob_or_null(data: bytes, at: int) -> tuple[bytes | None, int]:
    n, at = compact_size(data, at)
    if n < 0:
        return None, at
    return data[at : at + n], at + n


# reading: arrays of plain values, whose count was read and checked


_SOME_INT32S: Final = tuple([Struct(f">{n}i") for n in range(33)])


def int8s(data: bytes, at: int, n: int) -> list[int]:
    return list(Struct(f">{n}b").unpack_from(data, at))


def int32s(data: bytes, at: int, n: int) -> list[int]:
    form = _SOME_INT32S[n] if n <= 32 else Struct(f">{n}i")
    return list(form.unpack_from(data, at))


def legacy_texts(data: bytes, at: int, n: int) -> tuple[list[str], int]:
    values: list[str] = []
    for _ in range(n):
        value, at = legacy_text(data, at)
        values.append(value)
    return values, at


def compact_texts(data: bytes, at: int, n: int) -> tuple[list[str], int]:
    values: list[str] = []
    for _ in range(n):
        value, at = compact_text(data, at)
        values.append(value)
    return values, at


# reading: tagged fields


def tag_count(data: bytes, at: int) -> tuple[int, int]:
    n, at = uvarint(data, at)
    if n * 2 > len(data) - at:
        raise ProtocolError(f"{n} tagged fields with {len(data) - at} bytes left")
    if n:
        if n > TAGS_MAX:
            raise ProtocolError(f"{n} tagged fields in one list, of which {TAGS_MAX} are allowed")
        if ELEMENTS.bounded:
            ELEMENTS.take(n)
    return n, at


def tag_head(data: bytes, at: int) -> tuple[int, int, int]:
    """The tag of a tagged field, the end of its value, and the begin of its value."""
    tag, at = uvarint(data, at)
    size, at = uvarint(data, at)
    if size > len(data) - at:
        raise ProtocolError(f"a tagged field of {size} bytes with {len(data) - at} left")
    return tag, at + size, at


def skip_tags(data: bytes, at: int) -> int:
    """Skip unknown tagged fields."""
    n, at = tag_count(data, at)
    for _ in range(n):
        _, at, _ = tag_head(data, at)
    return at


def wrong_tag_size(tag: int) -> ProtocolError:
    return ProtocolError(f"tagged field {tag} does not have the size in its header")


# writing


def uvarint_bytes(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def text_length(n: int) -> bytes:
    """The encoded length of a compact string, if it needs more than one byte; `n` is the string's number of bytes plus one."""
    if n - 1 > TEXT_BYTES_MAX:
        raise EncodeError(f"a string of {n - 1} bytes; at most {TEXT_BYTES_MAX} are allowed")
    return uvarint_bytes(n)


def put_legacy_text(out: list[bytes], value: str) -> None:
    encoded = value.encode()
    out.append(INT16.pack(len(encoded)))
    out.append(encoded)


def put_legacy_text_or_null(out: list[bytes], value: str | None) -> None:
    if value is None:
        out.append(b"\xff\xff")
    else:
        put_legacy_text(out, value)


def put_compact_text(out: list[bytes], value: str) -> None:
    encoded = value.encode()
    n = len(encoded) + 1
    out.append(BYTES[n] if n < 128 else text_length(n))
    out.append(encoded)


def put_compact_text_or_null(out: list[bytes], value: str | None) -> None:
    if value is None:
        out.append(b"\x00")
    else:
        put_compact_text(out, value)


def put_legacy_blob(out: list[bytes], value: bytes) -> None:
    out.append(INT32.pack(len(value)))
    out.append(value)


def put_legacy_blob_or_null(out: list[bytes], value: bytes | None) -> None:
    if value is None:
        out.append(b"\xff\xff\xff\xff")
    else:
        put_legacy_blob(out, value)


def put_legacy_count(out: list[bytes], n: int) -> None:
    """The length of an array, -1 for null."""
    out.append(INT32.pack(n))


def put_compact_count(out: list[bytes], n: int) -> None:
    out.append(BYTES[n + 1] if n < 127 else uvarint_bytes(n + 1))


def put_int8s(out: list[bytes], values: list[int]) -> None:
    out.append(Struct(f">{len(values)}b").pack(*values))


def put_int32s(out: list[bytes], values: list[int]) -> None:
    out.append(Struct(f">{len(values)}i").pack(*values))


def put_legacy_texts(out: list[bytes], values: list[str]) -> None:
    for value in values:
        put_legacy_text(out, value)


def put_compact_texts(out: list[bytes], values: list[str]) -> None:
    """Write the items; their number is written before, by `put_compact_count`."""
    for value in values:
        put_compact_text(out, value)


def put_uuid(out: list[bytes], value: bytes) -> None:
    if len(value) != 16:
        raise EncodeError(f"a uuid of {len(value)} bytes")
    out.append(value)


def put_tag(out: list[bytes], tag: int, value: list[bytes]) -> None:
    joined = b"".join(value)
    out.append(uvarint_bytes(tag))
    out.append(uvarint_bytes(len(joined)))
    out.append(joined)

"""Build replies with a long array whose elements are encoded separately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from broker.net.dispatch import Call, ReplyTooLarge
from protocol.message import Message
from protocol.wire import UNWRITABLE, Steps, put_compact_count, put_legacy_count, unwritable

Element = TypeVar("Element")
ELEMENTS_PER_STEP: Final = 64  # of encoded elements that are put together
STEP_COST: Final = 2
BYTES_PER_COST: Final = 8_192  # copying them


def put_array(message: bytes, bytes_after: int, elements: Sequence[bytes], count: int, flexible: bool) -> bytes:
    """Insert encoded elements into the empty array of an encoded message; `bytes_after` bytes follow the array."""
    head, tail = _around_array(message, bytes_after, count, flexible)
    return b"".join((head, *elements, tail))


def _around_array(message: bytes, bytes_after: int, count: int, flexible: bool) -> tuple[bytes, bytes]:
    """The parts of a message with an empty array before the elements, with their count, and after them."""
    counts: list[bytes] = []
    put_count = put_compact_count if flexible else put_legacy_count
    put_count(counts, 0)
    put_count(counts, count)
    at = len(message) - bytes_after
    return message[: at - len(counts[0])] + counts[1], message[at:]


class EncodedArray:
    """A reply with one array whose elements are encoded one by one, within `socket.response.max.bytes`.

    A short request may ask for the same large element many times: encoded at the end, all of them would be in memory as objects before.
    """

    __slots__ = ("_call", "_elements", "_empty", "_size")

    def __init__(self, call: Call, empty: Message) -> None:
        """`empty`: the reply without elements; only tagged fields follow its array."""
        self._call = call
        self._empty = empty
        self.clear()

    def clear(self) -> None:
        self._elements: list[bytes] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._elements)

    def add(self, write_array: Callable[[list[bytes], list[Element], int], Steps[None]], element: Element) -> Steps[None]:
        """Encode an element in steps, and append it. Raises ReplyTooLarge, or EncodeError if a string is too long."""
        self._elements.append(b"")
        yield from self.replace(len(self._elements) - 1, write_array, element)

    def replace(self, number: int, write_array: Callable[[list[bytes], list[Element], int], Steps[None]], element: Element) -> Steps[None]:
        out: list[bytes] = []
        try:
            yield from write_array(out, [element], self._call.version)
        except UNWRITABLE as error:
            raise unwritable(type(self._empty).__name__, self._call.version, error) from error
        encoded = b"".join(out[1:])  # without the count
        self._size += len(encoded) - len(self._elements[number])
        self._elements[number] = encoded
        if self._size > self._call.connection.context.reply_bytes_max:
            raise ReplyTooLarge(self._call)
        self._call.connection.hold_reply_bytes(self._size)

    def __repr__(self) -> str:
        return f"{type(self._empty).__name__}({len(self._elements)} elements, {self._size} bytes)"

    def _around(self, version: int) -> tuple[bytes, bytes]:
        flexible = version >= self._empty.FLEXIBLE_FROM
        return _around_array(self._empty.encode(version), 1 if flexible else 0, len(self._elements), flexible)

    def encode(self, version: int) -> bytes:
        head, tail = self._around(version)
        self._call.connection.hold_reply_bytes(0)
        return b"".join((head, *self._elements, tail))

    def encode_in_steps(self, out: list[bytes], version: int) -> Steps[None]:
        """Can be called once: elements are freed when they are in `out`."""
        head, tail = self._around(version)
        out.append(head)
        elements = self._elements
        for at in range(0, len(elements), ELEMENTS_PER_STEP):
            end = at + ELEMENTS_PER_STEP
            step = elements[at:end]
            out += step
            elements[at:end] = [b""] * len(step)
            yield STEP_COST + sum(map(len, step)) // BYTES_PER_COST
        out.append(tail)

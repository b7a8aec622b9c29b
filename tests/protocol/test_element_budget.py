"""The budget of elements bounds every request, whatever its arrays, tagged fields and strings are."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.apis import APIS
from protocol.errors import ProtocolError
from protocol.message import Message, Part, field_names
from protocol.wire import ELEMENTS, PAUSE_ELEMENTS, TAGS_MAX, TEXT_BYTES_PER_ELEMENT, uvarint_bytes

pytestmark = [pytest.mark.once, pytest.mark.plain]  # reads the annotations of generated classes

ELEMENTS_MAX = 1_000
BYTES = 400_000  # of a request that means harm


@pytest.fixture
def budget() -> Iterator[None]:
    ELEMENTS.bound(ELEMENTS_MAX)
    yield
    ELEMENTS.unbound()


def array_fields(part: Any) -> list[str]:
    return [name for name in field_names(type(part)) if isinstance(getattr(part, name), list)]


def element_class(cls: type[Message], name: str) -> Any:
    """The class of the elements of this array, or None for plain values."""
    annotation = str(cls.__init__.__annotations__.get(name, ""))
    module = __import__(cls.__module__, fromlist=["x"])
    inner = annotation.removeprefix("list[").split("]")[0]
    return getattr(module, inner, None)


REQUESTS = [api for api in APIS.values() if api.request.VERSIONS[1] >= 0]


def with_elements(cls: Any, name: str, count: int) -> Any:
    """A request with `count` default elements in this array."""
    request = cls()
    inner = element_class(cls, name)
    if inner is None or not issubclass(inner, Part):
        return None
    setattr(request, name, [inner() for _ in range(count)])
    return request


def harmful(cls: Any, version: int) -> Iterator[tuple[str, bytes]]:
    """Requests of about BYTES bytes that repeat one element of a top-level array."""
    for name in array_fields(cls()):
        try:
            one, two = (with_elements(cls, name, count).encode(version) for count in (1, 2))
        except Exception:
            continue
        size = len(two) - len(one)
        if size <= 0:
            continue
        count = BYTES // size
        yield name, with_elements(cls, name, count).encode(version)


CASES = [
    pytest.param(api.request, version, data, id=f"{api.request.__name__} {version} {name}")
    for api in REQUESTS
    for version in sorted({api.request.VERSIONS[0], api.request.VERSIONS[1]})
    for name, data in harmful(api.request, version)
]


def test_most_requests_have_an_array_that_can_be_long() -> None:
    assert len({param.values[0] for param in CASES}) >= 20


@pytest.mark.parametrize(("cls", "version", "data"), CASES)
@pytest.mark.usefixtures("budget")
def test_a_request_with_too_many_elements_is_refused_early(cls: type[Message], version: int, data: bytes) -> None:
    tracemalloc.start()
    begin = time.process_time()
    try:
        with pytest.raises(ProtocolError, match=r"request\.elements\.max"):
            cls.decode(data, 0, version)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - begin < 1.0


def request_class(name: str) -> Any:
    return next(api.request for api in REQUESTS if api.request.__name__ == name)


def reassignments(partition: bytes, count: int) -> bytes:
    """AlterPartitionReassignments 0 with one topic of `count` such partitions."""
    return bytes(4) + uvarint_bytes(2) + uvarint_bytes(2) + b"t" + uvarint_bytes(count + 1) + partition * count + b"\0\0"


@pytest.mark.parametrize("partition", [b"\0\0\0\0\0\0", b"\0\0\0\0\1\0"], ids=["null arrays", "empty arrays"])
@pytest.mark.usefixtures("budget")
def test_null_and_empty_arrays_give_nothing_back(partition: bytes) -> None:
    cls = request_class("AlterPartitionReassignmentsRequest")
    cls.decode(reassignments(partition, ELEMENTS_MAX // 2 - 2), 0, 0)
    ELEMENTS.bound(ELEMENTS_MAX)
    with pytest.raises(ProtocolError, match=r"request\.elements\.max"):
        cls.decode(reassignments(partition, ELEMENTS_MAX // 2 + 2), 0, 0)


def tags(count: int, size: int = 0) -> bytes:
    return uvarint_bytes(count) + b"".join(uvarint_bytes(100 + number) + uvarint_bytes(size) + bytes(size) for number in range(count))


@pytest.mark.usefixtures("budget")
def test_unknown_tagged_fields_count() -> None:
    cls = request_class("MetadataRequest")
    empty = cls([]).encode(12)
    assert empty.endswith(b"\0")
    ELEMENTS.bound(2 * TAGS_MAX)
    cls.decode(empty[:-1] + tags(TAGS_MAX), 0, 12)
    with pytest.raises(ProtocolError, match="tagged fields in one list"):
        cls.decode(empty[:-1] + tags(TAGS_MAX + 1), 0, 12)
    ELEMENTS.bound(ELEMENTS_MAX)
    topic = bytes(16) + uvarint_bytes(2) + b"t" + tags(100)
    with pytest.raises(ProtocolError, match=r"request\.elements\.max"):
        cls.decode(uvarint_bytes(31) + topic * 30 + empty[1:], 0, 12)


@pytest.mark.parametrize("version", [1, 12])
@pytest.mark.usefixtures("budget")
def test_long_strings_count(version: int) -> None:
    cls = request_class("MetadataRequest")
    inner = element_class(cls, "topics")

    def request(size: int) -> bytes:
        made = cls([])
        made.topics = [inner(name="x" * size) for _ in range(100)]
        encoded: bytes = made.encode(version)
        return encoded

    cls.decode(request(5 * TEXT_BYTES_PER_ELEMENT), 0, version)
    ELEMENTS.bound(ELEMENTS_MAX)
    with pytest.raises(ProtocolError, match=r"request\.elements\.max"):
        cls.decode(request(11 * TEXT_BYTES_PER_ELEMENT), 0, version)


def test_decoding_pauses_after_some_hundred_elements() -> None:
    pauses: list[int] = []
    ELEMENTS.bound(10_000, lambda: pauses.append(1))
    try:
        for _ in range(3 * PAUSE_ELEMENTS):
            ELEMENTS.take(1)
    finally:
        ELEMENTS.unbound()
    assert len(pauses) == 3

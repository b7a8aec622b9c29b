"""Builds requests with each field at its extremes, for groups.py, topics.py, fetch.py and produce.py.

Each of these modules defines cases, sends them to a real Kafka and records its replies, with which tests/broker/recorded compares ours.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from struct import pack
from typing import Any, Generic, NamedTuple, TypeVar

from protocol.apis import APIS
from protocol.errors import EncodeError
from protocol.message import Part, field_names
from protocol.wire import uvarint_bytes
from tests.running import Client
from tests.support.headers import response_header_version

MANY = 10_000
LONGEST = 32_767
MARK = "<a text that is replaced>"
NOTHING, CLOSED = "no reply", "closed"
NO_ID = bytes(16)
UNKNOWN_ID = bytes(range(16))

# The path to a field: names, and positions in lists.
FieldPath = tuple[str | int, ...]
SubjectT = TypeVar("SubjectT")
Change = Callable[[Any, int], bytes]  # the request and a version -> the body, with the field changed


class ChangedRequest(NamedTuple, Generic[SubjectT]):
    """A case: a request to a group or topic, perhaps with one field changed."""

    name: str
    request: Callable[[SubjectT], Any]
    version: int
    change: Change | None = None

    def body(self, subject: SubjectT) -> bytes:
        request = self.request(subject)
        return bytes(request.encode(self.version)) if self.change is None else self.change(request, self.version)


def fields(part: Part, field_path: FieldPath = ()) -> Iterator[tuple[FieldPath, str]]:
    """Every field of a message and of the first element of each list in it, with the type of its value."""
    for name in field_names(type(part)):
        value = getattr(part, name)
        at = (*field_path, name)
        if isinstance(value, list):
            if not value:
                continue
            yield at, "list"
            if isinstance(value[0], Part):
                yield from fields(value[0], (*at, 0))
            else:
                yield (*at, 0), type(value[0]).__name__
        elif isinstance(value, Part):
            yield from fields(value, at)
        else:
            yield at, "str" if value is None else type(value).__name__


# Extreme values.


def changed(request: Any, field_path: FieldPath, value: Any) -> Any:
    request = copy.deepcopy(request)
    holder = request
    for part in field_path[:-1]:
        holder = holder[part] if isinstance(part, int) else getattr(holder, part)
    last = field_path[-1]
    if callable(value):
        value = value(holder[last] if isinstance(last, int) else getattr(holder, str(last)))
    if isinstance(last, int):
        holder[last] = value
    else:
        setattr(holder, last, value)
    return request


def to(field_path: FieldPath, value: Any) -> Change:
    return lambda request, version: bytes(changed(request, field_path, value).encode(version))


def to_bytes(field_path: FieldPath, data: Callable[[bytes], bytes | None], flexible: bool, width: int = 2) -> Change:
    """Change a text or bytes field to content that our encoder would refuse, in the encoded message. `width`: bytes of its length field."""

    def sized(data: bytes | None) -> bytes:
        if flexible:
            return uvarint_bytes(0 if data is None else len(data) + 1) + (data or b"")
        return pack(">h" if width == 2 else ">i", -1 if data is None else len(data)) + (data or b"")

    def change(request: Any, version: int) -> bytes:
        contents: list[bytes] = []

        def mark(value: Any) -> Any:
            contents.append(value if isinstance(value, bytes) else (value or "").encode())
            return MARK if width == 2 else MARK.encode()

        marked = bytes(changed(request, field_path, mark).encode(version))
        return marked.replace(sized(MARK.encode()), sized(data(contents[0])))

    return change


def no_list(field_path: FieldPath, flexible: bool) -> Change:
    """Null in place of the list. Its count is at the first byte in which the encodings of an empty list and of a list of one element differ."""

    def change(request: Any, version: int) -> bytes:
        none = bytes(changed(request, field_path, []).encode(version))
        single = bytes(changed(request, field_path, lambda items: items[:1]).encode(version))
        if none == single:
            return bytes(request.encode(version))
        at = next(at for at in range(len(single)) if at == len(none) or none[at] != single[at])
        return none[:at] + b"\0" + none[at + 1 :] if flexible else none[: at - 3] + b"\xff" * 4 + none[at + 1 :]

    return change


def texts(field_path: FieldPath, flexible: bool) -> dict[str, Change]:
    """Extreme texts. Most begin with the original text, so that a group name stays unique to its case."""
    offers = {
        "empty": to(field_path, ""),
        "null": to_bytes(field_path, lambda value: None, flexible),
        "of the greatest length": to(field_path, lambda value: (value or "").ljust(LONGEST, "l")),
        "of a great length in UTF-16": to(field_path, lambda value: (value or "") + "\N{SNOWMAN}" * ((LONGEST - len(value or "")) // 3)),
        "control characters": to(field_path, lambda value: (value or "") + "\0\n\x7f"),
        "white space": to(field_path, lambda value: (value or "") + " \t "),
        "not UTF-8": to_bytes(field_path, lambda value: value + b"\xff\xfet", flexible),
        "half a surrogate": to_bytes(field_path, lambda value: value + b"\xed\xa0\x80f", flexible),
    }
    if flexible:
        offers["too long"] = to_bytes(field_path, lambda value: value.ljust(LONGEST + 1, b"t"), True)
    return offers


def numbers(field_path: FieldPath, flexible: bool) -> dict[str, Change]:
    least, greatest = [(lambda request, version, sign=sign: widest(request, version, field_path, sign)) for sign in (-1, 1)]
    return {"0": to(field_path, 0), "-1": to(field_path, -1), "the least": least, "the greatest": greatest}


def widest(request: Any, version: int, field_path: FieldPath, sign: int) -> bytes:
    """The extreme value for as many bits as the field has."""
    for bits in (63, 31, 15):
        try:
            return bytes(changed(request, field_path, -(1 << bits) if sign < 0 else (1 << bits) - 1).encode(version))
        except EncodeError:
            pass
    return bytes(changed(request, field_path, -128 if sign < 0 else 127).encode(version))


def blobs(field_path: FieldPath, flexible: bool) -> dict[str, Change]:
    return {
        "empty": to(field_path, b""),
        "one byte": to(field_path, b"\0"),
        "40,000 bytes": to(field_path, bytes(40_000)),
        "two MiB": to(field_path, b"m" * (2 << 20)),
        "null": to_bytes(field_path, lambda value: None, flexible, 4),
    }


def booleans(field_path: FieldPath, flexible: bool) -> dict[str, Change]:
    return {"the other": to(field_path, lambda value: not value)}


def lists(field_path: FieldPath, flexible: bool) -> dict[str, Change]:
    return {
        "empty": to(field_path, []),
        "null": no_list(field_path, flexible),
        "twice the same": to(field_path, lambda items: items[:1] * 2),
        f"{MANY} alike": to(field_path, lambda items: items[:1] * MANY),
        f"{MANY} different": to(field_path, lambda items: [different(items[0], number) for number in range(MANY)]),
    }


def different(item: Any, number: int) -> Any:
    """The same item under another name: its first text, or a partition's index, is changed."""
    if isinstance(item, Part):
        item = copy.copy(item)
        names = field_names(type(item))
        texts = [name for name in names if isinstance(getattr(item, name), str)]
        name = names[0] if names[0].endswith("partition_index") or not texts else texts[0]
        if getattr(item, name) is None:
            name = "topic_id"
        setattr(item, name, different(getattr(item, name), number))
        return item
    if isinstance(item, bytes):
        return number.to_bytes(16, "big")
    if isinstance(item, list):
        return item
    return f"{item}-{number}" if isinstance(item, str) else number


def ids(field_path: FieldPath, flexible: bool) -> dict[str, Change]:
    return {"none": to(field_path, NO_ID), "unknown": to(field_path, UNKNOWN_ID), "the greatest": to(field_path, b"\xff" * 16)}


Changes = Callable[[FieldPath, bool], dict[str, Change]]
CHANGES: dict[str, Changes] = {"str": texts, "int": numbers, "bytes": ids, "bool": booleans, "list": lists}


class Extreme(NamedTuple):
    """A request with one field at an extreme."""

    name: str
    change: Change
    cheap: Change  # a small change of the same field, to find out cheaply whether this version has the field
    many: bool


def extremes(request: Any, title: str, version: int, changes_of: dict[str, Changes] = CHANGES) -> Iterator[Extreme]:
    """For every field of this request, each extreme value that changes the encoded bytes."""
    usual = request.encode(version)
    for field_path, kind in fields(request):
        changes = changes_of[kind](field_path, version >= request.FLEXIBLE_FROM)
        path_text = ".".join(str(part) for part in field_path if isinstance(part, str)) + "[0]" * isinstance(field_path[-1], int)
        for name, change in changes.items():
            many = name.startswith(str(MANY))
            cheap = changes["twice the same"] if many else change
            if cheap(request, version) != usual:
                yield Extreme(f"{title} v{version} {path_text}: {name}", change, cheap, many)


# Requests and recorded replies.


def framed(key: int, version: int, body: bytes, client_id: bytes | None = b"c") -> bytes:
    """A request with its length and header; `client_id` need not be valid for our encoder."""
    flexible = key in APIS and version >= APIS[key].flexible_from
    head = pack(">hhih", key, version, 7, -1 if client_id is None else len(client_id)) + (client_id or b"")
    return head + b"\0" * flexible + body


def answer_frame(client: Client, request: bytes) -> bytes | str:
    """The reply frame, or the reason why there is none."""
    try:
        client.send_frame(request)
        return client.frame()
    except OSError as error:
        return NOTHING if isinstance(error, TimeoutError) else CLOSED


def decoded(key: int, version: int, frame: bytes) -> Any:
    reply, end = APIS[key].response.decode(frame, 4 + response_header_version(key, version), version)
    assert end == len(frame)
    return reply


def readable(text: str) -> str:
    """Collapse runs of replacement characters: Java and Python write different numbers of them for undecodable bytes."""
    return re.sub("\ufffd+", "\ufffd", text)


def short_text(text: str) -> str:
    text = readable(text)
    return f"{text[:40]}... ({len(text)} characters)" if len(text) > 80 else text


def shortened(items: list[Any]) -> list[Any]:
    if len(items) <= 8:
        return items
    shapes = [re.sub(r"\d+", "#", json.dumps(item)) for item in items]
    return [f"{len(list(group))} times {text}" for text, group in groupby(shapes)]


def known_answers(file: Path) -> dict[str, Any]:
    """The replies recorded earlier; none, if all cases are sent again."""
    return {} if sys.argv[1:] == ["all"] else json.loads(file.read_text())


def write_answers(file: Path, answers: dict[str, Any]) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")

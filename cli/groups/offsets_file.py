"""Files of offsets: CSV as kafka-consumer-groups exports and imports it (`[group,]topic,partition,offset`), and JSON.

The first line of a CSV may be a header of these names. There are no comments.

In a JSON document every object with a topic, a partition and an offset counts, at any depth: so the output of `offsets show` and
`offsets reset` can be read, and a list written by hand. The offset is in the first of the fields OFFSET_NAMES that the object has. If it is
null, the object is skipped.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cli.client import TopicPartition
from cli.groups.offsets_plan import Committed

OFFSET_NAMES = ("to_offset", "committed_offset", "offset")
NUMBER_LIMIT = {"partition": 1 << 31, "offset": 1 << 63}


class Line(NamedTuple):
    group: str | None  # None: not in the file
    topic: str
    partition: int
    wanted: Committed


def read(text: str, group: str) -> dict[TopicPartition, Committed]:
    """The offsets of the group in the file. The text of a ValueError continues a line that begins with the file's name."""
    lines = from_json(text) if text.lstrip()[:1] in ("{", "[") else list(from_csv(text))
    lines_of_group = [line for line in lines if line.group in (None, group)]
    if not lines_of_group:
        other_groups = sorted({line.group for line in lines if line.group})
        raise ValueError(f"it has no offsets of group {group}, only of {', '.join(other_groups)}" if other_groups else "it has no offsets")
    offsets: dict[TopicPartition, Committed] = {}
    for line in lines_of_group:
        tp = (line.topic, line.partition)
        if offsets.setdefault(tp, line.wanted).offset != line.wanted.offset:
            raise ValueError(f"it has two offsets for {line.topic}:{line.partition}, {offsets[tp].offset} and {line.wanted.offset}")
    return offsets


def from_csv(text: str) -> Iterator[Line]:
    for number, row in numbered_rows(text):
        fields = [field.strip() for field in row]
        if not any(fields) or (number == 1 and is_header(fields)):
            continue
        if len(fields) not in (3, 4) or not all(fields) or is_comment(fields) or (number == 1 and not any(map(str.isdigit, fields[-2:]))):
            raise malformed_line(number, fields)
        topic, partition, offset = fields[-3:]
        values = parsed_number(partition, "partition", number), parsed_number(offset, "offset", number)
        yield Line(fields[0] if len(fields) == 4 else None, topic, values[0], Committed(values[1]))


def is_header(fields: list[str]) -> bool:
    return len(fields) in (3, 4) and [field.lower() for field in fields[-3:]] == ["topic", "partition", "offset"]


def is_comment(fields: list[str]) -> bool:
    """Whether the line looks like a comment (an error here), and not like the offset of a group whose name begins with #."""
    return fields[0].startswith("#") and not (len(fields) == 4 and fields[-2].isdigit())


def numbered_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(io.StringIO(text))
    for number in itertools.count(1):
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:  # a field longer than csv.field_size_limit()
            raise malformed_line(number, [""]) from None
        yield number, row


def malformed_line(number: int, fields: list[str]) -> ValueError:
    """kafka-consumer-groups accepts neither comments nor a header."""
    formats = "topic,partition,offset or group,topic,partition,offset"
    if is_comment(fields):
        return ValueError(f"line {number} is a comment, which the format does not have: each line is {formats}")
    more = "; these names are the only header that is accepted" if number == 1 else ""
    return ValueError(f"line {number} is not {formats}{more}")


def parsed_number(text: str, name: str, number: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < NUMBER_LIMIT[name]):
        raise ValueError(f"line {number}: {text!r} is not a number of {'a partition' if name == 'partition' else 'an offset'}")
    return int(text)


def from_json(text: str) -> list[Line]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    try:
        return list(lines_of(document, None))
    except RecursionError:
        raise ValueError("its JSON is nested too deep") from None


def lines_of(value: Any, group: str | None) -> Iterator[Line]:
    if isinstance(value, list):
        for item in value:
            yield from lines_of(item, group)
    elif isinstance(value, dict):
        group_name = value.get("group")
        group = group_name if isinstance(group_name, str) else group
        if "topic" in value and "partition" in value:
            yield from line_of(value, group)
            return
        for item in value.values():
            if isinstance(item, dict | list):
                yield from lines_of(item, group)


def line_of(value: dict[str, Any], group: str | None) -> Iterator[Line]:
    name = next((name for name in OFFSET_NAMES if name in value), None)
    if name is None or value[name] is None:
        return
    topic, partition, offset = value["topic"], value["partition"], value[name]
    valid = isinstance(topic, str) and topic and is_number(partition, "partition") and is_number(offset, "offset")
    if not valid:
        raise ValueError(f"it has an invalid partition or offset: {json.dumps(value)[:120]}")
    epoch, metadata = value.get("leader_epoch"), value.get("metadata")
    leader_epoch = epoch if is_number(epoch, "partition") and isinstance(epoch, int) else -1
    yield Line(group, topic, partition, Committed(offset, leader_epoch, metadata if isinstance(metadata, str) else ""))


def is_number(value: object, name: str) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NUMBER_LIMIT[name]


def to_csv(offsets: Iterable[tuple[str, int, int]]) -> str:
    """CSV as kafka-consumer-groups exports and imports it."""
    return "".join(f"{topic},{partition},{offset}\n" for topic, partition, offset in offsets)
